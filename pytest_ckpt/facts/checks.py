"""All checks, by name and by room. Pure data; the code of a check is named, not imported."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ckpt.facts.checks_of_objects import CHECKS_OF_OBJECTS
from pytest_ckpt.facts.checks_of_posix import CHECKS_OF_POSIX

if TYPE_CHECKING:
    from pytest_ckpt.facts.check_row import Check, Room

CHECKS: tuple[Check, ...] = (*CHECKS_OF_POSIX, *CHECKS_OF_OBJECTS)


def in_room(room: Room) -> tuple[Check, ...]:
    """Return the checks of one kind of target."""
    return tuple(check for check in CHECKS if check.room == room)


BY_NAME = {check.name: check for check in CHECKS}

FILES_OF_CHECKS = 10_000
"""The most files that a check of a file system makes at once, at full effort: NAMES.many."""

LARGE_OBJECT_BYTES = 5160 << 20
"""What OBJECT-LARGE makes of parts, whatever the effort."""

_PARTS_OF_CHECKS, _LEAST_PARTS, _PART_BYTES = 10_000, 1_001, 5 << 20


def bytes_of_checks(room: Room, effort: float) -> int:
    """Return the bytes of the largest thing that the checks of a kind of target make; 0 of file systems."""
    if room != "objects":
        return 0
    many = max(_LEAST_PARTS, round(_PARTS_OF_CHECKS * effort)) * _PART_BYTES
    return max(LARGE_OBJECT_BYTES, many)
