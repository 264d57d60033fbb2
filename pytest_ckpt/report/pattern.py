"""Describes a pattern, the recorded file operations of a job, as lines of text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from pytest_ckpt.support.units import counted, format_bytes, format_seconds

if TYPE_CHECKING:
    from pytest_ckpt.facts.pattern import Pattern, Step

_MAXIMUM_SHOWN = 12
_MICROSECONDS = 1_000_000


def pattern_lines(pattern: Pattern) -> list[str]:
    """Return the lines that describe a pattern."""
    kept = [file for file in pattern.files if file.kept]
    lines = [pattern.label] if pattern.label else []
    lines.append(
        f"{counted(pattern.ranks, 'rank')}, {counted(len(kept), 'file')}, "
        f"{format_bytes(sum(file.bytes for file in kept))} a save"
    )
    ranks = sorted(range(pattern.ranks), key=lambda rank: (_shape(pattern, rank), rank))
    classes = [list(alike) for _, alike in groupby(ranks, key=lambda rank: _shape(pattern, rank))]
    for alike in sorted(classes):
        lines += _of_rank(pattern, alike)
    return [*lines, *_commit(pattern), *_durability(pattern), *_load(pattern), *_paused(pattern), *_omitted(pattern)]


def _shape(pattern: Pattern, rank: int) -> tuple[tuple[int, int, str], ...]:
    """Return the sequence of a rank's calls, without sizes. Ranks with the same sequence are described together."""
    return tuple((step.phase, step.lane, step.call) for step in pattern.steps if step.rank == rank)


def _of_rank(pattern: Pattern, alike: Sequence[int]) -> Iterator[str]:
    rank = alike[0]
    others = f"; rank {', '.join(map(str, alike[1:]))} the same" if len(alike) > 1 else ""
    steps = [step for step in pattern.steps if step.rank == rank]
    threads = counted(len({step.lane for step in steps}), "thread")
    yield f"rank {rank}, {threads}{others}:"
    phases = sorted({step.phase for step in pattern.steps})
    for phase in phases:
        of_phase = [step for step in steps if step.phase == phase]
        if not of_phase:
            continue
        if phase:
            yield "  waits for all ranks, then"
        files = list(dict.fromkeys(step.file for step in of_phase))
        for file in files[:_MAXIMUM_SHOWN]:
            yield f"  {_named(pattern, file)}: {_calls([step for step in of_phase if step.file == file])}"
        if len(files) > _MAXIMUM_SHOWN:
            yield f"  and {counted(len(files) - _MAXIMUM_SHOWN, 'file')} more"


def _named(pattern: Pattern, number: int) -> str:
    if number < 0:
        return "directory"
    file = pattern.files[number]
    passing = "" if file.kept else ", removed again"
    return f"file {number} ({format_bytes(file.bytes)}{passing})"


def _calls(steps: Sequence[Step]) -> str:
    words = []
    for call, alike in groupby(steps, key=lambda step: step.call):
        runs = list(alike)
        count = sum(step.count for step in runs)
        if call in {"write", "read"}:
            sizes = [step.bytes for step in runs]
            span = f"{min(sizes):,}" if min(sizes) == max(sizes) else f"{min(sizes):,} to {max(sizes):,}"
            words.append(f"{counted(count, call)} of {span} bytes")
        else:
            words.append(call if count == 1 else f"{call} × {count}")
    return ", ".join(words)


def _commit(pattern: Pattern) -> Iterator[str]:
    last = max(step.phase for step in pattern.steps)
    ranks = sorted({step.rank for step in pattern.steps if step.phase == last})
    renames = any(step.call == "rename" and step.phase == last for step in pattern.steps)
    if last:
        how = "renames a file" if renames else "writes"
        yield f"commit: rank {', '.join(map(str, ranks))} {how} when all others have ended"
    elif pattern.omitted.get("directories renamed"):
        yield "commit: a directory is renamed"
    else:
        yield (
            "commit: not visible; a file appears before it is complete"
            if not renames
            else "commit: each file by rename"
        )


def _durability(pattern: Pattern) -> Iterator[str]:
    kept, never = [file for file in pattern.files if file.kept], pattern.unsynced()
    directories = sum(step.call == "fsync directory" for step in pattern.steps)
    files = "every file is flushed after its last write"
    if never:
        files = f"{len(never)} of {counted(len(kept), 'file')} not flushed after the last write"
    whole = sum(step.call == "syncfs" for step in pattern.steps)
    flags = Counter(file.synchronous for file in kept if file.synchronous)
    opened = "".join(f", {counted(count, 'file')} opened with {flag}" for flag, count in sorted(flags.items()))
    of_all = f", {counted(whole, 'flush', 'flushes')} of the file system by syncfs" if whole else ""
    yield f"durability: {files}{opened}, {counted(directories, 'fsync')} of directories{of_all}"


def _load(pattern: Pattern) -> Iterator[str]:
    yield (
        f"load: reads of {pattern.read_bytes:,} bytes carry most of it" if pattern.read_bytes else "load: none recorded"
    )


def _paused(pattern: Pattern) -> Iterator[str]:
    pauses = pattern.pauses_us()
    if pauses:
        (rank, _), pause = max(pauses.items(), key=lambda item: item[1])
        duration = format_seconds(pause / _MICROSECONDS)
        yield f"pauses: {duration} between the calls of a thread of rank {rank}, the most of any"
    else:
        yield "pauses: none recorded"


def _omitted(pattern: Pattern) -> Iterator[str]:
    if pattern.omitted:
        yield "not replayed: " + ", ".join(f"{what}: {count}" for what, count in sorted(pattern.omitted.items()))
