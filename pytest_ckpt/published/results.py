"""Combines runs into one result for each system and layout, and detects loads from a cache. Pure (no I/O).

All loads read the same number of bytes, so their times usually differ by a few percent. If later loads need at most two
thirds of the time of earlier loads, a cache has usually served a part of the data.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_ckpt.facts.measurement import Basis, Measurement, Operation, OperationKind
from pytest_ckpt.published.directory import Message
from pytest_ckpt.published.runs import KINDS, Run
from pytest_ckpt.published.times import ALL_RANKS, INFERRED, RANK_0, Slowest
from pytest_ckpt.published.traffic import CROSSED_SHARE
from pytest_ckpt.sizing.models import Layout
from pytest_ckpt.support.units import format_seconds, format_times

TWO_SPEEDS = 1.5
"""The minimum ratio of times between two groups of loads that count as two speeds; chosen by this program."""

# A single slow load is an outlier; the loads after it are not suspiciously fast.
_MINIMUM_SLOW = 2

ONE_FAST = 3.0
"""A load is too fast if the median load takes at least this many times as long; chosen by this program."""

AT_MOST = "at most"
"""The text, when operations are counted by basis, for operations whose time is only known as an upper bound."""

_WORDS = (ALL_RANKS, INFERRED, AT_MOST, RANK_0)

# If this many operations are equal to the microsecond, two directories contain the same run.
_MAXIMUM_ALIKE = 3


def signs_of_cached_reads(loads: Sequence[tuple[int, float]]) -> tuple[str, ...]:
    """Return sentences on loads that are suspiciously fast compared with the other loads.

    ``loads`` are pairs (number of the load, seconds).
    """
    if len(loads) < 2:
        return ()
    if later := _faster_from(loads):
        return (later,)
    if two := _two_speeds(loads):
        return (two,)
    # With two loads, the faster one is not suspicious compared with a single slow load.
    middle = statistics.median_low(seconds for _, seconds in loads)
    alone = [number for number, value in loads if value * ONE_FAST <= middle]
    if alone:
        return (f"{_named(alone)} took a third or less of the median load, {format_seconds(middle)}.",)
    return ()


def _faster_from(loads: Sequence[tuple[int, float]]) -> str:
    """Return a sentence if, from some load on, every load is clearly faster than every earlier load; otherwise empty.

    At least two earlier loads are needed, because a single slow load is an outlier.
    """
    best, at = 0.0, 0
    for split in range(_MINIMUM_SLOW, len(loads)):
        ratio = min(s for _, s in loads[:split]) / max(s for _, s in loads[split:])
        if ratio > best:
            best, at = ratio, split
    if best < TWO_SPEEDS:
        return ""
    before, after = loads[:at], loads[at:]
    return (
        f"{_named([n for n, _ in after])} took at most {format_seconds(max(s for _, s in after))}, "
        f"{_named([n for n, _ in before], first_word=False)} at least {format_seconds(min(s for _, s in before))}: "
        f"{best:.2f} x faster at the same size."
    )


def _two_speeds(loads: Sequence[tuple[int, float]]) -> str:
    """Return a sentence if the loads are of two clearly different speeds; otherwise empty.

    The fast group and the slow group must each contain at least two loads.
    """
    ordered = sorted(loads, key=lambda load: load[1])
    best, at = 0.0, 0
    for split in range(2, len(ordered) - 1):
        ratio = ordered[split][1] / ordered[split - 1][1]
        if ratio > best:
            best, at = ratio, split
    if best < TWO_SPEEDS:
        return ""
    fast, slow = ordered[:at], ordered[at:]
    return (
        f"Loads have two speeds: {_named(sorted(n for n, _ in fast), first_word=False)} took "
        f"{format_seconds(fast[0][1])} to {format_seconds(fast[-1][1])}, the others {format_seconds(slow[0][1])} to "
        f"{format_seconds(slow[-1][1])}, at the same size."
    )


def _named(numbers: Sequence[int], *, first_word: bool = True) -> str:
    """Return the numbers of loads as text: ``Loads 5 to 10`` or ``Loads 2, 4``."""
    word = "Load" if first_word else "load"
    if len(numbers) == 1:
        return f"{word} {numbers[0]}"
    if len(numbers) > 2 and list(numbers) == list(range(numbers[0], numbers[-1] + 1)):
        return f"{word}s {numbers[0]} to {numbers[-1]}"
    return f"{word}s {', '.join(map(str, numbers))}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """The published and the judged values of a result's saves, or of its loads.

    ``published_seconds`` is the published mean of rank 0's times. ``judged_seconds`` is the longest time of the slowest
    process in any operation, because a cluster waits for that process.

    ``slowest_mean_seconds`` is the mean time of the slowest process, over the operations in which this time is known.
    ``overstatement`` is the share by which this mean exceeds rank 0's mean over the same operations. ``bases`` is
    {basis: number of operations}; a basis is the source of the judged times.
    """

    kind: OperationKind
    operations: int
    planned: int
    bases: Mapping[str, int]
    published_seconds: float | None
    published_gib_per_second: float | None
    published_in: str
    slowest_mean_seconds: float | None
    overstatement: float | None
    judged_seconds: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """All runs of one system and layout.

    ``signs`` are sentences on loads that a cache may have served. ``network`` is None if received bytes are not
    recorded.
    """

    system: str
    layout: Layout
    runs: tuple[Run, ...]
    measurement: Measurement
    figures: Mapping[OperationKind, Figures]
    planned: Mapping[OperationKind, int]
    signs: tuple[str, ...]
    network: NetworkReads | None
    messages: tuple[Message, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class NetworkReads:
    """The bytes that the hosts' network interfaces received during the loads, and the loaded bytes.

    ``at_least`` is true if the last sample of an interface precedes the end of the loads. ``received_bytes`` is then a
    lower bound. ``crossed`` is true if at least 95 % of the loaded bytes were received, which excludes a cache on the
    hosts. If ``crossed`` is false, a cache is possible but not proved.
    """

    received_bytes: int
    loaded_bytes: int
    at_least: bool
    crossed: bool


def combine_runs(runs: Iterable[tuple[Run, list[Message]]], top: Path) -> list[Result]:
    """Return one result for each system and layout.

    Runs that save and runs that load are combined. Within a result, copies of a run count once. ``top`` is the
    directory below which the runs were found; names of systems are relative to ``top``.
    """
    groups: dict[tuple[str, str, str], list[tuple[Run, list[Message]]]] = {}
    seen: dict[tuple[str, tuple[float, ...]], Run] = {}
    for run, messages in runs:
        group = groups.setdefault((*_origin(run), run.layout.name), [])
        times = tuple(o.seconds for o in run.operations)
        first = seen.setdefault((run.started, times), run)
        if first is not run and len(times) >= _MAXIMUM_ALIKE:
            is_counted = any(other is first for other, _ in group)
            once = ", and counts once" if is_counted else ""
            text = f"it is the run of {_below(first.directory, top)}, to the microsecond: one of them is a copy{once}."
            messages.append(Message(path=str(run.directory), text=text))
            if is_counted:
                group[0][1].extend(messages)
                continue
        group.append((run, messages))
    results = []
    for group in groups.values():
        ordered = sorted((run for run, _ in group), key=lambda r: (r.started, str(r.directory)))
        results.append(_result(ordered, tuple(m for _, messages in group for m in messages), top))
    return sorted(results, key=lambda r: (r.system, r.layout.full_bytes, r.layout.name))


def _origin(run: Run) -> tuple[str, str]:
    """Return a key that is equal for all runs of one result.

    The key contains the submitter and the system. If they are unknown, the key contains the checkpoint directory. If
    the checkpoint directory is also unknown, the key contains the parent directory of the run.
    """
    place, checkpoints = run.files.place, run.files.facts.checkpoint_folder
    if place.is_published_tree:
        return place.submitter, place.system
    return ("checkpoints", checkpoints) if checkpoints else ("directory", str(run.directory.parent))


def _result(runs: Sequence[Run], messages: tuple[Message, ...], top: Path) -> Result:
    shards = runs[0].layout
    operations: list[Operation] = []
    figures: dict[OperationKind, Figures] = {}
    planned: dict[OperationKind, int] = {}
    for kind in KINDS:
        slowest = [o for run in runs for o in run.of_kind(kind)]
        planned[kind] = sum(run.planned(kind) for run in runs)
        figures[kind] = _figures(kind, runs, slowest, planned[kind])
        operations += [_operation(o, index, shards) for index, o in enumerate(slowest, start=1)]
    done = {kind: sum(o.kind == kind for o in operations) for kind in KINDS}
    whole = [done[kind] for kind in KINDS if done[kind] and done[kind] == planned[kind]]
    cut_off = any(done[kind] < planned[kind] for kind in KINDS)
    hosts = max((run.files.facts.hosts for run in runs), key=len)
    count = max(run.files.facts.host_count or 0 for run in runs)
    measurement = Measurement(
        subject=shards.subject(),
        model=shards.model.name,
        mode=shards.mode,
        processes=shards.processes,
        hosts=hosts if len(hosts) >= count else (*hosts, *(f"host {n + 1}" for n in range(len(hosts), count))),
        engine="DLIO",
        scale=1.0,
        seed=0,
        bytes=shards.bytes,
        full_bytes=shards.full_bytes,
        rank_bytes=shards.rank_bytes,
        basis=_weakest(operations),
        operations_planned=max(planned.values()) if cut_off else min(whole),
        operations=tuple(operations),
        cache=None,
        integrity=None,
        durability=None,
        engine_facts=_engine_facts(runs),
    )
    loads = [(o.index, o.seconds) for o in comparable(measurement.of_kind("load"))]
    network = _network(runs, shards)
    return Result(
        system=_system(runs, top),
        layout=shards,
        runs=tuple(runs),
        measurement=measurement,
        figures=figures,
        planned=planned,
        # Received bytes are stronger evidence than times.
        signs=() if network and network.crossed else signs_of_cached_reads(loads),
        network=network,
        messages=messages,
    )


def _network(runs: Sequence[Run], shards: Layout) -> NetworkReads | None:
    """Return the bytes received in all runs that load; None if any of these runs does not record received bytes."""
    loading = [run for run in runs if run.of_kind("load")]
    received = [run.received for run in loading if run.received]
    if not received or len(received) < len(loading):
        return None
    got, loaded = sum(r.bytes for r in received), shards.bytes * sum(len(run.of_kind("load")) for run in loading)
    return NetworkReads(
        received_bytes=got,
        loaded_bytes=loaded,
        at_least=any(r.at_least for r in received),
        crossed=got >= CROSSED_SHARE * loaded,
    )


def comparable(operations: Sequence[Operation]) -> tuple[Operation, ...]:
    """Return the operations in which the time of the slowest process is known.

    If there are no such operations, return all operations.
    """
    return tuple(o for o in operations if o.basis != RANK_0 and o.at_least_seconds is None) or tuple(operations)


def _operation(found: Slowest, index: int, shards: Layout) -> Operation:
    everyone = found.basis == ALL_RANKS
    return Operation(
        kind=found.kind,
        index=index,
        seconds=found.seconds,
        slowest_rank=found.slowest_rank,
        rank0_seconds=found.rank0_seconds,
        rank_seconds=tuple(found.rank_seconds[rank] for rank in range(shards.processes)) if everyone else (),
        phases={},
        bytes=shards.bytes,
        checkpoint=found.number,
        basis=found.basis,
        at_least_seconds=found.at_least_seconds,
    )


def _figures(kind: OperationKind, runs: Sequence[Run], slowest: Sequence[Slowest], planned: int) -> Figures:
    known = [o for o in slowest if o.basis != RANK_0 and o.at_least_seconds is None and o.rank0_seconds is not None]
    mean = statistics.fmean(o.seconds for o in known) if known else None
    own = statistics.fmean(o.rank0_seconds or 0.0 for o in known) if known else None
    published_seconds, rate, where = _as_published(kind, runs, slowest)
    return Figures(
        kind=kind,
        operations=len(slowest),
        planned=planned,
        bases={word: n for word in _WORDS if (n := sum(_operation_name(o) == word for o in slowest))},
        published_seconds=published_seconds,
        published_gib_per_second=rate,
        published_in=where,
        slowest_mean_seconds=mean,
        overstatement=mean / own - 1 if mean and own else None,
        judged_seconds=max((o.seconds for o in slowest), default=None),
    )


def _operation_name(operation: Slowest) -> str:
    return operation.basis if operation.at_least_seconds is None else AT_MOST


def _as_published(
    kind: OperationKind, runs: Sequence[Run], slowest: Sequence[Slowest]
) -> tuple[float | None, float | None, str]:
    """Return (seconds, GiB/s, source) of the published values; (None, None, "") if there are no values.

    If a run has no summary, both values are computed as in a summary: as means over rank 0's times.
    """
    ran = [run for run in runs if run.of_kind(kind)]
    summaries = [(run.files.facts.published.get(kind), len(run.of_kind(kind))) for run in ran]
    seconds = [(p.seconds, n) for p, n in summaries if p and p.seconds]
    rates = [(p.gib_per_second, n) for p, n in summaries if p and p.gib_per_second]
    if ran and len(seconds) == len(rates) == len(ran):
        count = sum(n for _, n in seconds)
        return sum(s * n for s, n in seconds) / count, sum(r * n for r, n in rates) / count, "summary.json"
    own = [o.rank0_seconds for o in slowest if o.rank0_seconds is not None]
    if not own:
        return None, None, ""
    gib = runs[0].layout.bytes / 2**30
    return statistics.fmean(own), statistics.fmean(gib / s for s in own), "rank 0's times, no summary.json"


def _weakest(operations: Sequence[Operation]) -> Basis:
    """Return one basis (the source of the judged times) for all operations.

    If all operations have the basis "all ranks", or all have "rank 0 only", return this basis. Otherwise return
    "inferred from rank 0".
    """
    bases = {o.basis for o in operations}
    if bases == {ALL_RANKS}:
        return ALL_RANKS
    return RANK_0 if bases == {RANK_0} else INFERRED


def _engine_facts(runs: Sequence[Run]) -> dict[str, str]:
    every = [run.files.facts for run in runs]
    pauses = list(dict.fromkeys(run.seconds_between for run in runs if run.seconds_between is not None))
    is_recorded = any(f.seconds_between is not None for f in every)
    errors = [run.inference_error_seconds for run in runs if run.inference_error_seconds is not None]
    found = {
        "runs": ", ".join(run.directory.name for run in runs),
        "checkpoint directory": next((f.checkpoint_folder for f in every if f.checkpoint_folder), ""),
        "between checkpoints": format_times(pauses) + ("" if is_recorded else " (not recorded)"),
    }
    if errors:
        found["inference from rank 0, compared with all ranks"] = f"at most {format_seconds(max(errors))} off"
    return {name: value for name, value in found.items() if value}


def _below(directory: Path, top: Path) -> Path:
    return directory.relative_to(top) if directory.is_relative_to(top) else directory


def _system(runs: Sequence[Run], top: Path) -> str:
    place = runs[0].files.place
    if place.is_published_tree:
        return f"{place.submitter} {place.system}".strip()
    directories = {run.directory.absolute() for run in runs}
    shared = directories.pop() if len(directories) == 1 else Path(*_common(directories))
    try:
        inside = shared.relative_to(top.absolute())
    except ValueError:
        return shared.name
    return str(inside) if inside.parts else shared.name


def _common(directories: Iterable[Path]) -> list[str]:
    shared: list[str] = []
    for parts in zip(*(directory.parts for directory in directories), strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return shared
