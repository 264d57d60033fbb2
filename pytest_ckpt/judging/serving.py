"""Judges of serving: replicas load weights alone at once, and one client rewrites them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ckpt.judging.decision import Decision, measured_as
from pytest_ckpt.judging.restore_patterns import not_cold, without_pattern, wrong_bytes
from pytest_ckpt.support.units import compared, counted, format_bytes, format_rate, format_seconds

if TYPE_CHECKING:
    from pytest_ckpt.facts.measurement import Measurement, Serving, WeightsLoad
    from pytest_ckpt.sizing.limits import ClusterLimits

_WAYS = {"reads": "by reads", "mmap": "from mappings"}


def judge_model_load(measurement: Measurement, limits: ClusterLimits) -> Decision:
    """All replicas have their weights within the limit, cold, however they read them, and every byte is right."""
    found = measurement.patterns.serving if measurement.patterns else None
    if found is None:
        return without_pattern(measurement, ("serving",))
    share = found.bytes / found.full_bytes
    limit = (found.limit_seconds or limits.load_limit_seconds) * share
    detail = _described(found)
    for load in found.loads:
        if wrong := wrong_bytes(load.integrity, detail):
            return wrong
    cold = [load for load in found.loads if not load.is_warm]
    for load in cold:
        which = f"the load {_WAYS[load.way]}"
        if unproven := not_cold(which, load.resident_bytes, load.mapped_bytes, detail, measurement.cache):
            return unproven
    slowest = max(cold, key=lambda load: load.seconds)
    origin = (
        "The limit is that of --ckpt-serving-limit." if found.limit_seconds else limits.reason("load_limit_seconds")
    )
    detail = (*detail, origin, *_part(share))
    rate = format_rate(found.bytes * found.replicas / slowest.seconds) if slowest.seconds else "no time"
    took, allowed = compared(slowest.seconds, limit)
    because = (
        f"Slowest cold load of the weights ({_WAYS[slowest.way]}): {took}, {rate} for "
        f"{counted(found.replicas, 'replica')}; limit {allowed}.{_again(found, slowest)}"
    )
    return measured_as("over limit" if slowest.seconds > limit else "met", slowest.seconds, limit, "s", because, detail)


def judge_consolidate(measurement: Measurement, _limits: ClusterLimits) -> Decision:
    """One client has read all weights and written them again within the limit, every byte of the copy right."""
    found = measurement.patterns.consolidation if measurement.patterns else None
    if found is None:
        return without_pattern(measurement, ("consolidation",))
    share = found.bytes / found.full_bytes
    limit = found.limit_seconds * share
    rate = format_rate(found.bytes / found.seconds) if found.seconds else "no time"
    read = f"{format_bytes(found.bytes)} read and written by rank 0 alone, 2 MiB at a time, caches dropped before"
    detail = (read, *_part(share))
    if wrong := wrong_bytes(found.integrity, detail):
        return wrong
    took, allowed = compared(found.seconds, limit)
    because = (
        f"One client read {format_bytes(found.bytes)} of weights and wrote them again in {took} ({rate} each way); "
        f"limit {allowed}."
    )
    return measured_as("over limit" if found.seconds > limit else "met", found.seconds, limit, "s", because, detail)


def _part(share: float) -> tuple[str, ...]:
    if share >= 1:
        return ()
    return (f"the run had {share:.4g} of a model's weights, and has as small a part of the limit",)


def _described(found: Serving) -> tuple[str, ...]:
    """Return what was loaded, each load, and what the caches of clients made of the second ones."""
    lines = [
        f"{format_bytes(found.bytes)} of weights (bf16) in {counted(found.files, 'file')}; "
        f"{counted(found.replicas, 'replica')} of {counted(found.readers, 'rank')} at once, each rank its part of "
        "every file, one thread a rank"
    ]
    for cold in (load for load in found.loads if not load.is_warm):
        line = f"{_WAYS[cold.way]}: cold {format_seconds(cold.seconds)}, rank {cold.slowest_rank} last"
        for warm in (load for load in found.loads if load.is_warm and load.way == cold.way):
            line += f"; again at once {format_seconds(warm.seconds)}"
        lines.append(line)
    return tuple(lines)


def _again(found: Serving, cold: WeightsLoad) -> str:
    """Say what caches made of the load that followed at once."""
    warm = next((load for load in found.loads if load.is_warm and load.way == cold.way), None)
    if warm is None or not cold.seconds:
        return ""
    return f" Again at once, warm: {format_seconds(warm.seconds)} ({warm.seconds / cold.seconds:.2f} x)."
