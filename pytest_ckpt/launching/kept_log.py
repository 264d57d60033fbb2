"""What is kept of a launch: its command, and logs that cannot grow with the hours, but keep beginning and end."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

from pytest_ckpt.launching.recorder import write_atomically
from pytest_ckpt.support.units import counted

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_ckpt.support.redaction import Redactor

_ALL_BYTES, _MINIMUM_BYTES, _MAXIMUM_BYTES = 64 << 20, 16 << 10, 4 << 20


def bytes_of_log(processes: int) -> int:
    """Return how many bytes the log of one of so many processes may have: 64 MiB all together where they are few."""
    return max(_MINIMUM_BYTES, min(_MAXIMUM_BYTES, _ALL_BYTES // (processes + 1)))


class KeptLog:
    """Appends lines to a file of at most so many bytes; beyond them lines in the middle are left out, and counted.

    Lines are held until `flush`: ranks by the thousand tell a little each, many times a second.
    """

    def __init__(self, file: Path, maximum_bytes: int) -> None:
        self._file = file
        self._maximum = maximum_bytes
        self._left_out = 0
        self._held: list[str] = []
        file.touch()

    def is_now(self, file: Path) -> None:
        """Take in that the file was moved."""
        self._file = file

    def write(self, line: str) -> None:
        """Append a line, which has no end yet."""
        self._held.append(line + "\n")

    def flush(self) -> None:
        """Bring the lines that are held into the file."""
        if not self._held:
            return
        with self._file.open("a", encoding="utf-8", errors="backslashreplace") as log:
            log.write("".join(self._held))
            is_full = log.tell() > self._maximum
        self._held.clear()
        if is_full:
            self._shorten()

    def _shorten(self) -> None:
        """Keep a quarter of the bytes from either end, so that it is long until the next time."""
        lines = self._file.read_text(encoding="utf-8").splitlines(keepends=True)
        if self._left_out:
            # The sentence of the last time stands behind the beginning, which is the same again.
            lines.pop(len(_first(lines, self._maximum // 4)))
        head = _first(lines, self._maximum // 4)
        tail = _first(lines[:0:-1], self._maximum // 4)[::-1]
        self._left_out += len(lines) - len(head) - len(tail)
        text = f"… {counted(self._left_out, 'line was', 'lines were')} left out here …\n"
        write_atomically(self._file, "".join([*head, text, *tail]))


class KeptLogs:
    """The logs of one launch in a folder, which is made: one by each name that something is written under."""

    def __init__(self, folder: Path, processes: int) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._maximum = bytes_of_log(processes)
        self._logs: dict[str, KeptLog] = {}

    def write(self, name: str, line: str) -> None:
        """Append a line, which has no end yet, to the log of that name."""
        self.log(name).write(line)

    def log(self, name: str) -> KeptLog:
        """Return the log of that name; its file is there from then on."""
        if name not in self._logs:
            self._logs[name] = KeptLog(self._folder / f"{name}.log", self._maximum)
        return self._logs[name]

    def flush(self) -> None:
        """Bring the lines that are held into the files."""
        for log in self._logs.values():
            log.flush()

    def are_now_in(self, folder: Path) -> None:
        """Take in that the folder was moved."""
        self._folder = folder
        for name, log in self._logs.items():
            log.is_now(folder / f"{name}.log")


def _first(lines: list[str], maximum_bytes: int) -> list[str]:
    """Return the first lines that have so many bytes together at most, and always one."""
    size, count = 0, 0
    for line in lines:
        size += len(line.encode())
        if size > maximum_bytes and count:
            break
        count += 1
    return lines[:count]


def keep_command(folder: Path, redactor: Redactor, command: list[str], environment: Mapping[str, str]) -> None:
    """Keep the command and what was set for it; the rest of the environment may hold secrets."""
    (folder / "command").write_text(shlex.join(redactor.plain(command)) + "\n")
    added = sorted(k for k, v in environment.items() if os.environ.get(k) != v)
    removed = sorted(k for k in os.environ if k not in environment)
    lines = [f"{k}={redactor.text(environment[k])}" for k in added] + [f"unset {k}" for k in removed]
    (folder / "environment").write_text("\n".join(lines) + "\n")
