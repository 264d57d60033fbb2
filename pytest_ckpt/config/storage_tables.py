"""Tables of recommended storage performance for clusters, from TOML files: built-in tables, or a user's table.

A built-in table is a file in templates/storage_tables/; `SHIPPED` lists the built-in tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pytest_ckpt.sizing.demands import StorageTable, TableRow
from pytest_ckpt.support import resources
from pytest_ckpt.support.errors import UsageError, nearest
from pytest_ckpt.support.user_files import parse_toml, read_user_text, user_path

SHIPPED = ("superpod-h100",)
_GB, _MAXIMUM_GB, _MAXIMUM_ACCELERATORS = 1e9, 1e9, 1_000_000_000


def load_table(word: str) -> StorageTable:
    """Return the built-in table with the name ``word``, or the table in the file ``word``.

    Raises UsageError if the table is unknown, or if the file cannot be read or is invalid.
    """
    if word in SHIPPED:
        return read_table((resources.directory("templates") / "storage_tables" / f"{word}.toml").read_text())
    if "/" not in word and not word.endswith(".toml"):
        raise UsageError(
            f"--table={word}: unknown table{nearest(word, SHIPPED)}.",
            f"Valid values: {', '.join(SHIPPED)}, or a TOML file.",
        )
    try:
        return read_table(read_user_text(user_path(word, "--table")))
    except OSError as error:
        raise UsageError(f"--table={word}: it cannot be read: {error.strerror}.", "Name a TOML file.") from None
    except ValueError as error:
        raise UsageError(
            f"--table={word}: {error}.",
            "Expected name, title, source and levels, and tables [[storage]] with what, accelerators, "
            "read_gb_per_second and write_gb_per_second.",
        ) from None


def read_table(text: str) -> StorageTable:
    """Return the table that a TOML text describes. Raises ValueError for an invalid text."""
    given = parse_toml(text)
    words = {name: given.get(name) for name in ("name", "title", "source")}
    for name, value in words.items():
        if not isinstance(value, str) or not value:
            raise ValueError(f"it has no {name}")
    levels, storage = given.get("levels"), given.get("storage")
    if not isinstance(levels, list) or not levels or not all(isinstance(level, str) for level in levels):
        raise ValueError('levels is a list of words, such as ["good", "best"]')
    if not isinstance(storage, list) or not storage:
        raise ValueError("it has no [[storage]]")
    rows = tuple(row for part in storage for row in _rows(part, levels))
    return StorageTable(name=str(words["name"]), title=str(words["title"]), source=str(words["source"]), rows=rows)


def _rows(part: Any, levels: list[str]) -> Iterator[TableRow]:
    if not isinstance(part, Mapping) or not isinstance(part.get("what"), str):
        raise ValueError("each [[storage]] needs a text named what")
    accelerators = part.get("accelerators")
    if isinstance(accelerators, bool) or not isinstance(accelerators, int):
        raise ValueError(f"accelerators of {part['what']} is a whole number")
    if not 1 <= accelerators <= _MAXIMUM_ACCELERATORS:
        raise ValueError(f"accelerators of {part['what']} is {accelerators}: at least 1 is expected")
    rates = [_rates(part, f"{kind}_gb_per_second", len(levels)) for kind in ("read", "write")]
    for level, read, write in zip(levels, *rates, strict=True):
        yield TableRow(
            what=part["what"],
            accelerators=accelerators,
            level=level,
            read_bytes_per_second=read,
            write_bytes_per_second=write,
        )


def _rates(part: Mapping[str, Any], name: str, count: int) -> list[float]:
    rates = part.get(name)
    if not isinstance(rates, list) or len(rates) != count:
        raise ValueError(f"{name} of {part['what']} is a list of {count} numbers, one for each level")
    for rate in rates:
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate <= _MAXIMUM_GB:
            raise ValueError(f"{name} of {part['what']} contains {rate!r}; a number above 0 is expected")
    return [rate * _GB for rate in rates]
