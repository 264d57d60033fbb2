"""Runs the commands that break and mend the storage, in a process that outlives the one that asked.

``python -m pytest_ckpt.launching.command_keeper`` reads its commands and one word a line, ``break`` or ``mend``, and
writes what came of each as a line of JSON. When nobody asks any more, also because the run was killed, it mends what is
broken. Every line goes to a log, too, which tells what happened after the end of the run.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from pytest_ckpt.facts.codec import from_plain, to_plain
from pytest_ckpt.facts.failover import Command, CommandRun
from pytest_ckpt.support.processes import end_session
from pytest_ckpt.support.resources import PACKAGE_HOME
from pytest_ckpt.support.units import format_seconds

_MOST_SAID = 500


def run_command(command: Command, words: str, limit_seconds: float) -> CommandRun:
    """Run a command without a shell; one that does not end in ``limit_seconds`` is killed with all that it started.

    What it leaves running when it ends, such as a server that it started again, goes on.
    """
    began = time.monotonic()
    # Files, not pipes: who leaves a server behind would keep a pipe open for as long as that runs.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                shlex.split(words), stdin=subprocess.DEVNULL, stdout=out, stderr=errors, start_new_session=True
            )
        except (OSError, ValueError) as error:
            says = f"it cannot be started: {error}"
            return CommandRun(command=command, seconds=time.monotonic() - began, exit_code=None, says=says)
        try:
            exit_code: int | None = process.wait(limit_seconds)
            says = _end_of(errors) or _end_of(out)
        except subprocess.TimeoutExpired:
            end_session(process.pid)
            process.wait()
            exit_code = None
            says = f"it was killed when it had not ended after {format_seconds(limit_seconds)} (--ckpt-deadline)"
        return CommandRun(command=command, seconds=time.monotonic() - began, exit_code=exit_code, says=says)


def _end_of(file: Any) -> str:
    size = file.seek(0, 2)
    file.seek(max(0, size - _MOST_SAID))
    return " ".join(file.read().decode(errors="replace").split())


class CommandKeeper:
    """The process, as the controller has it. ``close`` returns when all is mended, or cannot be."""

    def __init__(self, break_command: str, mend_command: str, limit_seconds: float, log: Path) -> None:
        # A session of its own, without the mark of the run: Ctrl-C and the end of the run leave it to mend.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "pytest_ckpt.launching.command_keeper", str(log), str(limit_seconds)],
            cwd=PACKAGE_HOME,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._rest = b""
        self._asked: list[Command] = []
        self._say(json.dumps({"break": break_command, "mend": mend_command}))
        assert self._process.stdout
        self.descriptor = self._process.stdout.fileno()

    def ask(self, command: Command) -> None:
        """Have a command run; return at once."""
        self._asked.append(command)
        self._say(command)

    def ended(self, data: bytes) -> list[CommandRun]:
        """Return what came of the commands of which the process told in ``data``, which was read from it."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [from_plain(CommandRun, json.loads(line)) for line in lines]

    def close(self) -> list[CommandRun]:
        """Have what is broken mended, wait for it, and return what came of commands that nobody was told of yet."""
        with contextlib.suppress(OSError):
            assert self._process.stdin
            self._process.stdin.close()
        assert self._process.stdout
        with self._process.stdout as stream:
            left = self.ended(stream.read())
        self._process.wait()
        return left

    def _say(self, line: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()


def main() -> int:
    """Serve until nobody asks any more, then mend what is broken."""
    log, limit = Path(sys.argv[1]), float(sys.argv[2])
    commands = json.loads(sys.stdin.readline() or "{}")
    is_broken = False

    def do(command: Command) -> None:
        told = json.dumps(to_plain(run_command(command, commands[command], limit)))
        with contextlib.suppress(OSError), log.open("a", encoding="utf-8") as file:
            file.write(told + "\n")
        with contextlib.suppress(OSError):
            print(told, flush=True)

    for line in sys.stdin:
        command: Command = "break" if line.strip() == "break" else "mend"
        # Also a command that fails may have broken something.
        is_broken = command == "break"
        do(command)
    if is_broken:
        do("mend")
    return 0


if __name__ == "__main__":
    sys.exit(main())
