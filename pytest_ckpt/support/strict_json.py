"""A strict JSON parser: all readers of the same bytes see the same document, with finite numbers only.

Python's own parser accepts NaN and Infinity, converts 1e999 to infinity, and keeps the last of duplicate keys. It also
accepts lists that are nested too deeply for recursive code. Verdicts are derived from the parsed files, so this parser
raises an error in all these cases.
"""

from __future__ import annotations

import errno
import json
import math
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

MAXIMUM_VALUES = 2_000_000
"""The maximum number of values in a document, so that any document fits into 1 GB of memory.

A run does not plan more values (`sizing.record`).
"""

# The average size of a value in a run's documents is at most 32 bytes, including the space before it.
_MAXIMUM_BYTES = 64 << 20
# For a file of lines: the longest run writes one or two lines per operation.
_MAXIMUM_BYTES_OF_LINES, _MAXIMUM_LINES = 256 << 20, 250_000
# 2^64: the maximum number of inodes; no other number of a run is larger.
_MAXIMUM_DIGITS = 20
# More levels of nesting than any document of a run has, and far fewer than recursive code can process.
_MAXIMUM_DEPTH = 64
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_NO_BRACKET = re.compile(rb"[^\[\]{}]+")


def read(path: Path) -> bytes:
    """Return the content of a file. Raises OSError if the file is too large, or if it is a pipe or a device.

    A pipe or a device could block the reader.
    """
    _check(path, _MAXIMUM_BYTES)
    return path.read_bytes()


def read_lines(path: Path) -> Iterator[bytes]:
    """Yield the non-empty lines of a file.

    Raises OSError as `read` does, and ValueError for too many lines or a too long line.
    """
    _check(path, _MAXIMUM_BYTES_OF_LINES)
    count = 0
    with path.open("rb") as file:
        for line in file:
            if not line.strip():
                continue
            count += 1
            if count > _MAXIMUM_LINES or len(line) > _MAXIMUM_BYTES:
                what = (
                    f"it has more than {_MAXIMUM_LINES:,} lines"
                    if count > _MAXIMUM_LINES
                    else f"line {count} is too long"
                )
                raise ValueError(what)
            yield line


def _check(path: Path, maximum_bytes: int) -> None:
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is not a file", str(path))
    if found.st_size > maximum_bytes:
        raise OSError(errno.EFBIG, "it is far too large for what it should be", str(path))


def parse(data: bytes) -> Any:
    """Return the value of a JSON text in UTF-8. Raises ValueError with the reason if the text is invalid."""
    if crowded := too_many_values(data):
        raise ValueError(crowded)
    if _depth(data) > _MAXIMUM_DEPTH:
        raise ValueError("its lists or tables lie too deep in each other")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8: {error.reason} at byte {error.start}") from None
    return json.loads(
        text, parse_constant=_refuse, parse_float=_number, parse_int=_whole_number, object_pairs_hook=_table
    )


def too_many_values(data: bytes) -> str:
    """Return a sentence if a JSON text has more values than any document of a run; otherwise an empty text.

    Call this before parsing, because a parsed value needs far more memory than its text.
    """
    is_crowded = data.count(b",") + data.count(b"[") + data.count(b"{") > MAXIMUM_VALUES
    return f"it has more than {MAXIMUM_VALUES:,} values" if is_crowded else ""


def _depth(data: bytes) -> int:
    deepest = depth = 0
    for bracket in _NO_BRACKET.sub(b"", _STRING.sub(b"", data)):
        depth += 1 if bracket in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not a number of JSON")


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is too large for a number")
    return value


def _whole_number(text: str) -> int:
    if len(text.lstrip("-")) > _MAXIMUM_DIGITS:
        raise ValueError(f"{text[:40]} is too large for a whole number")
    return int(text)


def _table(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {twice!r:.60} appears twice in one table")
    return table
