"""The sentences of every judge, one golden text each; other tests assert outcome, figures and reason codes.

``CKPT_UPDATE_GOLDEN=1 pytest tests/judging/test_golden_texts.py`` writes them anew, to be read in the diff.
"""

from __future__ import annotations

import dataclasses
import os
import re
import textwrap
from pathlib import Path

import pytest

from pytest_ckpt.facts.failure import BlockedCall
from pytest_ckpt.facts.measurement import Patterns
from pytest_ckpt.facts.observation import Anomaly, Observation
from pytest_ckpt.facts.proofs import CacheFacts, CacheReading, Durability, Fault, Integrity
from pytest_ckpt.facts.training import BACKGROUND, LOCAL_TIER
from pytest_ckpt.facts.verdict import REASONS
from pytest_ckpt.judging.behaviour import judge_observation
from pytest_ckpt.judging.catalogue import REQUIREMENTS
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
from tests.support.made_measurement import FULL, LIMITS, SUBJECT, at, failed_in, judged, measurement, operation
from tests.support.made_patterns import (
    FAULT,
    endured,
    filled,
    pattern,
    with_data,
    with_neighbour,
    with_patterns,
    with_reads,
    with_retention,
)
from tests.support.made_scaling import SATURATED, scaled
from tests.support.made_serving import WARM, WEIGHTS, consolidated, loaded, served
from tests.support.made_training import (
    ASYNC,
    EARLY,
    EVERY_TENTH,
    INCREMENTAL,
    LATE,
    STEP,
    TIERED,
    at_notice,
    compressed,
    crashed,
    host_lost,
    in_background,
    of_chains,
    outlived,
    restored,
    tiered,
    two_tiers,
)

GOLDEN = Path(__file__).parent / "golden"
SAVE, LOAD = LIMITS.save_limit_seconds, LIMITS.load_limit_seconds
FLIPPED = Fault(kind="flipped", rank=1, host="n1", checkpoint=2, file="a.pt", tensor="t", offset=4096, bytes=1,
                detail="1 bit differs in 1 byte")  # fmt: skip
CACHE = CacheFacts(
    required=True, policy="auto", method="drop_caches", gauge="cachestat", resident_fraction=0.0,
    readings=(
        CacheReading(rule="rule 1", host="n1", memory_bytes=1 << 34, bytes_compared=1 << 33, requires_drop=True),
        CacheReading(rule="rule 2", host="n1", memory_bytes=1 << 34, bytes_compared=1 << 33, requires_drop=False),
    ),
)  # fmt: skip
ENDED = failed_in(at("save", 2))


def timed(kind, limit):
    """Cases of SAVE and LOAD, which have the same judge."""
    done = {"saves": (1.0,) * 3, "loads": (1.0,) * 3}
    return {
        "met": measurement(),
        "too slow at a thousandth of the size": measurement(size=FULL // 1000),
        "one is too slow": measurement(**done | {f"{kind}s": (1.0, 2.0, 1.5 * limit)}),
        "one moved fewer bytes": measurement(
            operations=[operation("save", n, 1.0, size=FULL - (n == 2 and kind == "save")) for n in (1, 2, 3)]
            + [operation("load", n, 1.0, size=FULL - (n == 2 and kind == "load")) for n in (1, 2, 3)]
        ),
        "the only one is too slow": measurement(
            operations=[operation("save", 1, 1.5 * limit), operation("load", 1, 1.5 * limit)], operations_planned=1
        ),
        "the only one is missing": measurement(saves=(), loads=(), operations_planned=1),
        "one is missing": measurement(**done | {f"{kind}s": (1.0, 1.0)}),
        **{
            f"a rank ended: {how}": measurement(
                **done | {f"{kind}s": (1.0,)}, failure=failed_in(at(kind, 2), how, stack="state D\nin nfs_wait")
            )
            for how in ("error", "killed", "hung", "too slow")
        },
        "the run ended elsewhere": measurement(saves=(), loads=(), failure=failed_in(at(kind, 1, "content"), "killed")),
        "the launch failed": measurement(saves=(), loads=(), failure=failed_in(kind="launch")),
        "a hook failed": measurement(failure=failed_in(kind="hook")),
    }


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


def loads_of(*seconds):
    done = [operation("save", n, 1.0) for n in range(1, len(seconds) + 1)]
    done += [operation("load", n, s) for n, s in enumerate(seconds, 1)]
    return measurement(operations=done, operations_planned=len(seconds))


CASES = {
    "SAVE": timed("save", SAVE),
    "LOAD": timed("load", LOAD),
    "INTEGRITY": {
        "met": measurement(),
        "wrong bytes": measurement(integrity=Integrity(
            bytes_expected=3 * FULL, bytes_checked=3 * FULL, fault_count=2, faults=(FLIPPED, FAULT))),
        "one wrong byte": measurement(integrity=Integrity(
            bytes_expected=3 * FULL, bytes_checked=3 * FULL, fault_count=1, faults=(FLIPPED,))),
        "bytes are missing": measurement(integrity=Integrity(
            bytes_expected=3 * FULL, bytes_checked=3 * FULL - 1, fault_count=0, faults=())),
        "the run ended before": measurement(loads=(), integrity=None, failure=ENDED),
    },
    "COLD": {
        "met": measurement(cache=CACHE),
        "cached": measurement(resident=0.5, cache=CACHE),
        "one was not counted": measurement(operations=[
            *(operation("save", n, 1.0) for n in (1, 2, 3)),
            *(operation("load", n, 1.0, resident=None if n == 3 else 0.0) for n in (1, 2, 3)),
        ]),
        "no gauge": measurement(cache=dataclasses.replace(CACHE, gauge="", detail="neither call saw the file")),
        "a load is missing": measurement(loads=(1.0,)),
    },
    "DURABLE-CALLS": {
        "met": measurement(),
        "a file was not synced": measurement(durability=Durability(
            files=24, files_synced=23, directories=15, directories_synced=15, saves=3, commits=3)),
        "one of each": measurement(durability=Durability(
            files=1, files_synced=1, directories=1, directories_synced=1, saves=1, commits=1)),
        "the only file was not synced": measurement(durability=Durability(
            files=1, files_synced=0, directories=1, directories_synced=1, saves=1, commits=1)),
        "not counted": measurement(durability=None),
    },
    "STRAGGLER": {
        "met": measurement(),
        "one rank is slow": measurement(operations=[operation("save", 1, 4.0, ranks=[1.0, 1.0, 4.0, 1.0])]),
        "two ranks": measurement(processes=2),
        "ranks wait for each other": measurement(engine="dcp"),
        "nothing was measured": measurement(operations=()),
    },
    "REPEAT": {
        "met": measurement(),
        "it varies": measurement(saves=(1.0, 2.0, 1.0)),
        "later loads were cached": loads_of(3.0, 3.0, 3.0, 1.0, 0.9),
        "one load was cached": loads_of(3.0, 1.0, 3.0),
        "one of each": loads_of(1.0),
        "the run ended before": measurement(saves=(1.0,), loads=(), failure=ENDED),
    },
    "BLOCKING": {
        "met": in_background(),
        "met in part": in_background(size=FULL // 10),
        "steps are slow": in_background(beside=1.0),
        "the copy is slow": in_background(60.0, 60.0, 60.0, blocked=1.1 * SAVE),
        "the local tier is slow": tiered(60.0, 60.0, 60.0, blocked=1.1 * SAVE),
        "one save": in_background(20.0, operations_planned=1),
        "failed in the copy": in_background(20.0, patterns=None, failure=failed_in(at("save", 2))),
        "failed in the background": in_background(
            20.0, patterns=None, failure=failed_in(at("save", 2), lane=BACKGROUND)),
        "the run ended before": measurement(failure=ENDED, saves=(), subject=ASYNC),
        "steps were not measured": in_background(patterns=None),
    },
    "BACKGROUND": {
        "met": in_background(),
        "too slow": in_background(20.0, 2 * LIMITS.interval_seconds, 20.0),
        "failed": in_background(20.0, patterns=None, failure=failed_in(at("save", 2), lane=BACKGROUND)),
        "hung": in_background(20.0, patterns=None, failure=failed_in(at("save", 2), "hung", lane=BACKGROUND)),
    },
    "LOST-WORK": {
        "met": in_background(),
        "too much at risk": in_background(*[540.0] * 3, blocked=5.0),
        "the run ended before": measurement(failure=ENDED, saves=(), subject=ASYNC),
    },
    "CRASH-ASYNC": {
        "met": crashed(),
        "did not load whole": crashed(EARLY, dataclasses.replace(EARLY, lost="12 of 16 bytes came back")),
        "a commit is gone": crashed(EARLY, dataclasses.replace(LATE, is_committed=False)),
        "wrong bytes": crashed(fault_count=2, faults=(FLIPPED, FAULT)),
        "bytes are missing": crashed(bytes_checked=1),
        "too few": crashed(EARLY, *[LATE] * 10),
        "one kill": crashed(EARLY, planned=1),
        "an error in it": in_background(patterns=None, failure=failed_in(at("load", 2, scenario="crashes"))),
        "the run ended before": measurement(failure=ENDED, saves=(), subject=ASYNC),
    },
    "RETAIN-COMMITTED": {
        "met": crashed(),
        "did not load whole": crashed(EARLY, dataclasses.replace(EARLY, lost="12 of 16 bytes came back")),
        "nothing was deleted": crashed(dataclasses.replace(EARLY, deletes_older=False)),
        "all were committed": crashed(*[LATE] * 6),
        "the run ended before": measurement(failure=ENDED, saves=(), subject=ASYNC),
    },
    "CHAIN": {
        "met": of_chains(),
        "too slow": of_chains(10.0, 11.0, 2 * LIMITS.load_limit_seconds),
        "a deleted delta is served": of_chains(patterns=Patterns(chains=outlived(misses=False))),
        "failed": of_chains(10.0, patterns=None, failure=failed_in(at("load", 2))),
        "not looked for": of_chains(patterns=None),
        "the run ended before": measurement(failure=ENDED, loads=(), subject=INCREMENTAL),
    },
    "RETAIN-CHAIN": {
        "met": of_chains(),
        "little was deleted": of_chains(patterns=Patterns(chains=outlived(deleted_bytes=1000))),
        "the target does not tell": of_chains(patterns=Patterns(chains=outlived(freed=None))),
        "space is gone": of_chains(patterns=Patterns(chains=outlived(freed=0.1))),
        "wrong bytes": of_chains(patterns=Patterns(chains=outlived(fault_count=1, faults=(FAULT,)))),
        "bytes are missing": of_chains(patterns=Patterns(chains=outlived(checked=1))),
        "an error in it": of_chains(patterns=None, failure=failed_in(at("load", 131, scenario="chains"))),
        "kept": of_chains(patterns=Patterns(not_run={"chains": "Checkpoints were to be kept (--ckpt-keep)."})),
        "the run ended before": of_chains(patterns=None, failure=ENDED),
    },
    "DRAIN": {
        "met": tiered(),
        "too slow": tiered(20.0, 6 * LIMITS.interval_seconds, 20.0),
        "no time is left": tiered(blocked=0.6 * SAVE),
        "saves beside it are slow": tiered(found=two_tiers(alone=(25.0, 25.5, 25.0), beside=(29.0, 30.0, 29.0))),
        "saves beside it are slow, and within the limit": tiered(found=two_tiers(beside=(1.3, 1.4, 1.3))),
        "one of them is slow": tiered(found=two_tiers(beside=(1.0, 1.4, 1.3))),
        "failed": tiered(operations=(), patterns=None, failure=failed_in(at("save", 2), lane=BACKGROUND)),
        "failed in the local tier": tiered(
            operations=(), patterns=None, failure=failed_in(at("save", 2), lane=LOCAL_TIER)),
        "failed in the turns": tiered(
            patterns=Patterns(training=tiered().patterns.training), failure=failed_in(at("save", 2, scenario="tiers"))),
        "the run ended before": measurement(failure=ENDED, saves=(), subject=TIERED, drains=EVERY_TENTH),
    },
    "COMPRESSION": {
        "met": compressed(),
        "the processor is the limit": compressed(20.0, 21.0, 20.0, codec=(18.0, 19.0, 18.0)),
        "something else is": compressed(20.0, 21.0, 20.0),
        "wrong bytes": compressed(fault_count=2),
        "an error in it": compressed(patterns=None, failure=failed_in(at("save", 2))),
        "the run ended before": compressed(patterns=None, failure=ENDED),
    },
    "PREEMPT": {
        "met": at_notice(),
        "met in part": at_notice(size=FULL // 10, notice=600.0),
        "too slow": at_notice(119.0, 121.0, 100.0),
        "one save, by sync": at_notice(30.0, subject=SUBJECT),
        "an error in it": in_background(patterns=None, failure=failed_in(at("save", 2, scenario="preempt"))),
        "the run ended before": measurement(failure=ENDED, saves=(), subject=ASYNC),
    },
    "MODEL-LOAD": {
        "met": served(),
        "met, within the load limit": served(limit=0.0),
        "too slow": served(loaded("reads", 0.4), WARM, loaded("mmap", 0.7)),
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
        "met, at the ceiling that is stated": scaled(SATURATED, ceilings=(3e9, 0.0)),
        "below the ceiling that is stated": scaled(SATURATED, ceilings=(4e9, 8e9), unit="hosts"),
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
    "NODE-LOSS": {
        "met": tiered(found=two_tiers(node_loss=host_lost())),
        "too slow": tiered(found=two_tiers(node_loss=host_lost(seconds=10_000.0))),
        "a copy is gone": tiered(found=two_tiers(node_loss=host_lost(missing=1))),
        "wrong bytes": tiered(found=two_tiers(node_loss=host_lost(fault_count=1, faults=(FAULT,)))),
        "bytes are missing": tiered(found=two_tiers(node_loss=host_lost(checked=1))),
        "one host": tiered(),
        "the run ended before": tiered(patterns=None, failure=ENDED),
    },
    "TIER-ORDER": {
        "met": tiered(),
        "an older one was taken": tiered(found=two_tiers(whole=restored("local", 169, tier="target", number=168))),
        "none was found": tiered(found=two_tiers(torn=restored("target", 168, tier="", number=0))),
        "the torn one was taken": tiered(found=two_tiers(torn=restored("target", 168, tier="local", number=169))),
        "wrong bytes": tiered(found=two_tiers(torn=restored("target", 168, fault_count=1, faults=(FAULT,)))),
        "bytes are missing": tiered(found=two_tiers(whole=restored("local", 169, checked=1))),
        "an error in it": tiered(patterns=None, failure=failed_in(at("load", 2, scenario="tiers"))),
        "the run ended before": tiered(patterns=None, failure=ENDED),
    },
    "SLOWDOWN": {
        "met": in_background(),
        "over": in_background(beside=0.07),
        "scatters": in_background(beside=1.05 * STEP, scatter=0.2 * STEP),
        "too few": in_background(batches=1),
        "none": in_background(batches=0),
    },
    "RETENTION": {
        "met": with_retention(),
        "no deletion between saves": with_retention(delete_seconds=()),
        "one is kept": with_retention(kept=1),
        "too slow": with_retention(save_while_deleting_seconds=12.0),
        "the run ended before": measurement(failure=ENDED),
    },
    "DATA": {
        "met": with_data(),
        "too slow": with_data(unique_save_seconds=(30.0, 30.0, 30.0)),
        "wrong bytes": with_data(fault_count=3),
        "one fault": with_data(fault_count=1),
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
        "too few reads": with_reads(alone_reads=(99, 300, 300)),
        "one read": with_reads(alone_reads=(1, 300, 300)),
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
        "lost": failed_over(trial(lost="rank 1 on n1: ENOENT")),
        "hung": failed_over(
            trials=(), failure=failed_in(at("save", 2, scenario="failover"), "hung"), mended_after=MENDED),
        "the command failed": failed_over(trials=(trial(broke=REFUSED),), not_run=REFUSED.sentence),
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

SEEN = Observation(requirement="STALE", subject="attributes", trials=1200, seconds=1.0, reproduce="python -m check")
ANOMALY = Anomaly(kind="old size", where="a, trial 3", seen="4,096", expected="8,192")
OBSERVATIONS = {
    "met without a figure": (SEEN, None),
    "met without a limit": (dataclasses.replace(SEEN, measured=0.5, unit="s"), None),
    "met": (dataclasses.replace(SEEN, measured=0.5, unit="s", facts={"clients": "2"}), 1.0),
    "too slow": (dataclasses.replace(SEEN, measured=1.5, unit="s"), 1.0),
    "one anomaly": (dataclasses.replace(SEEN, anomaly_count=1, anomalies=(ANOMALY,)), 1.0),
    "many anomalies": (dataclasses.replace(SEEN, anomaly_count=1200, anomalies=(ANOMALY,) * 2), 1.0),
    "not run": (dataclasses.replace(SEEN, not_run="the check itself broke: exit code 1\nTraceback"), 1.0),
    "one trial": (dataclasses.replace(SEEN, trials=1), None),
    "no trial": (dataclasses.replace(SEEN, trials=0), None),
    "blocked": (dataclasses.replace(SEEN, blocked=BlockedCall(
        call="mkdir", path="/mnt/a/b", host="n1", message="no progress for 300 s", stack="state D\nin nfs_wait")), 1.0),
}  # fmt: skip


def text_of(name, decided):
    """Return everything that was decided in a case, as lines."""
    detail = decided.detail.splitlines() if isinstance(decided.detail, str) else decided.detail
    figures = f"measured {decided.measured!r:.12} limit {decided.limit!r:.12} {decided.unit}".rstrip()
    lines = [f"== {name}: {decided.outcome}, {decided.reason}", figures, *textwrap.wrap(decided.because, 116)]
    return "\n".join([*lines, *(f"  {line}" for line in detail)]) + "\n"


def hold(name, text):
    """Hold a text against its golden one, or write that anew."""
    file = GOLDEN / f"{name.lower()}.txt"
    if os.environ.get("CKPT_UPDATE_GOLDEN"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    assert text == file.read_text(), f"{file}: see the first lines of this test"


# One of what comes in numbers.
OF_ONE = re.compile(
    r"(?<![\d.,])1 (other |more |faulty |loaded )?(accelerators|bits|bursts|bytes|checkpoints|checks|commits|faults"
    r"|files|folders|loads|operations|places|processes|ranks|reads|samples|saves|trials)\b"
)


def test_one_of_a_thing_is_told_as_one():
    assert OF_ONE.search("1 faulty places")
    assert not OF_ONE.search("1.1 saves, 21 files, 1 file, 2,001 loads")
    for file in GOLDEN.glob("*"):
        assert not OF_ONE.search(file.read_text()), file.name


def test_every_judge_has_a_golden_text():
    assert set(CASES) == {name for name, r in REQUIREMENTS.items() if r.judge}
    assert {file.stem for file in GOLDEN.glob("*")} == {name.lower() for name in (*CASES, "behaviour")}


@pytest.mark.parametrize("requirement", CASES)
def test_the_sentences_of_a_judge(requirement):
    verdicts = {name: judged(requirement, of) for name, of in CASES[requirement].items()}
    for name, verdict in verdicts.items():
        assert (verdict.outcome == "met") == (verdict.reason == "met"), name
        assert verdict.reason in REASONS, name
        assert verdict.reason != "plugin", name
        assert verdict.because.endswith("."), name
    hold(requirement, "\n".join(text_of(name, verdict) for name, verdict in verdicts.items()))


def test_the_sentences_of_the_judge_of_behaviour():
    hold("behaviour", "\n".join(text_of(name, judge_observation(*of)) for name, of in OBSERVATIONS.items()))
