"""Judges of endurance: saves for hours, the steady state, a nearly full volume. Pure."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from pytest_ckpt.analysis.steadiness import (
    MAXIMUM_RANGE,
    MAXIMUM_ROUNDS,
    MAXIMUM_SLOPE,
    WINDOW_ROUNDS,
    steady_round,
    unsteadiness,
)
from pytest_ckpt.judging.decision import Decision, measured_as, not_decided
from pytest_ckpt.judging.restore_patterns import without_pattern
from pytest_ckpt.support.units import compared, counted, format_bytes, format_percent, format_seconds

if TYPE_CHECKING:
    from pytest_ckpt.facts.measurement import Measurement
    from pytest_ckpt.facts.verdict import Reason
    from pytest_ckpt.sizing.limits import ClusterLimits

MAXIMUM_LOSS = 0.10
MAXIMUM_NEAR_FULL_LOSS = {0.8: 0.10, 0.9: 0.20}
_MINIMUM_SAVES_OF_A_QUARTER = 2


def judge_endure(measurement: Measurement, _limits: ClusterLimits, *, maximum: float = MAXIMUM_LOSS) -> Decision:
    """The rate of the last quarter of hours of saves is nearly that of the first."""
    found = measurement.patterns.endurance if measurement.patterns else None
    if found is None:
        return without_pattern(measurement, ("endurance",))
    if not found.requested_seconds:
        return not_decided("not given", "No duration given (--ckpt-duration).")
    quarter = found.seconds / 4
    pairs = list(zip(found.start_seconds, found.save_seconds, strict=True))
    first = [s for at, s in pairs if at < quarter]
    last = [s for at, s in pairs if at >= 3 * quarter]
    if min(len(first), len(last)) < _MINIMUM_SAVES_OF_A_QUARTER:
        because = (
            f"In {format_seconds(found.seconds)} only {counted(len(pairs), 'save')} ended, {len(first)} in the first "
            f"quarter and {len(last)} in the last; {_MINIMUM_SAVES_OF_A_QUARTER} are needed in each."
        )
        return not_decided("too few", because)
    ratio = statistics.fmean(first) / statistics.fmean(last)
    loss = max(0.0, 1 - ratio)
    kept, needed = compared(ratio, 1 - maximum, format_percent)
    because = (
        f"Save rate in the last quarter of {format_seconds(found.seconds)}: {kept} of the first quarter's (limit: at "
        f"least {needed})."
    )
    detail = (
        f"{counted(len(pairs), 'save')}, the newest {found.kept} kept; {len(first)} in the first quarter, mean "
        f"{format_seconds(statistics.fmean(first))}; {len(last)} in the last, mean "
        f"{format_seconds(statistics.fmean(last))}",
        f"slowest save {format_seconds(max(found.save_seconds))}",
    )
    reason: Reason = "over limit" if loss > maximum else "met"
    return measured_as(reason, loss, maximum, "fraction", because, detail)


def judge_steady(measurement: Measurement, _limits: ClusterLimits) -> Decision:
    """Saves one after the other become steady within 25 rounds, by the window rule of SNIA."""
    found = measurement.patterns.endurance if measurement.patterns else None
    if found is None:
        return without_pattern(measurement, ())
    rounds = found.save_seconds[:MAXIMUM_ROUNDS]
    if len(rounds) < WINDOW_ROUNDS:
        because = f"Only {counted(len(rounds), 'save')} ended; a window has {WINDOW_ROUNDS}."
        return not_decided("too few", because)
    windows = [rounds[n : n + WINDOW_ROUNDS] for n in range(len(rounds) - WINDOW_ROUNDS + 1)]
    detail = tuple(
        f"rounds {n} to {n + WINDOW_ROUNDS - 1}: range {format_percent(spread)}, slope {format_percent(change)} of the "
        f"mean {format_seconds(statistics.fmean(window))}"
        for n, window in enumerate(windows, start=1)
        for spread, change in (unsteadiness(window),)
    )
    bounds = f"range at most {format_percent(MAXIMUM_RANGE)}, slope at most {format_percent(MAXIMUM_SLOPE)} of the mean"
    if reached := steady_round(rounds):
        because = f"Steady from round {reached}: {WINDOW_ROUNDS} consecutive saves with {bounds}."
        return measured_as("met", float(reached), float(MAXIMUM_ROUNDS), "rounds", because, detail)
    if len(rounds) < MAXIMUM_ROUNDS:
        because = f"Not steady after {len(rounds)} of {MAXIMUM_ROUNDS} rounds ({bounds})."
        return not_decided("too few", because, detail)
    because = f"No {WINDOW_ROUNDS} consecutive saves of {len(rounds)} were steady ({bounds})."
    limit = float(MAXIMUM_ROUNDS)
    return Decision(outcome="failed", reason="not steady", because=because, limit=limit, unit="rounds", detail=detail)


def judge_near_full(measurement: Measurement, _limits: ClusterLimits) -> Decision:
    """Saves on a volume that is 80 % and 90 % full are nearly as fast as on an empty one."""
    found = measurement.patterns.near_full if measurement.patterns else None
    if found is None:
        return without_pattern(measurement, ("near_full",))
    empty, *filled = found.levels
    base = statistics.median(empty.save_seconds)
    losses = {}
    for level in filled:
        losses[level.requested] = max(0.0, 1 - base / statistics.median(level.save_seconds))
    if set(losses) != set(MAXIMUM_NEAR_FULL_LOSS):
        return not_decided("not measured", "Not every level was measured.")
    detail = tuple(
        f"{format_percent(level.used)} in use, {format_bytes(level.ballast_bytes)} of it written for this: "
        + ", ".join(format_seconds(s) for s in level.save_seconds)
        for level in found.levels
    )
    short = next((level for level in filled if level.used < level.requested - 0.01), None)
    if short:
        because = f"The ballast filled the volume to {format_percent(short.used)}; {short.requested:.0%} was requested."
        return not_decided("not possible", because, detail)
    worst = max(losses, key=lambda level: losses[level] / MAXIMUM_NEAR_FULL_LOSS[level])
    numbers = ", ".join(
        f"at {level:.0%} {format_percent(1 - loss)} (at least {format_percent(1 - MAXIMUM_NEAR_FULL_LOSS[level])})"
        for level, loss in losses.items()
    )
    because = f"Save rate compared with the volume as it was: {numbers}."
    reason: Reason = "over limit" if losses[worst] > MAXIMUM_NEAR_FULL_LOSS[worst] else "met"
    return measured_as(reason, losses[worst], MAXIMUM_NEAR_FULL_LOSS[worst], "fraction", because, detail)
