"""The fault matrix of POSIX targets: each fault, and the checks that must fail with it.

test_matrix.py compares the matrix with faulty targets. The keywords of each fault class in ``targets/fuse_faults_*.py``
define its row:

- ``fails``: checks that must fail; a check in neither ``fails`` nor ``may`` must not fail
- ``may``: checks that fail only by chance, for example if damaged bytes are in their files; they are not run
- ``expected_text``: words that a check's verdict must contain
- ``damages``: the name of damaged content; replaces the other keywords (see `row`)
"""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_ckpt.facts.checks import checks_for
from tests.support.targets.misbehaving import FAULTS

ALL = frozenset(c.name for c in checks_for("posix"))
# Checks that read no bytes back, or none that a content fault could affect.
WITHOUT_CONTENT = frozenset(
    c.name
    for c in checks_for("posix")
    if c.requirement in ("EXCLUSIVE", "MKDIR", "NAMES", "LIVE")
    or c.name in ("COMMIT.directory", "COMMIT.directory-second-client", "STALE.negative-names")
)
CONTENT = ALL - WITHOUT_CONTENT
# These checks compare every byte of files of some size, written before and read from storage.
COMPLETE_FILES = frozenset(
    [
        *(
            "COMMIT.file",
            "COMMIT.file-second-client",
            "MMAP.private",
            "MMAP.shared",
            "DIRECT.aligned",
            "DIRECT.coherent",
        ),
        *("UNLINK.open-reader", "UNLINK.second-client", "SPARSE.disjoint-writers"),
        *("SPARSE.disjoint-writers-second-client", "DURABLE.rank-killed", "DURABLE.power-cut", "ERRORS.acknowledged"),
        *("ERRORS.full", "FULL.mid-save", "COMMIT-FULL.each-phase"),
        *("PUBLISH.marker", "PUBLISH.directory", "PUBLISH.pointer", "CLONE-FRESH.copy"),
    ]
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One fault, the ``parameters`` with which it is enabled, and its effect on the checks."""

    fault: str
    fails: frozenset[str]
    expected_text: dict[str, str]
    may_fail: frozenset[str] = frozenset()
    parameters: dict[str, Any] = field(default_factory=dict)
    # The time after which a check counts as blocked.
    seconds: float = 150.0
    # A missing capability is reported in the facts of a check and is not a failure.
    reported: dict[str, str] = field(default_factory=dict)

    @property
    def sentence(self) -> str:
        """The description of the fault."""
        return FAULTS[self.fault].sentence

    def meets(self, operations: Mapping[str, Collection[str]]) -> frozenset[str]:
        """Return the checks to run with the fault.

        These are the checks that must fail, the checks that report a missing capability, and other checks that the
        fault can affect. A fault can affect a check if it affects the check's directory and an operation of the check.
        ``operations`` is {check: its operations on a healthy target}. Checks that fail only by chance are omitted.
        """
        path, acts_on = self.parameters.get("path", "*"), set(FAULTS[self.fault].operations)
        reached = {name for name in ALL if fnmatch.fnmatch(f"{name}-1/file", path)}
        meant = self.fails | set(self.reported)
        return meant | {name for name in reached if acts_on & set(operations[name])} - self.may_fail


def row(
    fault: str,
    *,
    fails: str = "",
    expected_text: str | dict[str, str] = "",
    may: str = "",
    reported: dict[str, str] | None = None,
    seconds: float = 150.0,
    damages: str = "",
    **parameters: Any,
) -> Row:
    """Return the row of a fault from the keywords of its class. Names of checks are separated by spaces.

    ``expected_text`` is {check: text}; a text without a check is for the first check in ``fails``. ``may="content"``
    means all checks that read data back.

    ``damages`` is the name of damaged content in verdicts. If ``damages`` is set, every check that compares complete
    files must fail, and the other keywords are ignored.
    """
    if damages:
        expected_text = {"MMAP.private": damages}
        return Row(fault=fault, fails=COMPLETE_FILES, expected_text=expected_text, may_fail=CONTENT - COMPLETE_FILES)
    if isinstance(expected_text, str):
        expected_text = {fails.partition(" ")[0]: expected_text} if expected_text else {}
    return Row(
        fault=fault,
        fails=names(fails),
        expected_text=expected_text,
        may_fail=CONTENT if may == "content" else names(may),
        parameters=parameters,
        seconds=seconds,
        reported=reported or {},
    )


def names(words: str) -> frozenset[str]:
    names = frozenset(words.split())
    assert names <= ALL, names - ALL
    return names


MATRIX = tuple(row(name, **fault.row) for name, fault in FAULTS.items() if fault.row)


def topic_of(fault: str) -> str:
    """Return the topic of a fault: ``data``, ``names``, ``durable``, ``errors`` or ``time``."""
    return FAULTS[fault].__module__.rpartition("_")[2]


def _one_of_each() -> tuple[Row, ...]:
    """Return a small selection of rows that covers every requirement and every topic of faults.

    The selection contains, for each requirement and for each topic, the row with the fewest failing checks.
    """
    rows = sorted((row for row in MATRIX if row.fails), key=lambda row: len(row.fails))
    requirements, kinds = {name.partition(".")[0] for name in ALL}, {topic_of(row.fault) for row in rows}
    of_requirements = {
        one: next(r for r in rows if any(n.startswith(f"{one}.") for n in r.fails)) for one in requirements
    }
    of_kinds = {kind: next(row for row in rows if topic_of(row.fault) == kind) for kind in kinds}
    faults = {row.fault for row in (*of_requirements.values(), *of_kinds.values())}
    return tuple(row for row in MATRIX if row.fault in faults)


KINDS = frozenset(topic_of(fault) for fault in FAULTS)
# The rows of the matrix in the fast set.
ONE_OF_EACH = _one_of_each()
