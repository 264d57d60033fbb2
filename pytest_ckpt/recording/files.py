"""The calls of a job on the files below a directory, and the save to which each call belongs.

All functions are pure. Files have numbers instead of names. If a job saves several times into separate directories, the
pattern of the job is the pattern of its newest save.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from pytest_ckpt.support.errors import UsageError

if TYPE_CHECKING:
    from pytest_ckpt.facts.pattern import Call, Pattern, Synchronous
    from pytest_ckpt.recording.strace_log import TracedCall

WRITES = frozenset({"write", "pwrite64", "writev", "pwritev", "pwritev2"})
COPIES = frozenset({"sendfile", "copy_file_range", "splice"})
READS = frozenset({"read", "pread64", "readv", "preadv", "preadv2"})
FLUSHES = frozenset({"fsync", "fdatasync"})
NAMES = frozenset(
    {"rename", "renameat", "renameat2", "link", "linkat", "unlink", "unlinkat", "mkdir", "mkdirat", "rmdir"}
)
OPENS = frozenset({"open", "openat", "creat"})
OTHERS = frozenset({"lseek", "close", "ftruncate", "fallocate", "dup", "dup2", "dup3", "fcntl", "syncfs"})
CALLS = WRITES | COPIES | READS | FLUSHES | NAMES | OPENS | OTHERS
"""The calls that strace records, in addition to calls that start processes."""

_READ_ONLY = re.compile(r"O_RDONLY")

_SYNCHRONOUS = re.compile(r"\bO_D?SYNC\b")

_MAKES_DIRECTORY = frozenset({"mkdir", "mkdirat"})
_REMOVES = frozenset({"unlink", "unlinkat", "rmdir"})
_OF_ALL, _OF_NONE = -1, -2
ALIKE, UNLIKE = "other saves of the job, with the same calls", "other saves of the job, with other calls"
REMOVED = "removals of what older saves had written"


@dataclass(frozen=True, kw_only=True, slots=True)
class FileCall:
    """One call of a thread on file number ``file``, or on a directory if ``file`` is -1.

    The call lasted from ``began`` to ``ended``.
    """

    thread: int
    began: float
    ended: float
    call: Call
    file: int
    offset: int = 0
    bytes: int = 0


@dataclass(kw_only=True, slots=True)
class _Open:
    file: int
    at: int = 0
    appends: bool = False


@dataclass(kw_only=True, slots=True)
class JobFiles:
    """Collects the calls of a job on files below ``under``. The fields are complete after the last call of `record`.

    ``sizes``, ``kept`` and ``synchronous`` have one entry per file number. ``other_reads`` describes reads of files
    that the recorded job did not create: {size of a read: total bytes of reads of this size}. ``omitted`` counts calls
    that a pattern cannot represent. ``moved_in`` counts files that were written elsewhere and moved below ``under`` by
    a rename.
    """

    under: str
    process: Callable[[int], int]
    acts: list[FileCall] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    kept: list[bool] = field(default_factory=list)
    synchronous: list[Synchronous] = field(default_factory=list)
    omitted: Counter[str] = field(default_factory=Counter)
    moved_in: int = 0
    other_reads: Counter[int] = field(default_factory=Counter)
    numbers: dict[str, int] = field(default_factory=dict)
    _open: dict[tuple[int, int], _Open] = field(default_factory=dict)

    def record(self, call: TracedCall) -> None:
        """Record one call."""
        if call.name in OPENS:
            self._opened(call)
        elif call.name in NAMES:
            self._named(call)
        elif call.name in CALLS:
            self._on_descriptor(call)

    def _is_below(self, path: str) -> bool:
        return path == self.under or path.startswith(f"{self.under}/")

    def _act(self, call: TracedCall, name: Call, file: int, offset: int = 0, count: int = 0) -> None:
        self.acts.append(
            FileCall(
                thread=call.thread,
                began=call.began,
                ended=call.ended,
                call=name,
                file=file,
                offset=offset,
                bytes=count,
            )
        )

    def _opened(self, call: TracedCall) -> None:
        key, path = (self.process(call.thread), call.returned), call.path
        self._open.pop(key, None)
        if not self._is_below(path) or "O_DIRECTORY" in call.arguments:
            return
        flags = call.arguments
        makes = call.name == "creat" or "O_CREAT" in flags
        is_new = path not in self.numbers
        if is_new:
            if not makes:
                return
            self.numbers[path] = len(self.sizes)
            self.sizes.append(0)
            self.kept.append(True)
            self.synchronous.append("")
        number = self.numbers[path]
        truncates = call.name == "creat" or "O_TRUNC" in flags
        name: Call = "open"
        if makes and (is_new or truncates):
            name = "create new" if "O_EXCL" in flags else "create"
        elif truncates:
            name = "truncate and open"
        elif _READ_ONLY.search(flags):
            name = "open to read"
        if truncates:
            self.sizes[number] = 0
        if "O_DIRECT" in flags:
            self.omitted["opens with O_DIRECT, replayed without"] += 1
        if (found := _SYNCHRONOUS.search(flags)) and name != "open to read":
            self.synchronous[number] = "O_SYNC" if found[0] == "O_SYNC" else "O_DSYNC"
        self._open[key] = _Open(file=number, appends="O_APPEND" in flags)
        self._act(call, name, number)

    def _on_descriptor(self, call: TracedCall) -> None:
        number, path = call.descriptor()
        key = (self.process(call.thread), number)
        if call.name == "syncfs":
            if self._is_below(path):
                self._act(call, "syncfs", -1)
            return
        if call.name.startswith("dup") or call.name == "fcntl":
            # Python's os.dup is an fcntl; only F_DUPFD and F_DUPFD_CLOEXEC create a descriptor.
            if key in self._open and (call.name != "fcntl" or "F_DUPFD" in call.arguments):
                # Both names refer to one place in the file.
                self._open[key[0], call.returned] = self._open[key]
            return
        if call.name == "fsync" and self._is_below(path) and key not in self._open and path not in self.numbers:
            self._act(call, "fsync directory", -1)
            return
        known = self._open.get(key) or self._inherited(key, path)
        if known is None:
            if call.name in READS and self._is_below(path):
                self.other_reads[call.returned] += call.returned
            return
        if call.name in WRITES | COPIES:
            self._written(call, known)
        elif call.name in READS:
            offset = call.number(-2 if call.name == "preadv2" else -1) if call.name.startswith("pread") else known.at
            known.at += 0 if call.name.startswith("pread") else call.returned
            if call.returned:
                self._act(call, "read", known.file, offset, call.returned)
        elif call.name == "lseek":
            known.at = call.returned
        elif call.name == "ftruncate":
            self.sizes[known.file] = call.number(-1)
            self._act(call, "set size", known.file, 0, call.number(-1))
        elif call.name == "fallocate":
            end = call.number(-1) + call.number(-2)
            if call.number(-3) == 0:
                self.sizes[known.file] = max(self.sizes[known.file], end)
            self._act(call, "allocate", known.file, call.number(-2), call.number(-1))
        elif call.name == "close":
            self._open.pop(key, None)
            # A file stays open until the last of its duplicated descriptors is closed.
            if not any(other is known for other in self._open.values()):
                self._act(call, "close", known.file)
        elif call.name in FLUSHES:
            self._act(call, "fdatasync" if call.name == "fdatasync" else "fsync", known.file)

    def _inherited(self, key: tuple[int, int], path: str) -> _Open | None:
        """Return the file descriptor that a process inherited from its parent process.

        If the file at ``path`` is not one of the job's files, return None.
        """
        if path not in self.numbers:
            return None
        number = self.numbers[path]
        found = self._open[key] = _Open(file=number, at=self.sizes[number])
        return found

    def _written(self, call: TracedCall, known: _Open) -> None:
        size = self.sizes[known.file]
        if call.name.startswith("pwrite"):
            offset = call.number(-2 if call.name == "pwritev2" else -1)
        else:
            offset = size if known.appends else known.at
            known.at = offset + call.returned
        if call.name in COPIES:
            self.omitted["copies within the kernel, replayed as writes"] += 1
        self.sizes[known.file] = max(size, offset + call.returned)
        if call.returned:
            self._act(call, "write", known.file, offset, call.returned)

    def _named(self, call: TracedCall) -> None:
        paths = call.paths()
        if not any(map(self._is_below, paths)):
            return
        first = paths[0]
        if call.name.startswith(("mkdir", "rmdir")) or "AT_REMOVEDIR" in call.arguments:
            made = call.name.startswith("mkdir")
            self.omitted["directories made" if made else "directories removed"] += 1
        elif call.name.startswith("unlink"):
            if (number := self.numbers.pop(first, None)) is None:
                self.omitted["files removed that the job had before"] += 1
            else:
                self.kept[number] = False
                self._act(call, "unlink", number)
        elif call.name.startswith("link"):
            self.omitted["hard links"] += 1
        elif first in self.numbers:
            if (over := self.numbers.pop(paths[1], None)) is not None:
                # A replay uses other names, so it removes the file that the rename replaces.
                self.kept[over] = False
                self._act(call, "unlink", over)
            self.numbers[paths[1]] = self.numbers.pop(first)
            self._act(call, "rename", self.numbers[paths[1]])
        elif self._is_below(first):
            self._moved(first, paths[1])
        else:
            self.moved_in += 1

    def _moved(self, old: str, new: str) -> None:
        """Record that a directory was renamed from ``old`` to ``new``.

        A replay does not repeat this rename, because the target's commit replaces it.
        """
        below = [path for path in self.numbers if path.startswith(f"{old}/")]
        for path in below:
            self.numbers[new + path[len(old) :]] = self.numbers.pop(path)
        self.omitted["directories renamed"] += 1


def newest_of(
    saves: Sequence[Sequence[TracedCall]], removals: int, make: Callable[[Sequence[TracedCall]], Pattern]
) -> Pattern:
    """Return the pattern of the newest of ``saves``, because a job's first saves often make additional calls.

    For example, first saves start processes. ``make`` returns the pattern of one save from its calls. ``removals`` is
    the number of calls that removed files of older saves. Three counts are added to ``omitted`` of the pattern:
    ``removals``, the older saves with the same calls as the newest save, and the other older saves.
    """
    pattern = make(saves[-1])
    left_out = dict(pattern.omitted)
    for calls in saves[:-1]:
        try:
            is_alike = _shape(make(calls)) == _shape(pattern)
        except UsageError:
            is_alike = False
        what = ALIKE if is_alike else UNLIKE
        left_out[what] = left_out.get(what, 0) + 1
    return replace(pattern, omitted=left_out | ({REMOVED: removals} if removals else {}))


def saves_of(calls: Sequence[TracedCall], under: str, each: str) -> tuple[list[list[TracedCall]], int]:
    """Return (calls of each save, number of calls that removed files of older saves). The oldest save is first.

    Each save has a directory in ``under``, whose final name matches the glob ``each``. Other files in ``under``, such
    as a pointer to the newest checkpoint, belong to the last save that began before such a file was opened. Calls
    outside ``under``, and calls that begin processes, belong to all saves. Raises UsageError if there is no save.
    """
    passing = {
        _directory_of_save(call.paths()[0], under) for call in calls if fnmatchcase(_renamed_to(call, under), each)
    }
    now: dict[str, int] = {}
    opened: dict[str, int] = {}
    owners: list[int] = []
    count = removals = 0
    for call in calls:
        paths = [path for path in _paths(call) if path.startswith(f"{under}/")]
        if call.name not in CALLS or not paths:
            owners.append(_OF_ALL)
            continue
        path, name = paths[0], _directory_of_save(paths[0], under)
        is_directory = call.name in _MAKES_DIRECTORY or path != f"{under}/{name}"
        makes = call.name in _MAKES_DIRECTORY or call.name == "creat" or "O_CREAT" in call.arguments
        if name not in now and is_directory and makes and (fnmatchcase(name, each) or name in passing):
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
            f"The job made no directory below --under whose name is {each}.",
            "Say with --each how the directories of its saves are called, such as --each 'step-*'.",
        )
    saves = [[c for c, of in zip(calls, owners, strict=True) if of in {_OF_ALL, save}] for save in range(count)]
    return saves, removals


def _renamed_to(call: TracedCall, under: str) -> str:
    """Return the new name if the call renames a file or directory to a direct entry of ``under``.

    If not, return an empty text.
    """
    paths = call.paths() if call.name.startswith("rename") else []
    return (
        _directory_of_save(paths[1], under)
        if len(paths) > 1 and paths[1] == f"{under}/{_directory_of_save(paths[1], under)}"
        else ""
    )


def _paths(call: TracedCall) -> list[str]:
    if call.name in OPENS:
        return [call.path]
    return call.paths() if call.name in NAMES else [call.descriptor()[1]]


def _directory_of_save(path: str, under: str) -> str:
    """Return the name of the entry of ``under`` that contains ``path``.

    If ``path`` is not below ``under``, return "".
    """
    return path[len(under) + 1 :].partition("/")[0] if path.startswith(f"{under}/") else ""


def _shape(pattern: Pattern) -> tuple[object, ...]:
    """Return a key that is equal for two patterns if their saves made the same calls, even with different sizes."""
    files = [(file.rank, file.kept) for file in pattern.files]
    steps = [(step.phase, step.rank, step.lane, step.call, step.file, step.count) for step in pattern.steps]
    return files, steps
