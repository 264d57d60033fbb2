"""Perform several checks of one target concurrently, each in a forked process: ``python many_checks.py``.

Reads a request as JSON from standard input, and writes {check: observation} to standard output. The request contains:

- ``room``: the package of the checks, ``posix`` or ``objects``
- ``checks``: names of the checks
- ``words``: {need of a check: command-line arguments that fulfil the need}; a need is, for example, "second client"
- ``at_once``: the number of concurrent checks
- ``seconds``: the timeout of a check; a check that exceeds the timeout counts as blocked
- ``seconds_in_all``: the time after which no further check starts
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

from pytest_ckpt.conformance import client
from pytest_ckpt.facts.checks import BY_NAME, checks_for
from pytest_ckpt.facts.codec import to_plain
from pytest_ckpt.facts.failure import BlockedCall

_AGENTS = ("pytest_ckpt.conformance.agent", "pytest_ckpt.conformance.objects.agent")
_POLL_SECONDS = 0.01
_started = subprocess.Popen


def fork_agents() -> None:
    """Make this process and its forks start a check's agents by fork instead of by a new Python.

    A check has about ten agents, and starting Python takes longer than most requests.
    """
    for name in _AGENTS:
        importlib.import_module(name)
    client.subprocess = _Forking()  # type: ignore[assignment]


class _Forking:
    """Replacement for the module ``subprocess`` in clients. It starts an agent by fork, and other programs normally."""

    DEVNULL, PIPE, TimeoutExpired = subprocess.DEVNULL, subprocess.PIPE, subprocess.TimeoutExpired

    @staticmethod
    def Popen(command: Sequence[str], *, env: Mapping[str, str], **how: Any) -> Any:  # noqa: N802 - as it is called there
        if command[:2] == (sys.executable, "-m") and command[2] in _AGENTS:
            return _Forked(command, env)
        return _started(command, env=env, **how)


class _Forked:
    """An agent that runs in a fork of this process. It has the methods of ``subprocess.Popen`` that clients use."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str]) -> None:
        self.returncode: int | None = None
        reading, writing = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            os.dup2(writing, 1)
            _run_as_child(command, env)
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


def _run_as_child(command: Sequence[str], env: Mapping[str, str]) -> None:
    """Run the agent in this forked process, and exit.

    The open files and the environment are those of a newly started program.
    """
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


# Needs of checks. Only one check with such a need runs at a time, because it stops the target or fills its space.
ALONE = ("power cut", "small directory")


def main() -> None:
    asked = json.load(sys.stdin)
    for check in checks_for(asked["room"]):
        importlib.import_module(f"pytest_ckpt.conformance.{asked['room']}.{check.code.split(':')[0]}")
    fork_agents()
    alone = [name for name in asked["checks"] if BY_NAME[name].needs in ALONE]
    rest = [name for name in asked["checks"] if name not in alone]
    end = time.monotonic() + asked["seconds_in_all"]
    found = _run_one_check(rest, asked, asked["at_once"], end) | _run_one_check(alone, asked, 1, end)
    json.dump(found, sys.stdout)


_COMMANDS = {"posix": "pytest_ckpt.conformance.__main__", "objects": "pytest_ckpt.conformance.objects.__main__"}


def _run_one_check(names: list[str], asked: dict[str, Any], at_once: int, end: float) -> dict[str, Any]:
    command = importlib.import_module(_COMMANDS[asked["room"]])
    found: dict[str, Any] = {}
    running: dict[int, tuple[str, Any, Any, float]] = {}
    waiting = list(names)
    while waiting or running:
        while waiting and len(running) < at_once:
            name = waiting.pop(0)
            if time.monotonic() > end:
                found[name] = {"fault": "it was not begun: those before it took too long"}
                continue
            out, log = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 - read when the check has ended
            pid = _start(command, name, asked["words"], out.fileno(), log.fileno())
            running[pid] = (name, out, log, time.monotonic())
        pid, _ = os.waitpid(-1, os.WNOHANG)
        if pid in running:
            name, out, log, _ = running.pop(pid)
            found[name] = _result(out, log)
            continue
        for late, (name, _, log, began) in list(running.items()):
            if time.monotonic() - began > asked["seconds"]:
                os.killpg(late, signal.SIGKILL)
                del running[late]
                blocked = BlockedCall(call="", path="", host="", message="no end", stack=_end(log))
                found[name] = {"blocked": to_plain(blocked)}
        time.sleep(0.01)
    return found


def _start(command: Any, name: str, words: dict[str, list[str]], out: int, log: int) -> int:
    if pid := os.fork():
        return pid
    try:
        os.setsid()
        os.dup2(out, 1)
        os.dup2(log, 2)
        needs = BY_NAME[name].needs
        sys.argv = ["conformance", name, *words[""], *(words[needs] if needs else [])]
        sys.stdout = os.fdopen(1, "w")
        sys.stderr = os.fdopen(2, "w")
        command.main()
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    os._exit(0)


def _result(out: Any, log: Any) -> dict[str, Any]:
    out.seek(0)
    try:
        seen: dict[str, Any] = json.load(out)
    except ValueError:
        return {"fault": _end(log)}
    return seen


def _end(log: Any) -> str:
    log.seek(0)
    return str(log.read().decode(errors="replace")[-1500:])


if __name__ == "__main__":
    main()
