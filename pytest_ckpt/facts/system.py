"""The facts in a vendor's description of the system under test: the table of known facts, some of which are required.

The list follows what SPECstorage, MLPerf Storage and SNIA require to be disclosed with a result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Told = Mapping[str, Mapping[str, Any] | list[Mapping[str, Any]]]
"""The facts that a vendor declared, by table. A table that occurs several times is a list of its entries."""


PICTURE = "picture"
"""The name of the topology fact that is a picture file; a report contains the file in base64."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fact:
    """One known fact in the description of a system.

    ``kind`` is the expected type, ``description`` the comment in the template. If a ``needed`` fact is missing, a
    certificate lists this fact as not described.
    """

    name: str
    example: str
    description: str
    kind: type = str
    needed: bool = False


FACTS: dict[str, tuple[Fact, ...]] = {
    "system": (
        Fact(name="vendor", example='"Example Storage Inc."', description="who makes it", needed=True),
        Fact(name="product", example='"Array 9000"', description="its name, as it can be ordered", needed=True),
        Fact(name="firmware", example='"7.2.1"', description="version of the software on the storage", needed=True),
        Fact(name="serial", example='"A9K-0042"', description="which one of them"),
        Fact(name="notes", example='"snapshots every hour"', description="other information for a reader"),
    ),
    "topology": (
        Fact(name="nodes", kind=int, example="8", description="storage servers or controllers", needed=True),
        Fact(name="drives", kind=int, example="192", description="drives in all of them", needed=True),
        Fact(name="drive_model", example='"15.36 TB NVMe, TLC"', description="kind of drive"),
        Fact(name="protection", example='"8+2 erasure coding"', description="how data survive a failure", needed=True),
        Fact(name="usable_capacity", example='"2.1 PB"', description="after protection"),
        Fact(name="filled", example='"61 %"', description="how full it was during the run"),
        Fact(name=PICTURE, example='"topology.png"', description="a PNG or JPEG next to this file, to be embedded"),
    ),
    "stable_storage": (
        Fact(
            name="acknowledged",
            example='"in the mirrored NVRAM of two controllers"',
            description="location of a byte when its write is acknowledged",
            needed=True,
        ),
        Fact(
            name="without_power",
            example='"for ever: a battery flushes the NVRAM to flash"',
            description="how long it survives there without power",
            needed=True,
        ),
        Fact(name="tolerates", example='"any two drives and one node"', description="failures that lose no data"),
        Fact(name="single_points_of_failure", example='"none"', description="what stops the system by itself"),
    ),
    "encryption": (
        Fact(name="at_rest", example='"AES-256 by the drives"', description="encryption at rest, or none"),
        Fact(
            name="in_flight",
            example='"TLS 1.3, by the client"',
            description="encryption in transit, or none",
        ),
        Fact(name="keys", example='"a KMIP server"', description="where keys are"),
    ),
    "clients": (
        Fact(name="hosts", kind=int, example="16", description="hosts that ran ranks"),
        Fact(name="model", example='"2 x 64 cores, 1.5 TiB"', description="what they are"),
        Fact(name="software", example='"nfs, kernel 6.8"', description="client of the storage, with its version"),
        Fact(name="mount_options", example='"vers=4.2,nconnect=16"', description="as they were mounted"),
    ),
    "network": (
        Fact(name="fabric", example='"Ethernet, RoCE v2"', description="kind of network"),
        Fact(name="client_links", example='"2 x 200 Gb/s"', description="of each client"),
        Fact(name="storage_links", example='"4 x 400 Gb/s"', description="of each storage node"),
        Fact(name="switches", example='"2 leaf, 1 spine, not oversubscribed"', description="between them"),
    ),
    "power": (
        Fact(name="nameplate_watts", kind=int, example="9600", description="the sum of all nameplates of the storage"),
        Fact(name="typical_watts", kind=int, example="6100", description="power draw under such a load"),
        Fact(name="rack_units", kind=int, example="16", description="height of all of it"),
    ),
    "availability": (
        Fact(name="hardware", example='"2026-06"', description="since or from when it can be ordered"),
        Fact(name="software", example='"2026-09"', description="since or from when this version can be had"),
    ),
    "history": (
        Fact(name="before", example='"purged, then filled twice"', description="preparation before the run"),
        Fact(name="written", example='"4.2 PB"', description="bytes that it had taken by then"),
    ),
    "tester": (
        Fact(name="role", example='"vendor"', description="vendor, buyer or third party", needed=True),
        Fact(name="name", example='"Example Labs"', description="who ran it"),
        Fact(name="contact", example='"labs@example.com"', description="who answers questions"),
    ),
    "validity": (
        Fact(
            name="until", example='"2027-06-30, or until the firmware changes"', description="how long it may be shown"
        ),
        Fact(name="equivalent", example='"Array 9100, same controllers"', description="models that it speaks for, too"),
    ),
}
"""The known facts of each table that occurs once."""

REPEATED: dict[str, tuple[Fact, ...]] = {
    "materials": (
        Fact(name="quantity", kind=int, example="8", description="how many"),
        Fact(name="item", example='"controller"', description="what it is"),
        Fact(name="vendor", example='"Example Storage Inc."', description="who sells it"),
        Fact(name="model", example='"A9K-CTRL-2"', description="its part number"),
        Fact(name="description", example='"2 x 64 cores, 512 GiB"', description="enough to buy the same"),
    ),
    "tuning": (
        Fact(name="setting", example='"vm.dirty_ratio"', description="changed settings, on clients or storage"),
        Fact(name="value", example='"5"', description="to what"),
        Fact(name="reason", example='"short stalls at fsync"', description="why"),
    ),
}
"""The known facts of each table that occurs once per component; it is written with two brackets."""


def fact_text(name: str) -> str:
    """Return the description of the fact ``name`` (``table.name``), including the name.

    For an unknown fact, return only the name.
    """
    table, _, fact = name.partition(".")
    known = {each.name: each.description for each in FACTS.get(table, ())}
    return f"{known[fact]} ({name})" if fact in known else name


def missing_facts(described: Told | None) -> list[str]:
    """Return the required facts that a description lacks, as ``table.name``.

    If ``described`` is None, return all required facts.
    """
    missing = []
    for table, facts in FACTS.items():
        given = (described or {}).get(table) or {}
        missing += [f"{table}.{fact.name}" for fact in facts if fact.needed and fact.name not in given]
    return missing
