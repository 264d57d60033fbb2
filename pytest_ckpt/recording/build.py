"""Builds the pattern of a save from the calls of a job. All functions are pure.

A pattern assigns each call to a rank, a lane and a phase. A lane is a sequence of calls that a replay makes in one
thread. Ranks wait for each other between phases. Consecutive equal writes become one step.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_ckpt.facts.pattern import FORM, OF_DIRECTORY, OPENS, Pattern, PatternFile, Step, is_small, read_pattern
from pytest_ckpt.recording.files import FileCall, JobFiles
from pytest_ckpt.recording.strace_log import Threads
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.support.units import counted

if TYPE_CHECKING:
    from pytest_ckpt.recording.strace_log import TracedCall

_CHANGES = frozenset({"create", "create new", "truncate and open", "write", "set size", "allocate", "rename", "unlink"})
_FLUSHES = frozenset({"fsync", "fdatasync"}) | OF_DIRECTORY
_CREATES = frozenset({"create", "create new"})
_MICROSECONDS = 1_000_000
# strace itself delays a call by about this time.
_SHORTEST_PAUSE_US = 1_000


def pattern_of(
    calls: Sequence[TracedCall], under: str, label: str, created_by: str, *, with_pauses: bool = False
) -> Pattern:
    """Return the pattern of the writes below the directory ``under``.

    ``label`` and ``created_by`` are fields of the pattern. If ``with_pauses``, the steps of the pattern contain pauses.
    Raises UsageError if the calls do not form a pattern of a save.
    """
    threads = Threads(calls)
    files = JobFiles(under=under, process=threads.process)
    for call in calls:
        files.record(call)
    acts = files.acts
    changes = [number for number, act in enumerate(acts) if act.call in _CHANGES]
    if files.moved_in:
        raise UsageError(
            f"The job wrote {counted(files.moved_in, 'file')} elsewhere and moved them below --under by a rename, so "
            "that what it wrote was not recorded.",
            "Let --under be a directory of another file system than the job's temporary directory, as the storage is "
            "(or record with TMPDIR on another one): moving is copying then, which is recorded.",
        )
    if not changes:
        raise UsageError(
            "The job wrote no file below the directory of --under.",
            "Name the directory into which it saves its checkpoints.",
        )
    # Reads after the last change belong to a load; a flush may follow the last change.
    last = max(n for n, a in enumerate(acts) if a.call in _CHANGES | _FLUSHES)
    of_save, behind = _split(acts, last)
    # A thread that only makes other threads' data durable also belongs to the save.
    flushes = {act.thread for act in of_save if act.call in _FLUSHES}
    ranks = threads.ranks({acts[n].thread for n in changes}, flushes)
    save = [act for act in of_save if act.thread in ranks]
    _refuse_shared(save, ranks)
    files.other_reads.update(_reads(behind))
    phases = _phases(save, ranks, threads.births, _files_next_to_data(save, files.sizes))
    lanes = {
        (thread, phase): lane
        for phase in set(phases)
        for thread, lane in _lanes([a for a, p in zip(save, phases, strict=True) if p == phase], ranks, threads.births)
    }
    written_by = {
        act.file: (act.thread, phase)
        for act, phase in reversed(list(zip(save, phases, strict=True)))
        if act.call in _CHANGES
    }
    # The rank that comes first differs between runs and is not part of the pattern.
    ordered = sorted(written_by, key=lambda old: (ranks[written_by[old][0]], lanes[written_by[old]], old))
    numbers = {old: new for new, old in enumerate(ordered)}
    places = [(phase, ranks[act.thread], lanes[act.thread, phase]) for act, phase in zip(save, phases, strict=True)]
    pauses = _pauses(save, places) if with_pauses else [0] * len(save)
    steps = [
        Step(
            phase=phase,
            rank=rank,
            lane=lane,
            call=act.call,
            file=numbers.get(act.file, -1),
            offset=act.offset,
            bytes=act.bytes,
            pause_us=pause,
        )
        for act, (phase, rank, lane), pause in zip(save, places, pauses, strict=True)
    ]
    steps.sort(key=lambda step: (step.phase, step.rank, step.lane))
    found = Pattern(
        form=FORM,
        created_by=created_by,
        label=label,
        ranks=len(set(ranks.values())),
        files=tuple(
            PatternFile(
                rank=ranks[written_by[old][0]],
                bytes=files.sizes[old] if files.kept[old] else _reach(save, old),
                kept=files.kept[old],
                synchronous=files.synchronous[old],
            )
            for old in numbers
        ),
        steps=_runs(steps),
        read_bytes=max(files.other_reads, key=lambda size: files.other_reads[size], default=0),
        omitted=dict(files.omitted),
    )
    try:
        return read_pattern(found.to_text())
    except ValueError as error:
        raise UsageError(
            f"The recorded job cannot be replayed: {error}.",
            "Record one save: name with --under the directory of one checkpoint, into which the job saves once.",
        ) from None


def _refuse_shared(acts: Sequence[FileCall], ranks: Mapping[int, int]) -> None:
    of_file: dict[int, set[int]] = defaultdict(set)
    for act in acts:
        of_file[act.file].add(ranks[act.thread])
    # Directories have no number.
    if shared := sum(len(of) > 1 for file, of in of_file.items() if file >= 0):
        raise UsageError(
            f"Several ranks work on {counted(shared, 'file')} in one save, such as a file that all ranks share or that "
            "one rank consolidates, but a replay gives each rank separate files.",
            "Record a save in which each rank writes its own files, if the job can make one; such files cannot be "
            "recorded.",
        )


def _pauses(acts: Sequence[FileCall], lanes: Sequence[tuple[int, int, int]]) -> list[int]:
    """Return the pause before each call, in microseconds.

    A pause is the time since the end of the previous call in the same lane. For the first call of a lane, it is the
    time since the beginning of the phase. A phase begins when all calls of earlier phases have ended, so a pause does
    not include waits for other ranks. ``lanes`` contains (phase, rank, lane) of each call.
    """
    ends: dict[int, float] = {}
    for act, (phase, _, _) in zip(acts, lanes, strict=True):
        ends[phase] = max(ends.get(phase, 0.0), act.ended)
    first = min(act.began for act in acts)
    began = {phase: max((end for before, end in ends.items() if before < phase), default=first) for phase in ends}
    last: dict[tuple[int, int, int], float] = {}
    found = []
    for act, lane in zip(acts, lanes, strict=True):
        since = last.get(lane, began[lane[0]])
        found.append(max(0, round((act.began - since) * _MICROSECONDS)))
        last[lane] = max(since, act.ended)
    return found


def _reach(acts: Sequence[FileCall], file: int) -> int:
    """Return the largest end offset of all calls on file ``file``, which the job has removed."""
    return max(act.offset + act.bytes for act in acts if act.file == file)


def _files_next_to_data(acts: Sequence[FileCall], sizes: Sequence[int]) -> frozenset[int]:
    """Return the numbers of the files that are small compared with the largest file.

    ``sizes`` contains the size of each file by file number.
    """
    largest = max(sizes)
    return frozenset(act.file for act in acts if act.file >= 0 and is_small(sizes[act.file], largest))


def _split(acts: Sequence[FileCall], last: int) -> tuple[list[FileCall], list[FileCall]]:
    """Return (calls of the save, calls of later loads).

    ``last`` is the index of the save's last change or fsync. If files are still open after this call, the calls that
    close these files also belong to the save.
    """
    save, behind = list(acts[: last + 1]), []
    is_open = Counter(act.file for act in save if act.call in OPENS)
    is_open.subtract(act.file for act in save if act.call == "close")
    opened: Counter[int] = Counter()
    for act in acts[last + 1 :]:
        opened[act.file] += act.call in OPENS
        if act.call == "close" and is_open[act.file] > 0 and not opened[act.file]:
            is_open[act.file] -= 1
            save.append(act)
            continue
        opened[act.file] -= act.call == "close"
        behind.append(act)
    return save, behind


def _reads(acts: Sequence[FileCall]) -> Counter[int]:
    found: Counter[int] = Counter()
    for act in acts:
        if act.call == "read":
            found[act.bytes] += act.bytes
    return found


def _lanes(
    acts: Sequence[FileCall], ranks: Mapping[int, int], births: Mapping[int, float]
) -> Iterable[tuple[int, int]]:
    """Return (thread, lane) for each thread. Lanes are numbered per rank, in the order in which their threads began.

    A lane is a sequence of calls that a replay makes in one thread. Threads that work on the same file form one lane.
    This also applies indirectly: if A shares a file with B, and B with C, then A, B and C form one lane. A thread also
    joins a lane if it began after all threads of the lane had ended. The reason is that a thread pool gives work to any
    free thread. All other threads have separate lanes, because their calls might overlap in another run.
    """
    ends: dict[int, float] = {}
    first_of: dict[int, int] = {}
    group_of: dict[int, int] = {}
    for act in acts:
        ends[act.thread] = max(ends.get(act.thread, 0.0), act.ended)
        group = group_of.setdefault(act.thread, act.thread)
        other = group_of[first_of.setdefault(act.file, act.thread)] if act.file >= 0 else group
        if other != group:
            group_of |= {thread: other for thread, of in group_of.items() if of == group}
    groups: dict[int, list[int]] = defaultdict(list)
    for thread, group in group_of.items():
        groups[group].append(thread)
    lanes: dict[int, int] = {}
    taken: dict[tuple[int, int], float] = {}
    for began, threads in sorted((min((births.get(t, 0.0), t) for t in of), of) for of in groups.values()):
        rank, lane = ranks[threads[0]], 0
        while taken.get((rank, lane), -1.0) > began[0]:
            lane += 1
        lanes |= dict.fromkeys(threads, lane)
        taken[rank, lane] = max(taken.get((rank, lane), 0.0), *(ends[thread] for thread in threads))
    return lanes.items()


def _phases(
    acts: Sequence[FileCall], ranks: Mapping[int, int], births: Mapping[int, float], beside: frozenset[int]
) -> list[int]:
    """Return the phase of each call. If a call needs the result of another rank, it begins a new phase.

    A call needs the result of another rank in two cases. First, another rank has changed the file of the call. Second,
    the call creates a small file (in ``beside``) after the last call of all other ranks and processes. Such a file
    describes the files of all ranks. The second case does not apply to the first call of a rank, because this rank may
    only be late.
    """
    ends: dict[int, float] = {}
    for act in acts:
        ends[act.thread] = max(ends.get(act.thread, 0.0), act.ended)
    now: Counter[int] = Counter()
    # By file: the rank that changed it last, and the phase of this change.
    changed: dict[int, tuple[int, int]] = {}
    alone: set[int] = set()
    began: set[int] = set()
    found = []
    for act in acts:
        rank = ranks[act.thread]
        by, phase = changed.get(act.file, (rank, 0))
        if by != rank:
            now[rank] = max(now[rank], phase + 1)
        others = [
            end
            for thread, end in ends.items()
            if ranks[thread] != rank or (thread != act.thread and act.thread not in births)
        ]
        is_late = rank not in began or act.call not in _CREATES or act.file not in beside
        began.add(rank)
        if others and not is_late and rank not in alone and max(others) <= act.began:
            alone.add(rank)
            now[rank] = max(now.values(), default=0) + 1
        if act.call in _CHANGES:
            changed[act.file] = (rank, now[rank])
        found.append(now[rank])
    return found


def _runs(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Join consecutive equal writes or reads of a lane into one step. Return the resulting steps.

    Pauses that are shorter than strace's own delay become 0.
    """
    joined: list[Step] = []
    newest: dict[tuple[int, int], int] = {}
    for step in steps:
        who = (step.rank, step.lane)
        if who in newest:
            before = joined[newest[who]]
            follows = before.offset + before.bytes * before.count == step.offset
            alike = (before.call, before.file, before.bytes, before.phase)
            if step.call in {"write", "read"} and follows and alike == (step.call, step.file, step.bytes, step.phase):
                joined[newest[who]] = replace(before, count=before.count + 1, pause_us=before.pause_us + step.pause_us)
                continue
        newest[who] = len(joined)
        joined.append(step)
    return tuple(step if step.pause_us >= _SHORTEST_PAUSE_US else replace(step, pause_us=0) for step in joined)
