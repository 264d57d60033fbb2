"""Contention and resharded loads."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from pytest_ckpt.judging.decision import (
    Decision,
    measured_as,
    not_decided,
)
from pytest_ckpt.judging.given import without_pattern
from pytest_ckpt.judging.loads import missing_bytes, not_cold, skew_of, wrong_bytes
from pytest_ckpt.judging.requirement import requirement
from pytest_ckpt.judging.save_costs import save_limit_seconds
from pytest_ckpt.support.units import (
    compared,
    counted,
    format_bytes,
    format_decimal_bytes,
    format_rate,
    format_ratio,
    format_seconds,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ckpt.facts.measurement import LoadPattern, Measurement, MixedLoad, NoisyNeighbour
    from pytest_ckpt.facts.proofs import CacheFacts
    from pytest_ckpt.facts.verdict import Reason
    from pytest_ckpt.sizing.limits import ClusterLimits

MAXIMUM_STORM_SKEW = 2.0
# A rank that is late by less than this is late by its client's doing, and nobody's concern.
_MINIMUM_LAG_SECONDS = 0.25
MAXIMUM_MIXED_SAVE = 1.25
# Of fewer reads, the 99th percentile is the slowest one.
_MINIMUM_READS = 100


@requirement(
    "STORM",
    title="All replicas restore at once",
    maximum=1.5,
    units=("s", "slowest / median"),
    figure="the slowest load; the ranks' times for a byte, where these were uneven",
    limit=f"{{maximum:g}} x the load limit; {MAXIMUM_STORM_SKEW:g} for the slowest rank",
    source="our proposal: 1.5 x the load limit, slowest / median at most 2",
    next_step="Look at the named rank, and at how the storage spreads one file over its servers.",
    help="Another kind of load is too slow",
)
def test_all_replicas_restore_at_once(
    storm: LoadPattern, measurement: Measurement, limits: ClusterLimits, maximum: float
) -> Decision:
    """All data-parallel replicas restore at once within 1.5 times the load limit.

    After a failure every replica reads the same model files at the same moment. Storage that serves one reader well may
    slow down when hundreds read the same bytes, or serve some and delay others: the slowest rank may take at most twice
    the median rank's time per byte. Every load is uncached, and every byte is compared.
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
    source="as LOAD: load budget x mean time to failure; copies: accelerators / those that hold one copy",
    next_step="Look at the rate and at the host that was last: the storage or the network gives all replicas together "
    "too little.",
    help="Another kind of load is too slow",
)
def test_the_whole_cluster_restarts_within_the_load_limit(
    storm: LoadPattern, measurement: Measurement, limits: ClusterLimits
) -> Decision:
    """A restart of the cluster reads every data-parallel copy of the model within the load limit.

    LOAD reads one copy, and a failure makes all copies read. STORM reads as many copies as the ranks hold. If the
    cluster holds more, the time is a projection: the bytes of all copies at the rate of STORM's slowest load. More
    clients may get a higher rate, so a projection beyond the limit decides nothing. With ZeRO-1, each copy reads the
    model files and its own part of the optimizer; with ZeRO-3, all of the checkpoint.
    """
    if no_time := _no_time(storm, measurement.cache):
        return no_time
    restart = storm.restart
    if restart is None:
        return not_decided("not recorded", "The bytes that a restart reads were not recorded.")
    needed, limit = restart.copies_of(limits.accelerators), limits.load_limit_seconds
    cluster = counted(limits.accelerators, "accelerator")
    if needed == 1:
        because = f"A cluster of {cluster} holds one copy of the model: LOAD measures its restart."
        return not_decided("not possible", because)
    slowest = max(storm.operations, key=lambda o: o.seconds)
    rate, total = slowest.bytes_per_second, restart.bytes_of(needed)
    seconds = total / rate
    detail: tuple[str, ...] = (
        f"measured: {storm.reads}; {format_decimal_bytes(slowest.bytes)} in {format_seconds(slowest.seconds)}",
        f"a restart of {counted(needed, 'copy', 'copies')} reads {format_decimal_bytes(total)}: "
        f"{format_rate(total / limit)} are needed",
        limits.reason("load_limit_seconds"),
    )
    if measurement.share < 1:
        detail += (f"the run was at {measurement.share:.4g} of the full size: the time follows from the bandwidth",)
    took, allowed = compared(seconds, limit)
    read = counted(restart.copies, "copy", "copies") if restart.copies else "parts of copies"
    measured = f"Measured: {read} at once, {format_rate(rate)}."
    if restart.copies >= needed:
        because = f"{measured} A restart of {cluster} takes {took}; limit {allowed}."
        return measured_as("over limit" if seconds > limit else "met", seconds, limit, "s", because, detail)
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
    limit="the load limit of the cluster",
    source="as LOAD: load budget x mean time to failure",
    next_step="Look at the phase and rank that took longest: these files were written by another host.",
    help="Another kind of load is too slow",
)
def test_ranks_load_what_another_wrote(
    shifted: LoadPattern, measurement: Measurement, limits: ClusterLimits
) -> Decision:
    """A load ends within the load limit when each rank reads what a rank of another host wrote.

    After a failure ranks run on other hosts, so data that a client or a nearby server cached from its own writes must
    not speed up the load. With one host, each rank reads its neighbour's files, uncached. Every byte is compared with
    what that other rank wrote.
    """
    if no_time := _no_time(shifted, measurement.cache):
        return no_time
    return _within(measurement, {"shifted": shifted}, limits, 1.0)


@requirement(
    "RESHAPED",
    title="Fewer or more ranks restore the checkpoint",
    units=("s",),
    figure="the slowest load",
    limit="the load limit of the cluster",
    source="as LOAD: load budget x mean time to failure",
    next_step="Look at the phase and rank that took longest, with fewer readers or half a file each.",
    help="Another kind of load is too slow",
)
def test_the_checkpoint_is_loaded_by_another_number_of_ranks(
    measurement: Measurement, limits: ClusterLimits
) -> Decision:
    """Half as many ranks, and twice as many readers per file, load the checkpoint within the load limit.

    Training continues with the remaining nodes, or with more. Then half of the ranks read two ranks' files each, or two
    readers share each file. Every load is uncached, and every byte is compared with what was saved.
    """
    patterns = measurement.patterns
    if patterns is None or patterns.joined is None or patterns.split is None:
        return without_pattern(measurement, ("joined", "split"))
    both = {"joined": patterns.joined, "split": patterns.split}
    for found in both.values():
        if no_time := _no_time(found, measurement.cache):
            return no_time
    return _within(measurement, both, limits, 1.0)


@requirement(
    "NEIGHBOUR",
    title="A second job does not slow a save",
    severity="advisory",
    maximum=1.25,
    units=("beside / alone",),
    figure="the median time of a save",
    limit="{maximum:g}",
    source="our proposal: at most 25 % longer",
    next_step="Ask for a quality-of-service limit for each job, and look which phase became slower.",
    help="Other work slows saves or reads",
)
def test_a_second_job_does_not_hold_up_a_save(neighbour: NoisyNeighbour, maximum: float) -> Decision:
    """A save takes at most 25 % longer while a second job saves in bursts.

    Jobs usually share storage. Half of the ranks save their part of the checkpoint, alone and while the other half
    saves in bursts as a second job, each burst followed by a pause of the same length. The two alternate, and the
    medians are compared. With one host both jobs also share that client.
    """
    detail = (
        f"{counted(neighbour.ranks, 'rank')} saved {format_bytes(neighbour.bytes)}; "
        f"{counted(neighbour.neighbour_ranks, 'more was', 'more were')} the second job",
        f"alone: {_times(neighbour.undisturbed_seconds)}",
        f"beside it: {_times(neighbour.contended_seconds)}",
        f"the second job completed {counted(neighbour.bursts, 'burst')}, {format_bytes(neighbour.neighbour_bytes)}",
    )
    if not neighbour.bursts:
        because = "The second job completed no burst, so nothing was beside the saves."
        return not_decided("too few", because, detail)
    alone, beside = statistics.median(neighbour.undisturbed_seconds), statistics.median(neighbour.contended_seconds)
    because = (
        f"Median save during a second job's bursts: {format_seconds(beside)}; alone: {format_seconds(alone)} "
        f"({format_ratio(beside / alone, maximum)} x; limit {maximum:g} x)."
    )
    reason: Reason = "over limit" if beside / alone > maximum else "met"
    return measured_as(reason, beside / alone, maximum, "beside / alone", because, detail)


@requirement(
    "MIXED",
    title="Saves and data loading coexist",
    severity="advisory",
    maximum=2.0,
    units=("during saves / alone", "s"),
    figure="the 99th percentile of reading a sample; the slowest save, where that was late",
    limit=f"{{maximum:g}}; {MAXIMUM_MIXED_SAVE:g} x the save limit",
    source="our proposal: the loader's p99 at most 2 x, a save at most 1.25 x the save limit",
    next_step="Ask for a quality-of-service limit for readers or writers, and look which of them lost.",
    help="Other work slows saves or reads",
)
def test_saves_and_data_loading_bear_each_other(
    mixed: MixedLoad, measurement: Measurement, limits: ClusterLimits, maximum: float
) -> Decision:
    """During saves, the 99th percentile of a sample read at most doubles, and no save takes longer than 1.25 times the
    save limit.

    Training reads its data from the same storage. A save that starves the data loaders delays the next steps; data
    loaders that slow a save stop all ranks. Every host reads samples at random from uncached files, alone and during
    saves, alternating.
    """
    limit = save_limit_seconds(measurement, limits) * MAXIMUM_MIXED_SAVE
    detail = (
        mixed.reads,
        f"99th percentile alone: {_times(mixed.undisturbed_p99_seconds)}, of {_counts(mixed.undisturbed_reads)} reads",
        f"during saves: {_times(mixed.contended_p99_seconds)}, of {_counts(mixed.contended_reads)} reads",
        f"{counted(len(mixed.save_seconds), 'save')} beside the reads, the slowest "
        f"{format_seconds(max(mixed.save_seconds))}; "
        f"{MAXIMUM_MIXED_SAVE:g} x the save limit is {format_seconds(limit)}",
    )
    minimum = min(*mixed.undisturbed_reads, *mixed.contended_reads)
    if minimum < _MINIMUM_READS:
        because = f"One turn read only {counted(minimum, 'sample')}; a 99th percentile needs {_MINIMUM_READS}."
        return not_decided("too few", because, detail)
    slowest = max(mixed.save_seconds)
    took, allowed = compared(slowest, limit)
    if slowest > limit:
        because = (
            f"Slowest save during sample reads: {took}, {format_ratio(slowest / limit)} x the limit of {allowed} "
            f"({MAXIMUM_MIXED_SAVE:g} x the save limit)."
        )
        return measured_as("over limit", slowest, limit, "s", because, detail)
    alone, beside = statistics.median(mixed.undisturbed_p99_seconds), statistics.median(mixed.contended_p99_seconds)
    because = (
        f"99th percentile of a sample read during saves: {format_seconds(beside)}; alone: {format_seconds(alone)} "
        f"({format_ratio(beside / alone, maximum)} x; limit {maximum:g} x). Slowest save during the reads: {took}; "
        f"limit {allowed}."
    )
    reason: Reason = "over limit" if beside / alone > maximum else "met"
    return measured_as(reason, beside / alone, maximum, "during saves / alone", because, detail)


def _no_time(found: LoadPattern, cache: CacheFacts | None) -> Decision | None:
    """Decide where the times of a pattern say nothing: wrong bytes, or bytes that did not come from the storage."""
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
    """Hold the slowest load of the patterns against ``most`` load limits at the size that was run."""
    share = measurement.share
    limit = limits.load_limit_seconds * maximum * share
    name, slowest = max(
        ((name, o) for name, found in patterns.items() for o in found.operations), key=lambda pair: pair[1].seconds
    )
    times = f"{maximum:g} x the load limit" if maximum != 1 else "the load limit"
    origin = [limits.reason("load_limit_seconds")]
    if share < 1:
        origin.append(f"the run was at {share:.4g} of the full size, so the limit is {format_seconds(limit)}")
    detail = [_describe(each, found) for each, found in patterns.items()]
    where = f"{name} load {slowest.index}" if len(patterns) > 1 else f"load {slowest.index}"
    took, allowed = compared(slowest.seconds, limit)
    if slowest.seconds > limit:
        because = (
            f"Slowest {where}: {took}; limit {allowed}, {times} "
            f"({format_ratio(slowest.seconds / limit)} x the limit); rank {slowest.slowest_rank} was last."
        )
        return measured_as("over limit", slowest.seconds, limit, "s", because, (*detail, *origin))
    because = f"Slowest {where}: {took}; limit {allowed}, {times}."
    return measured_as("met", slowest.seconds, limit, "s", because, (*detail, *origin))


def _describe(name: str, found: LoadPattern) -> str:
    seconds = ", ".join(format_seconds(o.seconds) for o in found.operations)
    worst = max(skew_of(o, found.rank_bytes)[0] for o in found.operations)
    slowest_rate = min(o.bytes_per_second for o in found.operations)
    return (
        f"{name}: {found.reads}; {seconds}; slowest rank / median {worst:.2f} at most; "
        f"{counted(sum(found.rank_bytes), 'byte')} in each, at least {format_rate(slowest_rate)}"
    )


def _times(seconds: Sequence[float]) -> str:
    return ", ".join(format_seconds(s) for s in seconds)


def _counts(counts: Sequence[int]) -> str:
    return ", ".join(map(str, counts))
