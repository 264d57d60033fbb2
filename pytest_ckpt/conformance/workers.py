"""Worker processes of a check. The check observes the workers while they run, and always ends them."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import resource
import select
import signal
import struct
import time
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_ckpt.conformance.context import NotRun
from pytest_ckpt.support.die_with_parent import die_with_parent
from pytest_ckpt.support.processes import blocked_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    ReportCall = Callable[[str, str], None]

_TICK_SECONDS = 0.005
_TELL_SECONDS = 1.0
_KILL_SECONDS = 5.0
# The OOM killer or a person ends a process with these signals; a storage fault causes others, such as SIGBUS.
_OF_THE_HOST = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
# The current action of a worker: its start (monotonic seconds), the call, the context.
_SLOT = struct.Struct("d48p255p")


class WorkerChannel:
    """A worker's end of the channel to the check: it reports calls and exchanges messages."""

    def __init__(self, slot: mmap.mmap, inbox: int, outbox: int) -> None:
        self._slot = slot
        self._outbox = outbox
        self._inbox = inbox

    def at(self, call: str, where: object) -> None:
        """Report the next call and its path. A report takes about a microsecond, so each call can be reported."""
        # Packed first: pack_into begins by filling the buffer with zeros, and a reader at that moment would see a call
        # since boot.
        self._slot[: _SLOT.size] = _SLOT.pack(time.monotonic(), call.encode(), str(where).encode())

    def send(self, word: str) -> None:
        """Send a message to the check."""
        _send(self._outbox, {"said": word})

    def wait_for_check(self) -> None:
        """Wait until the check permits the worker to continue."""
        self.at("wait for the check", "")
        if not os.read(self._inbox, 1):
            os._exit(0)

    def may_continue(self) -> bool:
        """Return whether the check has permitted the worker to continue. Does not wait."""
        return bool(select.select([self._inbox], [], [], 0)[0])


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerEnd:
    """The end of a worker: its result, or the error or signal that ended the worker in ``call`` at ``where``.

    For a worker whose call hangs, ``hung`` is the time in seconds since the start of the call, and ``blocked`` is the
    worker's kernel stack. For an ended worker, ``hung`` is 0.
    """

    result: Any = None
    error: str = ""
    errno: int = 0
    signal: str = ""
    hung: float = 0.0
    blocked: str = ""
    call: str = ""
    where: str = ""


class Worker:
    """A forked process that runs ``function``. The function receives a channel and returns a JSON value."""

    def __init__(self, function: Callable[[WorkerChannel], Any]) -> None:
        self._slot = mmap.mmap(-1, mmap.PAGESIZE)
        _SLOT.pack_into(self._slot, 0, time.monotonic(), b"start", b"")
        inbox, self._to = os.pipe()
        self._from, outbox = os.pipe()
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._to)
            os.close(self._from)
            run_worker(function, WorkerChannel(self._slot, inbox, outbox), outbox, parent)
        os.close(inbox)
        os.close(outbox)
        os.set_blocking(self._from, False)
        self._received = b""
        self._words: list[str] = []
        self._last: dict[str, Any] = {}
        self._is_killed = False
        self._status: int | None = None

    @property
    def doing(self) -> tuple[float, str, str]:
        """The worker's current call: its start (monotonic seconds), the call, and its path."""
        since, call, where = _SLOT.unpack_from(self._slot, 0)
        return since, call.decode(), where.decode(errors="replace")

    def resume(self) -> None:
        """Permit the worker to continue: its ``wait_for_check`` returns."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._to, b".")

    def has_sent(self, word: str) -> bool:
        """Return whether the worker has sent the message ``word``."""
        self._over()
        return word in self._words

    def ended(self) -> WorkerEnd | None:
        """Return how the worker ended; None while the worker runs.

        Raises NotRun if another process than the check killed the worker, because this is not a fault of the storage.
        """
        if not self._over():
            return None
        assert self._status is not None
        _, call, where = self.doing
        number = os.WTERMSIG(self._status) if os.WIFSIGNALED(self._status) else 0
        if number in _OF_THE_HOST and not self._is_killed:
            name = signal.Signals(number).name
            raise NotRun(f"a process of the check was killed by {name} in {call} of {where}, not by the storage")
        if not number and not self._last:
            self._last = {"error": f"it ended with exit code {os.waitstatus_to_exitcode(self._status)} and no result"}
        return WorkerEnd(**self._last, signal=signal.Signals(number).name if number else "", call=call, where=where)

    def hung(self) -> WorkerEnd:
        """Return a description of the worker's current call. The caller uses it for a call that hangs."""
        since, call, where = self.doing
        return WorkerEnd(hung=time.monotonic() - since, blocked=blocked_in(self.pid), call=call, where=where)

    def kill(self) -> None:
        """Send SIGKILL to the worker, without waiting for its end."""
        if not self._over():
            self._is_killed = True
            os.kill(self.pid, signal.SIGKILL)

    def leave(self, until: float) -> None:
        """Wait for the end of a killed worker, at most until ``until`` (monotonic seconds). Close its channel."""
        while not self._over() and time.monotonic() < until:
            time.sleep(_TICK_SECONDS)
        for descriptor in (self._to, self._from):
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def _over(self) -> bool:
        if self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._status = status
            self._receive()
        return self._status is not None

    def _receive(self) -> None:
        with contextlib.suppress(BlockingIOError, OSError):
            while data := os.read(self._from, 1 << 16):
                self._received += data
        *lines, self._received = self._received.split(b"\n")
        for line in lines:
            message = json.loads(line)
            if "said" in message:
                self._words.append(message["said"])
            else:
                self._last = message


@contextlib.contextmanager
def working(functions: Iterable[Callable[[WorkerChannel], Any]]) -> Iterator[list[Worker]]:
    """Yield a started worker for each function. At the end of the ``with`` block, all workers are killed."""
    workers: list[Worker] = []
    try:
        for function in functions:
            workers.append(Worker(function))
        yield workers
    finally:
        for worker in workers:
            worker.kill()
        until = time.monotonic() + _KILL_SECONDS
        for worker in workers:
            worker.leave(until)


def all_have_sent(workers: Sequence[Worker], word: str, report_call: ReportCall) -> bool:
    """Wait until each worker has sent the message ``word`` or has ended. Return whether all workers have sent it.

    ``report_call`` receives the current call of a worker, as in `gather`.
    """
    reporter = _StallReporter(report_call)
    left = list(workers)
    while left := [worker for worker in left if not (worker.has_sent(word) or worker.ended())]:
        reporter.of(left)
        time.sleep(_TICK_SECONDS)
    return all(worker.has_sent(word) for worker in workers)


def gather(
    workers: Sequence[Worker], report_call: ReportCall, *, patience_seconds: float = float("inf")
) -> list[WorkerEnd]:
    """Wait until all workers have ended. Return the ends of the workers, in the order of ``workers``.

    If a call of a worker takes longer than ``patience_seconds``, the worker counts as hung and is no longer waited for.
    About once a second, ``report_call`` receives the current call of the worker with the longest time without progress.
    If no worker makes progress, ``report_call`` is not called. The last reported call is therefore the call that blocks
    the check.
    """
    ends: dict[int, WorkerEnd] = {}
    reporter = _StallReporter(report_call)
    while len(ends) < len(workers):
        for number, worker in enumerate(workers):
            if number not in ends and (end := worker.ended()):
                ends[number] = end
            elif number not in ends and time.monotonic() - worker.doing[0] > patience_seconds:
                ends[number] = worker.hung()
        if left := [worker for number, worker in enumerate(workers) if number not in ends]:
            reporter.of(left)
            time.sleep(_TICK_SECONDS)
    return [ends[number] for number in range(len(workers))]


class _StallReporter:
    """Reports the current call of the worker with the longest time without progress.

    A call is reported about once a second, and only if a worker has made progress since the last report.
    """

    def __init__(self, report_call: ReportCall) -> None:
        self._report_call = report_call
        self._reported_at = 0.0
        self._reported_call: list[tuple[float, str, str]] = []

    def of(self, workers: Sequence[Worker]) -> None:
        now, doing = time.monotonic(), sorted(worker.doing for worker in workers)
        if now - self._reported_at > _TELL_SECONDS and doing != self._reported_call:
            self._reported_at, self._reported_call = now, doing
            _, call, where = doing[0]
            self._report_call(call, where)


def run_worker(function: Callable[[WorkerChannel], Any], talk: WorkerChannel, outbox: int, parent: int) -> None:
    """Run the worker's function in the forked process, send its result or error to the check, and exit.

    The exit skips the clean-up and the buffered output of the check.
    """
    try:
        die_with_parent()
        if os.getppid() != parent:
            os._exit(0)
        # A fault that ends the process with a signal must not leave a core file.
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        _send(outbox, {"result": function(talk)})
    except OSError as error:
        _send(outbox, {"error": f"{error.strerror} (errno {error.errno})", "errno": error.errno})
    except BaseException:
        # The check must receive every error, and the process must end here.
        _send(outbox, {"error": traceback.format_exc(limit=-3)})
    finally:
        os._exit(0)


def _send(pipe: int, message: dict[str, Any]) -> None:
    data = memoryview(json.dumps(message).encode() + b"\n")
    while data:
        data = data[os.write(pipe, data) :]
