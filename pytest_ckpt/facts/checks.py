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
