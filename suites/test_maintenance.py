"""Saves and loads while the storage is restarted, upgraded and snapshotted."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from pytest_ckpt.facts.commands import PAIRS
from pytest_ckpt.judging.client_ceiling import over_limit
from pytest_ckpt.judging.decision import Decision, measured_as, not_decided
from pytest_ckpt.judging.loads import (
    describe_end,
    describe_undisturbed,
    ended_by,
    if_cold,
    lost,
    missing_bytes,
    wrong_bytes,
)
from pytest_ckpt.judging.requirement import requirement
from pytest_ckpt.judging.save_costs import save_limit_seconds
from pytest_ckpt.support.units import compared, counted, format_percent, format_seconds, format_times

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_ckpt.facts.commands import Snapshots, SnapshotTrial, Upgrade
    from pytest_ckpt.facts.measurement import Measurement
    from pytest_ckpt.sizing.limits import ClusterLimits

MAXIMUM_UPGRADE_SAVE = 1.5


@requirement(
    "UPGRADE",
    title="Storage keeps serving during a restart or upgrade",
    units=("s", "faults", "bytes"),
    figure="the slowest save during the command; faults, if there are any",
    limit=f"{MAXIMUM_UPGRADE_SAVE:g} x the save limit; no failed operation, no fault",
    source="our proposal: no failed operation, every save within 1.5 x the save limit",
    own_launch="upgrade",
    requested_by=lambda settings: settings.includes_upgrade,
    not_given="No command was given that restarts or upgrades the storage (--ckpt-actions [upgrade] command).",
    next_step="Look at what was restarted when that save or load ran, and how clients find another server.",
    help="A component broke, or the storage was maintained",
    also_known_as=("NVIDIA HSS05",),
)
def test_an_upgrade_does_not_interrupt_service(
    upgrade: Upgrade, measurement: Measurement, limits: ClusterLimits
) -> Decision:
    """While the storage restarts or is upgraded, saves and loads succeed, and saves take at most 1.5 times the limit.

    Storage is maintained while jobs run: servers are restarted one after the other. The operator gives a command that
    restarts or upgrades the storage (--ckpt-actions [upgrade] command). The command is run once, at a random moment of
    a save. Saves and loads take turns until the command has returned. No save or load may fail, every loaded byte must
    be right, and each save takes at most 1.5 times the save limit.
    """
    limit = save_limit_seconds(measurement, limits) * MAXIMUM_UPGRADE_SAVE
    detail = tuple(_detail_of_upgrade(upgrade, limit))
    if decided := wrong_bytes(upgrade.integrity, detail) or _failed(upgrade, detail):
        return decided
    saves = [operation.seconds for operation in upgrade.operations if operation.kind == "save"]
    slowest = max(saves, default=0.0)
    took, allowed = compared(slowest, limit)
    figures = f"The slowest save during the command took {took}; limit {allowed}"
    if decided := ended_by(upgrade.failure, "upgrade", detail):
        return decided
    if upgrade.run is None or not upgrade.integrity:
        return not_decided("not measured", "No save was measured during the command.", detail)
    if not upgrade.run.is_good:
        return not_decided("command failed", upgrade.run.sentence, detail)
    if decided := missing_bytes(upgrade.integrity, detail):
        return decided
    # The last check, because a longer time alone does not decide and must not hide a cause that does.
    if slowest > limit:
        because = f"{figures} ({MAXIMUM_UPGRADE_SAVE:g} x the save limit)."
        return over_limit(measurement, "save", slowest, limit, because, detail)
    loads = len(upgrade.operations) - len(saves)
    because = (
        f"While the command ran for {format_seconds(upgrade.run.seconds)}, {counted(len(saves), 'save')} and "
        f"{counted(loads, 'load')} succeeded; {counted(upgrade.integrity.bytes_checked, 'byte')} compared, no fault. "
        f"{figures}."
    )
    return if_cold(measured_as("met", slowest, limit, "s", because, detail), upgrade, measurement.cache)


@requirement(
    "SNAPSHOT",
    title="A snapshot during a save shows that save complete or not at all",
    maximum=0.10,
    units=("fraction", "faults", "bytes"),
    figure="how much longer saves with a snapshot took; faults, if there are any",
    limit="{maximum:g}; every committed checkpoint is intact",
    source="our proposal: a snapshot shows the save complete or not at all, and costs at most 10 %",
    own_launch="snapshots",
    requested_by=lambda settings: settings.includes_snapshots,
    not_given="No commands were given that take and remove a snapshot (--ckpt-actions [snapshot]).",
    needs=("paths",),
    ratios=("fraction",),
    hidden_by_load=True,
    next_step="Find out whether a snapshot takes all files at one moment, and why it delays the writer.",
    help="A component broke, or the storage was maintained",
)
def test_a_snapshot_contains_a_complete_commit_or_none(snapshots: Snapshots, maximum: float) -> Decision:
    """A snapshot that is taken during a save shows that save complete or not at all, and slows the save little.

    Backups and clones are taken during writes. The operator gives a command that takes a snapshot (--ckpt-actions
    [snapshot] take). The command is run at a random moment of each of six saves. The snapshot must contain the
    previously committed checkpoint completely. If the snapshot shows the new checkpoint as committed, the new
    checkpoint must be complete, too. In the median, a save with a snapshot takes at most 10 % longer than the preceding
    save without a snapshot.
    """
    detail = tuple(_detail_of_snapshots(snapshots))
    if decided := wrong_bytes(snapshots.integrity, detail) or _wrong_clone(snapshots, detail):
        return decided
    if decided := ended_by(snapshots.failure, "snapshots", detail):
        return decided
    not_judged = snapshots.not_run or next((t.not_judged for t in snapshots.trials if t.not_judged), "")
    if not_judged:
        return not_decided("command failed", not_judged, detail)
    if len(snapshots.trials) < PAIRS or not snapshots.integrity:
        because = f"Only {len(snapshots.trials)} of {PAIRS} snapshots were taken."
        return not_decided("not measured", because, detail)
    late = next((number for number, trial in enumerate(snapshots.trials, 1) if _is_no_snapshot(trial)), 0)
    if late:
        because = (
            f"Clone {late} shows a commit that came after the snapshot command had returned: the output of the "
            "command does not name a snapshot."
        )
        return not_decided("command failed", because, detail)
    return missing_bytes(snapshots.integrity, detail) or _cost(
        snapshots, snapshots.integrity.bytes_checked, maximum, detail
    )


def _failed(found: Upgrade, detail: Sequence[str]) -> Decision | None:
    """Return the decision "failed" if a save or load failed, or a committed checkpoint is missing; None otherwise."""
    if found.lost:
        return lost(f"When the command had returned, a committed checkpoint could not be loaded: {found.lost}.", detail)
    failed = next((operation for operation in found.operations if operation.error), None)
    if failed:
        because = f"A {failed.kind} failed while the command ran: {failed.error}."
        return Decision(outcome="failed", reason="error", because=because, detail=tuple(detail))
    return None


def _detail_of_upgrade(found: Upgrade, limit: float) -> Iterator[str]:
    yield from describe_undisturbed(found.undisturbed)
    if found.operations:
        yield f"the command was run {format_seconds(found.moment_seconds)} into a save"
    for kind in ("save", "load"):
        seconds = [operation.seconds for operation in found.operations if operation.kind == kind]
        if seconds:
            yield f"{kind}s from then on: {format_times(seconds)}"
    yield f"limit of a save: {MAXIMUM_UPGRADE_SAVE:g} x the save limit, {format_seconds(limit)}"
    yield from describe_end(found.failure)
    if found.ran_after:
        how = "It ended well." if found.ran_after.is_good else found.ran_after.sentence
        yield f"when the ranks were gone: {how}"


def _is_no_snapshot(trial: SnapshotTrial) -> bool:
    return trial.is_committed and trial.is_before_commit


def _wrong_clone(found: Snapshots, detail: Sequence[str]) -> Decision | None:
    """Return the decision "failed" if a save failed, or a committed checkpoint cannot be loaded; None otherwise."""
    for number, trial in enumerate(found.trials, start=1):
        if trial.lost:
            return lost(f"After snapshot {number}: {trial.lost}.", detail)
        if trial.snapshotted.error:
            because = f"The save with snapshot {number} failed: {trial.snapshotted.error}."
            return Decision(outcome="failed", reason="error", because=because, detail=tuple(detail))
    return None


def _cost(found: Snapshots, compared: int, maximum: float, detail: Sequence[str]) -> Decision:
    """Return the decision on the time that a snapshot adds to a save; ``compared`` is the number of compared bytes.

    A median above ``maximum`` fails only if each of the six saves with a snapshot was slower than the save before it.
    By chance, this happens in one of 64 runs.
    """
    costs = [trial.cost for trial in found.trials]
    cost = max(0.0, statistics.median(costs))
    figures = (
        f"saves with a snapshot took {format_percent(cost)} longer than those before them (limit "
        f"{format_percent(maximum)})"
    )
    if cost > maximum and min(costs) <= 0:
        because = f"In the median {figures}, but not all of them did: saves vary too much to decide."
        return not_decided("perhaps late", because, detail)
    shown = sum(trial.is_committed for trial in found.trials)
    clones = (
        f"{PAIRS} clones: {PAIRS - shown} do not show the save during which they were taken, {shown} show it complete; "
        f"{counted(compared, 'byte')} compared, no fault."
    )
    because = f"{clones} In the median {figures}."
    return measured_as("over limit" if cost > maximum else "met", cost, maximum, "fraction", because, detail)


def _detail_of_snapshots(found: Snapshots) -> Iterator[str]:
    for number, trial in enumerate(found.trials, start=1):
        yield (
            f"snapshot {number}: {format_seconds(trial.moment_seconds)} into a save of "
            f"{format_seconds(trial.snapshotted.seconds)}, without one {format_seconds(trial.plain.seconds)}; "
            f"{_describe_snapshot(trial)}"
        )
        if trial.removed and not trial.removed.is_good:
            yield f"{trial.removed.sentence} The snapshot may still be there: remove it by hand."
    yield from describe_end(found.failure)
    if found.ran_after and not found.ran_after.is_good:
        yield f"{found.ran_after.sentence} The snapshot may still be there: remove it by hand."
    elif found.ran_after:
        yield "the remove command ran when the ranks were gone, and ended well"


def _describe_snapshot(trial: SnapshotTrial) -> str:
    if not trial.taken.is_good:
        return trial.taken.sentence
    shows = f"the clone shows {'a commit' if trial.is_committed else 'no commit'} of this save"
    return f"command {format_seconds(trial.taken.seconds)}; {trial.not_judged or shows}"
