"""Saves by deltas: each delta contains only changed pages. Restores of whole chains, and the effect of deletions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ckpt.judging.client_ceiling import compared_too_slowly, over_limit
from pytest_ckpt.judging.decision import Decision, measured_as
from pytest_ckpt.judging.given import without_pattern
from pytest_ckpt.judging.loads import lost, missing_bytes, wrong_bytes
from pytest_ckpt.judging.requirement import requirement
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
    from pytest_ckpt.judging.given import Operations
    from pytest_ckpt.sizing.limits import ClusterLimits

# If less is deleted, other users' writes to the volume hide the freed space.
_MINIMUM_REPORTED_BYTES = 1_000_000_000
# Space may be freed late, in larger units, or be used in part by other writers.
_MINIMUM_FREED = 0.5


@requirement(
    "CHAIN",
    title="The longest chain of deltas is restored in time",
    units=("s",),
    figure="the restore of the longest chain: a full save and all its deltas",
    limit="the load limit of the cluster ({load} for 16,000 accelerators)",
    source="as LOAD: load budget x mean time to failure",
    of_strategy=lambda strategy: strategy.saves_deltas,
    next_step=(
        "Make chains shorter with --ckpt-strategy=incremental:full-every, or look at LOAD: which restore "
        "is slow, and in which phase."
    ),
    help="Another kind of load is too slow",
)
def test_the_longest_chain_is_restored_in_time(
    loads: Operations, measurement: Measurement, limits: ClusterLimits
) -> Decision:
    """The longest chain, a full save and all its deltas, is restored within the load limit.

    A restore from deltas reads the full save and every later delta of the chain. Caches are dropped first. Every page
    is compared with the content of its checkpoint, so the test detects a missing, damaged or outdated delta. Then one
    delta is deleted, and no rank may see its file afterwards. The time in which the client combines the pages is not
    included.
    """
    longest = max(loads.all, key=lambda load: (measurement.bytes_of(load), load.seconds))
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
        because = f"The restore of {what} returned {format_count(longest.bytes)} of {counted(whole, 'byte')}."
        return lost(because, detail)
    took, allowed = compared(longest.seconds, limit)
    stalled = longest.stalled_seconds or 0.0
    if longest.seconds - stalled <= limit < longest.seconds:
        return compared_too_slowly(f"the restore of {what}", took, allowed, stalled, detail)
    if longest.seconds > limit:
        times = format_ratio(longest.seconds / limit)
        because = f"The restore of {what} took {took}, {times} x the limit of {allowed}."
        return over_limit(measurement, "load", longest.seconds, limit, because, detail, needed=whole / limit)
    found = measurement.patterns.chains if measurement.patterns else None
    if found is None:
        return without_pattern(measurement, ("chains",))
    if not found.misses_deleted:
        return lost("A deleted delta could still be read: a restore would use data that are gone.", detail)
    because = f"The restore of {what} took {took}; limit {allowed}. A deleted delta was gone for every rank."
    return measured_as("met", longest.seconds, limit, "s", because, detail)


@requirement(
    "RETAIN-CHAIN",
    title="Deleting old checkpoints breaks no chain that is kept",
    units=("faults", "bytes"),
    figure="faults in a chain that was loaded after the older checkpoints were deleted; the freed bytes, if too few",
    limit="no fault, every byte; half of the deleted bytes are free again, if 1 GB or more was deleted",
    source="zero tolerance; the share of the space is our proposal",
    of_strategy=lambda strategy: strategy.saves_deltas,
    next_step="Look at the fault that the verdict names: a wrong page of the chain, or space that was not freed.",
    help="A committed checkpoint did not survive",
)
def test_deleting_old_checkpoints_breaks_no_chain(chains: Chains) -> Decision:
    """When older checkpoints are deleted, a kept chain loads completely, and the space is freed.

    A chain of a full save and two deltas is saved, and all older checkpoints are deleted. Then caches are dropped, the
    chain is loaded, and every byte is compared. If the target reports its free space and at least 1 GB was deleted,
    half of the deleted bytes or more must be free within 10 seconds. A smaller amount is not checked, because writes of
    other users would hide it.
    """
    detail = tuple(_describe_space(chains))
    if decided := wrong_bytes(chains.integrity, detail) or missing_bytes(chains.integrity, detail):
        return decided
    freed = chains.freed_bytes
    is_conclusive = freed is not None and chains.deleted_bytes >= _MINIMUM_REPORTED_BYTES
    if is_conclusive and freed is not None and freed < chains.deleted_bytes * _MINIMUM_FREED:
        because = (
            f"{counted(chains.deleted, 'checkpoint was', 'checkpoints were')} deleted, "
            f"{format_bytes(chains.deleted_bytes)} in all, and {format_bytes(max(0, freed))} of the volume became "
            "free: the volume would run full."
        )
        return measured_as("over limit", float(max(0, freed)), float(chains.deleted_bytes), "bytes", because, detail)
    because = (
        f"{counted(chains.deleted, 'older checkpoint was', 'older checkpoints were')} deleted, then a full save and "
        f"{counted(chains.deltas, 'delta')} loaded intact: {counted(chains.integrity.bytes_checked, 'byte')} compared, "
        "no fault."
    )
    return measured_as("met", 0.0, 0.0, "faults", because, detail)


def _deltas_of(measurement: Measurement, checkpoint: int) -> int:
    """Return the number of deltas that a restore of a checkpoint reads after the last full save."""
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
        yield "the target does not report the freed space"
    elif found.deleted_bytes < _MINIMUM_REPORTED_BYTES:
        deleted = format_bytes(found.deleted_bytes)
        yield f"{deleted} were deleted: too little to distinguish from writes of other clients"
    else:
        yield f"{format_bytes(max(0, found.freed_bytes))} of {format_bytes(found.deleted_bytes)} deleted became free"
