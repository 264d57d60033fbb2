"""``python -m pytest_ckpt.conformance.agent``: the second client of a check. It performs requests on its host.

The agent connects to the process of the check, at the address in its environment (`wire.caller`). It ends when the
connection ends. The agent needs only the standard library. ``mpiexec -n 1 -host B``, ``srun`` or a container can
therefore start it on every host that mounts the storage.

A request names a function of ``actions``, or ``module:function`` of ``posix``. The function receives the path and the
details of the request. A function with a loop also receives ``stopped``, which returns whether the check has requested
the end of the loop. During a loop, the agent sends no messages, and it measures all times with the clock of its own
host.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import sys
import traceback
from typing import TYPE_CHECKING, Any

from pytest_ckpt.conformance.actions import READY
from pytest_ckpt.support.die_with_parent import die_with_parent
from pytest_ckpt.wire.caller import NoConnection, call

if TYPE_CHECKING:
    from collections.abc import Callable


def main() -> int:
    """Answer requests until the connection ends; return the exit code."""
    return answer_requests(_function)


def answer_requests(find: Callable[[str], Callable[..., Any]]) -> int:
    """Connect to the check, and answer its requests until the connection ends.

    ``find`` returns the function for the name in a request. Return the exit code: 0, or 1 if the connection failed.
    """
    # The end of the connection ends the agent between two calls. This thread ends it also during a call.
    die_with_parent()
    try:
        connection = call()
    except NoConnection as error:
        print(error, file=sys.stderr, flush=True)
        return 1
    with contextlib.suppress(EOFError, OSError):
        connection.send(READY)
        while True:
            request = connection.receive()
            # "stop" applies to a loop. A loop that has already ended has sent its answer.
            if request["action"] != "stop":
                connection.send({"id": request["id"], **_done(request, find, connection.has_more)})
    return 0


def _done(
    request: dict[str, Any], find: Callable[[str], Callable[..., Any]], stopped: Callable[[], bool]
) -> dict[str, Any]:
    try:
        action = find(request["action"])
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
    found = importlib.import_module(f"{__package__}.posix.{module}" if module else f"{__package__}.actions")
    return getattr(found, function)  # type: ignore[no-any-return]


if __name__ == "__main__":
    sys.exit(main())
