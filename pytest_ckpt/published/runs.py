"""One published run: its layout, the ranks that can be believed, the slowest process of each operation. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_ckpt.facts.measurement import OperationKind
from pytest_ckpt.published.facts import Facts
from pytest_ckpt.published.folder import Message, RunFiles
from pytest_ckpt.published.layouts import recognize
from pytest_ckpt.published.slowest import (
    Pause,
    Slowest,
    clock_skew_seconds,
    inference_error_seconds,
    pause_between,
    slowest_of_each,
    strangers,
)
from pytest_ckpt.sizing.models import Layout
from pytest_ckpt.support.units import counted, format_count, format_seconds

KINDS: tuple[OperationKind, ...] = ("save", "load")
# Two ways to the same mean; more apart, and the files are not of one run.
_SAME_MEAN = 0.01
_WORTH_A_WORD_SECONDS = 1.0

EXPORTED = (
    "it is a run of {}, exported: no result of MLPerf. Its times are judged; what the run proved beside them is in its "
    "own folder."
)
"""What is said of an export of a run of ours."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One run whose layout is known."""

    folder: Path
    files: RunFiles
    layout: Layout
    operations: tuple[Slowest, ...]
    inference_error_seconds: float | None
    seconds_between: float | None
    rank_count: int
    started: str
    ended: str

    def of_kind(self, kind: OperationKind) -> tuple[Slowest, ...]:
        """Return the saves, or the loads."""
        return tuple(o for o in self.operations if o.kind == kind)

    def planned(self, kind: OperationKind) -> int:
        """Return how many there should be: as configured, and never fewer than the highest number that is there."""
        return max(self.files.facts.planned.get(kind, 0), *(o.number for o in self.of_kind(kind)), 0)


def examine(files: RunFiles) -> tuple[Run | None, list[Message]]:
    """Return the run, or None where nothing can be judged, and what there is to say about it."""
    folder = files.place.folder
    messages = list(files.messages)

    def say(text: str, path: Path = folder) -> None:
        messages.append(Message(path=str(path), text=text))

    if not files.ranks:
        say("no rank's times could be read, so nothing can be judged. A summary holds only means of rank 0.")
        return None, messages
    ranks = dict(files.ranks)
    for rank in [r for r in ranks if r >= (files.facts.processes or r + 1)]:
        why = f"left out: there is no rank {rank} of {format_count(files.facts.processes or 0)}."
        say(why, folder / f"{rank}_per_epoch_stats.json")
        del ranks[rank]
    for rank, why in strangers(ranks).items():
        say(f"left out: {why}.", folder / f"{rank}_per_epoch_stats.json")
        del ranks[rank]
    moved = [t.bytes for t in ranks.values() if t.bytes]
    found = recognize(
        files.facts, round(statistics.median(moved)) if moved else None, max(ranks), files.place.model_folder
    )
    if found.layout is None:
        say(f"not judged. {found.because}")
        return None, messages
    if 0 not in ranks:
        say(f"rank 0's times are missing, so what was published is not known; rank {min(ranks)}'s starts are used.")
    processes = found.layout.processes
    if len(ranks) < processes:
        say(
            f"holds the times of {format_count(len(ranks))} of {counted(processes, 'rank')}: the slowest process "
            "is inferred from when the next operation started."
        )
    if exported_by := files.facts.disclosed.exported_by:
        # Our runs do other things between two operations, for as long as these take: a start says nothing of an end.
        pause = Pause(seconds=None, description=EXPORTED.format(exported_by))
    else:
        pause = pause_between(ranks, processes, files.facts.seconds_between, varies=files.facts.pause_varies)
    if pause.description:
        say(pause.description)
    operations = slowest_of_each(ranks, processes, pause.seconds)
    if against := [f"{o.kind} {o.number}" for o in operations if o.contradicted]:
        say(
            f"the starts of {_some(against)} and the next do not leave room for what a rank recorded with "
            f"{format_seconds(pause.seconds or 0.0)} between checkpoints: nothing is inferred from them."
        )
    if hidden := [f"{o.kind} {o.number}" for o in operations if o.hidden]:
        say(
            f"after {_some(hidden)} the next operation started later than all ranks were done: a time in these files "
            "is too short. Judged is what the starts say."
        )
    skew = clock_skew_seconds(ranks)
    if skew > _WORTH_A_WORD_SECONDS:
        say(f"the ranks' clocks differ by {format_seconds(skew)}; only durations on one clock are used.")
    for kind in KINDS:
        if text := _disagreement(kind, files.facts, operations, found.layout.bytes):
            say(text, folder / "summary.json")
    times = ranks[min(ranks)]
    run = Run(
        folder=folder,
        # Of a large tree, what every rank said is not kept twice.
        files=replace(files, ranks={}, messages=()),
        layout=found.layout,
        operations=operations,
        inference_error_seconds=inference_error_seconds(ranks, operations, pause.seconds),
        seconds_between=pause.seconds,
        rank_count=len(ranks),
        started=times.started,
        ended=times.ended,
    )
    return run, messages


def _disagreement(kind: OperationKind, facts: Facts, operations: Sequence[Slowest], size: int) -> str:
    """Say where the summary's means are not those of rank 0's times; empty when they are, or cannot be compared."""
    published = facts.published.get(kind)
    own = [o.rank0_seconds for o in operations if o.kind == kind and o.rank0_seconds is not None]
    if published is None or not own:
        return ""
    mean, rate = statistics.fmean(own), statistics.fmean(size / 2**30 / s for s in own)
    if published.seconds is not None and abs(mean - published.seconds) > _SAME_MEAN * mean:
        says, gives = format_seconds(published.seconds), format_seconds(mean)
    elif published.gib_per_second is not None and abs(rate - published.gib_per_second) > _SAME_MEAN * rate:
        says, gives = f"{published.gib_per_second:.3g} GiB/s", f"{rate:.3g} GiB/s"
    else:
        return ""
    return (
        f"it says that a {kind} took {says} on average, and rank 0's times give {gives}: it is of another run, or was "
        "changed. Judged are the times."
    )


def _some(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 3 else f"{', '.join(names[:2])} and {len(names) - 2} more"
