"""Serving: replicas load only the weights; one client writes the weights of all ranks into new files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ckpt.judging.client_ceiling import compared_too_slowly
from pytest_ckpt.judging.decision import Decision, measured_as
from pytest_ckpt.judging.loads import missing_bytes, not_cold, wrong_bytes
from pytest_ckpt.judging.requirement import requirement
from pytest_ckpt.support.units import compared, counted, format_bytes, format_rate, format_seconds

if TYPE_CHECKING:
    from pytest_ckpt.facts.measurement import Consolidation, Measurement, Serving, WeightsLoad
    from pytest_ckpt.sizing.limits import ClusterLimits

_WAYS = {"reads": "by reads", "mmap": "from mappings"}


@requirement(
    "MODEL-LOAD",
    title="Serving replicas load a model in time",
    severity="advisory",
    units=("s",),
    figure="the slowest cold load, in which all replicas load the weights concurrently",
    limit="--ckpt-suite=serving:load-limit; by default the load limit of the cluster",
    source="given by the user, or as LOAD",
    requested_by=lambda settings: settings.includes_serving,
    of_strategy=lambda strategy: not strategy.saves_deltas,
    next_step="Compare the times of cold and warm loads, by reads and from mappings: they differ by the slow part.",
    help="Another kind of load is too slow",
)
def test_serving_replicas_load_a_model_in_time(
    serving: Serving, measurement: Measurement, limits: ClusterLimits
) -> Decision:
    """Concurrent replicas of a serving engine load a model's weights within the limit, from cold caches.

    The weights are bf16, 2 bytes per parameter, in files of at most 5 GB. Each replica reads all files; each rank of a
    replica reads a part of every file. The replicas load by two methods: read calls and memory mappings. By each method
    they load twice: first with cold caches, then with warm caches. The slowest cold load decides; every byte is
    compared. Advisory: serving is not part of training.
    """
    share = serving.bytes / serving.full_bytes
    limit = (limits.stated.serving_seconds or limits.load_limit_seconds) * share
    detail = _described(serving)
    for load in serving.loads:
        if wrong := wrong_bytes(load.integrity, detail) or missing_bytes(load.integrity, detail):
            return wrong
    cold = [load for load in serving.loads if not load.is_warm]
    for load in cold:
        which = f"the load {_WAYS[load.io_mode]}"
        if unproven := not_cold(which, load.resident_bytes, load.mapped_bytes, detail, measurement.cache):
            return unproven
    # Time lost by a client that compares too slowly does not count against the storage.
    blamed = [load for load in cold if load.seconds - load.stalled_seconds > limit]
    slowest = max(blamed or cold, key=lambda load: load.seconds)
    is_stated = bool(limits.stated.serving_seconds)
    origin = "The limit is --ckpt-suite=serving:load-limit." if is_stated else limits.reason("load_limit_seconds")
    detail = (*detail, origin, *_part(share))
    rate = format_rate(serving.bytes * serving.replicas / slowest.seconds) if slowest.seconds else "no time"
    took, allowed = compared(slowest.seconds, limit)
    if slowest.seconds > limit and not blamed:
        which = f"the load {_WAYS[slowest.io_mode]}"
        return compared_too_slowly(which, took, allowed, slowest.stalled_seconds, detail)
    because = (
        f"Slowest cold load of the weights ({_WAYS[slowest.io_mode]}): {took}, {rate} for "
        f"{counted(serving.replicas, 'replica')}; limit {allowed}.{_again(serving, slowest)}"
    )
    return measured_as("over limit" if slowest.seconds > limit else "met", slowest.seconds, limit, "s", because, detail)


@requirement(
    "CONSOLIDATE",
    title="One client rewrites the weights as separate files in time",
    severity="advisory",
    units=("s",),
    figure="the time in which one client reads all weights and writes them again",
    limit="--ckpt-suite=serving:consolidate-limit, one hour",
    source="our proposal: one hour at full size",
    requested_by=lambda settings: settings.includes_serving,
    of_strategy=lambda strategy: not strategy.saves_deltas,
    next_step="Ask for the maximum rates of one client of this storage, and consolidate with several clients.",
    help="Another kind of load is too slow",
)
def test_one_client_consolidates_the_weights_in_time(consolidation: Consolidation, limits: ClusterLimits) -> Decision:
    """Within the limit, one client reads the weights that all ranks wrote, and writes them durably into new files.

    Libraries that convert a distributed checkpoint into files for other software work in this way: rank 0 reads every
    shard and rewrites it while the other ranks wait. Caches are dropped before the read; every byte of the new files is
    compared.
    """
    share = consolidation.bytes / consolidation.full_bytes
    limit = limits.stated.consolidate_seconds * share
    rate = format_rate(consolidation.bytes / consolidation.seconds) if consolidation.seconds else "no time"
    read = f"{format_bytes(consolidation.bytes)} read and written by rank 0, 2 MiB at a time, caches dropped before"
    detail = (read, *_part(share))
    if wrong := wrong_bytes(consolidation.integrity, detail) or missing_bytes(consolidation.integrity, detail):
        return wrong
    took, allowed = compared(consolidation.seconds, limit)
    because = (
        f"One client read {format_bytes(consolidation.bytes)} of weights and wrote them again in {took} ({rate} each "
        f"way); limit {allowed}."
    )
    return measured_as(
        "over limit" if consolidation.seconds > limit else "met", consolidation.seconds, limit, "s", because, detail
    )


def _part(share: float) -> tuple[str, ...]:
    if share >= 1:
        return ()
    return (f"the run had {share:.4g} of a model's weights; the limit is this share of the full limit",)


def _described(found: Serving) -> tuple[str, ...]:
    """Return a line on files and ranks, then one line for each method with the times of cold and warm loads."""
    lines = [
        f"{format_bytes(found.bytes)} of weights (bf16) in {counted(found.files, 'file')}; "
        f"{counted(found.replicas, 'replica')} of {counted(found.readers, 'rank')} concurrently, each rank its part of "
        "every file, one thread a rank"
    ]
    for cold in (load for load in found.loads if not load.is_warm):
        line = f"{_WAYS[cold.io_mode]}: cold {format_seconds(cold.seconds)}, rank {cold.slowest_rank} last"
        if cold.stalled_seconds:
            line += f", for {format_seconds(cold.stalled_seconds)} reads waited for the client to compare"
        for warm in (load for load in found.loads if load.is_warm and load.io_mode == cold.io_mode):
            line += f"; again immediately {format_seconds(warm.seconds)}"
        lines.append(line)
    return tuple(lines)


def _again(found: Serving, cold: WeightsLoad) -> str:
    """Return a sentence that compares ``cold`` with the warm load that immediately followed it."""
    warm = next((load for load in found.loads if load.is_warm and load.io_mode == cold.io_mode), None)
    if warm is None or not cold.seconds:
        return ""
    return f" Again immediately, warm: {format_seconds(warm.seconds)} ({warm.seconds / cold.seconds:.2f} x)."
