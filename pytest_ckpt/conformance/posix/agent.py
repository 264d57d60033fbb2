"""``python -m pytest_ckpt.conformance.posix.agent``: do on this client what a check elsewhere asks for.

It reads requests on standard input, a line of JSON each, and answers on standard output. It needs the standard library
alone, so that ``mpiexec -n 1 -host B``, ``ssh B`` or a container can start it wherever the storage is mounted. It ends
when its input is closed.

A request names a function: one of ``actions``, or ``module:function`` of ``checks``. The function takes the path and
the request's details; one that loops also takes ``stopped``, a function that says that the check has asked it to end.
So a loop runs here without a word in between, and what it times is timed by this host's clock alone.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import select
import traceback
from typing import TYPE_CHECKING, Any

from pytest_ckpt.support.die_with_parent import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Callable


class _Input:
    """Standard input by lines, with a look at whether more has come."""

    def __init__(self) -> None:
        self._unread = b""
        self._ended = False

    def line(self) -> bytes:
        """Return the next line, empty when the input is closed."""
        while b"\n" not in self._unread and not self._ended:
            self._take()
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def more(self) -> bool:
        """Return whether another line has come, or the end."""
        while b"\n" not in self._unread and not self._ended and select.select([0], [], [], 0)[0]:
            self._take()
        return self._ended or b"\n" in self._unread

    def _take(self) -> None:
        piece = os.read(0, 1 << 20)
        self._unread += piece
        self._ended = not piece


def main() -> None:
    """Do what is asked until there is no more."""
    # Closing the input ends it between two calls; this ends it in a call that waits, too.
    die_with_parent()
    # What a library might print must not be taken for an answer.
    answers = os.dup(1)
    os.dup2(2, 1)
    requests = _Input()
    # A launcher may not pass the end of the input on: "end" says it.
    while (line := requests.line()) and (request := json.loads(line))["action"] != "end":
        # "stop" is for a loop; one that has ended by itself has answered already.
        if request["action"] != "stop":
            answer = json.dumps({"id": request["id"], **_done(request, requests.more)}).encode() + b"\n"
            while answer:
                answer = answer[os.write(answers, answer) :]


def _done(request: dict[str, Any], stopped: Callable[[], bool]) -> dict[str, Any]:
    try:
        action = _function(request["action"])
        details = dict(request["details"])
        if "stopped" in inspect.signature(action).parameters:
            details["stopped"] = stopped
        return {"result": action(request["path"], **details)}
    except OSError as error:
        if error.errno is None:
            return {"traceback": traceback.format_exc()}
        path = str(error.filename or request["path"])
        return {"errno": error.errno, "strerror": error.strerror or os.strerror(error.errno), "path": path}
    except Exception:
        return {"traceback": traceback.format_exc()}


def _function(action: str) -> Callable[..., Any]:
    module, _, function = action.rpartition(":")
    found = importlib.import_module(f"{__package__}.checks.{module}" if module else "pytest_ckpt.conformance.actions")
    return getattr(found, function)  # type: ignore[no-any-return]


if __name__ == "__main__":
    main()
