"""Saves for hours, and on a nearly full volume."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from pytest_ckpt.analysis.statistics import (
    MAXIMUM_RANGE,
    MAXIMUM_ROUNDS,
    MAXIMUM_SLOPE,
    WINDOW_ROUNDS,
    steady_round,
    unsteadiness,
)
from pytest_ckpt.judging.decision import Decision, measured_as, not_decided
from pytest_ckpt.judging.given import without_pattern
from pytest_ckpt.judging.requirement import requirement
from pytest_ckpt.judging.service_levels import STALL_SECONDS, rate_level, stall_level
from pytest_ckpt.support.units import compared, counted, format_bytes, format_percent, format_seconds, format_times

if TYPE_CHECKING:
    from pytest_ckpt.facts.measurement import Endurance, Measurement, NearFull
    from pytest_ckpt.facts.verdict import Reason
    from pytest_ckpt.sizing.limits import ClusterLimits

MAXIMUM_NEAR_FULL_LOSS = {0.8: 0.10, 0.9: 0.20}
_MINIMUM_SAVES_OF_A_QUARTER = 2


@requirement(
    "ENDURE",
    title="Saves stay fast for hours",
    severity="advisory",
    maximum=0.10,
    units=("fraction",),
    ratios=("fraction",),
    hidden_by_load=True,
    figure="the loss of rate from the first quarter to the last",
    limit="{maximum:g}",
    source="our proposal: the rate of the last quarter is at least 90 % of the first quarter's",
    requested_by=lambda settings: settings.includes_endurance,
    next_step="Look when the saves became slow: a write cache that ran full, garbage collection, a rebuild.",
    help="Saves become slower with time, fill level or content",
)
def test_saves_stay_fast_for_hours(
    endurance: Endurance, measurement: Measurement, limits: ClusterLimits, maximum: float
) -> Decision:
    """In hours of continuous saves, the last quarter of the saves has at least 90 % of the rate of the first quarter.

    Training saves for months. Caches fill, flash must erase blocks before it writes, drives heat up, and free space
    fragments. Storage that is fast for ten saves may therefore be slow after a thousand. Checkpoints are saved one
    after another for --ckpt-suite=endurance:duration; the newest two are kept.
    """
    if not endurance.requested_seconds:
        return not_decided("not given", "No duration given (--ckpt-suite=endurance:duration).")
    quarter = endurance.seconds / 4
    pairs = list(zip(endurance.start_seconds, endurance.save_seconds, strict=True))
    first = [s for at, s in pairs if at < quarter]
    last = [s for at, s in pairs if at >= 3 * quarter]
    if min(len(first), len(last)) < _MINIMUM_SAVES_OF_A_QUARTER:
        because = (
            f"In {format_seconds(endurance.seconds)} only {counted(len(pairs), 'save')} ended, {len(first)} in the "
            f"first quarter and {len(last)} in the last; {_MINIMUM_SAVES_OF_A_QUARTER} are needed in each."
        )
        return not_decided("too few", because)
    ratio = statistics.fmean(first) / statistics.fmean(last)
    loss = max(0.0, 1 - ratio)
    kept, needed = compared(ratio, 1 - maximum, format_percent)
    because = (
        f"Save rate in the last quarter of {format_seconds(endurance.seconds)}: {kept} of the first quarter's (limit: "
        f"at least {needed})."
    )
    detail = (
        f"{counted(len(pairs), 'save')}, the newest {endurance.kept} kept; {len(first)} in the first quarter, mean "
        f"{format_seconds(statistics.fmean(first))}; {len(last)} in the last, mean "
        f"{format_seconds(statistics.fmean(last))}",
        f"slowest save {format_seconds(max(endurance.save_seconds))}",
        rate_level(endurance.save_seconds, measurement.bytes, limits.stated.save_bytes_per_second),
        stall_level(sum(s <= STALL_SECONDS for s in endurance.save_seconds), len(pairs), "took at most that long"),
    )
    reason: Reason = "over limit" if loss > maximum else "met"
    return measured_as(reason, loss, maximum, "fraction", because, detail)


@requirement(
    "STEADY",
    title="Saves reach a steady state",
    units=("rounds",),
    ratios=("rounds",),
    spans=("endurance",),
    figure="the number of the save that completed the first steady sequence of five",
    limit=f"{MAXIMUM_ROUNDS}",
    source="SNIA Performance Test Specification: of five rounds, range at most 20 %, slope at most 10 %",
    requested_by=lambda settings: settings.includes_endurance,
    next_step="Run for longer (--ckpt-suite=endurance:duration), and find out what else used the storage.",
    help="Saves become slower with time, fill level or content",
)
def test_saves_reach_a_steady_state(measurement: Measurement) -> Decision:
    """Within 25 saves, the times of five successive saves differ by at most 20 % and drift by at most 10 %.

    Only a steady state predicts the times of later saves. A round is one save. The report gives the number of the save
    that completes the first such sequence of five.
    """
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


@requirement(
    "NEARFULL",
    title="A nearly full volume stays fast",
    severity="advisory",
    units=("fraction",),
    ratios=("fraction",),
    hidden_by_load=True,
    figure="the loss of rate, compared with saves before the volume was filled",
    limit=", ".join(f"{loss:g} at {level:.0%}" for level, loss in MAXIMUM_NEAR_FULL_LOSS.items()),
    source="our proposal: at 80 % full at least 90 %, at 90 % at least 80 % of the rate before the volume was filled",
    requested_by=lambda settings: settings.includes_endurance,
    needs=("volume",),
    next_step="State the fill level up to which the storage keeps its speed, and keep more space free.",
    help="Saves become slower with time, fill level or content",
)
def test_a_nearly_full_volume_is_nearly_as_fast(near_full: NearFull) -> Decision:
    """At 80 % full, saves keep at least 90 % of their rate; at 90 % full, at least 80 %.

    Allocation and clean-up slow down when little space is left. The test fills the volume with ballast files: it writes
    all of their bytes, and removes them at the end, even after a failure. Measured with
    --ckpt-suite=endurance:near-full, only on a volume without other data.
    """
    empty, *filled = near_full.levels
    base = statistics.median(empty.save_seconds)
    losses = {}
    for level in filled:
        losses[level.requested] = max(0.0, 1 - base / statistics.median(level.save_seconds))
    if set(losses) != set(MAXIMUM_NEAR_FULL_LOSS):
        return not_decided("not measured", "Not every level was measured.")
    detail = tuple(
        f"{format_percent(level.used)} in use, {format_bytes(level.ballast_bytes)} of it written for this: "
        + format_times(level.save_seconds)
        for level in near_full.levels
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
    because = f"Save rate compared with saves before the volume was filled: {numbers}."
    reason: Reason = "over limit" if losses[worst] > MAXIMUM_NEAR_FULL_LOSS[worst] else "met"
    return measured_as(reason, losses[worst], MAXIMUM_NEAR_FULL_LOSS[worst], "fraction", because, detail)
