"""Calls on storage that may not answer, made in a child process with a timeout.

A call that hangs cannot be interrupted, and its process cannot be killed until the storage answers. The caller
therefore waits for a child process for a limited time, and then continues without the child's result. The controller's
own process never calls a target.

`call_in_time` starts a new interpreter (``python -m pytest_ckpt.targets.timed_calls``), for any target. Its timeout
begins after the imports, so a slow start on a busy host is not counted. `watched` forks a child, for calls on a file
system. The forked child needs no imports and starts within milliseconds. It closes all inherited descriptors, so that a
child that hangs permanently keeps no connection open.
"""

from __future__ import annotations

import contextlib
import contextvars
import json
import os
import pickle
import select
import selectors
import signal
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn, TypeVar, cast

from pytest_ckpt.support import waits
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.support.processes import describe_exit, tasks_blocked_in
from pytest_ckpt.support.references import load
from pytest_ckpt.support.resources import PACKAGE_HOME
from pytest_ckpt.support.units import format_seconds

_BEGIN_SECONDS = 180.0
"""The timeout for the start of an interpreter on a busy host. If it takes longer, the interpreter itself is on storage
that does not answer."""

Answer = TypeVar("Answer")

DEFAULT_SECONDS = 60.0
_seconds: contextvars.ContextVar[float] = contextvars.ContextVar("seconds", default=DEFAULT_SECONDS)
_READ_BYTES = 1 << 16
_LEAVE_SECONDS, _POLL_SECONDS = 2.0, 0.01
_TRIES = 3


class NoAnswerError(Exception):
    """The target did not answer within the timeout. ``pid`` is the process that is blocked in the call."""

    def __init__(self, pid: int, seconds: float) -> None:
        super().__init__(f"the target did not answer for {seconds:g} s; process {pid} waits for it and cannot be ended")
        self.pid = pid


class RefusedError(Exception):
    """The call failed. ``remedy`` is what the user can do; empty if unknown."""

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(what)
        self.remedy = remedy


def call_in_time(reference: str, argument: Any, seconds: float, *, imports: Iterable[str] = ()) -> Any:
    """Call the function ``reference`` (``module:function``) in a new process; return its result.

    ``argument`` and the result are plain JSON types. ``imports`` are further names (``module:name``) that the process
    imports first. The ``seconds`` begin after all imports. If the function does not return within ``seconds``,
    NoAnswerError is raised. If the function raises an error or the process does not start, RefusedError is raised.
    """
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as begun:
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", "pytest_ckpt.targets.timed_calls", reference, str(writing), *imports],
                cwd=PACKAGE_HOME,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(writing,),
                text=True,
                start_new_session=True,
            )
        finally:
            os.close(writing)
        with selectors.DefaultSelector() as selector:
            selector.register(begun, selectors.EVENT_READ)
            until = time.monotonic() + _BEGIN_SECONDS
            while not (has_begun := bool(selector.select(waits.LOOK_SECONDS))) and time.monotonic() < until:
                waits.print_if_due()
    if not has_begun:
        _leave(process)
        raise RefusedError(
            f"it could not be tried: process {process.pid}, which was to try, did not begin for {_BEGIN_SECONDS:g} s",
            f"Try again when this host is less busy, and see that {sys.executable} is not on the storage under test.",
        )
    try:
        output, complaint = waits.communicate(process, json.dumps(argument), seconds=seconds)
    except subprocess.TimeoutExpired:
        _leave(process)
        raise NoAnswerError(process.pid, seconds) from None
    if process.returncode:
        last = (complaint.strip().splitlines() or [f"exit code {process.returncode}"])[-1]
        raise RefusedError(f"it could not be tried: {last}")
    answer: dict[str, Any] = json.loads(output)
    if "error" in answer:
        raise RefusedError(answer["error"], answer["remedy"])
    return answer["answer"]


def _leave(process: subprocess.Popen[str]) -> None:
    """Kill a process that is blocked in a call, without waiting for its end. A thread reaps the process later."""
    process.kill()
    threading.Thread(target=process.communicate, daemon=True).start()


def main() -> None:
    """Call the function named on the command line with the JSON from standard input; print the function's answer."""
    reference, begun, *imports = sys.argv[1:]
    function = load(reference)
    for name in imports:
        load(name)
    # The caller begins to count the time when the pipe is closed; nothing is written to it.
    os.close(int(begun))
    try:
        answer = {"answer": function(json.load(sys.stdin))}
    except UsageError as error:
        answer = {"error": error.what, "remedy": error.remedy}
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        answer = {"error": f"{place}{error.strerror or error}", "remedy": ""}
    print(json.dumps(answer))


@contextlib.contextmanager
def answers_within(seconds: float) -> Iterator[None]:
    """Use ``seconds`` as the timeout of `watched` calls during a ``with`` block, but at most the default timeout."""
    before = _seconds.set(min(seconds, DEFAULT_SECONDS))
    try:
        yield
    finally:
        _seconds.reset(before)


def watched(name: str, call: Callable[[], Answer], *, more_seconds: float = 0.0, tries: int = _TRIES) -> Answer:
    """Call a function in a forked child; return its result, or raise its UsageError or OSError.

    ``name`` is the name of the storage in error messages. ``more_seconds`` are added to the timeout, for a function
    that itself waits. If the child is killed (by the OOM killer or an operator), the storage is not the cause. The
    function is then called again, up to ``tries`` calls in total. Raises UsageError if the storage does not answer, or
    if every child is killed.
    """
    for _ in range(tries):
        data, process, exit_code = _watched_once(name, call, _seconds.get() + more_seconds)
        if exit_code == 0:
            return cast("Answer", _result(data))
    raise UsageError(
        f"Process {process}, which called {name}, {describe_exit(exit_code)}: the storage was not asked.",
        "Read the log of this host's kernel (dmesg): it names processes that were killed because memory ran out. "
        "Then run again.",
    )


def _watched_once(name: str, call: Callable[[], Any], seconds: float) -> tuple[bytes, int, int]:
    """Call a function in a forked child; return (pickled result, pid of the child, exit code).

    If the child was killed, the result is empty and the exit code is not 0.
    """
    # Python would print and discard an exception in its fork handlers, including a Ctrl-C.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # Other threads of this process hold no lock that a child needs for system calls.
        warnings.simplefilter("ignore", DeprecationWarning)
        process = os.fork()
    if process == 0:
        _answer(call, writing, before)
    has_ended, began = False, time.monotonic()
    try:
        os.close(writing)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        with waits.waiting(lambda: f"{name} has not answered for {format_seconds(round(time.monotonic() - began))}"):
            data = _read_all(reading, seconds)
        has_ended = data is not None
    finally:
        os.close(reading)
        stack = "" if has_ended else tasks_blocked_in([process])
        exit_code = _reap(process, has_ended=has_ended)
    if data is None:
        raise UsageError(
            f"{name} did not answer for {format_seconds(seconds)}: process {process} waits for it and cannot be ended."
            + (f"\n{stack}" if stack else ""),
            "Look at its server, or at the process that serves the mount. Unmount it (umount -l PATH), mount it again.",
        )
    return data, process, exit_code


def _result(data: bytes) -> Any:
    """Return the result that a child wrote, or raise the child's UsageError or OSError.

    Any other error of the child is raised as RuntimeError.
    """
    kind, found = pickle.loads(data)
    if kind == "usage":
        raise UsageError(*found)
    if kind == "os":
        raise OSError(*found)
    if kind == "fault":
        raise RuntimeError(found)
    return found


def _answer(call: Callable[[], Any], writing: int, mask: set[int | signal.Signals]) -> NoReturn:
    """In the child, call the function, write the result to the pipe ``writing``, and end the process.

    ``mask`` is the signal mask during the call.
    """
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        # On SIGTERM, the exit removes temporary files of the call.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        _close_inherited(writing)
        try:
            outcome: tuple[str, Any] = ("answer", call())
        except UsageError as error:
            outcome = ("usage", (error.what, error.remedy))
        except OSError as error:
            outcome = ("os", (error.errno, error.strerror, error.filename))
        data = memoryview(pickle.dumps(outcome))
    except BaseException:
        data = memoryview(pickle.dumps(("fault", traceback.format_exc())))
    try:
        while data:
            data = data[os.write(writing, data) :]
    finally:
        os._exit(0)


def _close_inherited(kept: int) -> None:
    """Close all inherited descriptors except the standard streams and ``kept``."""
    for number in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
        if number > 2 and number != kept:
            with contextlib.suppress(OSError):
                os.close(number)


def _read_all(descriptor: int, seconds: float) -> bytes | None:
    """Return all bytes until the other side closes the pipe; None after a timeout."""
    until = time.monotonic() + seconds
    pieces: list[bytes] = []
    while True:
        left = until - time.monotonic()
        if not select.select([descriptor], [], [], min(max(0.0, left), waits.LOOK_SECONDS))[0]:
            if left <= 0:
                return None
            waits.print_if_due()
            continue
        piece = os.read(descriptor, _READ_BYTES)
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)


def _reap(process: int, *, has_ended: bool) -> int:
    """Return the exit code of a child; it is negative if a signal ended the child.

    If the child has written its result (``has_ended``), wait for its end. If not, send SIGTERM, and after 2 s SIGKILL.
    In this case a thread waits for the child, because the child ends only when the storage answers.
    """
    if has_ended:
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    os.kill(process, signal.SIGTERM)
    until = time.monotonic() + _LEAVE_SECONDS
    while time.monotonic() < until:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(_POLL_SECONDS)
    os.kill(process, signal.SIGKILL)
    threading.Thread(target=os.waitpid, args=(process, 0), daemon=True).start()
    return -signal.SIGKILL


if __name__ == "__main__":
    main()
