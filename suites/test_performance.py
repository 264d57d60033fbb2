"""Speed of saves and loads, with proof that saves are durable, loads are uncached and bytes are correct."""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_ckpt.facts.engines import built_in
from pytest_ckpt.facts.failure import describe_failure
from pytest_ckpt.facts.file_rules import OF_LAYOUT
from pytest_ckpt.judging.clients import describe_effect, describe_missing, missing_effect, replaced_fsync, unsafe_effect
from pytest_ckpt.judging.cold import BASIS_WORDS, MAXIMUM_RESIDENT, OTHER_PROOFS, is_drop_proven, prove_cold, refuted
from pytest_ckpt.judging.decision import Decision, is_decided_by, measured_as, not_decided, undecided
from pytest_ckpt.judging.loads import missing_bytes, skew_of, wrong_bytes
from pytest_ckpt.judging.requirement import requirement
from pytest_ckpt.judging.speed import within
from pytest_ckpt.sizing.architectures import MODELS
from pytest_ckpt.sizing.files import files_of
from pytest_ckpt.sizing.models import layout
from pytest_ckpt.support.units import (
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

    from pytest_ckpt.facts.measurement import DataEffect, Measurement, Operation, OperationKind, Retention
    from pytest_ckpt.facts.proofs import CacheFacts, Durability
    from pytest_ckpt.facts.verdict import Reason
    from pytest_ckpt.judging.given import Operations
    from pytest_ckpt.sizing.limits import ClusterLimits

# These errors mean that the storage has lost the bytes; other errors mean that the storage cannot be reached.
_LOST = frozenset({"EBADMSG", "EILSEQ", "EIO", "ENODATA", "ENOENT", "EREMOTEIO", "EUCLEAN"})
MAXIMUM_TAIL = 1.3
# A load that is this many times faster than earlier loads came from a cache that the earlier loads filled.
_CACHED_RATIO = 3.0
# With at least this number of loads, one slow load does not affect the median.
_MINIMUM_FIRST = 3
_MAXIMUM_SHOWN = 4
_KINDS: tuple[OperationKind, ...] = ("save", "load")


@requirement(
    "SAVE",
    title="Every save meets the limit",
    units=("s",),
    figure="the slowest save",
    limit="the save limit of the cluster ({save} for 16,000 accelerators)",
    source="derived from the cluster: save budget x interval; MLPerf Storage rules: the slowest process",
    of_strategy=lambda strategy: strategy.blocks,
    next_step="Look at the phase and rank that took longest. If write or fsync is slow on all ranks, the storage or "
    "the network is too slow. If only one host is slow, check that host first. The command pytest-ckpt plan derives "
    "the limit.",
    help="SAVE or LOAD: a limit was missed",
    also_known_as=("NVIDIA HSS02",),
)
def test_every_save_meets_the_budget(saves: Operations, limits: ClusterLimits) -> Decision:
    """Every save ends within the save limit.

    A synchronous save stops every accelerator until the slowest rank has made its files durable and the checkpoint is
    committed. The save limit is the save budget times the interval between checkpoints; the interval follows from the
    failure rate of a cluster of this size. The limit applies to every save and not to the mean, because one slow save
    stops the whole cluster. If --ckpt-confidence permits misses, the permitted number of saves may miss the limit. The
    verdict then states how many did.
    """
    return within(saves, limits.save_limit_seconds, limits.reason("save_limit_seconds"), limits.stated.assurance)


@requirement(
    "LOAD",
    title="Every uncached load meets the limit",
    units=("s",),
    figure="the slowest load",
    limit="the load limit of the cluster ({load} for 16,000 accelerators)",
    source="derived from the cluster: load budget x mean time to failure",
    next_step="Look at the phase and rank that took longest. If read is slow on all ranks, the storage or the network "
    "is too slow. If only one host is slow, check that host first. The command pytest-ckpt plan derives the limit.",
    help="SAVE or LOAD: a limit was missed",
    also_known_as=("NVIDIA HSS02",),
)
def test_every_load_meets_the_budget(loads: Operations, limits: ClusterLimits) -> Decision:
    """Every uncached load ends within the load limit.

    After each failure all ranks load the last checkpoint before training continues. The load limit is the load budget
    times the mean time to failure. The clock stops when the slowest rank has all its tensors in memory. A load with
    missing bytes does not count. If --ckpt-confidence permits misses, the permitted number of loads may miss the limit.
    The verdict then states how many did.
    """
    return within(loads, limits.load_limit_seconds, limits.reason("load_limit_seconds"), limits.stated.assurance)


@requirement(
    "INTEGRITY",
    title="Every loaded byte is correct",
    units=("faults", "bytes"),
    figure="faults found; the number of compared bytes, if it is too low",
    limit="no fault, every byte",
    source="zero tolerance",
    next_step="Repeat with --ckpt-keep-files and the same --ckpt-seed. Then read, on the storage itself, the files and "
    "offsets that the faults name.",
    help="INTEGRITY: bytes are wrong",
)
def test_every_loaded_byte_matches(measurement: Measurement) -> Decision:
    """Every loaded byte matches the byte that was saved.

    Checkpoint loaders do not detect silent corruption: a flipped bit, a torn write or a stale page gives wrong weights.
    The test therefore compares every byte of every loaded tensor with the saved byte. The comparison is not timed. Each
    fault is reported with file, tensor, offset and kind. No fault is tolerated.
    """
    integrity, failure = measurement.integrity, measurement.failure
    if failure and failure.errno in _LOST and failure.kind == "error" and is_decided_by(failure, "load"):
        because = f"Acknowledged bytes could not be read. {describe_failure(failure)}"
        return Decision(outcome="failed", reason="error", because=because)
    if integrity is None:
        return undecided(measurement, "load")
    compared = f"{format_count(integrity.bytes_checked)} of {counted(integrity.bytes_expected, 'byte')} compared"
    if wrong := wrong_bytes(integrity, (compared,)):
        return wrong
    if len(measurement.of_kind("load")) < measurement.operations_planned:
        return undecided(measurement, "load")
    if missing := missing_bytes(integrity, ()):
        return missing
    return Decision(
        outcome="met",
        reason="met",
        measured=0.0,
        limit=0.0,
        unit="faults",
        because=f"All {counted(integrity.bytes_checked, 'loaded byte')} matched what was saved.",
    )


@requirement(
    "COLD",
    title="Loads come from the storage",
    units=("fraction",),
    figure="the largest cached share of the data, before a load",
    limit=f"{MAXIMUM_RESIDENT:g}",
    source="MLPerf Storage rules require dropped caches; at most 1 % resident is our limit",
    next_step="Make the drop work: run as root, or name the command that empties the client's cache "
    f"(--ckpt-drop-caches). If the kernel counts no cached pages, give another proof: {OTHER_PROOFS}. A "
    "target in memory (tmpfs, zram, a file in memory) cannot meet COLD.",
    help="COLD: the page cache was warm",
)
def test_loads_are_read_from_the_storage(measurement: Measurement) -> Decision:
    """At most 1 % of the data to be read is in the client's page cache.

    A restore follows a failure: hosts have rebooted, ranks have moved. A load from the client's own memory does not
    measure the storage. Before every load, the test counts the cached pages of the checkpoint's files. On a loop
    device, the cached pages of the device's backing file are counted, too. Then the test drops the cached names and
    attributes of files. A target in the host's memory fails. If the kernel does not show how much of the target is
    cached, the verdict names another proof. There are three such proofs: loads by hosts that never had the files; timed
    reads by this client (with and without a drop of its cache) and by another client; or more bytes moved between the
    save and the load than all caches can store.
    """
    cache = measurement.cache
    if cache and (memory := next((s for s in cache.storages if s.memory), None)):
        because = f"Loads did not measure storage: on {memory.host} the target is {memory.sentence}."
        return Decision(outcome="failed", reason="cached", because=because)
    if cache is not None and cache.is_declared_cold:
        return _cold_as_declared(measurement, cache)
    loads = [o for o in measurement.of_kind("load") if o.mapped_bytes and o.resident_bytes is not None]
    if cache is not None and not cache.probe:
        return _cold_without_cache_probe(measurement, cache)
    if not loads:
        return undecided(measurement, "load")
    warmest = max(loads, key=_resident)
    fraction = _resident(warmest)
    method = f" (dropped by: {cache.method}; seen by {cache.probe})" if cache else ""
    detail = tuple(
        f"load {o.index}: {format_percent(_resident(o))} resident, {format_rate(o.bytes_per_second)}" for o in loads
    ) + tuple(
        f"{r.host}: {r.rule}: {format_bytes(r.bytes_compared)} against {format_bytes(r.memory_bytes)} of memory, "
        + ("caches must be dropped" if r.requires_drop else "no drop needed")
        for r in (cache.readings if cache else ())
    )
    if fraction > MAXIMUM_RESIDENT:
        because = (
            f"{format_percent(fraction)} of what load {warmest.index} was about to read was cached on the client"
            f"{method}, so its time is not the storage's."
        )
        return measured_as("cached", fraction, MAXIMUM_RESIDENT, "fraction", because, detail)
    if cache and (kept := refuted(cache)):
        because = f"The kernel counts no cached pages, but loads did not measure the storage: {kept.because}."
        return Decision(outcome="failed", reason="cached", because=because, detail=detail)
    every = measurement.of_kind("load")
    if len(every) < measurement.operations_planned:
        return undecided(measurement, "load")
    if len(loads) < len(every):
        unknown = ", ".join(str(o.index) for o in every if o not in loads)
        return not_decided("unproven", f"The cached share before load {unknown} was not measured.")
    cached = f"At most {format_percent(fraction)}" if fraction else "None"
    because = f"{cached} of the data to be read was cached{method}."
    if cache and cache.names_dropped is False:
        because += " Names and attributes of files could not be dropped: this process may not write to drop_caches."
    if cache and is_drop_proven(cache):
        because += f" What the kernel does not count, timed reads show: {prove_cold(cache).because}."
    met = measured_as("met", fraction, MAXIMUM_RESIDENT, "fraction", because, detail)
    return replace(met, basis="seen")


@requirement(
    "DURABLE-CALLS",
    title="Saves are durable before they count",
    units=("files", "directories", "commits"),
    figure="fsynced files; the missing calls, if any",
    limit="all",
    source="fsync on every file and directory, then commit; IO500 rule 6",
    next_step="Find the fsync that returned an error, and read the kernel's log (dmesg) of that host. On an object "
    "store, find the request of the commit that returned an error, and read the store's log.",
    help="DURABLE, DURABLE-CALLS: acknowledged bytes may be lost",
    also_known_as=("IO500 rule 6",),
)
def test_saves_are_durable(durability: Durability, measurement: Measurement) -> Decision:
    """A save ends when fsync has returned for every file and directory and the checkpoint is committed.

    Data in a client's memory is not a checkpoint. Each rank calls fsync on its files. Then one rank of each host calls
    fsync on the directory. To commit, one rank renames the directory to its final name and calls fsync on the parent
    directory. If the target refuses to rename a directory, a marker file in the directory commits the checkpoint. The
    time of a save includes all these steps. Before and after the saves, each rank writes and fsyncs a test file. After
    the fsync, the kernel must count no dirty page of the test file. If the file system does not provide this count, the
    certificate states that the effect of fsync was not observable.
    """
    if durability.observed in ("declared by the library", "unseen"):
        because = "No measurement shows that files became durable" + (
            ": only the library that wrote them declares it." if durability.observed != "unseen" else "."
        )
        return not_decided("unproven", because)
    proofs = measurement.client_proofs
    if proofs and (effect := missing_effect(proofs)):
        if replaced := replaced_fsync(proofs):
            return not_decided("unproven", f"{replaced} {describe_missing(effect)}, so the storage is not judged.")
        return measured_as(
            "not durable",
            float(effect.left_bytes),
            0.0,
            "bytes",
            f"{describe_missing(effect)}: a power cut may take acknowledged checkpoints.",
            (),
        )
    if proofs and (unsafe := unsafe_effect(proofs)):
        return not_decided("unproven", unsafe)
    # Without directories, a name is as durable as its object.
    has_directories = "rename" in durability.commit_methods or durability.directories > 0
    counts = (
        ("file", "files", durability.files_synced, durability.files),
        *(
            (("directory", "directories", durability.directories_synced, durability.directories),)
            if has_directories
            else ()
        ),
        ("commit", "commits", durability.commits, durability.saves),
    )
    detail = tuple(f"{format_count(done)} of {counted(of, one, many)}" for one, many, done, of in counts)
    short = next((row for row in counts if row[2] != row[3] or row[3] == 0), None)
    if short:
        one, many, done, of = short
        because = f"Of {counted(of, one, many)} only {counted(done, 'was', 'were')} made durable: " + (
            "a power cut may take acknowledged checkpoints."
        )
        return measured_as("not durable", float(done), float(of), many, because, detail)
    files = counted(durability.files, "file") if durability.files == 1 else f"all {durability.files:,} files"
    text = " or ".join(durability.acknowledged)
    return Decision(
        outcome="met",
        reason="met",
        measured=float(durability.files_synced),
        limit=float(durability.files),
        unit="files",
        because=(
            f"fsync returned for {files} and {counted(durability.directories, 'directory', 'directories')}"
            if has_directories
            else f"The store acknowledged {files}{f' by {text}' if text else ''}"
        )
        + f", and {counted(durability.commits, 'checkpoint was', 'checkpoints were')} committed by "
        f"{' and '.join(durability.commit_methods)}."
        + (f" {shown}" if proofs and (shown := describe_effect(proofs)) else ""),
        detail=detail,
    )


@requirement(
    "STRAGGLER",
    title="No straggling rank",
    severity="advisory",
    maximum=1.5,
    units=("slowest / median", "p99 / p50"),
    ratios=("slowest / median", "p99 / p50"),
    hidden_by_load=True,
    figure="the ratio of the ranks' times per byte, in the most uneven operation",
    limit=f"{{maximum:g}}; with 100 ranks or more, {MAXIMUM_TAIL:g} for the 99th percentile",
    source="our proposal: slowest / median at most 1.5; with 100 ranks or more, p99 / p50 at most 1.3",
    next_step="Check the named rank's host, its link, and the server that stores its files.",
    help="STRAGGLER: one rank is late",
)
def test_no_rank_is_a_straggler(measurement: Measurement, maximum: float) -> Decision:
    """The time per byte of the slowest rank is at most 1.5 times the median of all ranks.

    All ranks wait for the slowest one, so uneven service wastes bandwidth. With 100 ranks or more, the 99th percentile
    of the ranks' times per byte must also be at most 1.3 times the median. Advisory: no published limit exists.
    """
    if not measurement.operations:
        return undecided(measurement, "save")
    if measurement.processes < 3:
        return not_decided("too few", f"Too few ranks to find a straggler: {measurement.processes}.")
    if (engine := built_in(measurement.engine)) and engine.is_collective:
        return not_decided(
            "not possible",
            f"The ranks of engine {engine.name} wait for each other inside its library: their times do not show which "
            "rank was slow.",
        )
    worst = max(measurement.operations, key=lambda o: skew_of(o, measurement.rank_bytes)[0])
    skew, tail = skew_of(worst, measurement.rank_bytes)
    host = next((r.host for r in measurement.ranks if r.rank == worst.slowest_rank), "")
    where = f"{worst.kind} {worst.index}, rank {worst.slowest_rank}{' on ' + host if host else ''}"
    ratios = [("slowest / median", skew, maximum)]
    if tail is not None:
        ratios.append(("p99 / p50", tail, MAXIMUM_TAIL))
    numbers = ", ".join(f"{name} {format_ratio(value, limit)} (at most {limit})" for name, value, limit in ratios)
    failed = any(value > limit for _, value, limit in ratios)
    because = f"{numbers}, in {where}." if failed else f"At worst {numbers}, in {where}."
    detail = (
        *_files_of(measurement, worst.slowest_rank),
        *_slow_hosts(measurement, worst),
        *_slow_endpoints(measurement),
        *(
            f"{o.kind} {o.index}: slowest / median {skew_of(o, measurement.rank_bytes)[0]:.2f}"
            for o in measurement.operations
        ),
    )
    # The verdict shows the ratio that is closest to its limit, or furthest beyond it.
    unit, measured, limit = max(ratios, key=lambda r: r[1] / r[2])
    return measured_as("over limit" if failed else "met", measured, limit, unit, because, detail)


@requirement(
    "REPEAT",
    title="Repeated operations take the same time",
    severity="advisory",
    maximum=0.10,
    units=("fraction",),
    ratios=("fraction",),
    figure="the larger coefficient of variation",
    limit="{maximum:g}",
    source="our proposal: coefficient of variation at most 10 %",
    next_step="Repeat at full size without other load on hosts and storage; choose a size that exceeds caches.",
    help="REPEAT: times vary",
)
def test_repeated_operations_take_the_same_time(measurement: Measurement, maximum: float) -> Decision:
    """The times of the saves, and the times of the loads, vary by at most 10 % (coefficient of variation).

    Storage whose times vary may meet a limit today and miss it tomorrow. Advisory: published procurements require 5 to
    10 %.
    """
    # Deltas and restores of chains take other times than full checkpoints.
    alike = {k: measurement.whole(k) for k in _KINDS}
    variations = {k: _variation(alike[k]) for k in _KINDS}
    known = {k: v for k, v in variations.items() if v is not None}
    if len(known) < len(_KINDS):
        if measurement.failure:
            return undecided(measurement, "load")
        what = "saves and two loads of a complete checkpoint" if measurement.save_bytes else "operations of a kind"
        return not_decided("too few", f"Variation needs at least two {what}.")
    worst = max(known, key=known.__getitem__)
    value = known[worst]
    because = (
        f"Coefficient of variation: {format_percent(variations['save'] or 0)} for saves and "
        f"{format_percent(variations['load'] or 0)} for loads (limit {format_percent(maximum)})."
    )
    detail = tuple(f"{k}s: " + format_times(o.seconds for o in alike[k]) for k in _KINDS)
    warm = _much_faster(alike["load"])
    if warm:
        because = f"{warm} {because}"
    reason: Reason = "cached" if warm else "over limit" if value > maximum else "met"
    return measured_as(reason, value, maximum, "fraction", because, detail)


@requirement(
    "RETENTION",
    title="Deleting does not slow a save",
    severity="advisory",
    maximum=1.10,
    units=("with / without deletion",),
    ratios=("with / without deletion",),
    hidden_by_load=True,
    figure="the time of a save during a deletion",
    limit="{maximum:g}",
    source="our proposal: at most 10 % longer",
    requested_by=lambda settings: settings.keep_last > 0,
    next_step="Ask whether the storage can delete in the background, or delete between saves.",
    help="Saves become slower with time, fill level or content",
)
def test_deleting_does_not_slow_a_save(retention: Retention, maximum: float) -> Decision:
    """A save during which the oldest checkpoint is deleted takes at most 10 % longer than the others.

    Training jobs keep the newest few checkpoints and delete old ones while they save. Some storage does the work of a
    deletion long after the call and slows the next save. Measured with --ckpt-keep-last. Advisory: no published limit
    exists.
    """
    ratio = retention.save_while_deleting_seconds / retention.save_seconds
    deletes = format_times(retention.delete_seconds) or "none"
    because = (
        f"Save during a deletion: {format_seconds(retention.save_while_deleting_seconds)}; median save without: "
        f"{format_seconds(retention.save_seconds)} ({format_ratio(ratio, maximum)} x; limit {maximum} x)."
    )
    detail = (
        f"deletions between saves, one at a time: {deletes}",
        f"the newest {counted(retention.kept, 'checkpoint was', 'checkpoints were')} kept",
    )
    reason: Reason = "over limit" if ratio > maximum else "met"
    return measured_as(reason, ratio, maximum, "with / without deletion", because, detail)


@requirement(
    "DATA",
    title="Content does not change the time",
    severity="advisory",
    maximum=1.05,
    units=("unique / constant",),
    ratios=("unique / constant",),
    hidden_by_load=True,
    figure="the larger ratio of median times",
    limit="{maximum:g}",
    source="IO500 rule 7; our proposal: within 5 %",
    requested_by=lambda settings: settings.data_pairs > 0,
    of_strategy=lambda strategy: not strategy.compresses,
    next_step="Ask whether the storage compresses or deduplicates. Checkpoints need its speed with unique data.",
    help="Saves become slower with time, fill level or content",
    also_known_as=("IO500 rule 7",),
)
def test_throughput_does_not_depend_on_content(data: DataEffect, maximum: float) -> Decision:
    """Unique, incompressible data take at most 5 % longer than the same amount of constant data.

    Checkpoints contain data that neither compress nor repeat. This test finds storage that is fast only for data that
    compress or repeat. All other requirements use unique data. Measured with --ckpt-suite=performance:data-pairs.
    Advisory.
    """
    pairs = {
        "save": (data.unique_save_seconds, data.constant_save_seconds),
        "load": (data.unique_load_seconds, data.constant_load_seconds),
    }
    ratios = {kind: statistics.median(u) / statistics.median(c) for kind, (u, c) in pairs.items()}
    worst = max(ratios, key=ratios.__getitem__)
    times = {kind: format_ratio(ratio, maximum) for kind, ratio in ratios.items()}
    because = (
        f"Unique data took {times['save']} x the time of constant data to save and {times['load']} x to load "
        f"(at most {maximum}). All other requirements use unique data."
    )
    detail = tuple(f"{kind}s: unique {format_times(u)}; constant {format_times(c)}" for kind, (u, c) in pairs.items())
    if data.fault_count:
        faults = counted(data.fault_count, "fault")
        because = f"{faults} in what was loaded for this comparison, so its times are not valid. {because}"
    reason: Reason = "wrong bytes" if data.fault_count else "over limit" if ratios[worst] > maximum else "met"
    return measured_as(reason, ratios[worst], maximum, "unique / constant", because, detail)


def _cold_as_declared(measurement: Measurement, cache: CacheFacts) -> Decision:
    """Return the decision on uncached loads for a target that declares that its clients do not cache their reads.

    If there is a stronger proof than the declaration, the verdict also names this proof.
    """
    if len(measurement.of_kind("load")) < measurement.operations_planned:
        return undecided(measurement, "load")
    because, proof = "The target declares that its clients do not cache their reads", prove_cold(cache)
    if proof.basis:
        because = f"{because}, and {proof.because}"
    met = measured_as("met", 0.0, MAXIMUM_RESIDENT, "fraction", f"{because}; cached pages were not counted.", ())
    return replace(met, basis=proof.basis or "declared")


def _cold_without_cache_probe(measurement: Measurement, cache: CacheFacts) -> Decision:
    """Return the decision on uncached loads for a target whose cached pages the kernel cannot count.

    The decision is based on another proof.
    """
    proof = prove_cold(cache)
    if proof.found == "cached":
        return Decision(
            outcome="failed", reason="cached", because=f"Loads did not measure the storage: {proof.because}."
        )
    if len(measurement.of_kind("load")) < measurement.operations_planned:
        return undecided(measurement, "load")
    if proof.basis is None:
        return not_decided("unproven", f"Cannot prove uncached reads: {cache.detail}. Besides, {proof.because}.")
    return Decision(
        outcome="met",
        reason="met",
        because=f"Shown by {BASIS_WORDS[proof.basis]}: {proof.because}.",
        detail=(f"dropped by: {cache.method}", cache.detail),
        basis=proof.basis,
    )


def _resident(operation: Operation) -> float:
    return (operation.resident_bytes or 0) / operation.mapped_bytes if operation.mapped_bytes else 0.0


def _slow_hosts(measurement: Measurement, operation: Operation) -> list[str]:
    """Return a line with {host: median time per byte of its ranks / median of all ranks}, slowest host first.

    A high value shows that all ranks of a host are slow, and not only one. The list is empty for a single host.
    """
    per_byte = {
        rank: seconds / count
        for rank, (seconds, count) in enumerate(zip(operation.rank_seconds, measurement.rank_bytes, strict=True))
        if count
    }
    of_host: dict[str, list[float]] = {}
    for facts in measurement.ranks:
        if facts.rank in per_byte:
            of_host.setdefault(facts.host, []).append(per_byte[facts.rank])
    if len(of_host) < 2:
        return []
    middle = statistics.median(per_byte.values())
    slowest = sorted(((statistics.median(times) / middle, host) for host, times in of_host.items()), reverse=True)
    shown = ", ".join(f"{host} {ratio:.2f}" for ratio, host in slowest[:_MAXIMUM_SHOWN])
    return [f"by host, median of its ranks / median of all, {operation.kind} {operation.index}: {shown}"]


def _slow_endpoints(measurement: Measurement) -> list[str]:
    """Return a line for each kind of request, with the median time at each endpoint, slowest endpoint first."""
    kinds: dict[str, list[tuple[float, str]]] = {}
    for requests in measurement.requests:
        if requests.median_seconds is not None:
            kinds.setdefault(requests.kind, []).append((requests.median_seconds, requests.endpoint))
    return [
        f"by endpoint, median of {kind} requests: "
        + ", ".join(
            f"{name} {format_seconds(seconds)}" for seconds, name in sorted(times, reverse=True)[:_MAXIMUM_SHOWN]
        )
        for kind, times in kinds.items()
        if len(times) > 1
    ]


def _files_of(measurement: Measurement, rank: int | None) -> list[str]:
    """Return a line with the names of a rank's files; if there are more than three, the first two and the count.

    The list is empty if the names are unknown.
    """
    if measurement.model not in MODELS:
        # For a user's model, a measurement contains only the name.
        return []
    processes = measurement.processes if measurement.mode == "open" else None
    shards = layout(measurement.model, mode=measurement.mode, processes=processes, scale=measurement.scale)
    if rank is None or rank >= shards.processes:
        return []
    engine = built_in(measurement.engine)
    names = [file.name for file in files_of(shards.rank(rank), engine.files if engine else OF_LAYOUT)]
    shown = names if len(names) <= 3 else [*names[:2], f"… ({len(names)} files)"]
    return [f"rank {rank} has {', '.join(shown)}"]


def _much_faster(loads: Sequence[Operation]) -> str:
    """Return a sentence on loads that were much faster than the run's uncached loads; empty if there are none.

    The typical time of uncached loads is the larger of two medians: of all loads, and of the first loads. If a cache
    fills during the run, only the first loads are slow. Medians are used because one slow load does not represent the
    others.
    """
    first = loads[: max(_MINIMUM_FIRST, len(loads) // 3)]
    middles = {f"the first {len(first)} loads": first, "all loads": loads}
    which, seconds = max(
        ((name, statistics.median_low(o.seconds for o in some)) for name, some in middles.items()), key=lambda m: m[1]
    )
    fast = [o for o in loads if o.seconds * _CACHED_RATIO <= seconds]
    if not fast:
        return ""
    names = ", ".join(str(o.index) for o in fast)
    plural = "s" if len(fast) > 1 else ""
    return (
        f"Load{plural} {names} took a third or less of the median of {which}, {format_seconds(seconds)}: a cache "
        "beyond the client may have served their reads."
    )


def _variation(operations: Sequence[Operation]) -> float | None:
    if len(operations) < 2:
        return None
    seconds = [o.seconds for o in operations]
    return statistics.stdev(seconds) / statistics.fmean(seconds)
