"""One published run: its layout, its plausible ranks, and the slowest process of each operation. Pure (no I/O)."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_ckpt.facts.measurement import OperationKind
from pytest_ckpt.facts.models import Model
from pytest_ckpt.published.directory import Message, RunFiles
from pytest_ckpt.published.facts import Facts, model_by_architecture, model_by_name
from pytest_ckpt.published.times import (
    Pause,
    RankTimes,
    Slowest,
    clock_skew_seconds,
    inference_error_seconds,
    pause_between,
    ranks_of_different_runs,
    slowest_of_each,
)
from pytest_ckpt.published.traffic import Counters, Received, received_between
from pytest_ckpt.sizing.architectures import MODELS
from pytest_ckpt.sizing.models import SUBSET_PROCESSES, Layout, layout
from pytest_ckpt.support.units import counted, format_bytes, format_count, format_seconds

# The reference tool's size of a checkpoint equals ours; the difference is rounding of a printed throughput.
_SAME_BYTES = 0.001

KINDS: tuple[OperationKind, ...] = ("save", "load")
# Two computations of the same mean; if they differ by more, the files are not from one run.
_SAME_MEAN = 0.01
_WORTH_A_WORD_SECONDS = 1.0

EXPORTED = (
    "it is an exported run of {}, not a result of MLPerf. Its times are judged; the run's other proofs are "
    "in its own directory."
)
"""The notice about an export of a pytest-ckpt run."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RecognizedLayout:
    """The layout of a run. If the layout is unknown, ``layout`` is None and ``because`` is the reason.

    ``source`` is "records" if the files name the model, or "bytes" if only the size of a checkpoint identifies the
    model.
    """

    layout: Layout | None
    source: str
    because: str = ""


def recognize(facts: Facts, moved_bytes: int | None, highest_rank: int, directory_name: str) -> RecognizedLayout:
    """Return the layout of a run: its model and its number of processes.

    ``moved_bytes`` is the size of one checkpoint, computed from times and throughputs; None if unknown.
    ``highest_rank`` is the highest recorded rank. ``directory_name`` is the directory that mlpstorage names after the
    model. If the recorded size contradicts ``moved_bytes``, the files are from different runs and the layout is None.
    """
    named = model_by_architecture(facts.architecture) or model_by_name(facts.model) or model_by_name(directory_name)
    amount = moved_bytes or facts.bytes
    if named is None and amount is None:
        return RecognizedLayout(
            layout=None, source="", because="Neither a configuration nor a size identifies the model."
        )
    if facts.bytes and moved_bytes and not _alike(facts.bytes, moved_bytes):
        return RecognizedLayout(
            layout=None,
            source="",
            because=f"summary.json is of checkpoints of {format_bytes(facts.bytes)}, the operations moved "
            f"{format_bytes(moved_bytes)}: the files are of different runs.",
        )
    candidates = list(_layouts([named] if named else list(MODELS.values()), facts.processes))
    fitting = [c for c in candidates if c.processes > highest_rank and (amount is None or _alike(c.bytes, amount))]
    if facts.mode == "subset":
        fitting = [c for c in fitting if c.mode == "subset" or c.processes == c.model.processes] or fitting
    if len(fitting) == 1 or (fitting and facts.processes):
        return RecognizedLayout(layout=fitting[0], source="records" if named else "bytes")
    if fitting:
        names = " or ".join(found.name for found in fitting)
        because = f"Neither the processes nor the size of a checkpoint are recorded: it is {names}."
    else:
        because = _misfit(named, facts.processes, amount, highest_rank)
    return RecognizedLayout(layout=None, source="", because=because)


def _layouts(models: list[Model], processes: int | None) -> Iterator[Layout]:
    """Yield the layouts of ``models`` with this number of processes.

    If ``processes`` is None, yield the full and the subset layouts.
    """
    for model in models:
        if processes in (None, model.processes):
            yield layout(model.name, mode="full")
        if processes in (None, SUBSET_PROCESSES) and model.processes != SUBSET_PROCESSES:
            yield layout(model.name, mode="subset")
        if processes and processes != model.processes and processes % model.model_parallel == 0:
            yield layout(model.name, mode="open", processes=processes)


def _misfit(named: Model | None, processes: int | None, amount: int | None, highest_rank: int) -> str:
    seen = [counted(processes, "process", "processes")] if processes else [f"a rank {format_count(highest_rank)}"]
    if amount:
        seen.append(f"checkpoints of {format_bytes(amount)}")
    models = [named] if named else list(MODELS.values())
    known = ", ".join(
        f"{found.name} {format_bytes(found.bytes)} by {format_count(found.processes)}"
        for found in _layouts(models, None)
    )
    return f"It has {' and '.join(seen)}. This fits no layout of the workload ({known})."


def _alike(one: int, other: int) -> bool:
    return abs(one - other) <= _SAME_BYTES * max(one, other)


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One run with a known layout.

    ``spans`` is {kind: (start of the first operation, end of the last operation)}, in seconds on the clock of the
    lowest known rank. ``received`` is the number of bytes that the hosts received during the loads; None if it is not
    recorded.
    """

    directory: Path
    files: RunFiles
    layout: Layout
    operations: tuple[Slowest, ...]
    inference_error_seconds: float | None
    seconds_between: float | None
    rank_count: int
    started: str
    ended: str
    spans: Mapping[OperationKind, tuple[float, float]]
    received: Received | None
    counters: Counters

    def of_kind(self, kind: OperationKind) -> tuple[Slowest, ...]:
        """Return the saves or the loads of the run."""
        return tuple(o for o in self.operations if o.kind == kind)

    def planned(self, kind: OperationKind) -> int:
        """Return the number of planned operations.

        This is the configured number, or the highest recorded operation number if it is larger.
        """
        return max(self.files.facts.planned.get(kind, 0), *(o.number for o in self.of_kind(kind)), 0)


def examine(files: RunFiles) -> tuple[Run | None, list[Message]]:
    """Return (run, messages) for the files of a run. If the run cannot be judged, return None instead of the run."""
    directory = files.place.directory
    messages = list(files.messages)

    def report(text: str, path: Path = directory) -> None:
        messages.append(Message(path=str(path), text=text))

    if not files.ranks:
        report(
            "the times of all ranks are unreadable, so the result cannot be judged. A summary contains only means of "
            "rank 0."
        )
        return None, messages
    ranks = dict(files.ranks)
    for rank in [r for r in ranks if r >= (files.facts.processes or r + 1)]:
        reason = f"left out: rank {rank} does not exist among {format_count(files.facts.processes or 0)}."
        report(reason, directory / f"{rank}_per_epoch_stats.json")
        del ranks[rank]
    for rank, reason in ranks_of_different_runs(ranks).items():
        report(f"left out: {reason}.", directory / f"{rank}_per_epoch_stats.json")
        del ranks[rank]
    moved = [t.bytes for t in ranks.values() if t.bytes]
    found = recognize(
        files.facts, round(statistics.median(moved)) if moved else None, max(ranks), files.place.model_directory
    )
    if found.layout is None:
        report(f"not judged. {found.because}")
        return None, messages
    if 0 not in ranks:
        report(f"rank 0's times are missing, so what was published is not known; rank {min(ranks)}'s starts are used.")
    processes = found.layout.processes
    if len(ranks) < processes:
        report(
            f"contains the times of {format_count(len(ranks))} of {counted(processes, 'rank')}: the slowest process is "
            "inferred from when the next operation started."
        )
    if exported_by := files.facts.disclosed.exported_by:
        # Our runs do other work of any length between two operations, so a start does not show the end of the previous
        # one.
        pause = Pause(seconds=None, description=EXPORTED.format(exported_by))
    else:
        pause = pause_between(ranks, processes, files.facts.seconds_between, varies=files.facts.pause_varies)
    if pause.description:
        report(pause.description)
    operations = slowest_of_each(ranks, processes, pause.seconds)
    if against := [f"{o.kind} {o.number}" for o in operations if o.contradicted]:
        report(
            f"the starts of {_some(against)} and the next contradict the time that a rank recorded, with "
            f"{format_seconds(pause.seconds or 0.0)} between checkpoints: these starts are not used for inference."
        )
    if hidden := [f"{o.kind} {o.number}" for o in operations if o.hidden]:
        report(
            f"after {_some(hidden)} the next operation started later than all ranks were done: a time in these files "
            "is too short. The starts are judged."
        )
    skew = clock_skew_seconds(ranks)
    if skew > _WORTH_A_WORD_SECONDS:
        report(f"the ranks' clocks differ by {format_seconds(skew)}; only durations on one clock are used.")
    for kind in KINDS:
        if text := _disagreement(kind, files.facts, operations, found.layout.bytes):
            report(text, directory / "summary.json")
    times = ranks[min(ranks)]
    spans = _spans(times)
    run = Run(
        directory=directory,
        # To save memory in a large tree, the records of every rank are not kept twice.
        files=replace(files, ranks={}, messages=(), counters={}),
        layout=found.layout,
        operations=operations,
        inference_error_seconds=inference_error_seconds(ranks, operations, pause.seconds),
        seconds_between=pause.seconds,
        rank_count=len(ranks),
        started=times.started,
        ended=times.ended,
        spans=spans,
        received=received_between(
            files.counters, *spans["load"], times.began or spans["load"][0], files.facts.host_count
        )
        if "load" in spans
        else None,
        counters=files.counters,
    )
    return run, messages


def _spans(times: RankTimes) -> dict[OperationKind, tuple[float, float]]:
    of_kind = {kind: [t for (k, _), t in times.timings.items() if k == kind] for kind in KINDS}
    return {
        kind: (min(t.start for t in timings), max(t.start + t.seconds for t in timings))
        for kind, timings in of_kind.items()
        if timings
    }


def _disagreement(kind: OperationKind, facts: Facts, operations: Sequence[Slowest], size: int) -> str:
    """Return a sentence if the means in the summary differ from the means of rank 0's times.

    If these means agree or cannot be compared, return an empty text.
    """
    published = facts.published.get(kind)
    own = [o.rank0_seconds for o in operations if o.kind == kind and o.rank0_seconds is not None]
    if published is None or not own:
        return ""
    mean, rate = statistics.fmean(own), statistics.fmean(size / 2**30 / s for s in own)
    if published.seconds is not None and abs(mean - published.seconds) > _SAME_MEAN * mean:
        stated, measured = format_seconds(published.seconds), format_seconds(mean)
    elif published.gib_per_second is not None and abs(rate - published.gib_per_second) > _SAME_MEAN * rate:
        stated, measured = f"{published.gib_per_second:.3g} GiB/s", f"{rate:.3g} GiB/s"
    else:
        return ""
    return (
        f"it states that a {kind} took {stated} on average, and rank 0's times give {measured}: it is of another run, "
        "or was changed. The times are judged."
    )


def _some(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 3 else f"{', '.join(names[:2])} and {len(names) - 2} more"
