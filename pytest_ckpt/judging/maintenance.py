"""Judges of saves and loads while the storage is restarted or upgraded, and with snapshots in their middle. Pure."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from pytest_ckpt.facts.commands import PAIRS
from pytest_ckpt.judging.decision import Decision, measured_as, not_decided
from pytest_ckpt.judging.restore_patterns import without_pattern
from pytest_ckpt.judging.save_costs import save_limit_seconds
from pytest_ckpt.judging.with_commands import (
    describe_end,
    describe_undisturbed,
    ended_by,
    if_cold,
    lost,
    missing_bytes,
    wrong_bytes,
)
from pytest_ckpt.support.units import compared, counted, format_percent, format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_ckpt.facts.commands import Snapshots, SnapshotTrial, Upgrade
    from pytest_ckpt.facts.measurement import Measurement
    from pytest_ckpt.sizing.limits import ClusterLimits

MAXIMUM_UPGRADE_SAVE = 1.5
MAXIMUM_SNAPSHOT_COST = 0.10


def judge_upgrade(measurement: Measurement, limits: ClusterLimits) -> Decision:
    """No operation fails, no byte is wrong, and every save is within 1.5 save limits."""
    found = measurement.patterns.upgrade if measurement.patterns else None
    if found is None:
        return without_pattern(measurement, ("upgrade",))
    limit = save_limit_seconds(measurement, limits) * MAXIMUM_UPGRADE_SAVE
    detail = tuple(_detail_of_upgrade(found, limit))
    if decided := wrong_bytes(found.integrity, detail) or _failed(found, detail):
        return decided
    saves = [operation.seconds for operation in found.operations if operation.kind == "save"]
    slowest = max(saves, default=0.0)
    took, allowed = compared(slowest, limit)
    figures = f"The slowest save beside the command took {took}; limit {allowed}"
    if slowest > limit:
        because = f"{figures} ({MAXIMUM_UPGRADE_SAVE:g} x the save limit)."
        return measured_as("over limit", slowest, limit, "s", because, detail)
    if decided := ended_by(found.failure, "upgrade", detail):
        return decided
    if found.run is None or not found.integrity:
        return not_decided("not measured", "Nothing was measured beside the command.", detail)
    if not found.run.is_good:
        return not_decided("command failed", found.run.sentence, detail)
    if decided := missing_bytes(found.integrity, detail):
        return decided
    loads = len(found.operations) - len(saves)
    because = (
        f"While the command ran for {format_seconds(found.run.seconds)}, {counted(len(saves), 'save')} and "
        f"{counted(loads, 'load')} succeeded; {counted(found.integrity.bytes_checked, 'byte')} compared, none "
        f"wrong. {figures}."
    )
    return if_cold(measured_as("met", slowest, limit, "s", because, detail), found, measurement.cache)


def _failed(found: Upgrade, detail: Sequence[str]) -> Decision | None:
    """Decide where a save or load failed, or what had been committed is gone."""
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
            yield f"{kind}s from then on: {', '.join(format_seconds(s) for s in seconds)}"
    yield f"limit of a save: {MAXIMUM_UPGRADE_SAVE:g} x the save limit, {format_seconds(limit)}"
    yield from describe_end(found.failure)
    if found.ran_after:
        how = "It ended well." if found.ran_after.is_good else found.ran_after.sentence
        yield f"when the ranks were gone: {how}"


def judge_snapshot(
    measurement: Measurement, _limits: ClusterLimits, *, maximum: float = MAXIMUM_SNAPSHOT_COST
) -> Decision:
    """A clone shows no commit or a whole one, and the save in which it is taken costs at most ``most`` more."""
    found = measurement.patterns.snapshots if measurement.patterns else None
    if found is None:
        return without_pattern(measurement, ("snapshots",))
    detail = tuple(_detail_of_snapshots(found))
    if decided := wrong_bytes(found.integrity, detail) or _wrong_clone(found, detail):
        return decided
    if decided := ended_by(found.failure, "snapshots", detail):
        return decided
    not_judged = found.not_run or next((t.not_judged for t in found.trials if t.not_judged), "")
    if not_judged:
        return not_decided("command failed", not_judged, detail)
    if len(found.trials) < PAIRS or not found.integrity:
        because = f"Only {len(found.trials)} of {PAIRS} snapshots were taken."
        return not_decided("not measured", because, detail)
    late = next((number for number, trial in enumerate(found.trials, 1) if _is_no_snapshot(trial)), 0)
    if late:
        because = (
            f"Clone {late} shows a commit that came after the snapshot command had returned: what it printed is no "
            "snapshot."
        )
        return not_decided("command failed", because, detail)
    return missing_bytes(found.integrity, detail) or _cost(found, found.integrity.bytes_checked, maximum, detail)


def _is_no_snapshot(trial: SnapshotTrial) -> bool:
    return trial.is_committed and trial.is_before_commit


def _wrong_clone(found: Snapshots, detail: Sequence[str]) -> Decision | None:
    """Decide where a save failed, or what is committed cannot be loaded."""
    for number, trial in enumerate(found.trials, start=1):
        if trial.lost:
            return lost(f"After snapshot {number}: {trial.lost}.", detail)
        if trial.beside.error:
            because = f"The save with snapshot {number} failed: {trial.beside.error}."
            return Decision(outcome="failed", reason="error", because=because, detail=tuple(detail))
    return None


def _cost(found: Snapshots, compared: int, maximum: float, detail: Sequence[str]) -> Decision:
    """Decide by the median; chance alone makes six of six saves slower in one of 64 runs."""
    costs = [trial.cost for trial in found.trials]
    cost = max(0.0, statistics.median(costs))
    figures = (
        f"saves with a snapshot took {format_percent(cost)} longer than those before them (limit "
        f"{format_percent(maximum)})"
    )
    if cost > maximum and min(costs) <= 0:
        because = f"In the median {figures}, but not all of them did: saves scatter too much to decide."
        return not_decided("perhaps late", because, detail)
    shown = sum(trial.is_committed for trial in found.trials)
    clones = (
        f"{PAIRS} clones: {PAIRS - shown} show no commit of the save that they were taken in, {shown} a whole one; "
        f"{counted(compared, 'byte')} compared, none wrong."
    )
    because = f"{clones} In the median {figures}."
    return measured_as("over limit" if cost > maximum else "met", cost, maximum, "fraction", because, detail)


def _detail_of_snapshots(found: Snapshots) -> Iterator[str]:
    for number, trial in enumerate(found.trials, start=1):
        yield (
            f"snapshot {number}: {format_seconds(trial.moment_seconds)} into a save of "
            f"{format_seconds(trial.beside.seconds)}, without one {format_seconds(trial.alone.seconds)}; {_seen(trial)}"
        )
        if trial.removed and not trial.removed.is_good:
            yield f"{trial.removed.sentence} The snapshot may still be there: remove it by hand."
    yield from describe_end(found.failure)
    if found.ran_after and not found.ran_after.is_good:
        yield f"{found.ran_after.sentence} The snapshot may still be there: remove it by hand."
    elif found.ran_after:
        yield "the remove command ran when the ranks were gone, and ended well"


def _seen(trial: SnapshotTrial) -> str:
    if not trial.taken.is_good:
        return trial.taken.sentence
    shows = f"the clone shows {'a commit' if trial.is_committed else 'no commit'} of this save"
    return f"command {format_seconds(trial.taken.seconds)}; {trial.not_judged or shows}"
