"""Cases of the judges of saves and loads that are not alone: what is judged, by the case's name."""

from __future__ import annotations

from pytest_ckpt.facts.measurement import Patterns
from pytest_ckpt.sizing.limits import StatedLimits
from tests.support.golden_cases import ENDED, FLIPPED, LOAD, SAVE
from tests.support.made_failover import MENDED, REFUSED, done, failed_over, trial
from tests.support.made_maintenance import (
    GOES_ON,
    NO_SPACE,
    REMOVED,
    STAYS,
    UPGRADE_REFUSED,
    snapshot,
    snapshotted,
    upgraded,
)
from tests.support.made_measurement import FULL, ByLimits, at, failed_in, measurement
from tests.support.made_patterns import (
    FAULT,
    endured,
    filled,
    pattern,
    with_neighbour,
    with_patterns,
    with_reads,
)
from tests.support.made_scaling import SATURATED, scaled, up_to
from tests.support.made_serving import WARM, WEIGHTS, consolidated, loaded, served


def of_pattern(*names):
    """Cases of the judges of loads by other ranks; the first pattern of a requirement goes wrong."""
    name = names[0]
    return {
        "met": with_patterns(),
        "too slow": with_patterns(**{name: pattern(1.0, 3 * LOAD, 2.0)}),
        "wrong bytes": with_patterns(**{name: pattern(fault_count=2, faults=(FAULT,))}),
        "bytes are missing": with_patterns(**{name: pattern(bytes_checked=3 * FULL - 1)}),
        "cached": with_patterns(**{name: pattern(resident=0.5)}),
        "not seen to be cold": with_patterns(**{name: pattern(resident=None)}),
        "a call failed": with_patterns(**{name: None}, failure=failed_in(at("load", 2, scenario=name))),
        "the run ended before": with_patterns(**{name: None}, failure=ENDED),
        "not possible": with_patterns(**{name: None}, not_run={name: "Two are needed."}),
        "not measured": with_patterns(**{name: None}),
    }


CASES_OF_PATTERNS = {
    "MODEL-LOAD": {
        "met": served(),
        "met, within the load limit": ByLimits(served(), StatedLimits()),
        "too slow": served(loaded("reads", 0.4), WARM, loaded("mmap", 0.7)),
        "the client compared too slowly": served(loaded("reads", 0.7, stalled=0.3), WARM, loaded("mmap", 0.4)),
        "cached": served(loaded("reads", 0.4, resident=WEIGHTS)),
        "nothing shows what is cached": served(loaded("reads", 0.4, resident=None)),
        "wrong bytes": served(loaded("reads", 0.4, fault_count=1, faults=(FAULT,))),
        "bytes are missing": served(loaded("reads", 0.4, checked=1)),
        "an error in it": measurement(failure=failed_in(at("load", 2, scenario="serving"))),
        "the run ended before": measurement(failure=ENDED),
    },
    "SCALING": {
        "met": scaled(),
        "no more from 4 clients on": scaled(SATURATED),
        "met, at the ceiling that is stated": up_to(scaled(SATURATED), 3e9, 0.0),
        "below the ceiling that is stated": up_to(scaled(SATURATED, unit="hosts"), 4e9, 8e9),
        "cached": scaled(resident=10**9),
        "wrong bytes": scaled(faults=(FAULT,)),
        "bytes are missing": scaled(checked=1),
        "one client": scaled(patterns=Patterns(not_run={"scaling": "One client has nothing to grow from."})),
        "an error in it": measurement(failure=failed_in(at("load", 2, scenario="scaling"))),
        "the run ended before": measurement(failure=ENDED),
    },
    "CONSOLIDATE": {
        "met": consolidated(),
        "too slow": consolidated(40.0),
        "wrong bytes": consolidated(fault_count=1, faults=(FAULT,)),
        "bytes are missing": consolidated(checked=1),
        "an error in it": measurement(failure=failed_in(at("save", 1, scenario="consolidation"))),
        "the run ended before": measurement(failure=ENDED),
    },
    "STORM": of_pattern("storm") | {"uneven": with_patterns(storm=pattern(3.0, ranks=[1.0, 1.0, 1.0, 3.0]))},
    "SHIFTED": of_pattern("shifted"),
    "RESHAPED": of_pattern("joined", "split"),
    "NEIGHBOUR": {
        "met": with_neighbour(),
        "too slow": with_neighbour(contended_seconds=(2.0,) * 3),
        "one rank beside one": with_neighbour(ranks=1, neighbour_ranks=1, bursts=1),
        "nothing was beside it": with_neighbour(bursts=0, neighbour_bytes=0),
        "not possible": measurement(patterns=Patterns(not_run={"neighbour": "Two are needed."})),
    },
    "MIXED": {
        "met": with_reads(),
        "reads are too slow": with_reads(contended_p99_seconds=(0.1,) * 3),
        "a save is too slow": with_reads(save_seconds=(2 * SAVE,)),
        "too few reads": with_reads(undisturbed_reads=(99, 300, 300)),
        "one read": with_reads(undisturbed_reads=(1, 300, 300)),
        "not measured": measurement(),
    },
    "ENDURE": {
        "met": endured([1.0] * 40),
        "too slow": endured([1.0] * 30 + [2.0] * 10),
        "no duration": endured([1.0] * 40, asked=0.0),
        "too few saves": endured([1.0] * 4),
        "one save": endured([1.0]),
        "a call failed": measurement(failure=failed_in(at("save", 700, scenario="endurance"))),
    },
    "STEADY": {
        "met": endured([3.0, 2.0, 1.5, 1.0, 1.0, 1.0, 1.0, 1.0]),
        "not steady": endured([1.0, 2.0] * 13),
        "not steady yet": endured([1.0, 2.0] * 3),
        "too few saves": endured([1.0] * 4),
        "one save": endured([1.0]),
    },
    "NEARFULL": {
        "met": filled(),
        "too slow": filled(at_90=2.0),
        "the ballast was too small": filled(used=(0.0, 0.5, 0.9)),
        "not possible": measurement(patterns=Patterns(not_run={"near_full": "It was not filled: others use it."})),
        "a call failed": measurement(failure=failed_in(at("save", 3, scenario="near_full", level=0.8))),
    },
    "FAILOVER": {
        "met": failed_over(),
        "met with an error": failed_over(trial(operations=(done("save", error="rank 1 on n1: write of a.pt: EIO"),))),
        "too long a stall": failed_over(trial(operations=(done("save", seconds=80.0, quiet=70.25),))),
        "the next save is late": failed_over(trial(after=done("save", seconds=2 * SAVE))),
        "the next save failed": failed_over(trial(after=done("save", error="rank 1 on n1: EIO"))),
        "wrong bytes": failed_over(fault_count=2, faults=(FAULT,)),
        "one wrong byte": failed_over(fault_count=1, faults=(FLIPPED,)),
        "bytes are missing": failed_over(bytes_checked=1),
        "committed in error": failed_over(trial(operations=(done("save", error="EIO"),), committed_in_error=True)),
        "the answer of a commit was lost": failed_over(
            trial(operations=(done("save", error="rank 0 on n1: commit of checkpoint-0002: EIO"),),
                  commit_answer_lost=True)),
        "lost": failed_over(trial(lost="rank 1 on n1: ENOENT")),
        "hung": failed_over(
            trials=(), failure=failed_in(at("save", 2, scenario="failover"), "hung"), repaired_after=MENDED),
        "the command failed": failed_over(trials=(trial(fault=REFUSED),), not_run=REFUSED.sentence),
        "cached": failed_over(resident_fraction=0.5),
        "not seen to be cold": failed_over(resident_fraction=None),
        "the run ended before": measurement(failure=ENDED),
    },
    "UPGRADE": {
        "met": upgraded(),
        "a save is late": upgraded(operations=(done("save", seconds=2 * SAVE), done("load"))),
        "a load failed": upgraded(operations=(done("save"), done("load", error="rank 1 on n1: read of a.pt: EIO"))),
        "wrong bytes": upgraded(fault_count=2, faults=(FAULT,)),
        "bytes are missing": upgraded(bytes_checked=1),
        "lost": upgraded(operations=(done("save", error="EIO"),), lost="rank 1 on n1: ENOENT"),
        "hung": upgraded(
            operations=(), run=None, failure=failed_in(at("save", 2, scenario="upgrade"), "hung"), ran_after=GOES_ON),
        "the command failed": upgraded(run=UPGRADE_REFUSED),
        "cached": upgraded(resident_fraction=0.5),
        "not seen to be cold": upgraded(resident_fraction=None),
        "the run ended before": measurement(failure=ENDED),
    },
    "SNAPSHOT": {
        "met": snapshotted(),
        "met with a commit": snapshotted(snapshot(is_committed=True)),
        "too dear": snapshotted(trials=[snapshot(beside=done("save", seconds=12.0))] * 6),
        "scatters": snapshotted(
            trials=[snapshot(beside=done("save", seconds=s)) for s in (9.0, 12.0, 12.0, 12.0, 12.0, 12.0)]),
        "wrong bytes": snapshotted(fault_count=2, faults=(FAULT,)),
        "bytes are missing": snapshotted(bytes_checked=1),
        "the save failed": snapshotted(snapshot(beside=done("save", error="rank 1 on n1: EIO"))),
        "lost": snapshotted(snapshot(lost="the checkpoint from before the snapshot, from its clone: ENOENT")),
        "no snapshot": snapshotted(snapshot(is_committed=True, is_before_commit=True)),
        "not seen": snapshotted(snapshot(not_judged="What it printed, 'x', is no absolute path.")),
        "the command failed": snapshotted(trials=[snapshot(taken=NO_SPACE, removed=None)], not_run=NO_SPACE.sentence),
        "the snapshot stays": snapshotted(trials=[snapshot(removed=STAYS)], not_run=STAYS.sentence),
        "hung": snapshotted(
            trials=(), failure=failed_in(at("save", 2, scenario="snapshots"), "hung"), ran_after=REMOVED),
        "the run ended before": measurement(failure=ENDED),
    },
}  # fmt: skip
