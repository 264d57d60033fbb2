"""What is known of one file system before it is tried."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.file_systems.serving import Mounted


@dataclass(frozen=True, kw_only=True, slots=True)
class FileSystem:
    """One file system with its options.

    ``fails`` gives each required check that it truly fails the reason; ``may_fail`` those that luck decides and those
    that are advisory, ``undecided`` those that the file system cannot be asked. ``shows`` gives the ways of `reproduce`
    that show a failure without our code, by check. ``cures`` names the row that fails without these options,
    ``cured_ways`` the ways that showed it there and show nothing here. ``is_served`` says that it has a server, or a
    client, to take away; ``gates`` are those of its kind, where they follow not from its clients. ``leaves`` says why a
    directory may stay. ``small_memory_bytes`` is all that a host may have that runs servers, clients and ranks, where
    it has little.
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
        """What to try without our code."""
        return sorted({*self.shows.values(), *self.cured_ways})
