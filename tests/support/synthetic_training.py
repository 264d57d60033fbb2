"""Measurements for tests of requirements on save strategies.

The strategies are background, incremental, compressed and tiered saves.
"""

from __future__ import annotations

import dataclasses

from pytest_ckpt.facts.compression import Compression
from pytest_ckpt.facts.measurement import Patterns
from pytest_ckpt.facts.strategy_results import (
    Chains,
    Crashes,
    DrainRule,
    Kill,
    NodeLoss,
    Preempted,
    StepBatch,
    StepsOfSave,
    TierRestore,
    Tiers,
    Training,
)
from tests.support.synthetic_measurement import FULL, SUBJECT, compared, measurement, operation

STEP = 0.05
ASYNC = dataclasses.replace(SUBJECT, strategy="async")


def background_save(index, committed, *, blocked=0.5, copying=0.0, size=FULL):
    """Return a save that blocked the job for ``blocked`` seconds.

    The save was committed ``committed`` seconds after its start.
    """
    return dataclasses.replace(
        operation("save", index, committed, size=size),
        checkpoint=index,
        returned_seconds=blocked,
        staged_seconds=blocked,
        copying_seconds=copying,
        stored_seconds=0.9 * committed,
    )


def steps_of(checkpoint, *, beside=STEP, batches=8, scatter=0.0):
    """Return the training steps before, during and after the save of a checkpoint.

    During the save, steps of ``beside + scatter`` and of ``beside - scatter`` seconds alternate in batches of ten.
    """
    alone = (STEP,) * 20
    shifts = [scatter * (-1) ** n for n in range(batches)]
    return StepsOfSave(
        checkpoint=checkpoint,
        before_seconds=alone,
        during=tuple(StepBatch(steps=10, seconds=10 * (beside + shift)) for shift in shifts),
        after_seconds=alone,
    )


def in_background(*committed, blocked=0.5, copying=0.0, beside=STEP, batches=8, scatter=0.0, size=FULL, **changes):
    """Return a measurement of background saves. ``committed`` are the seconds from start to commit of each save."""
    committed = committed or (20.0, 20.0, 20.0)
    saves = [
        background_save(n, seconds, blocked=blocked, copying=copying, size=size)
        for n, seconds in enumerate(committed, 1)
    ]
    loads = [operation("load", n, 1.0, size=size) for n in (1, 2, 3)]
    steps = tuple(steps_of(save.checkpoint, beside=beside, batches=batches, scatter=scatter) for save in saves)
    patterns = Patterns(training=Training(step_seconds=STEP, cpu_share=0.1, saves=steps))
    given = {"operations": [*saves, *loads], "patterns": patterns, "subject": ASYNC} | changes
    return measurement(size=size, **given)


EARLY = Kill(moment_seconds=0.01, reached="copied", is_committed=False, deletes_older=True)
LATE = Kill(moment_seconds=0.09, reached="committed", is_committed=True, deletes_older=True)
SIX = (EARLY, EARLY, EARLY, dataclasses.replace(EARLY, reached="written"), LATE, LATE)
SMALL = 16 << 20


def crashed(*kills, planned=6, fault_count=0, faults=(), bytes_checked=None, **changes):
    """Return a measurement in which ranks were killed during saves.

    ``kills`` contains the result of each kill; the default is six kills.
    """
    kills = kills or SIX
    integrity = compared(SMALL * len(kills), bytes_checked, fault_count=fault_count, faults=faults)
    found = Crashes(planned=planned, bytes=SMALL, usual_seconds=0.08, kills=kills, integrity=integrity)
    return in_background(patterns=Patterns(crashes=found), **changes)


INCREMENTAL = dataclasses.replace(SUBJECT, strategy="incremental")
DELTA = FULL // 10
SIZES = (FULL, DELTA, DELTA)
DELETED = FULL + 2 * DELTA
RESTORES = (FULL, FULL + DELTA, FULL + 2 * DELTA)


def chained(*seconds, **changes):
    """Return a measurement of a full save and two deltas (saves of only the changed data).

    ``seconds`` are the times of the three restores.
    """
    seconds = seconds or (10.0, 11.0, 12.0)
    saves = [
        dataclasses.replace(operation("save", n, 5.0 * size / FULL), checkpoint=n, bytes=size)
        for n, size in enumerate(SIZES, 1)
    ]
    loads = [
        dataclasses.replace(operation("load", n, each), checkpoint=n, bytes=size)
        for n, (each, size) in enumerate(zip(seconds, RESTORES, strict=False), 1)
    ]
    given = {
        "operations": [*saves, *loads],
        "patterns": Patterns(chains=outlived()),
        "subject": INCREMENTAL,
        "save_bytes": SIZES,
        "load_bytes": RESTORES,
    } | changes
    return measurement(**given)


def outlived(*, deleted_bytes=DELETED, freed=1.0, misses=True, fault_count=0, faults=(), checked=RESTORES[2]):
    """Return the result of a load after other checkpoints were deleted.

    The loaded checkpoint is a chain: a full save and its deltas. ``freed`` is the share of the deleted bytes that the
    storage has freed; None means unknown.
    """
    integrity = compared(RESTORES[2], checked, fault_count=fault_count, faults=faults)
    return Chains(
        deltas=2,
        deleted=3,
        deleted_bytes=deleted_bytes,
        freed_bytes=None if freed is None else round(freed * deleted_bytes),
        integrity=integrity,
        misses_deleted=misses,
    )


COMPRESSED = dataclasses.replace(SUBJECT, strategy="compressed")


def compressed(*saves, codec=(4.0, 4.0, 4.0), stored=0.9, fault_count=0, **changes):
    """Return a measurement of compressed saves with these times in seconds. Uncompressed saves took about 10 s."""
    found = Compression(
        codec="zstd:1",
        content="numbers of few exponents",
        bytes=FULL,
        stored_bytes=round(stored * FULL),
        plain_save_seconds=(10.0, 10.2, 9.8),
        compressed_save_seconds=saves or (9.0, 9.1, 9.2),
        plain_load_seconds=(5.0, 5.0, 5.0),
        compressed_load_seconds=(6.0, 6.0, 6.0),
        save_codec_seconds=codec,
        load_codec_seconds=(2.0, 2.0, 2.0),
        fault_count=fault_count,
    )
    return measurement(**{"patterns": Patterns(compression=found), "subject": COMPRESSED, **changes})


TIERED = dataclasses.replace(SUBJECT, strategy="tiered")
EVERY_TENTH = DrainRule(every=10, target_share=0.1)


def restored(expected_tier, expected, *, tier=None, number=None, checked=FULL, fault_count=0, faults=()):
    """Return a restore of checkpoint ``number`` from ``tier``.

    Checkpoint ``expected`` from ``expected_tier`` was expected. If ``number`` or ``tier`` is None, the expected value
    was restored.
    """
    taken = (expected_tier if tier is None else tier, expected if number is None else number)
    integrity = compared(FULL, checked, fault_count=fault_count, faults=faults)
    is_right = taken == (expected_tier, expected)
    return TierRestore(
        expected_tier=expected_tier,
        expected=expected,
        tier=taken[0],
        number=taken[1],
        seconds=2.0 if is_right else 0.0,
        integrity=integrity if is_right else None,
    )


COMPLETE, INCOMPLETE = restored("local", 169), restored("target", 168)


def host_lost(*, seconds=2.0, missing=0, checked=FULL, fault_count=0, faults=()):
    """Return the loss of one of three hosts. Copying back and loading the host's files took ``seconds`` in total."""
    integrity = compared(FULL, checked, fault_count=fault_count, faults=faults)
    return NodeLoss(
        hosts=3,
        lost="h3",
        partner="h1",
        copied_bytes=FULL,
        copy_seconds=4.0,
        returned_bytes=0 if missing else FULL // 3,
        return_seconds=0.25 * seconds,
        load_seconds=0.75 * seconds,
        missing=missing,
        integrity=None if missing else integrity,
    )


def two_tiers(
    *, alone=(1.0, 1.1, 1.0), beside=(1.05, 1.1, 1.0), complete=COMPLETE, incomplete=INCOMPLETE, node_loss=None
):
    """Return the results of saves to a local tier and of restores from the local tier and the target.

    A drain is the copy of a checkpoint to the target. ``alone`` contains the times of saves without a concurrent drain,
    and ``beside`` the times of saves during a drain.
    """
    return Tiers(
        bytes=FULL,
        undisturbed_seconds=alone,
        during_drain_seconds=beside,
        drain_seconds=(9.0,) * 3,
        complete=complete,
        incomplete=incomplete,
        node_loss=node_loss,
    )


def tiered(*committed, found=None, rule=EVERY_TENTH, blocked=0.5, **changes):
    """Return a measurement of saves to a local tier that were copied to the target later.

    Each save blocked the job for ``blocked`` seconds. ``committed`` contains the seconds from the start of each save to
    its commit on the target.
    """
    made = in_background(*committed, blocked=blocked, subject=TIERED, drains=rule)
    patterns = dataclasses.replace(made.patterns, tiers=found or two_tiers())
    return dataclasses.replace(made, **{"patterns": patterns, **changes})


def on_notice(*seconds, **changes):
    """Return a measurement of saves after a preemption notice. ``seconds`` are the times from notice to commit."""
    found = Preempted(bytes=FULL, committed_seconds=seconds or (30.0, 31.0, 29.0))
    return in_background(patterns=Patterns(preempt=found), **changes)
