"""Runs the user commands that change the storage, in a process that outlives the controller.

An owed command must run after another command, even if the run ends early. Examples are the repair after a fault and
the removal after a snapshot.

``python -m pytest_ckpt.launching.command_keeper`` reads all commands from the first line of its input. Each further
line is the name of one command to run. The process writes the result of each command as a line of JSON to its output
and to a log. When the input ends, for example because the run was killed, the process runs the owed command.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, cast

from pytest_ckpt.facts.codec import from_plain, to_plain
from pytest_ckpt.facts.commands import Command, CommandRun
from pytest_ckpt.support import waits
from pytest_ckpt.support.processes import describe_exit, end_session
from pytest_ckpt.support.redaction import Redactor
from pytest_ckpt.support.resources import PACKAGE_HOME
from pytest_ckpt.support.units import format_seconds

_MAXIMUM_SAID = 500
_OWED: Mapping[Command, Command] = {"fault": "repair", "snapshot": "remove"}
"""The command that must run after each command, in any case (called the owed command)."""
LONGEST_UPGRADE_SECONDS = 6 * 3600.0
"""The time limit of an upgrade command: it takes longer than any other command, and killing it halfway would do
harm.
"""


def run_command(command: Command, words: str, limit_seconds: float, *more: str) -> CommandRun:
    """Run a command without a shell and return its result. The arguments ``more`` are appended to ``words``.

    If a command exceeds ``limit_seconds``, the command and its child processes are killed. An upgrade is not killed. It
    continues, and the run no longer waits for the upgrade. If a command leaves a process running, such as a restarted
    server, this process is not ended.
    """
    began = time.monotonic()
    # Files instead of pipes: a server that the command leaves running would keep a pipe open.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                [*shlex.split(words), *more],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=errors,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            output = f"it cannot be started: {error}"
            return CommandRun(command=command, seconds=time.monotonic() - began, exit_code=None, output=output)
        try:
            exit_code: int | None = process.wait(limit_seconds)
            output = _last_line_of(out) if command == "snapshot" and exit_code == 0 else _end_of(errors) or _end_of(out)
        except subprocess.TimeoutExpired:
            if command == "upgrade":
                output = f"it had not ended after {format_seconds(limit_seconds)}, and is still running"
                return CommandRun(command=command, seconds=time.monotonic() - began, exit_code=None, output=output)
            end_session(process.pid)
            process.wait()
            exit_code = None
            output = f"it was killed when it had not ended after {format_seconds(limit_seconds)} (--ckpt-io-timeout)"
        return CommandRun(command=command, seconds=time.monotonic() - began, exit_code=exit_code, output=output)


def _end_of(file: IO[bytes], maximum: int = _MAXIMUM_SAID) -> str:
    return " ".join(_tail(file, maximum).split())


def _last_line_of(file: IO[bytes]) -> str:
    return next((line for line in reversed(_tail(file, 1 << 16).splitlines()) if line.strip()), "").strip()


def _tail(file: IO[bytes], maximum: int) -> str:
    size = file.seek(0, 2)
    file.seek(max(0, size - maximum))
    return file.read().decode(errors="replace")


class CommandKeeper:
    """The controller's handle of the process that runs the commands.

    If the process ends early, the result of each requested or owed command has no exit code.
    """

    def __init__(self, commands: Mapping[Command, str], limit_seconds: float, log: Path) -> None:
        # A new session without the mark of the run, so that Ctrl-C and the end of the run do not interrupt a repair.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "pytest_ckpt.launching.command_keeper", str(log), str(limit_seconds)],
            cwd=PACKAGE_HOME,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._rest = b""
        # The requested commands that have not ended, with their start by the monotonic clock; an upgrade runs
        # concurrently with another command.
        self._requests: dict[Command, float] = {}
        self._owed: Command | None = None
        self._send(json.dumps(dict(commands)))
        assert self._process.stdout
        self.descriptor = self._process.stdout.fileno()

    def start(self, command: Command) -> None:
        """Start a command and return immediately."""
        self._requests[command] = time.monotonic()
        self._owed = _OWED.get(command, self._owed)
        self._send(command)

    def ended(self, data: bytes) -> list[CommandRun]:
        """Return the results of the commands that have ended.

        ``data`` was read from the output of the process. If ``data`` is empty, the process has ended.
        """
        *lines, self._rest = (self._rest + data).split(b"\n")
        runs = [from_plain(CommandRun, json.loads(line)) for line in lines]
        for run in runs:
            self._requests.pop(run.command, None)
            if self._owed and (run.command == self._owed or (run.command == "snapshot" and not run.is_good)):
                self._owed = None
        return runs if data else runs + self._never_ended()

    def close(self) -> list[CommandRun]:
        """Let the process run the owed command and end, and return all remaining results.

        The function waits for the end of the process.
        """
        with contextlib.suppress(OSError):
            assert self._process.stdin
            self._process.stdin.close()
        assert self._process.stdout
        owed = self._owed if self._owed not in self._requests else None
        what = waits.waiting(f"the {owed} command") if owed else contextlib.nullcontext()
        with self._process.stdout, waits.waiting(self.waits_for), what:
            data = self._read_all()
        left = (self.ended(data) if data else []) + self._never_ended()
        if self._owed:
            output = f"{self._death()}: the command was not run, so run it by hand"
            left.append(CommandRun(command=self._owed, seconds=0.0, exit_code=None, output=output))
        return left

    def waits_for(self) -> str:
        """Return a phrase with the running commands and their times so far; empty if no command is running."""
        now = time.monotonic()
        return "; ".join(
            f"the {command} command: {format_seconds(round(now - at))}" for command, at in self._requests.items()
        )

    def _read_all(self) -> bytes:
        data = b""
        while True:
            if not select.select([self.descriptor], [], [], waits.LOOK_SECONDS)[0]:
                waits.print_if_due()
                continue
            piece = os.read(self.descriptor, 1 << 16)
            if not piece:
                return data
            data += piece

    def _never_ended(self) -> list[CommandRun]:
        """Return a result for each command that was running when the process ended.

        The outcome of such a command is unknown.
        """
        now, output = time.monotonic(), f"{self._death()}, and a command that it had started may still run"
        runs = [
            CommandRun(command=command, seconds=now - at, exit_code=None, output=output)
            for command, at in self._requests.items()
        ]
        if self._owed in self._requests:
            self._owed = None
        self._requests.clear()
        return runs

    def _death(self) -> str:
        return f"the process that runs the commands {describe_exit(self._process.wait())}"

    def _send(self, line: str) -> None:
        assert self._process.stdin
        # A write to an ended process fails; the end of its output reports this.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()


class _Served:
    """The commands of one launch, in the process that runs these commands.

    ``owed`` is the command that must still run; None without such a command.
    """

    def __init__(self, commands: Mapping[str, str], limit_seconds: float, log: Path) -> None:
        self._commands, self._limit, self._log = commands, limit_seconds, log
        self._redactor = Redactor.of(os.environ, commands.values())
        self._clone = ""
        self._upgrade: threading.Thread | None = None
        self._began = 0.0
        self.owed: Command | None = None

    def run(self, command: Command) -> None:
        """Run a command and report its result. An upgrade runs in a separate thread."""
        if command == "upgrade":
            self._began = time.monotonic()
            self._upgrade = threading.Thread(target=self._run, args=(command,), daemon=True)
            self._upgrade.start()
        else:
            self._run(command)

    def finish(self) -> None:
        """Run the owed command. If an upgrade is still running, report this."""
        if self.owed:
            self._run(self.owed)
        if self._upgrade and self._upgrade.is_alive():
            output = "the run ended before the command, which is still running"
            self._report(
                CommandRun(command="upgrade", seconds=time.monotonic() - self._began, exit_code=None, output=output)
            )

    def _run(self, command: Command) -> None:
        limit = max(self._limit, LONGEST_UPGRADE_SECONDS) if command == "upgrade" else self._limit
        run = run_command(command, self._commands[command], limit, *([self._clone] if command == "remove" else []))
        if command == "snapshot":
            self._clone = run.output if run.is_good else ""
        # A fault command that fails may also have changed the storage; a snapshot without a name cannot be removed.
        self.owed = _OWED.get(command) if command != "snapshot" or self._clone else None
        self._report(run)

    def _report(self, run: CommandRun) -> None:
        result_line = json.dumps(to_plain(run))
        with contextlib.suppress(OSError), self._log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(self._redactor.plain(to_plain(run))) + "\n")
        with contextlib.suppress(OSError):
            print(result_line, flush=True)


def main() -> int:
    """Run requested commands until the input ends, then run the owed command."""
    log, limit = Path(sys.argv[1]), float(sys.argv[2])
    served = _Served(json.loads(sys.stdin.readline() or "{}"), limit, log)
    for line in sys.stdin:
        served.run(cast("Command", line.strip()))
    served.finish()
    return 0


if __name__ == "__main__":
    sys.exit(main())
