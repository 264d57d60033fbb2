"""The vendor's description of the system under test: its TOML file, a template, and the check of required facts."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from pytest_ckpt.facts.system import FACTS, PICTURE, REPEATED, missing_facts
from pytest_ckpt.support.embedded_pictures import MAXIMUM_BYTES, media_type
from pytest_ckpt.support.errors import UsageError, nearest
from pytest_ckpt.support.user_files import parse_toml, read_user_bytes, read_user_text, user_path

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_ckpt.facts.system import Told

OPTION = "--ckpt-system"


REMEDY = "Write a template with: pytest-ckpt doctor --write-system FILE"
_NAMES = {str: "a text in quotes", int: "a whole number"}
_KNOWN = FACTS | REPEATED


def template() -> str:
    """Return a template of the TOML file: each known fact with its meaning and an example, as comments."""
    lines = [
        f"# The system under test, for {OPTION}. It is not measured; the certificate prints it as declared.",
        "# Uncomment the lines that you fill in; leave out unknown facts.",
    ]
    lines.append("# Without the entries marked 'needed', a certificate states that the system is not described.")
    for table, facts in _KNOWN.items():
        lines += ["", f"# [[{table}]]" if table in REPEATED else f"[{table}]"]
        for fact in facts:
            needed = " (needed)" if fact.needed else ""
            lines.append(f"# {fact.name} = {fact.example}  # {fact.description}{needed}")
    lines += ["", "# A table with two brackets may come several times: once for each item, or each setting."]
    return "\n".join(lines) + "\n"


def read_system(file: Path) -> dict[str, Any]:
    """Return {table: its facts} of a description. Raises UsageError for an invalid entry, with a similar valid name."""
    where = f"{OPTION} {file}"
    try:
        described = parse_toml(read_user_text(user_path(file, OPTION)))
    except OSError as error:
        raise UsageError(f"{where}: it cannot be read: {error.strerror}.", REMEDY) from None
    except ValueError as error:
        raise UsageError(f"{where}: it is not TOML: {error}.", REMEDY) from None
    for table, given in described.items():
        if table not in _KNOWN:
            raise UsageError(
                f"{where}: '{table}' is not a table{nearest(table, _KNOWN)}.", f"Valid tables: {', '.join(_KNOWN)}."
            )
        is_repeated, entries = table in REPEATED, given if isinstance(given, list) else [given]
        if isinstance(given, list) != is_repeated or not all(isinstance(entry, dict) for entry in entries):
            written = f"tables, each written as [[{table}]]" if is_repeated else f"a table, written as [{table}]"
            raise UsageError(f"{where}: '{table}' is {written}.", REMEDY)
        for entry in entries:
            _check(where, table, entry)
    if not any(described.values()):
        raise UsageError(f"{where}: the file has no entries.", "Uncomment the lines that you fill in.")
    if name := described.get("topology", {}).get(PICTURE):
        described["topology"][PICTURE] = _embedded(where, file, name)
    return {table: described[table] for table in _KNOWN if described.get(table)}


def _embedded(where: str, file: Path, name: str) -> str:
    """Return the content of the picture file ``name`` in base64. ``name`` is relative to the directory of ``file``.

    Raises UsageError if the file is not a valid picture.
    """
    try:
        content = read_user_bytes(user_path(file, OPTION).parent / name)
        media_type(content)
    except OSError as error:
        raise UsageError(f"{where}: topology.picture {name}: it cannot be read: {error.strerror}.", REMEDY) from None
    except ValueError as error:
        raise UsageError(
            f"{where}: topology.picture {name}: {error}.",
            f"Give a PNG or JPEG of at most {MAXIMUM_BYTES >> 10} KiB next to the file.",
        ) from None
    return base64.b64encode(content).decode()


def check_described(described: Told | None, gate_table: str) -> None:
    """Raise UsageError if the description of the system lacks required facts.

    ``gate_table`` is the name of the gate table that requires the description, for the message.
    """
    if missing := missing_facts(described):
        raise UsageError(
            f"The gate table {gate_table} requires a description of the system, and {OPTION} lacks "
            f"{', '.join(missing)}.",
            REMEDY,
        )


def _check(where: str, table: str, entry: Mapping[str, Any]) -> None:
    known = {fact.name: fact for fact in _KNOWN[table]}
    for name, value in entry.items():
        if name not in known:
            raise UsageError(
                f"{where}: [{table}] has no '{name}'{nearest(name, known)}.", f"Valid names: {', '.join(known)}."
            )
        if type(value) is not known[name].kind:
            raise UsageError(
                f"{where}: {table}.{name} is {value!r}, and {_NAMES[known[name].kind]} is expected.",
                f"Such as: {name} = {known[name].example}",
            )
