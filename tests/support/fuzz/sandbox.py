"""Runs a call and detects violations: a traceback, a hang, too much memory, a file in a wrong place.

The audit hook and the memory limit of the sandbox remain until the process ends, so use a separate process.
"""

from __future__ import annotations

import contextlib
import io
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from tests.support.machine import patience

HANG_SECONDS = 20
MEMORY_BYTES = 10**9

# Characters that control a terminal or change the direction of text.
_CODES = (range(9), range(11, 32), range(127, 160), range(0x202A, 0x202F), range(0x2066, 0x206A))
_STEERS = frozenset(chr(code) for codes in _CODES for code in codes)
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# Audit events of the interpreter: the positions of the changed paths, and of the directories to which they are
# relative.
_CHANGES = {
    "os.mkdir": ((0, 2),), "os.rmdir": ((0, 1),), "os.remove": ((0, 1),), "os.rename": ((0, 2), (1, 3)),
    "os.link": ((1, 3),), "os.symlink": ((1, 2),), "os.truncate": ((0, None),), "os.chmod": ((0, 2),),
    "os.chown": ((0, 3),), "os.utime": ((0, 3),), "os.setxattr": ((0, None),),
}  # fmt: skip
_STARTS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "socket.connect")
# Queries of a target without writes run in a separate process, because a call on storage may hang.
_LOOKS = ["-m", "pytest_ckpt.targets.timed_calls", "pytest_ckpt.targets.schemes:perform_request"]


def _looks(event: str, args: tuple[object, ...]) -> bool:
    return event == "subprocess.Popen" and isinstance(args[1], list) and args[1][1:4] == _LOOKS


class Hung(BaseException):
    """Raised in a call that takes too long. It is not a subclass of Exception, so calls do not catch it by accident."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """The result of a call: exit code, standard output, standard error, and violations as sentences.

    ``code`` is None if the call did not return.
    """

    code: int | None
    out: str
    err: str
    faults: tuple[str, ...]


class Sandbox:
    """Watches calls in this process. A call may write only below the directories that are allowed for this call."""

    def __init__(self) -> None:
        self._allowed: tuple[str, ...] = ()
        self._watching = self._may_start = False
        self._seen: list[str] = []

    def enclose(self) -> None:
        """Install the audit hook and the timeout of calls, for the rest of this process."""
        sys.dont_write_bytecode = True
        sys.addaudithook(self._audit)
        for number in (signal.SIGALRM, signal.SIGPROF):
            signal.signal(number, self._too_long)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    def run(
        self, call: Callable[[], int | None], allowed: tuple[Path, ...], *, starts_processes: bool = False
    ) -> Outcome:
        """Run a call that prints and returns an exit code; return its outcome.

        The call may write below ``allowed``. It may start processes if ``starts_processes`` is true.
        """
        self._may_start = starts_processes
        self._allowed = tuple(os.path.realpath(path) for path in allowed)
        self._seen.clear()
        _limit_memory()
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
        code, faults = None, []
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), self._watch():
            try:
                code = call()
            except SystemExit as error:
                code = error.code if isinstance(error.code, int) else 1
            except Hung:
                faults.append(f"it went on for more than {HANG_SECONDS} s: {_where()}")
            except BaseException:
                faults.append(f"a traceback:\n{traceback.format_exc(limit=-4)}")
        output = [stream.buffer.getvalue().decode("utf-8", "surrogateescape") for stream in (out, err)]
        faults += self._seen
        for name, text in zip(("standard output", "standard error"), output, strict=True):
            if "Traceback (most recent call" in text or "INTERNALERROR" in text or "is an error of pytest-ckpt" in text:
                faults.append(f"{name}: {text[-1500:]}")
            if steers := sorted(_STEERS & set(text)):
                faults.append(f"{name} holds {steers!r}")
        return Outcome(code=code, out=output[0], err=output[1], faults=tuple(faults))

    @contextlib.contextmanager
    def _watch(self) -> Iterator[None]:
        self._watching = True
        # Limits of CPU time and of elapsed time; on a busy machine a call waits longer.
        signal.setitimer(signal.ITIMER_PROF, HANG_SECONDS)
        signal.setitimer(signal.ITIMER_REAL, patience(HANG_SECONDS))
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.setitimer(signal.ITIMER_REAL, 0)
            self._watching = False

    def _too_long(self, _number: int, frame: FrameType | None) -> None:
        global _STACK  # noqa: PLW0603 - a handler has no other way to tell
        _STACK = "".join(traceback.format_stack(frame, limit=5))
        raise Hung

    def _audit(self, event: str, args: tuple[object, ...]) -> None:
        if not self._watching:
            return
        if event == "open":
            path, _, flags = args
            if isinstance(flags, int) and flags & _WRITES and isinstance(path, str | bytes | os.PathLike):
                self._note("opened to write", path)
        elif event in _CHANGES:
            for position, beginning in _CHANGES[event]:
                directory = -1 if beginning is None else args[beginning]
                self._note(event, args[position], directory if isinstance(directory, int) else -1)
        elif event in _STARTS and not self._may_start and not _looks(event, args):
            self._seen.append(f"{event}: {str(args)[:200]}")

    def _note(self, what: str, path: object, directory: int = -1) -> None:
        if isinstance(path, int) or path is None:
            return
        # Not watched during this, because following a link is a read.
        self._watching = False
        inside = f"/proc/self/fd/{directory}" if directory >= 0 else "."
        name = Path(inside, os.fsdecode(path))  # type: ignore[arg-type]
        # A removal or rename affects a name in a directory; an open affects the target of links.
        is_opened = what.startswith("open")
        place = os.path.realpath(name) if is_opened else str(Path(os.path.realpath(name.parent), name.name))
        self._watching = True
        if place == os.devnull or any(place == top or place.startswith(f"{top}/") for top in self._allowed):
            return
        self._seen.append(f"written elsewhere ({what}): {place!r:.200}")


def _limit_memory() -> None:
    """Limit the memory of this process to its present use plus `MEMORY_BYTES`."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY_BYTES, hard))


_STACK = ""


def _where() -> str:
    return f"\n{_STACK}"
