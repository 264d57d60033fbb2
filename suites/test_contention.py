"""Contention and resharded loads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ckpt.judging.client_ceiling import compared_too_slowly, over_limit
from pytest_ckpt.judging.decision import (
    Decision,
    measured_as,
    not_decided,
)
from pytest_ckpt.judging.given import without_pattern
from pytest_ckpt.judging.loads import ended_by, missing_bytes, not_cold, skew_of, wrong_bytes
from pytest_ckpt.judging.requirement import requirement
from pytest_ckpt.judging.save_costs import save_limit_seconds
from pytest_ckpt.sizing.pacing import paced_accelerators, paced_limit_seconds
from pytest_ckpt.support.units import (
    compared,
    counted,
    format_bytes,
    format_count,
    format_percent,
    format_rate,
    format_ratio,
    format_seconds,
    format_times,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ckpt.facts.measurement import LoadPattern, Measurement, MixedLoad, NoisyNeighbour, Resized, SavePace
    from pytest_ckpt.facts.proofs import CacheFacts
    from pytest_ckpt.sizing.limits import ClusterLimits

MAXIMUM_STORM_SKEW = 2.0
# If a rank is late by less than this, its client is the cause, and the delay does not matter.
_MINIMUM_LAG_SECONDS = 0.25
# If a process works for more than this share of the time to read samples, its CPU limits the rate.
_MAXIMUM_BUSY = 0.8


@requirement(
    "STORM",
    title="All replicas restore concurrently",
    maximum=1.5,
    units=("s", "slowest / median"),
    ratios=("slowest / median",),
    figure="the slowest load; the ranks' times per byte, if these were uneven",
    limit=f"{{maximum:g}} x the load limit; {MAXIMUM_STORM_SKEW:g} for the slowest rank",
    source="our proposal: 1.5 x the load limit, slowest / median at most 2",
    next_step="Look at the named rank, and at how the storage spreads one file over its servers.",
    help="Another kind of load is too slow",
)
def test_all_replicas_restore_concurrently(
    storm: LoadPattern, measurement: Measurement, limits: ClusterLimits, maximum: float
) -> Decision:
    """All data-parallel replicas restore concurrently within 1.5 times the load limit.

    After a failure every replica reads the same model files at the same moment. Storage that serves one reader well may
    slow down when hundreds read the same bytes. It may also serve some readers and delay others, so the time per byte
    of the slowest rank may be at most twice the median of all ranks. Every load is uncached, and every byte is
    compared.
    """
    if no_time := _no_time(storm, measurement.cache):
        return no_time
    decision = _within(measurement, {"storm": storm}, limits, maximum)
    if decision.outcome == "failed":
        return decision
    late = [
        o for o in storm.operations if o.seconds - o.seconds / skew_of(o, storm.rank_bytes)[0] > _MINIMUM_LAG_SECONDS
    ]
    worst = max(late, key=lambda o: skew_of(o, storm.rank_bytes)[0], default=None)
    ratio = skew_of(worst, storm.rank_bytes)[0] if worst else 0.0
    if worst is None or ratio <= MAXIMUM_STORM_SKEW:
        return decision
    times = format_ratio(ratio, MAXIMUM_STORM_SKEW)
    because = (
        f"Load {worst.index}: rank {worst.slowest_rank} took {times} x the median rank's time per byte "
        f"(at most {MAXIMUM_STORM_SKEW:g}): the storage serves the replicas unevenly."
    )
    return measured_as("uneven", ratio, MAXIMUM_STORM_SKEW, "slowest / median", because, decision.detail)


@requirement(
    "RESTART",
    title="The whole cluster restarts within the load limit",
    severity="advisory",
    units=("s",),
    figure="the time of a restart of all copies, read or projected at the rate of STORM's slowest load",
    limit="the load limit of the cluster ({load} for 16,000 accelerators)",
    source="as LOAD: load budget x mean time to failure; number of copies: accelerators / accelerators of one copy",
    next_step="Look at the rate and at the host that was last: the storage or the network is too "
    "slow for all replicas together.",
    help="Another kind of load is too slow",
)
def test_the_cluster_restarts_within_the_load_limit(
    storm: LoadPattern, measurement: Measurement, limits: ClusterLimits
) -> Decision:
    """A restart of the cluster reads every data-parallel copy of the model within the load limit.

    After a failure, the accelerators of every copy of the model read. LOAD measures one copy; STORM measures the copies
    that the ranks of the run form. If the cluster has more copies, the time is a projection: the bytes of all copies at
    the rate of STORM's slowest load. More clients may reach a higher rate. A projection above the limit is therefore
    reported, but RESTART does not fail. With ZeRO-1, each copy reads the model files and its own part of the optimizer
    states; with ZeRO-3, each copy reads the complete checkpoint.
    """
    if no_time := _no_time(storm, measurement.cache):
        return no_time
    restart = storm.restart
    if restart is None:
        return not_decided("not recorded", "The bytes that a restart reads were not recorded.")
    needed, limit = restart.copies_of(limits.accelerators), limits.load_limit_seconds
    cluster = counted(limits.accelerators, "accelerator")
    if needed == 1:
        because = f"A cluster of {cluster} has one copy of the model: LOAD measures its restart."
        return not_decided("not possible", because)
    slowest = max(storm.operations, key=lambda o: o.seconds)
    rate, total = slowest.bytes_per_second, restart.bytes_of(needed)
    seconds = total / rate
    detail: tuple[str, ...] = (
        f"measured: {storm.reads}; {format_bytes(slowest.bytes)} in {format_seconds(slowest.seconds)}",
        f"a restart of {counted(needed, 'copy', 'copies')} reads {format_bytes(total)}: "
        f"{format_rate(total / limit)} are needed",
        limits.reason("load_limit_seconds"),
    )
    if measurement.share < 1:
        detail += (f"the run was at {measurement.share:.4g} of the full size: the time follows from the bandwidth",)
    took, allowed = compared(seconds, limit)
    read = counted(restart.copies, "copy", "copies") if restart.copies else "parts of copies"
    measured = f"Measured: {read} concurrently, {format_rate(rate)}."
    if restart.copies >= needed:
        because = f"{measured} A restart of {cluster} takes {took}; limit {allowed}."
        if seconds <= limit:
            return measured_as("met", seconds, limit, "s", because, detail)
        return over_limit(measurement, "load", seconds, limit, because, detail, needed=total / limit, pattern=storm)
    because = (
        f"{measured} Projection at this rate: a restart of {cluster}, {counted(needed, 'copy', 'copies')}, takes "
        f"{took}; limit {allowed}."
    )
    if seconds > limit:
        return not_decided("too few", f"{because} The rate of more clients was not measured.", detail)
    return measured_as("met", seconds, limit, "s", because, detail)


@requirement(
    "SHIFTED",
    title="Any rank restores any other's files",
    units=("s",),
    figure="the slowest load",
    limit="the load limit of the cluster ({load} for 16,000 accelerators)",
    source="as LOAD: load budget x mean time to failure",
    next_step="Look at the phase and rank that took longest: these files were written by another host.",
    help="Another kind of load is too slow",
)
def test_ranks_load_files_of_another_host_within_the_limit(
    shifted: LoadPattern, measurement: Measurement, limits: ClusterLimits
) -> Decision:
    """A load ends within the load limit when each rank reads what a rank of another host wrote.

    After a failure, ranks run on other hosts. A client or a nearby server may have cached data from its own writes, and
    this cache must not speed up the load. If the run has one host, each rank reads its neighbor's files, uncached.
    Every byte is compared with the byte that the other rank wrote.
    """
    if no_time := _no_time(shifted, measurement.cache):
        return no_time
    return _within(measurement, {"shifted": shifted}, limits, 1.0)


@requirement(
    "RESHAPED",
    title="Fewer or more ranks restore the checkpoint",
    units=("s",),
    spans=("joined", "split"),
    own_launch="resized",
    figure="the slowest load",
    limit="the load limit of the cluster ({load} for 16,000 accelerators)",
    source="as LOAD: load budget x mean time to failure",
    next_step="Look at the phase and rank that took longest, with fewer readers or half a file each.",
    help="Another kind of load is too slow",
)
def test_a_different_number_of_ranks_loads_the_checkpoint(measurement: Measurement, limits: ClusterLimits) -> Decision:
    """Half as many ranks, and twice as many readers per file, load the checkpoint within the load limit.

    After a failure, training may continue with fewer or with more nodes. Two cases are tested: half of the ranks read
    the files of two ranks each, and two readers share each file. With the engine dcp, separate launches have half and
    twice as many ranks, and the library loads the checkpoint and distributes it to these ranks. Every load is uncached,
    and every byte is compared with the saved byte.
    """
    patterns = measurement.patterns
    if patterns and patterns.resized:
        return _resized(patterns.resized, measurement, limits)
    if patterns is None or patterns.joined is None or patterns.split is None:
        return without_pattern(measurement, ("joined", "split"))
    both = {"joined": patterns.joined, "split": patterns.split}
    for found in both.values():
        if no_time := _no_time(found, measurement.cache):
            return no_time
    return _within(measurement, both, limits, 1.0)


@requirement(
    "NEIGHBOUR",
    title="Two jobs save at the same time",
    units=("s",),
    figure="the slowest save of either job",
    limit="the save limit of the cluster ({save} for 16,000 accelerators)",
    source="as SAVE: save budget x interval between checkpoints",
    next_step="If SAVE failed too, begin with SAVE. Otherwise the storage serves one job first: limit the other one.",
    help="Other work slows saves or reads",
)
def test_two_jobs_save_at_the_same_time(
    neighbour: NoisyNeighbour, measurement: Measurement, limits: ClusterLimits
) -> Decision:
    """Two jobs that save at the same time both save within the save limit.

    Jobs usually share storage. In the test, each half of the ranks is a job, and each job writes at a limited rate, the
    pace. The pace is 1.25 times the rate that half of the cluster needs to meet the save limit. A save that the storage
    does not delay therefore takes 80 % of the limit. Each job saves three times while the other job keeps saving.
    Storage that serves both jobs passes; storage that slows one of them too much fails. The pace follows from the
    cluster, so faster clients do not change the verdict.
    """
    paced = _paced(neighbour.pace, measurement, limits)
    if isinstance(paced, Decision):
        return paced
    limit, pace = paced
    first, second = neighbour.save_seconds, neighbour.neighbour_save_seconds
    detail = (
        pace,
        _job("first", neighbour.ranks, neighbour.bytes, first),
        _job("second", neighbour.neighbour_ranks, neighbour.neighbour_bytes, second),
        f"the other job wrote {format_bytes(neighbour.concurrent_bytes)} during these saves",
    )
    if not neighbour.concurrent_bytes:
        because = "The other job wrote no bytes, so no save was made during other work."
        return not_decided("too few", because, detail)
    slowest, job = max((max(first), "first"), (max(second), "second"))
    took, allowed = compared(slowest, limit)
    if slowest > limit:
        because = (
            f"Slowest save while another job saves: {took}, by the {job} job, {format_ratio(slowest / limit)} x the "
            f"limit of {allowed}."
        )
        needed = measurement.bytes / save_limit_seconds(measurement, limits)
        return over_limit(measurement, "save", slowest, limit, because, detail, needed=needed)
    because = f"Slowest save while another job saves: {took}, by the {job} job; limit {allowed}."
    return measured_as("met", slowest, limit, "s", because, detail)


@requirement(
    "MIXED",
    title="Saves and data loading coexist",
    severity="advisory",
    units=("s", "s of an empty queue"),
    figure="the slowest save; if training waited for samples, the longest wait in one turn",
    limit="the save limit of the cluster ({save} for 16,000 accelerators); 0 s of an empty queue",
    source="as SAVE, and --ckpt-suite=contention:loader-rate, whose default is our proposal",
    next_step="Check whether readers or writers were slowed, and ask for a quality-of-service limit for the others.",
    help="Other work slows saves or reads",
)
def test_saves_and_data_loading_both_meet_their_rates(
    mixed: MixedLoad, measurement: Measurement, limits: ClusterLimits
) -> Decision:
    """During saves the data loader of each host delivers its rate, and each save ends within the save limit.

    Training reads its data from the same storage. If a save slows the data loaders, the next training steps are late.
    If data loaders slow a save, all ranks wait. In the test, all ranks save at a limited rate, so that an undelayed
    save takes 0.8 of the save limit. The data loader of every host reads random samples from uncached files into a
    queue. Simulated training takes samples from this queue at the rate --ckpt-suite=contention:loader-rate; the queue
    must never be empty. The 99th percentile of the read times is reported and does not decide.
    """
    paced = _paced(mixed.pace, measurement, limits)
    if isinstance(paced, Decision):
        return paced
    limit, pace = paced
    slowest, waited = max(mixed.save_seconds), max(mixed.empty_queue_seconds)
    rate = format_rate(mixed.loader_bytes_per_second)
    detail = (
        pace,
        mixed.reads,
        f"99th percentile without saves: {format_times(mixed.undisturbed_p99_seconds)}, "
        f"of {_counts(mixed.undisturbed_reads)} reads",
        f"during saves: {format_times(mixed.contended_p99_seconds)}, of {_counts(mixed.contended_reads)} reads",
        f"training waited for samples: without saves {format_times(mixed.undisturbed_empty_queue_seconds)}, "
        f"during saves {format_times(mixed.empty_queue_seconds)}",
        f"{counted(len(mixed.save_seconds), 'save')} during the reads: {format_times(mixed.save_seconds)}",
    )
    if not all(mixed.contended_reads):
        return not_decided("too few", "In one turn no sample was read during a save.", detail)
    took, allowed = compared(slowest, limit)
    if slowest > limit:
        because = f"Slowest save during sample reads: {took}, {format_ratio(slowest / limit)} x the limit of {allowed}."
        needed = measurement.bytes / save_limit_seconds(measurement, limits)
        return over_limit(measurement, "save", slowest, limit, because, detail, needed=needed)
    if waited and mixed.client_busy >= _MAXIMUM_BUSY:
        because = (
            f"The client could not read {rate}: the reading process used or awaited a CPU for "
            f"{format_percent(min(1.0, mixed.client_busy))} of the time."
        )
        return not_decided("client too slow", because, detail)
    if waited:
        because = (
            f"The data loader did not get {rate} a host during saves: training waited {format_seconds(waited)} for "
            f"samples in one turn, and {format_seconds(max(mixed.undisturbed_empty_queue_seconds))} without saves."
        )
        return measured_as("over limit", waited, 0.0, "s of an empty queue", because, detail)
    because = (
        f"Slowest save during sample reads: {took}; limit {allowed}. Each host read {rate} and its queue was never "
        f"empty; 99th percentile of a read: {format_seconds(max(mixed.contended_p99_seconds))}."
    )
    return measured_as("met", slowest, limit, "s", because, detail)


def _resized(found: Resized, measurement: Measurement, limits: ClusterLimits) -> Decision:
    """Return the decision on the loads by half as many and by twice as many ranks.

    If one of these loads fails, the decision is "failed", even if the other load could not be performed.
    """
    loads = found.loads
    detail = tuple(_describe(name, each) for name, each in loads.items())
    for each in loads.values():
        if wrong := wrong_bytes(each.integrity, (each.reads,)) or missing_bytes(each.integrity, (each.reads,)):
            return wrong
    if ended := ended_by(found.failure, "resized", detail):
        return ended
    for each in loads.values():
        if no_time := _no_time(each, measurement.cache):
            return no_time
    decision = _within(measurement, loads, limits, 1.0) if loads else None
    if decision and decision.outcome == "failed":
        return decision
    for why in found.not_run.values():
        return not_decided("not possible", why, detail)
    return decision or not_decided("not measured", "It was not measured.")


def _paced(pace: SavePace | None, measurement: Measurement, limits: ClusterLimits) -> tuple[float, str] | Decision:
    """Return (limit in seconds, description of the pace) for saves at a limited rate, the pace.

    If the pace is missing or too slow for the cluster, return the decision "not decided" instead.
    """
    if pace is None:
        return not_decided("not measured", "An earlier version measured these saves, without a pace.")
    described = _describe_pace(pace)
    whole, share = save_limit_seconds(measurement, limits), pace.share / measurement.share
    accelerators = paced_accelerators(limits.accelerators, whole * share, pace.seconds)
    if accelerators < limits.accelerators:
        because = (
            f"The saves were paced for {counted(accelerators, 'accelerator')}, and a cluster of "
            f"{format_count(limits.accelerators)} needs a faster pace: run again for it."
        )
        return not_decided("not measured", because, (described,))
    return paced_limit_seconds(whole, share), described


def _job(name: str, ranks: int, count: int, seconds: Sequence[float]) -> str:
    return f"{name} job: {counted(ranks, 'rank')}, {format_bytes(count)} a save; {format_times(seconds)}"


def _describe_pace(pace: SavePace) -> str:
    part = "" if pace.share == 1 else f", {format_percent(pace.share)} of the full size"
    return (
        f"pace: {format_bytes(pace.bytes)} of all ranks in {format_seconds(pace.seconds)}, "
        f"{format_rate(pace.bytes / pace.seconds)}{part}"
    )


def _no_time(found: LoadPattern, cache: CacheFacts | None) -> Decision | None:
    """Return a decision if the load times of ``found`` do not count; None if they count.

    Load times do not count if loaded bytes are wrong or missing, or if nothing proves that the bytes came from the
    storage.
    """
    detail = (found.reads,)
    if wrong := wrong_bytes(found.integrity, detail) or missing_bytes(found.integrity, detail):
        return wrong
    for each in found.operations:
        if unproven := not_cold(f"load {each.index}", each.resident_bytes, each.mapped_bytes, detail, cache):
            return unproven
    return None


def _within(
    measurement: Measurement, patterns: dict[str, LoadPattern], limits: ClusterLimits, maximum: float
) -> Decision:
    """Return the decision for the slowest load of all load patterns.

    The limit is ``maximum`` times the load limit, scaled with the size of the run's checkpoint.
    """
    share = measurement.share
    limit = limits.load_limit_seconds * maximum * share
    loads = [(name, o) for name, found in patterns.items() for o in found.operations]
    # If the client compares too slowly, its time does not count against the storage.
    blamed = [(name, o) for name, o in loads if o.seconds - (o.stalled_seconds or 0.0) > limit]
    name, slowest = max(blamed or loads, key=lambda pair: pair[1].seconds)
    times = f"{maximum:g} x the load limit" if maximum != 1 else "the load limit"
    origin = [limits.reason("load_limit_seconds")]
    if share < 1:
        origin.append(f"the run was at {share:.4g} of the full size, so the limit is {format_seconds(limit)}")
    detail = [_describe(each, found) for each, found in patterns.items()]
    where = f"{name} load {slowest.index}" if len(patterns) > 1 else f"load {slowest.index}"
    took, allowed = compared(slowest.seconds, limit)
    if slowest.seconds > limit and not blamed:
        return compared_too_slowly(where, took, allowed, slowest.stalled_seconds or 0.0, (*detail, *origin))
    if slowest.seconds > limit:
        because = (
            f"Slowest {where}: {took}; limit {allowed}, {times} "
            f"({format_ratio(slowest.seconds / limit)} x the limit); rank {slowest.slowest_rank} was last."
        )
        lines, pattern = (*detail, *origin), patterns[name]
        return over_limit(measurement, "load", slowest.seconds, limit, because, lines, pattern=pattern)
    because = f"Slowest {where}: {took}; limit {allowed}, {times}."
    return measured_as("met", slowest.seconds, limit, "s", because, (*detail, *origin))


def _describe(name: str, found: LoadPattern) -> str:
    seconds = format_times(o.seconds for o in found.operations)
    worst = max(skew_of(o, found.rank_bytes)[0] for o in found.operations)
    slowest_rate = min(o.bytes_per_second for o in found.operations)
    return (
        f"{name}: {found.reads}; {seconds}; slowest rank / median {worst:.2f} at most; "
        f"{counted(sum(found.rank_bytes), 'byte')} in each, at least {format_rate(slowest_rate)}"
    )


def _counts(counts: Sequence[int]) -> str:
    return ", ".join(map(str, counts))
