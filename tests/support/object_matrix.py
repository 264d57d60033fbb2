"""The fault matrix of object stores: each fault, and the checks that must fail with it.

test_matrix_of_objects.py compares the matrix with faulty stores. The keywords of each fault class in
``targets/object_faults*.py`` define its row:

- ``fails``: checks that must fail
- ``may``: checks that fail only sometimes, depending on timing; checks in neither list must not fail
- ``expected_text``: words that the verdict of the first check in ``fails`` must contain
"""

from __future__ import annotations

from dataclasses import dataclass

from pytest_ckpt.facts.checks import checks_for
from tests.support.targets import (  # noqa: F401 - faults are there, too
    object_faults_conditions,
    object_faults_data,
    object_faults_sizes,
)
from tests.support.targets.object_faults import FAULTS

ALL = frozenset(check.name for check in checks_for("objects"))
LARGE = frozenset({"OBJECT-LARGE.ranges", "OBJECT-LIMITS.many"})
"""Checks that create an object of 5 GiB."""
# Checks that also use parts and ranges: a fault that does not affect these does not affect an object of many parts.
_OF_PARTS_AND_RANGES = frozenset({"OBJECT-MULTIPART.parts", "OBJECT-LIMITS.parts", "OBJECT-RANGE.bytes"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One fault, and its effect on the checks."""

    fault: str
    expected_text: str
    fails: tuple[str, ...]
    may_fail: frozenset[str] = frozenset()
    # The permitted silence of a store; stores of these tests answer far sooner than a real one must.
    silent_seconds: float = 10.0

    @property
    def meets(self) -> list[str]:
        """The names of the checks to run.

        The checks with objects of 5 GiB take half of the total time. These checks run only if the fault affects parts,
        ranges or large objects.
        """
        return sorted(ALL if {*self.fails, *self.may_fail} & (_OF_PARTS_AND_RANGES | LARGE) else ALL - LARGE)

    @property
    def sentence(self) -> str:
        """The description of the fault."""
        return " ".join((FAULTS[self.fault].__doc__ or "").split())


def _row(fault: str, *, expected_text: str, fails: str, may: str = "", silent_seconds: float = 10.0) -> Row:
    """Return the row of a fault from the keywords of its class.

    ``fails`` and ``may`` contain names of checks, separated by spaces and without the prefix ``OBJECT-``.
    """
    return Row(
        fault=fault,
        expected_text=expected_text,
        fails=tuple(f"OBJECT-{name}" for name in fails.split()),
        may_fail=frozenset(f"OBJECT-{name}" for name in may.split()),
        silent_seconds=silent_seconds,
    )


MATRIX = tuple(_row(name, **fault.row) for name, fault in FAULTS.items())

# One row per requirement for the fast set; faults that fail few checks are preferred.
ONE_OF_EACH = tuple(
    min((row for row in MATRIX if row.fails[0].startswith(f"{requirement}.")), key=lambda row: len(row.fails))
    for requirement in dict.fromkeys(check.requirement for check in checks_for("objects"))
)
