"""One file system and its expected results, as an entry of the table of file systems."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.file_systems.mounting import Mounted


@dataclass(frozen=True, kw_only=True, slots=True)
class FileSystem:
    """A file system with its options, and the expected results of a run on it.

    Three fields are {check: reason}. ``fails`` contains required checks that fail. ``may_fail`` contains checks that
    fail by chance, and advisory checks that fail. ``undecided`` contains required checks that a run cannot decide.

    ``shows`` is {failed check: function of `reproduce`}. The function shows the same failure without pytest-ckpt.

    ``cures`` names another row, whose failures this row avoids, for example by other options. ``cured_reproductions``
    are functions of `reproduce` that show a fault with the other row, but not with this row.

    ``is_served`` is true if a test can kill a server or a client. ``gates`` is the gate table, if it does not follow
    from the number of clients. ``leaves`` is the reason why a run may leave a directory on this file system.
    ``small_memory_bytes`` is the memory that servers, clients and ranks share in tests with little memory.
    """

    name: str
    how: str
    packages: tuple[str, ...]
    programs: tuple[str, ...]
    start: Callable[[Path], AbstractContextManager[Mounted]]
    fails: Mapping[str, str] = field(default_factory=dict)
    may_fail: Mapping[str, str] = field(default_factory=dict)
    shows: Mapping[str, str] = field(default_factory=dict)
    undecided: Mapping[str, str] = field(default_factory=dict)
    cures: str = ""
    cured_reproductions: tuple[str, ...] = ()
    is_served: bool = False
    gates: str = ""
    leaves: str = ""
    small_memory_bytes: int = 512 << 20

    @property
    def reproductions(self) -> list[str]:
        """The names of the functions of `reproduce` that a test of this file system runs."""
        return sorted({*self.shows.values(), *self.cured_reproductions})
