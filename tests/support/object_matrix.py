"""Which checks each fault of an object store fails: the table that test_matrix_of_objects.py holds against such stores.

``fails`` are the checks that must fail, ``may_fail`` those that may besides, by the moment at which they ask; nothing
else may fail. ``says`` are words that the verdict of the first of them must contain. Each row is written at its fault,
in ``targets/object_faults*.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

from pytest_ckpt.facts.checks import in_room
from tests.support.targets import (  # noqa: F401 - faults are there, too
    object_faults_conditions,
    object_faults_data,
    object_faults_sizes,
)
from tests.support.targets.object_faults import FAULTS

ALL = frozenset(check.name for check in in_room("objects"))
LARGE = frozenset({"OBJECT-LARGE.ranges", "OBJECT-LIMITS.many"})
"""Those that make an object of 5 GiB."""
# Those that ask for parts and ranges, too: a fault that they do not meet, an object of many parts does not meet either.
_OF_PARTS_AND_RANGES = frozenset({"OBJECT-MULTIPART.parts", "OBJECT-LIMITS.parts", "OBJECT-RANGE.bytes"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One fault, and what it does to the checks."""

    fault: str
    says: str
    fails: tuple[str, ...]
    may_fail: frozenset[str] = frozenset()
    # For which a store may be silent: those of these tests answer far sooner than a real one must.
    silent_seconds: float = 10.0

    @property
    def meets(self) -> list[str]:
        """The checks that may meet the fault: to make objects of 5 GiB takes half of the time of all."""
        return sorted(ALL if {*self.fails, *self.may_fail} & (_OF_PARTS_AND_RANGES | LARGE) else ALL - LARGE)

    @property
    def sentence(self) -> str:
        """What the fault does."""
        return " ".join((FAULTS[self.fault].__doc__ or "").split())


def _row(fault: str, *, says: str, fails: str, may: str = "", silent_seconds: float = 10.0) -> Row:
    """Return the row of a fault, as the words of its class have it; the checks without OBJECT-."""
    return Row(
        fault=fault,
        says=says,
        fails=tuple(f"OBJECT-{name}" for name in fails.split()),
        may_fail=frozenset(f"OBJECT-{name}" for name in may.split()),
        silent_seconds=silent_seconds,
    )


MATRIX = tuple(_row(name, **fault.row) for name, fault in FAULTS.items())

# One of each requirement, for the fast set: what fails few checks proves most.
ONE_OF_EACH = tuple(
    min((row for row in MATRIX if row.fails[0].startswith(f"{requirement}.")), key=lambda row: len(row.fails))
    for requirement in dict.fromkeys(check.requirement for check in in_room("objects"))
)
