"""Parses the output of strace (``-f -y -ttt``) into calls, and determines the rank of each thread.

The calls are in the order of time. A process that writes is a rank. The child processes of this process belong to the
same rank. All functions are pure.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

_DONE = re.compile(r"(\d+) +(\d+\.\d+) (\w+)\((.*)\) += (-?\d+|\?|0x[0-9a-f]+)(?:<(.*)>)?(?:\(deleted\))?( .*)?")
_UNFINISHED = re.compile(r"(\d+) +(\d+\.\d+) (\w+)\((.*?),? *<unfinished \.\.\.>")
_RESUMED = re.compile(r"(\d+) +(\d+\.\d+) <\.\.\. (\w+) resumed>,? ?(.*)")
_EXITED = re.compile(r"(\d+) +(\d+\.\d+) \+\+\+ (exited|killed)")
_SIGNAL = re.compile(r"(\d+) +(\d+\.\d+) (---|\+\+\+)")
_SECONDS = re.compile(r" <\d+\.\d+>$")
_ESCAPE = re.compile(r"\\([0-7]{1,3}|x[0-9a-f]{2}|.)")
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "v": "\v", "f": "\f"}
_DIRECTORY = re.compile(r"AT_FDCWD<(.*?)>")
_PATH = re.compile(r'(?:(?:AT_FDCWD|\d+)<((?:[^>\\]|\\.)*)>, )?"((?:[^"\\]|\\.)*)"(?!\.\.\.)')
"""A path in quotes, after the directory to which it is relative, if the call names one."""

BIRTHS = frozenset(("clone", "clone3", "fork", "vfork"))
"""Calls that create a process or a thread and return its id."""

_OPENS = frozenset(("open", "openat", "creat"))
_DESCRIPTORS = _OPENS | {"dup", "dup2", "dup3", "fcntl"}

MOVES = frozenset(("chdir", "fchdir"))
"""Calls that change the directory of a process."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TracedCall:
    """One system call of a thread.

    ``began`` and ``ended`` are times in seconds. ``returned`` is the result of the call. ``path`` is the path of the
    descriptor that the call returned; empty if it returned no descriptor. ``directory`` is the working directory of the
    thread; empty if it is unknown.
    """

    thread: int
    began: float
    ended: float
    name: str
    arguments: str
    returned: int
    path: str = ""
    directory: str = ""

    def paths(self) -> list[str]:
        """Return the quoted paths in the arguments. A path is absolute if its base directory is known."""
        found = [
            (unescape(directory) or self.directory, unescape(text)) for directory, text in _PATH.findall(self.arguments)
        ]
        return [text if text.startswith("/") or not directory else f"{directory}/{text}" for directory, text in found]

    def descriptor(self) -> tuple[int, str]:
        """Return the first argument as (descriptor, path). If it is not a descriptor, return (-1, "")."""
        match = re.match(r"(\d+)<((?:[^>\\]|\\.)*)>", self.arguments)
        return (int(match[1]), unescape(match[2])) if match else (-1, "")

    def number(self, place: int) -> int:
        """Return the argument at index ``place`` as a number. Negative indices count from the end.

        Raises ValueError or IndexError if there is no such number.
        """
        words = [
            word.strip() for word in re.sub(r'<[^>]*>|"(?:[^"\\]|\\.)*"|\[[^\]]*\]', "", self.arguments).split(",")
        ]
        return int(words[place], 0)


class _Directories:
    """The working directory of each thread.

    Some paths in the log are relative to this directory, such as the paths of renames.
    """

    def __init__(self) -> None:
        self._of: dict[int, str] = {}

    def after(self, call: TracedCall) -> str:
        """Return the working directory in which a call was made.

        If the arguments of the call contain the working directory, or the call changes it, the directory is recorded.
        """
        if found := _DIRECTORY.findall(call.arguments):
            self._of[call.thread] = unescape(found[0])
        directory = self._of.get(call.thread, "")
        if call.name in MOVES:
            named = replace(call, directory=directory).paths() or [call.descriptor()[1]]
            self._of[call.thread] = posixpath.normpath(named[0])
        elif call.name in BIRTHS:
            self._of.setdefault(call.returned, directory)
        return directory


def unescape(text: str) -> str:
    """Return a text of strace with its escape sequences replaced by the original bytes."""

    def real(match: re.Match[str]) -> str:
        found = match[1]
        if found[0] in "01234567":
            return chr(int(found, 8))
        return chr(int(found[1:], 16)) if found[0] == "x" and len(found) > 1 else _LETTERS.get(found, found)

    raw = _ESCAPE.sub(real, text)
    try:
        return raw.encode("latin-1").decode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return raw


def read_log(lines: Iterable[str]) -> list[TracedCall]:
    """Return the successful calls in the lines of a log. If the log is incomplete or invalid, raises ValueError."""
    waiting: dict[int, tuple[float, str, str]] = {}
    last: dict[int, float] = {}
    ended: set[int] = set()
    calls: list[TracedCall] = []
    directories = _Directories()
    for number, raw in enumerate(lines, start=1):
        line = _SECONDS.sub("", raw.rstrip("\n"))
        if match := _EXITED.match(line):
            ended.add(int(match[1]))
            continue
        if _SIGNAL.match(line) or not line.strip():
            continue
        match = _UNFINISHED.fullmatch(line) or _RESUMED.match(line) or _DONE.fullmatch(line)
        if not match:
            raise ValueError(f"line {number} is not a line of strace -f -y -ttt: it may have been cut")
        thread, at = int(match[1]), float(match[2])
        if at < last.get(thread, 0.0):
            raise ValueError(f"time goes back at line {number}")
        last[thread], began = at, at
        if match.re is _UNFINISHED:
            waiting[thread] = (at, match[3], match[4])
            continue
        if match.re is _RESUMED:
            if thread not in waiting:
                raise ValueError(f"line {number} ends a call that never began: the log may have been cut")
            began, name, first = waiting.pop(thread)
            rest = match[4] if match[4].startswith(")") else f", {match[4]}"
            match = _DONE.fullmatch(f"{thread} {began:.6f} {name}({first}{rest}")
            if not match:
                continue
        if match[5] == "?" or int(match[5], 0) < 0:
            continue
        call = TracedCall(thread=thread, began=began, ended=at, name=match[3], arguments=match[4],
                          returned=int(match[5], 0), path=unescape(match[6] or ""))  # fmt: skip
        if call.name in _OPENS and match[6] is None:
            raise ValueError(f"line {number} names no path of its descriptor: the log was made without -y")
        calls.append(replace(call, directory=directories.after(call)))
    if still := set(last) - ended:
        raise ValueError(f"{len(still)} of {len(last)} threads had not ended: the log was cut")
    # A descriptor may be reused before the log shows the end of the close, but never before the close began.
    return sorted(calls, key=lambda call: call.ended if call.name in _DESCRIPTORS else call.began)


class Threads:
    """The processes and threads of a job, derived from the calls that created them.

    ``births`` contains the creation time of each thread, except the first thread of a process.
    """

    def __init__(self, calls: Iterable[TracedCall]) -> None:
        self._process: dict[int, int] = {}
        self._parent: dict[int, int] = {}
        self._order: list[int] = []
        self.births: dict[int, float] = {}
        for call in calls:
            self._note(call.thread)
            if call.name in BIRTHS and call.returned:
                child = call.returned
                self._note(child)
                if "CLONE_THREAD" in call.arguments:
                    self._process[child] = call.thread
                    self.births[child] = call.began
                else:
                    self._parent[child] = call.thread

    def process(self, thread: int) -> int:
        """Return the process of a thread. A process is identified by its first thread."""
        while (above := self._process.get(thread, thread)) != thread:
            thread = above
        return thread

    def ranks(self, writers: Iterable[int], others: Iterable[int] = ()) -> dict[int, int]:
        """Return {thread: rank} for the threads in ``writers``.

        Ranks are numbered in the order in which their processes appear in the log. A process that writes is a rank. The
        child processes of this process belong to the same rank. A process that does not write is also a rank if two
        conditions are met. First, its descendants write. Second, one of its siblings writes and has descendants that
        write. If the process of a thread in ``others`` belongs to one of these ranks, the result also contains this
        thread.
        """
        processes = {self.process(thread) for thread in writers}
        processes |= self._silent_siblings(processes)
        top = {process: self._topmost(process, processes) for process in processes}
        numbers: Sequence[int] = sorted(set(top.values()), key=self._order.index)
        found = {thread: numbers.index(top[self.process(thread)]) for thread in set(writers)}
        for thread in set(others) - set(found):
            above = self._topmost(self.process(thread), processes)
            if above in processes:
                found[thread] = numbers.index(top[above])
        return found

    def _silent_siblings(self, writers: set[int]) -> set[int]:
        with_children = {self._topmost(process, writers) for process in writers} & {
            above for process in writers for above in self._above(process)
        }
        begun_by = {above for process in with_children for above in self._above(process)[:1]}
        return {above for process in writers for above in self._above(process) if begun_by & {*self._above(above)[:1]}}

    def _above(self, process: int) -> list[int]:
        """Return the ancestors of a process, the nearest ancestor first."""
        found = []
        while process in self._parent:
            process = self.process(self._parent[process])
            found.append(process)
        return found

    def _topmost(self, process: int, among: set[int]) -> int:
        return next((above for above in reversed(self._above(process)) if above in among), process)

    def _note(self, thread: int) -> None:
        if thread not in self._process:
            self._process[thread] = thread
            self._order.append(thread)
