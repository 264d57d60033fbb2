"""Cases for the expected (golden) texts of requirements on I/O patterns.

The table is {requirement: {name of the case: measurement to judge}}.
"""

from __future__ import annotations

import dataclasses

from pytest_ckpt.facts.failure import Failure
from pytest_ckpt.facts.measurement import Patterns
from pytest_ckpt.sizing.limits import StatedLimits
from pytest_ckpt.sizing.many_names import NO_PATHS
from tests.support.golden_cases import ENDED, FLIPPED, LOAD, SAVE
from tests.support.synthetic_measurement import FULL, ByLimits, failed_in, measurement, on_busy_host, ref
from tests.support.synthetic_patterns import (
    CLONE_BUSY,
    CLONE_REMOVED,
    FAULT,
    FAULT_REPAIRED,
    NO_SPACE,
    NOT_LISTED,
    REFUSED,
    SATURATED,
    STILL_LISTED,
    UPGRADE_REFUSED,
    UPGRADE_RUNNING,
    WARM,
    WEIGHTS,
    attempt,
    consolidated,
    copies_read,
    endured,
    failed_over,
    filled,
    loaded,
    named,
    paced,
    pattern,
    resized,
    scaled,
    served,
    snapshot,
    snapshotted,
    trial,
    up_to,
    upgraded,
    with_neighbour,
    with_patterns,
    with_reads,
)

UNLINKED = Failure(
    kind="error", message="Input/output error", rank=3, host="n1", operation=ref("", 9, scenario="metadata"),
    phase="unlink", file="group-0000/directory-0000000/file-00000003", errno="EIO",
)  # fmt: skip


def pattern_cases(*names):
    """Return the cases of a requirement on loads in which ranks read other ranks' files.

    ``names`` are the I/O patterns of the requirement. In every case except ``met``, the first of these patterns fails
    or has no result.
    """
    name = names[0]
    return {
        "met": with_patterns(),
        "too slow": with_patterns(**{name: pattern(1.0, 3 * LOAD, 2.0)}),
        "wrong bytes": with_patterns(**{name: pattern(fault_count=2, faults=(FAULT,))}),
        "bytes are missing": with_patterns(**{name: pattern(bytes_checked=3 * FULL - 1)}),
        "cached": with_patterns(**{name: pattern(resident=0.5)}),
        "not seen to be cold": with_patterns(**{name: pattern(resident=None)}),
        "a call failed": with_patterns(**{name: None}, failure=failed_in(ref("load", 2, scenario=name))),
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
        "an error in it": measurement(failure=failed_in(ref("load", 2, scenario="serving"))),
        "the run ended before": measurement(failure=ENDED),
    },
    "SCALING": {
        "met": scaled(),
        "no more from 4 clients on": scaled(SATURATED),
        "no more from 4 clients on, on a busy host": on_busy_host(scaled(SATURATED), "scaling"),
        "met, at the ceiling that is stated": up_to(scaled(SATURATED), 3e9, 0.0),
        "below the ceiling that is stated": up_to(scaled(SATURATED, unit="hosts"), 4e9, 8e9),
        "cached": scaled(resident=10**9),
        "wrong bytes": scaled(faults=(FAULT,)),
        "bytes are missing": scaled(checked=1),
        "one client": scaled(patterns=Patterns(not_run={"scaling": "With one client no growth can be measured."})),
        "an error in it": measurement(failure=failed_in(ref("load", 2, scenario="scaling"))),
        "the run ended before": measurement(failure=ENDED),
    },
    "METADATA": {
        "met": named(),
        "met, with the numbers of NVIDIA's list": named(files=1_000_000, directories=500_000),
        "met, on one host": named(by_other_hosts=False, names_dropped=False),
        "met, seen late": named(late=3, names_dropped=None),
        "a name is not listed": named(faults=(NOT_LISTED,)),
        "removed names are listed": named(faults=(STILL_LISTED, NOT_LISTED)),
        "a call failed": named(("mkdir", "create"), removal_seconds=(), failure=UNLINKED),
        "wrong names, and then a call failed": named(
            ("mkdir", "create", "stat", "list"), removal_seconds=(), faults=(NOT_LISTED,), failure=UNLINKED),
        "the host has no descriptors": named((), removal_seconds=(), failure=dataclasses.replace(
            UNLINKED, phase="create", errno="EMFILE", message="Too many open files")),
        "a call hung": measurement(failure=failed_in(ref("", 5, scenario="metadata"), "hung")),
        "an object store": measurement(patterns=Patterns(not_run={"metadata": NO_PATHS})),
        "the run ended before": measurement(failure=ENDED),
    },
    "CONSOLIDATE": {
        "met": consolidated(),
        "too slow": consolidated(40.0),
        "wrong bytes": consolidated(fault_count=1, faults=(FAULT,)),
        "bytes are missing": consolidated(checked=1),
        "an error in it": measurement(failure=failed_in(ref("save", 1, scenario="consolidation"))),
        "the run ended before": measurement(failure=ENDED),
    },
    "STORM": pattern_cases("storm") | {
        "uneven": with_patterns(storm=pattern(3.0, ranks=[1.0, 1.0, 1.0, 3.0])),
        "uneven on a busy host": on_busy_host(
            with_patterns(storm=pattern(3.0, ranks=[1.0, 1.0, 1.0, 3.0])), "storm"),
        "met on a busy host": on_busy_host(with_patterns(storm=pattern()), "storm"),
    },
    "RESTART": {
        "met with all copies": with_patterns(storm=pattern(restart=copies_read(4))),
        "met, projected": with_patterns(storm=pattern(restart=copies_read(2))),
        "met, projected from parts of a copy": with_patterns(storm=pattern(restart=copies_read(0))),
        "too slow with all copies": with_patterns(storm=pattern(1.0, 2 * LOAD, 2.0, restart=copies_read(4))),
        "too slow, projected": with_patterns(storm=pattern(1.0, 2 * LOAD, 2.0, restart=copies_read(2))),
        "the cluster holds one copy": with_patterns(storm=pattern(restart=copies_read(2, needed=1))),
        "not recorded": with_patterns(),
        "cached": with_patterns(storm=pattern(resident=0.5, restart=copies_read(4))),
        "not possible": with_patterns(storm=None, not_run={"storm": "Two are needed."}),
    },
    "SHIFTED": pattern_cases("shifted"),
    "RESHAPED": pattern_cases("joined", "split") | {
        "by the library, met": resized(),
        "by the library, too slow": resized(doubled=pattern(1.0, 3 * LOAD, 2.0)),
        "by the library, wrong bytes": resized(doubled=pattern(fault_count=2, faults=(FAULT,))),
        "by the library, wrong bytes and an error after it": resized(
            halved=None, doubled=pattern(fault_count=2, faults=(FAULT,)),
            failure=failed_in(ref("load", 1, scenario="resized"))),
        "by the library, bytes are missing": resized(halved=pattern(bytes_checked=3 * FULL - 1)),
        "by the library, cached": resized(halved=pattern(resident=0.5)),
        "by the library, a call failed": resized(
            halved=None, failure=failed_in(ref("load", 2, scenario="resized"))),
        "by the library, the launcher failed": resized(
            halved=None, doubled=None, failure=Failure(kind="launch", message="the launcher ended with exit code 1")),
        "by the library, one rank": resized(halved=None, not_run={"halved": "One rank cannot be halved."}),
        "by the library, one rank, and too slow": resized(
            halved=None, doubled=pattern(1.0, 3 * LOAD, 2.0), not_run={"halved": "One rank cannot be halved."}),
        "by the library, no ranks": resized(
            halved=None, doubled=None, not_run={"doubled": "16 ranks need too much.", "halved": "4 ranks, too."}),
    },
    "NEIGHBOUR": {
        "met": with_neighbour(),
        "too slow": with_neighbour(neighbour_save_seconds=(1.0, 2 * SAVE, 1.0)),
        "one rank and one": with_neighbour(ranks=1, neighbour_ranks=1),
        "a tenth of the size": with_neighbour(pace=paced(0.1)),
        "the other job wrote nothing": with_neighbour(concurrent_bytes=0),
        "paced for fewer": with_neighbour(pace=paced(1, 2 * SAVE)),
        "without a pace": with_neighbour(pace=None),
        "not possible": measurement(patterns=Patterns(not_run={"neighbour": "Two are needed."})),
    },
    "MIXED": {
        "met": with_reads(),
        "an empty queue": with_reads(empty_queue_seconds=(0.0, 0.2, 0.0)),
        "a busy client": with_reads(empty_queue_seconds=(0.0, 0.2, 0.0), client_busy=0.9),
        "a save is too slow": with_reads(save_seconds=(2 * SAVE,)),
        "no read": with_reads(contended_reads=(0, 300, 300)),
        "paced for fewer": with_reads(pace=paced(1, 2 * SAVE)),
        "without a pace": with_reads(pace=None),
        "not measured": measurement(),
    },
    "ENDURE": {
        "met": endured([1.0] * 40),
        "too slow": endured([1.0] * 30 + [2.0] * 10),
        "too slow on a busy host": on_busy_host(endured([1.0] * 30 + [2.0] * 10), "endurance"),
        "no duration": endured([1.0] * 40, asked=0.0),
        "too few saves": endured([1.0] * 4),
        "one save": endured([1.0]),
        "a call failed": measurement(failure=failed_in(ref("save", 700, scenario="endurance"))),
    },
    "STEADY": {
        "met": endured([3.0, 2.0, 1.5, 1.0, 1.0, 1.0, 1.0, 1.0]),
        "not steady": endured([1.0, 2.0] * 13),
        "not steady on a busy host": on_busy_host(endured([1.0, 2.0] * 13), "endurance"),
        "met on a busy host": on_busy_host(endured([3.0, 2.0, 1.5, 1.0, 1.0, 1.0, 1.0, 1.0]), "endurance"),
        "not steady yet": endured([1.0, 2.0] * 3),
        "too few saves": endured([1.0] * 4),
        "one save": endured([1.0]),
    },
    "NEARFULL": {
        "met": filled(),
        "too slow": filled(at_90=2.0),
        "too slow on a busy host": on_busy_host(filled(at_90=2.0), "near_full"),
        "the ballast was too small": filled(used=(0.0, 0.5, 0.9)),
        "not possible": measurement(patterns=Patterns(not_run={"near_full": "It was not filled: others use it."})),
        "a call failed": measurement(failure=failed_in(ref("save", 3, scenario="near_full", level=0.8))),
    },
    "FAILOVER": {
        "met": failed_over(),
        "met with an error": failed_over(
            trial(operations=(attempt("save", error="rank 1 on n1: write of a.pt: EIO"),))),
        "too long a stall": failed_over(trial(operations=(attempt("save", seconds=80.0, quiet=70.25),))),
        "the next save is late": failed_over(trial(after=attempt("save", seconds=2 * SAVE))),
        "the next save failed": failed_over(trial(after=attempt("save", error="rank 1 on n1: EIO"))),
        "wrong bytes": failed_over(fault_count=2, faults=(FAULT,)),
        "one wrong byte": failed_over(fault_count=1, faults=(FLIPPED,)),
        "bytes are missing": failed_over(bytes_checked=1),
        "committed in error": failed_over(trial(operations=(attempt("save", error="EIO"),), committed_in_error=True)),
        "the answer of a commit was lost": failed_over(
            trial(operations=(attempt("save", error="rank 0 on n1: commit of checkpoint-0002: EIO"),),
                  commit_answer_lost=True)),
        "lost": failed_over(trial(lost="rank 1 on n1: ENOENT")),
        "hung": failed_over(
            trials=(), failure=failed_in(ref("save", 2, scenario="failover"), "hung"), repaired_after=FAULT_REPAIRED),
        "the command failed": failed_over(trials=(trial(fault=REFUSED),), not_run=REFUSED.sentence),
        "cached": failed_over(resident_fraction=0.5),
        "not seen to be cold": failed_over(resident_fraction=None),
        "the run ended before": measurement(failure=ENDED),
    },
    "UPGRADE": {
        "met": upgraded(),
        "a save is late": upgraded(operations=(attempt("save", seconds=2 * SAVE), attempt("load"))),
        "a load failed": upgraded(
            operations=(attempt("save"), attempt("load", error="rank 1 on n1: read of a.pt: EIO"))),
        "wrong bytes": upgraded(fault_count=2, faults=(FAULT,)),
        "bytes are missing": upgraded(bytes_checked=1),
        "lost": upgraded(operations=(attempt("save", error="EIO"),), lost="rank 1 on n1: ENOENT"),
        "hung": upgraded(
            operations=(), run=None, failure=failed_in(ref("save", 2, scenario="upgrade"), "hung"),
            ran_after=UPGRADE_RUNNING),
        "the command failed": upgraded(run=UPGRADE_REFUSED),
        "cached": upgraded(resident_fraction=0.5),
        "not seen to be cold": upgraded(resident_fraction=None),
        "the run ended before": measurement(failure=ENDED),
    },
    "SNAPSHOT": {
        "met": snapshotted(),
        "met with a commit": snapshotted(snapshot(is_committed=True)),
        "too dear": snapshotted(trials=[snapshot(snapshotted=attempt("save", seconds=12.0))] * 6),
        "scatters": snapshotted(
            trials=[snapshot(snapshotted=attempt("save", seconds=s)) for s in (9.0, 12.0, 12.0, 12.0, 12.0, 12.0)]),
        "wrong bytes": snapshotted(fault_count=2, faults=(FAULT,)),
        "bytes are missing": snapshotted(bytes_checked=1),
        "the save failed": snapshotted(snapshot(snapshotted=attempt("save", error="rank 1 on n1: EIO"))),
        "lost": snapshotted(snapshot(lost="the checkpoint from before the snapshot, from its clone: ENOENT")),
        "no snapshot": snapshotted(snapshot(is_committed=True, is_before_commit=True)),
        "not seen": snapshotted(snapshot(not_judged="The output of the snapshot command, 'x', is no absolute path.")),
        "the command failed": snapshotted(trials=[snapshot(taken=NO_SPACE, removed=None)], not_run=NO_SPACE.sentence),
        "the snapshot stays": snapshotted(trials=[snapshot(removed=CLONE_BUSY)], not_run=CLONE_BUSY.sentence),
        "hung": snapshotted(
            trials=(), failure=failed_in(ref("save", 2, scenario="snapshots"), "hung"), ran_after=CLONE_REMOVED),
        "the run ended before": measurement(failure=ENDED),
    },
}  # fmt: skip
