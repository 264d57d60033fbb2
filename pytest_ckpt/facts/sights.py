"""What a host of ranks sees of a target that other hosts see too."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Sign:
    """A file that the controller made in the target, by which other hosts know it again: its name, and what it says."""

    name: str
    word: str

    def of_rank(self, rank: int) -> Sign:
        """Return the file that the host of a rank makes beside it, for another host; its first line is the same."""
        return Sign(name=f"{self.name}.{rank}", word=f"{self.word}\n{rank}")


@dataclass(frozen=True, kw_only=True, slots=True)
class MountSeen:
    """A mount as a host's kernel describes it."""

    kind: str
    source: str
    options: str


@dataclass(frozen=True, kw_only=True, slots=True)
class TierSight:
    """The folder of a local tier as one host has it: its free space, and whose files it shows that are not its own.

    ``why_not`` says why no file can be made there; empty where one can.
    """

    host: str
    free_bytes: int
    why_not: str
    shared_with: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Sight:
    """The target as one host has it, and the version of this package there.

    ``misses`` says what was there instead of the controller's
    file, ``misses_other`` the same of the file that the host ``other`` made; ``cannot_write`` is why no file can be
    made there. Each is empty where all is well.
    """

    host: str
    package: str
    mount: MountSeen
    is_folder: bool = True
    misses: str = ""
    other: str = ""
    misses_other: str = ""
    cannot_write: str = ""
