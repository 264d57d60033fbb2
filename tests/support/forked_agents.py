"""Second clients of checks as forks of the process that checks, in place of programs that are started anew.

Many checks in a row have some ten each, and a Python that starts costs more than what most of them are asked. That an
agent starts as a program is shown where one check is made, as users make it.
"""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

from pytest_ckpt.conformance import client

_AGENTS = ("pytest_ckpt.conformance.agent", "pytest_ckpt.conformance.objects.agent")
_POLL_SECONDS = 0.01
_started = subprocess.Popen


def fork_agents() -> None:
    """Have every client that this process and its forks make on this host fork its agent."""
    for name in _AGENTS:
        importlib.import_module(name)
    client.subprocess = _Forking()  # type: ignore[assignment]


class _Forking:
    """What clients use of ``subprocess``."""

    DEVNULL, PIPE, TimeoutExpired = subprocess.DEVNULL, subprocess.PIPE, subprocess.TimeoutExpired

    @staticmethod
    def Popen(command: Sequence[str], *, env: Mapping[str, str], **how: Any) -> Any:  # noqa: N802 - as it is called there
        if command[:2] == (sys.executable, "-m") and command[2] in _AGENTS:
            return _Forked(command, env)
        return _started(command, env=env, **how)


class _Forked:
    """A fork of this process that is an agent, as a client has it."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str]) -> None:
        self.returncode: int | None = None
        reading, writing = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            os.dup2(writing, 1)
            _be(command, env)
        os.close(writing)
        self.stdout = os.fdopen(reading, "rb", 0)

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, timeout: float = float("inf")) -> int:
        end = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired("an agent", timeout)
            time.sleep(_POLL_SECONDS)
        return code

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


def _be(command: Sequence[str], env: Mapping[str, str]) -> None:
    """Become the agent, with nothing of this process but what a program that is started has."""
    code = 1
    try:
        empty = os.open(os.devnull, os.O_RDONLY)
        os.dup2(empty, 0)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        os.environ.clear()
        os.environ.update(env)
        sys.argv = [command[2], *command[3:]]
        code = sys.modules[command[2]].main()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    os._exit(code)
