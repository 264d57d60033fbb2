"""A call on storage in a process of its own, so that storage that does not answer holds nobody else.

A call that hangs cannot be interrupted, and a process that is in one cannot be killed until the storage answers. So
whoever must go on asks a child, waits for a time, and goes on without it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from typing import Any

from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.support.references import load
from pytest_ckpt.support.resources import PACKAGE_HOME


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


def call_in_time(reference: str, argument: Any, seconds: float) -> Any:
    """Call ``module:function`` with an argument in a child and return its answer; both are plain JSON types.

    Raises NoAnswerError when it takes longer, RefusedError when the function raises UsageError or OSError.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest_ckpt.targets.child", reference],
        cwd=PACKAGE_HOME,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        said, complaint = process.communicate(json.dumps(argument), timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        # Whenever the storage lets go of it, it must not stay as a zombie.
        threading.Thread(target=process.communicate, daemon=True).start()
        raise NoAnswerError(process.pid, seconds) from None
    if process.returncode:
        last = (complaint.strip().splitlines() or [f"exit code {process.returncode}"])[-1]
        raise RefusedError(f"it could not be tried: {last}")
    told: dict[str, Any] = json.loads(said)
    if "error" in told:
        raise RefusedError(told["error"], told["remedy"])
    return told["answer"]


def main() -> None:
    """Call the function that the command line names with what standard input holds; print its answer."""
    function = load(sys.argv[1])
    try:
        told = {"answer": function(json.load(sys.stdin))}
    except UsageError as error:
        told = {"error": error.what, "remedy": error.remedy}
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        told = {"error": f"{place}{error.strerror or error}", "remedy": ""}
    print(json.dumps(told))


if __name__ == "__main__":
    main()
