"""A log that cannot grow with the hours: it keeps its beginning and its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ckpt.launching.recorder import write_atomically
from pytest_ckpt.support.units import counted

if TYPE_CHECKING:
    from pathlib import Path

_ALL_BYTES, _MINIMUM_BYTES, _MAXIMUM_BYTES = 64 << 20, 16 << 10, 4 << 20


def bytes_of_log(processes: int) -> int:
    """Return how many bytes the log of one of so many processes may have: 64 MiB all together where they are few."""
    return max(_MINIMUM_BYTES, min(_MAXIMUM_BYTES, _ALL_BYTES // (processes + 1)))


class KeptLog:
    """Appends lines to a file of at most so many bytes; beyond them lines in the middle are left out, and counted."""

    def __init__(self, file: Path, maximum_bytes: int) -> None:
        self._file = file
        self._maximum = maximum_bytes
        self._left_out = 0
        file.touch()

    def is_now(self, file: Path) -> None:
        """Take in that the file was moved."""
        self._file = file

    def write(self, line: str) -> None:
        """Append a line, which has no end yet."""
        with self._file.open("a", encoding="utf-8", errors="backslashreplace") as log:
            log.write(line + "\n")
            is_full = log.tell() > self._maximum
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


def _first(lines: list[str], maximum_bytes: int) -> list[str]:
    """Return the first lines that have so many bytes together at most, and always one."""
    size, count = 0, 0
    for line in lines:
        size += len(line.encode())
        if size > maximum_bytes and count:
            break
        count += 1
    return lines[:count]
