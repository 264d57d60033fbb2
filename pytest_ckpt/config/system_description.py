"""The system under test as its vendor describes it: a TOML file, its template, and its check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_ckpt.support.errors import UsageError, nearest
from pytest_ckpt.support.toml import parse_toml
from pytest_ckpt.support.user_files import read_user_text, user_path

if TYPE_CHECKING:
    from pathlib import Path

OPTION = "--ckpt-system"


@dataclass(frozen=True, kw_only=True, slots=True)
class Fact:
    """One line of the file. ``kind`` is the type that is expected, ``description`` the comment of the template."""

    name: str
    kind: type
    example: str
    description: str


_TEXT, _COUNT = str, int
FACTS: dict[str, tuple[Fact, ...]] = {
    "system": (
        Fact(name="vendor", kind=_TEXT, example='"Example Storage Inc."', description="who makes it"),
        Fact(name="product", kind=_TEXT, example='"Array 9000"', description="its name, as it can be ordered"),
        Fact(name="firmware", kind=_TEXT, example='"7.2.1"', description="version of the software on the storage"),
        Fact(name="serial", kind=_TEXT, example='"A9K-0042"', description="which one of them"),
        Fact(
            name="notes",
            kind=_TEXT,
            example='"encryption at rest is on"',
            description="what a reader should know besides",
        ),
    ),
    "topology": (
        Fact(name="nodes", kind=_COUNT, example="8", description="storage servers or controllers"),
        Fact(name="drives", kind=_COUNT, example="192", description="drives in all of them"),
        Fact(name="drive_model", kind=_TEXT, example='"15.36 TB NVMe, TLC"', description="kind of drive"),
        Fact(name="protection", kind=_TEXT, example='"8+2 erasure coding"', description="how data survive a failure"),
        Fact(name="usable_capacity", kind=_TEXT, example='"2.1 PB"', description="after protection"),
        Fact(name="filled", kind=_TEXT, example='"61 %"', description="how full it was during the run"),
    ),
    "clients": (
        Fact(name="hosts", kind=_COUNT, example="16", description="hosts that ran ranks"),
        Fact(name="model", kind=_TEXT, example='"2 x 64 cores, 1.5 TiB"', description="what they are"),
        Fact(
            name="software",
            kind=_TEXT,
            example='"nfs, kernel 6.8"',
            description="client of the storage, with its version",
        ),
        Fact(name="mount_options", kind=_TEXT, example='"vers=4.2,nconnect=16"', description="as they were mounted"),
    ),
    "network": (
        Fact(name="fabric", kind=_TEXT, example='"Ethernet, RoCE v2"', description="kind of network"),
        Fact(name="client_links", kind=_TEXT, example='"2 x 200 Gb/s"', description="of each client"),
        Fact(name="storage_links", kind=_TEXT, example='"4 x 400 Gb/s"', description="of each storage node"),
        Fact(name="switches", kind=_TEXT, example='"2 leaf, 1 spine, not oversubscribed"', description="between them"),
    ),
}
_NAMES = {str: "a text in quotes", int: "a whole number"}


def template() -> str:
    """Return a file to fill in: every fact that is known, with what it means and an example, all commented out."""
    lines = [
        f"# The system under test, for {OPTION}. Nothing of it is measured; the certificate prints it as told.",
        "# Take away the # of what you fill in; leave out what you do not know.",
    ]
    for table, facts in FACTS.items():
        lines += ["", f"[{table}]"]
        lines += [f"# {fact.name} = {fact.example}  # {fact.description}" for fact in facts]
    return "\n".join(lines) + "\n"


def read_system(file: Path) -> dict[str, dict[str, Any]]:
    """Return what a file tells. Raises UsageError that names the line to fix and the nearest known name."""
    where = f"{OPTION} {file}"
    remedy = "Write a template with: pytest-ckpt doctor --write-system FILE"
    try:
        told = parse_toml(read_user_text(user_path(file, OPTION)))
    except OSError as error:
        raise UsageError(f"{where}: it cannot be read: {error.strerror}.", remedy) from None
    except ValueError as error:
        raise UsageError(f"{where}: it is not TOML: {error}.", remedy) from None
    for table, facts in told.items():
        if table not in FACTS:
            raise UsageError(
                f"{where}: '{table}' is no table{nearest(table, FACTS)}.", f"Known are {', '.join(FACTS)}."
            )
        if not isinstance(facts, dict):
            raise UsageError(f"{where}: '{table}' is a table, written as [{table}].", remedy)
        known = {fact.name: fact for fact in FACTS[table]}
        for name, value in facts.items():
            if name not in known:
                raise UsageError(
                    f"{where}: [{table}] has no '{name}'{nearest(name, known)}.", f"Known are {', '.join(known)}."
                )
            if type(value) is not known[name].kind:
                raise UsageError(
                    f"{where}: {table}.{name} is {value!r}, and {_NAMES[known[name].kind]} is expected.",
                    f"Such as: {name} = {known[name].example}",
                )
    if not any(told.values()):
        raise UsageError(f"{where}: it tells nothing.", "Take away the # of the lines that you fill in.")
    return {table: dict(told[table]) for table in FACTS if told.get(table)}
