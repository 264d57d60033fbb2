"""One pattern of a job that saves several times, each into a folder of its own. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from pytest_ckpt.recording.files import CALLS, NAMES, OPENS
from pytest_ckpt.support.errors import UsageError

if TYPE_CHECKING:
    from pytest_ckpt.facts.pattern import Pattern
    from pytest_ckpt.recording.strace_log import TracedCall

_MAKES_FOLDER = frozenset({"mkdir", "mkdirat"})
_REMOVES = frozenset({"unlink", "unlinkat", "rmdir"})
_OF_ALL, _OF_NONE = -1, -2
ALIKE, UNLIKE = "other saves of the job, with the same calls", "other saves of the job, with other calls"
REMOVED = "removals of what older saves had written"


def newest_of(
    saves: Sequence[Sequence[TracedCall]], removals: int, make: Callable[[Sequence[TracedCall]], Pattern]
) -> Pattern:
    """Return the pattern of the newest save, which counts the others; ``make`` makes one of the calls of a save.

    The first saves of a job often do more than the later ones: they start processes and make buffers.
    """
    pattern = make(saves[-1])
    left_out = dict(pattern.left_out)
    for calls in saves[:-1]:
        try:
            is_alike = _shape(make(calls)) == _shape(pattern)
        except UsageError:
            is_alike = False
        what = ALIKE if is_alike else UNLIKE
        left_out[what] = left_out.get(what, 0) + 1
    return replace(pattern, left_out=left_out | ({REMOVED: removals} if removals else {}))


def saves_of(calls: Sequence[TracedCall], under: str, each: str) -> tuple[list[list[TracedCall]], int]:
    """Return the calls of each save, oldest first, and how many calls removed what an older one had written.

    ``each`` is a glob: the names of the saves' folders in ``under``, at last where they are renamed. A file in
    ``under`` outside of these folders, such as a pointer to the newest, is of the save that began last when it was
    opened. What is done elsewhere, and what begins processes, belongs to all.
    """
    passing = {_folder(call.paths()[0], under) for call in calls if fnmatchcase(_renamed_to(call, under), each)}
    now: dict[str, int] = {}
    opened: dict[str, int] = {}
    owners: list[int] = []
    count = removals = 0
    for call in calls:
        paths = [path for path in _paths(call) if path.startswith(f"{under}/")]
        if call.name not in CALLS or not paths:
            owners.append(_OF_ALL)
            continue
        path, name = paths[0], _folder(paths[0], under)
        is_folder = call.name in _MAKES_FOLDER or path != f"{under}/{name}"
        makes = call.name in _MAKES_FOLDER or call.name == "creat" or "O_CREAT" in call.arguments
        if name not in now and is_folder and makes and (fnmatchcase(name, each) or name in passing):
            now[name] = count
            count += 1
        if name not in now:
            newest = max(count - 1, 0)
            owner = opened[path] = newest if call.name in OPENS else opened.get(path, newest)
        elif call.name in _REMOVES and now[name] < count - 1:
            removals += 1
            owner = _OF_NONE
        else:
            owner = now[name]
            if path == f"{under}/{name}" and (new := _renamed_to(call, under)):
                now[new] = now.pop(name)
        owners.append(owner)
    if not count:
        raise UsageError(
            f"The job made no folder below --under whose name is {each}.",
            "Say with --each how the folders of its saves are called, such as --each 'step-*'.",
        )
    saves = [[c for c, of in zip(calls, owners, strict=True) if of in {_OF_ALL, save}] for save in range(count)]
    return saves, removals


def _renamed_to(call: TracedCall, under: str) -> str:
    """Return the new name of what is renamed in ``under`` itself; empty for other calls."""
    paths = call.paths() if call.name.startswith("rename") else []
    return _folder(paths[1], under) if len(paths) > 1 and paths[1] == f"{under}/{_folder(paths[1], under)}" else ""


def _paths(call: TracedCall) -> list[str]:
    if call.name in OPENS:
        return [call.path]
    return call.paths() if call.name in NAMES else [call.descriptor()[1]]


def _folder(path: str, under: str) -> str:
    """Return the name of the folder in ``under`` that a path is or is below; empty outside of it."""
    return path[len(under) + 1 :].partition("/")[0] if path.startswith(f"{under}/") else ""


def _shape(pattern: Pattern) -> tuple[object, ...]:
    """Return what two saves have in common that make the same calls, with other sizes perhaps."""
    files = [(file.rank, file.kept) for file in pattern.files]
    steps = [(step.phase, step.rank, step.lane, step.call, step.file, step.count) for step in pattern.steps]
    return files, steps
