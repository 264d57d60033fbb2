"""What a row of the matrix of faults says: the checks that must fail, that may, and the words of their verdicts."""

from __future__ import annotations

import fnmatch
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_ckpt.facts.checks import in_room
from tests.support.targets.misbehaving import FAULTS

ALL = frozenset(c.name for c in in_room("posix"))
# Which operations each check asks of the honest target. test_matrix.py holds it against what they ask, and makes it.
OPERATIONS_FILE = Path(__file__).with_name("operations_of_checks.json")
OPERATIONS_OF: dict[str, list[str]] = json.loads(OPERATIONS_FILE.read_text()) if OPERATIONS_FILE.exists() else {}
# What reads no byte back, or none that a fault of content could meet.
WITHOUT_CONTENT = frozenset(
    c.name
    for c in in_room("posix")
    if c.requirement in ("EXCLUSIVE", "MKDIR", "NAMES", "LIVE")
    or c.name in ("COMMIT.folder", "COMMIT.folder-second-client", "STALE.negative-names")
)
CONTENT = ALL - WITHOUT_CONTENT
# They compare every byte of files of some size, written before and read from storage.
WHOLE_FILES = frozenset(
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
        *("PUBLISH.marker", "PUBLISH.folder", "PUBLISH.pointer", "CLONE-FRESH.copy"),
    ]
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One fault, switched on with ``parameters``, and what it does to the checks."""

    fault: str
    fails: frozenset[str]
    says: dict[str, str]
    may_fail: frozenset[str] = frozenset()
    parameters: dict[str, Any] = field(default_factory=dict)
    # After which a check counts as blocked.
    seconds: float = 150.0
    # A capability that is missing is reported, as words in the facts of a check, and fails nothing.
    reported: dict[str, str] = field(default_factory=dict)

    @property
    def sentence(self) -> str:
        """What the fault does."""
        return FAULTS[self.fault].sentence

    @property
    def meets(self) -> frozenset[str]:
        """The checks that the fault can meet: in their folders it acts, and on an operation that they ask for.

        Without those that may fail besides: what luck decides proves nothing.
        """
        path, acts_on = self.parameters.get("path", "*"), set(FAULTS[self.fault].operations)
        reached = {name for name in ALL if fnmatch.fnmatch(f"{name}-1/file", path)}
        asking = {name for name in reached if acts_on & set(OPERATIONS_OF.get(name, acts_on))}
        return self.fails | asking - self.may_fail


def row(
    fault: str, fails: str, says: dict[str, str] | None = None, may: str = "", seconds: float = 150.0, **parameters: Any
) -> Row:
    """Return a row whose checks are written as words."""
    return Row(
        seconds=seconds, fault=fault, fails=names(fails), says=says or {}, may_fail=names(may), parameters=parameters
    )


def names(words: str) -> frozenset[str]:
    names = frozenset(words.split())
    assert names <= ALL, names - ALL
    return names


def damage(fault: str, word: str, *, without: str = "") -> Row:
    """Return a row for a fault that damages content wherever it is."""
    fails = WHOLE_FILES - names(without)
    return Row(
        fault=fault,
        fails=fails,
        says={"MMAP.private": word} if "MMAP.private" in fails else {},
        may_fail=CONTENT - fails,
    )
