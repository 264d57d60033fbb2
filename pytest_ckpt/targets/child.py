"""A call on storage in a process of its own, so that storage that does not answer holds nobody else.

A call that hangs cannot be interrupted, and a process that is in one cannot be killed until the storage answers. So
whoever must go on asks a child, waits for a time, and goes on without it. The time begins when the child has imported
what it needs and says so: what a busy host needs to start a process is no silence of the storage.

The controller itself never calls a target: it uses this module for any target, `watched` for a file system.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any

from pytest_ckpt.support import waits
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.support.references import load
from pytest_ckpt.support.resources import PACKAGE_HOME

_BEGIN_SECONDS = 180.0
"""For an interpreter to start on a busy host; one that takes longer lies on storage that does not answer."""


class NoAnswerError(Exception):
    """The target did not answer in time; ``pid`` is the process that waits for it, in a call that cannot be ended."""

    def __init__(self, pid: int, seconds: float) -> None:
        super().__init__(f"the target did not answer for {seconds:g} s; process {pid} waits for it and cannot be ended")
        self.pid = pid


class RefusedError(Exception):
    """The call failed; ``remedy`` says what to do where that is known."""

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(what)
        self.remedy = remedy


def call_in_time(reference: str, argument: Any, seconds: float, *, imports: Iterable[str] = ()) -> Any:
    """Call ``module:function`` with an argument in a child and return its answer; both are plain JSON types.

    The ``seconds`` begin when the child has imported the function and the ``imports`` (``module:name``).

    Raises NoAnswerError when it takes longer, RefusedError when the function raises UsageError or OSError, or when
    the child does not begin.
    """
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as begun:
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", "pytest_ckpt.targets.child", reference, str(writing), *imports],
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
                waits.look()
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
    """Kill a process; whenever the storage lets go of it, it must not stay as a zombie."""
    process.kill()
    threading.Thread(target=process.communicate, daemon=True).start()


def main() -> None:
    """Call the function that the command line names with what standard input holds; print its answer."""
    reference, begun, *imports = sys.argv[1:]
    function = load(reference)
    for name in imports:
        load(name)
    # The end of the pipe is the word: it needs nobody who reads it.
    os.close(int(begun))
    try:
        answer = {"answer": function(json.load(sys.stdin))}
    except UsageError as error:
        answer = {"error": error.what, "remedy": error.remedy}
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        answer = {"error": f"{place}{error.strerror or error}", "remedy": ""}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
