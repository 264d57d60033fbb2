"""Cases for the expected (golden) texts of requirements on save strategies.

The table is {requirement: {name of the case: measurement to judge}}.
"""

from __future__ import annotations

import dataclasses

from pytest_ckpt.facts.measurement import Patterns
from pytest_ckpt.facts.strategy_results import BACKGROUND, LOCAL_TIER
from pytest_ckpt.sizing.limits import StatedLimits
from tests.support.golden_cases import ENDED, FLIPPED, SAVE
from tests.support.synthetic_measurement import (
    FULL,
    LIMITS,
    SUBJECT,
    ByLimits,
    failed_in,
    measurement,
    on_busy_host,
    ref,
)
from tests.support.synthetic_patterns import (
    FAULT,
)
from tests.support.synthetic_training import (
    ASYNC,
    EARLY,
    EVERY_TENTH,
    INCREMENTAL,
    LATE,
    STEP,
    TIERED,
    chained,
    compressed,
    crashed,
    host_lost,
    in_background,
    on_notice,
    outlived,
    restored,
    tiered,
    two_tiers,
)

CASES_OF_STRATEGIES = {
    "BLOCKING": {
        "met": in_background(),
        "met in part": in_background(size=FULL // 10),
        "steps are slow": in_background(beside=1.0),
        "the copy is slow": in_background(60.0, 60.0, 60.0, blocked=1.1 * SAVE, copying=1.09 * SAVE),
        "the wait for the save before is long": in_background(
            60.0, 60.0, 60.0, blocked=1.1 * SAVE, copying=0.01 * SAVE),
        "the local tier is slow": tiered(60.0, 60.0, 60.0, blocked=1.1 * SAVE),
        "one save": in_background(20.0, operations_planned=1),
        "failed in the copy": in_background(20.0, patterns=None, failure=failed_in(ref("save", 2))),
        "failed in the background": in_background(
            20.0, patterns=None, failure=failed_in(ref("save", 2), lane=BACKGROUND)),
        "the run ended before": measurement(failure=ENDED, saves=(), subject=ASYNC),
        "steps were not measured": in_background(patterns=None),
    },
    "BACKGROUND": {
        "met": in_background(),
        "too slow": in_background(20.0, 2 * LIMITS.interval_seconds, 20.0),
        "the copy is slow": in_background(
            *[1.01 * LIMITS.interval_seconds] * 3, blocked=0.5 * SAVE, copying=0.4 * SAVE),
        "failed": in_background(20.0, patterns=None, failure=failed_in(ref("save", 2), lane=BACKGROUND)),
        "hung": in_background(20.0, patterns=None, failure=failed_in(ref("save", 2), "hung", lane=BACKGROUND)),
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
        "no rank committed it": crashed(EARLY, dataclasses.replace(EARLY, is_committed=True, is_commit_withheld=True)),
        "wrong bytes": crashed(fault_count=2, faults=(FLIPPED, FAULT)),
        "bytes are missing": crashed(bytes_checked=1),
        "too few": crashed(EARLY, *[LATE] * 10),
        "one kill": crashed(EARLY, planned=1),
        "an error in it": in_background(patterns=None, failure=failed_in(ref("load", 2, scenario="crashes"))),
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
        "met": chained(),
        "too slow": chained(10.0, 11.0, 2 * LIMITS.load_limit_seconds),
        "a deleted delta is served": chained(patterns=Patterns(chains=outlived(misses=False))),
        "failed": chained(10.0, patterns=None, failure=failed_in(ref("load", 2))),
        "not looked for": chained(patterns=None),
        "the run ended before": measurement(failure=ENDED, loads=(), subject=INCREMENTAL),
    },
    "RETAIN-CHAIN": {
        "met": chained(),
        "little was deleted": chained(patterns=Patterns(chains=outlived(deleted_bytes=1000))),
        "the target does not tell": chained(patterns=Patterns(chains=outlived(freed=None))),
        "space is gone": chained(patterns=Patterns(chains=outlived(freed=0.1))),
        "wrong bytes": chained(patterns=Patterns(chains=outlived(fault_count=1, faults=(FAULT,)))),
        "bytes are missing": chained(patterns=Patterns(chains=outlived(checked=1))),
        "an error in it": chained(patterns=None, failure=failed_in(ref("load", 131, scenario="chains"))),
        "kept": chained(patterns=Patterns(not_run={"chains": "Checkpoints were to be kept (--ckpt-keep-files)."})),
        "the run ended before": chained(patterns=None, failure=ENDED),
    },
    "DRAIN": {
        "met": tiered(),
        "too slow": tiered(20.0, 6 * LIMITS.interval_seconds, 20.0),
        "no time is left": tiered(blocked=0.6 * SAVE),
        "saves beside it are slow": tiered(found=two_tiers(alone=(25.0, 25.5, 25.0), beside=(29.0, 30.0, 29.0))),
        "saves beside it are slow on a busy host": on_busy_host(
            tiered(found=two_tiers(alone=(25.0, 25.5, 25.0), beside=(29.0, 30.0, 29.0))), "tiers"),
        "saves beside it are slow, and within the limit": tiered(found=two_tiers(beside=(1.3, 1.4, 1.3))),
        "one of them is slow": tiered(found=two_tiers(beside=(1.0, 1.4, 1.3))),
        "failed": tiered(operations=(), patterns=None, failure=failed_in(ref("save", 2), lane=BACKGROUND)),
        "failed in the local tier": tiered(
            operations=(), patterns=None, failure=failed_in(ref("save", 2), lane=LOCAL_TIER)),
        "failed in the turns": tiered(
            patterns=Patterns(training=tiered().patterns.training),
            failure=failed_in(ref("save", 2, scenario="tiers"))),
        "the run ended before": measurement(failure=ENDED, saves=(), subject=TIERED, drains=EVERY_TENTH),
    },
    "COMPRESSION": {
        "met": compressed(),
        "the processor is the limit": compressed(20.0, 21.0, 20.0, codec=(18.0, 19.0, 18.0)),
        "something else is": compressed(20.0, 21.0, 20.0),
        "too slow on a busy host": on_busy_host(compressed(20.0, 21.0, 20.0), "compression"),
        "wrong bytes": compressed(fault_count=2),
        "an error in it": compressed(patterns=None, failure=failed_in(ref("save", 2))),
        "the run ended before": compressed(patterns=None, failure=ENDED),
    },
    "PREEMPT": {
        "met": on_notice(),
        "met in part": ByLimits(on_notice(size=FULL // 10), StatedLimits(notice_seconds=600.0)),
        "too slow": on_notice(119.0, 121.0, 100.0),
        "one save, by sync": on_notice(30.0, subject=SUBJECT),
        "an error in it": in_background(patterns=None, failure=failed_in(ref("save", 2, scenario="preempt"))),
        "the run ended before": measurement(failure=ENDED, saves=(), subject=ASYNC),
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
        "an older one was taken": tiered(found=two_tiers(complete=restored("local", 169, tier="target", number=168))),
        "none was found": tiered(found=two_tiers(incomplete=restored("target", 168, tier="", number=0))),
        "the torn one was taken": tiered(found=two_tiers(incomplete=restored("target", 168, tier="local", number=169))),
        "wrong bytes": tiered(found=two_tiers(incomplete=restored("target", 168, fault_count=1, faults=(FAULT,)))),
        "bytes are missing": tiered(found=two_tiers(complete=restored("local", 169, checked=1))),
        "an error in it": tiered(patterns=None, failure=failed_in(ref("load", 2, scenario="tiers"))),
        "the run ended before": tiered(patterns=None, failure=ENDED),
    },
    "SLOWDOWN": {
        "met": in_background(),
        "over": in_background(beside=0.07),
        "over on a busy host": on_busy_host(in_background(beside=0.07)),
        "scatters": in_background(beside=1.05 * STEP, scatter=0.2 * STEP),
        "too few": in_background(batches=1),
        "none": in_background(batches=0),
    },
}  # fmt: skip
