"""Judges of saves of which some hold only what changed: restores of whole chains, and what deleting leaves. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ckpt.judging.decision import (
    Decision,
    failed_by,
    is_decided_by,
    measured_as,
    undecided,
)
from pytest_ckpt.judging.restore_patterns import without_pattern
from pytest_ckpt.judging.with_commands import lost, missing_bytes, wrong_bytes
from pytest_ckpt.support.units import (
    compared,
    counted,
    format_bytes,
    format_count,
    format_rate,
    format_ratio,
    format_seconds,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_ckpt.facts.measurement import Measurement
    from pytest_ckpt.facts.strategy_results import Chains
    from pytest_ckpt.sizing.limits import ClusterLimits

# Beside less than this, what others write to the volume meanwhile hides what comes back.
_MINIMUM_TOLD_BYTES = 1_000_000_000
# Space may come back late, in larger units, or partly to others who write meanwhile.
_MINIMUM_FREED = 0.5


def judge_chain(measurement: Measurement, limits: ClusterLimits) -> Decision:
    """The longest chain is restored within the load limit at the size that was run; a deleted delta is missed."""
    failure = measurement.failure
    if failure and is_decided_by(failure, "load"):
        return failed_by(failure)
    loads = measurement.of_kind("load")
    if len(loads) < measurement.operations_planned:
        return undecided(measurement, "load")
    longest = max(loads, key=lambda load: (measurement.bytes_of(load), load.seconds))
    limit = limits.load_limit_seconds * measurement.share
    whole = measurement.bytes_of(longest)
    detail = [
        f"{format_bytes(whole)}, {whole / measurement.bytes:.3g} checkpoints; {format_rate(longest.bytes_per_second)}",
        *_describe_sizes(measurement),
        limits.reason("load_limit_seconds"),
    ]
    deltas = _deltas_of(measurement, longest.checkpoint)
    what = f"a full save and {counted(deltas, 'delta')}"
    if longest.bytes != whole:
        because = f"The restore of {what} brought {format_count(longest.bytes)} of {counted(whole, 'byte')}."
        return lost(because, detail)
    took, allowed = compared(longest.seconds, limit)
    if longest.seconds > limit:
        times = format_ratio(longest.seconds / limit)
        because = f"The restore of {what} took {took}, {times} x the limit of {allowed}."
        return measured_as("over limit", longest.seconds, limit, "s", because, detail)
    found = measurement.patterns.chains if measurement.patterns else None
    if found is None:
        return without_pattern(measurement, ("chains",))
    if not found.misses_deleted:
        return lost("A delta that was deleted was still served: a restore would load over what is gone.", detail)
    because = f"The restore of {what} took {took}; limit {allowed}. A delta that was deleted was missed."
    return measured_as("met", longest.seconds, limit, "s", because, detail)


def judge_retain_chain(measurement: Measurement, _limits: ClusterLimits) -> Decision:
    """A chain loads whole when all checkpoints before it were deleted, and their space comes back."""
    found = measurement.patterns.chains if measurement.patterns else None
    if found is None:
        return without_pattern(measurement, ("chains",))
    detail = tuple(_describe_space(found))
    if decided := wrong_bytes(found.integrity, detail) or missing_bytes(found.integrity, detail):
        return decided
    freed = found.freed_bytes
    tells = freed is not None and found.deleted_bytes >= _MINIMUM_TOLD_BYTES
    if tells and freed is not None and freed < found.deleted_bytes * _MINIMUM_FREED:
        because = (
            f"{counted(found.deleted, 'checkpoint was', 'checkpoints were')} deleted, "
            f"{format_bytes(found.deleted_bytes)} in all, and {format_bytes(max(0, freed))} of the volume came back: "
            "it would run full."
        )
        return measured_as("over limit", float(max(0, freed)), float(found.deleted_bytes), "bytes", because, detail)
    because = (
        f"{counted(found.deleted, 'older checkpoint was', 'older checkpoints were')} deleted, then a full save and "
        f"{counted(found.deltas, 'delta')} loaded whole: {counted(found.integrity.bytes_checked, 'byte')} compared, "
        "none wrong."
    )
    return measured_as("met", 0.0, 0.0, "faults", because, detail)


def _deltas_of(measurement: Measurement, checkpoint: int) -> int:
    """Return how many deltas a restore of a checkpoint reads: back to the last save that is a whole one."""
    count = 0
    while measurement.save_bytes and measurement.save_bytes[checkpoint - 1 - count] != measurement.bytes:
        count += 1
    return count


def _describe_sizes(measurement: Measurement) -> Iterator[str]:
    saves = measurement.of_kind("save")
    for name, of in (
        ("full saves", [o for o in saves if o.bytes == measurement.bytes]),
        ("deltas", [o for o in saves if o.bytes != measurement.bytes]),
    ):
        if of:
            yield (
                f"{name}: {len(of)}, {format_bytes(max(o.bytes for o in of))} each, slowest "
                f"{format_seconds(max(o.seconds for o in of))}"
            )


def _describe_space(found: Chains) -> Iterator[str]:
    if found.freed_bytes is None:
        yield "the target does not tell how much space came back"
    elif found.deleted_bytes < _MINIMUM_TOLD_BYTES:
        yield (f"{format_bytes(found.deleted_bytes)} were deleted: too little to tell it from what others write")
    else:
        yield f"{format_bytes(max(0, found.freed_bytes))} came back of {format_bytes(found.deleted_bytes)}"
