"""One file system and its expected results, as an entry of the table of file systems."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.file_systems.serving import Mounted


@dataclass(frozen=True, kw_only=True, slots=True)
class FileSystem:
    """One file system with its options.

    ``fails``, ``may_fail`` and ``undecided`` map checks to reasons: required checks that fail; checks that fail by
    chance, and advisory ones that fail; checks that do not apply. ``shows`` maps checks to reproductions in `reproduce`
    that show the failure without our code.

    ``cures`` is the name of the row that fails because it lacks these options. ``cured_ways`` are reproductions that
    show the failure with that row and not with this one. ``is_served``: it has a server or a client that a test can
    kill. ``gates`` is its gate table, if it does not follow from the number of clients. ``leaves`` is the reason why a
    directory may remain. ``small_memory_bytes`` is the memory that servers, clients and ranks share in the tests with
    little memory.
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
    cured_ways: tuple[str, ...] = ()
    is_served: bool = False
    gates: str = ""
    leaves: str = ""
    small_memory_bytes: int = 512 << 20

    @property
    def ways(self) -> list[str]:
        """The names of the reproductions to run."""
        return sorted({*self.shows.values(), *self.cured_ways})
