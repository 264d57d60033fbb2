"""The empty files and directories that the suite metadata creates, and their division among the ranks.

All functions are pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

REMOVALS = 3
"""The number of directories that are removed as old checkpoints; each has as many files as a checkpoint."""

NO_PATHS = (
    "The suite metadata measures file systems: an object store has no directories that are created, listed and removed."
)
"""The reason why a target without paths (an object store) is not measured."""

STEPS = 6
"""The number of kinds of calls: mkdir, create, stat, list, unlink, rmdir."""

NAME_BYTES = 4096
"""The space that a name may take on the target: an inode and directory entries. An upper bound, chosen by
this program.
"""

# Bytes for two copies of the path of a rank's file, or for a name in a listed directory and its count.
_MEMORY_OF_A_NAME = 250

# Some file systems allow fewer than 100,000 sub-directories in a directory.
_DIRECTORIES_OF_A_GROUP = 10_000


@dataclass(frozen=True, kw_only=True, slots=True)
class ManyNames:
    """The names that the suite metadata creates on the target.

    ``files`` empty files are spread evenly over ``directories`` directories. Parent directories, called groups, contain
    these directories. Separately, the suite creates and removes directories with ``checkpoint_files`` files each, as
    many as a checkpoint has.
    """

    files: int
    directories: int
    checkpoint_files: int

    @property
    def at_once(self) -> int:
        """The maximum number of names that exist on the target at the same time."""
        return max(self.files + self.directories + len(self.groups), REMOVALS * (self.checkpoint_files + 1)) + 1

    def memory_bytes(self, ranks: int) -> int:
        """Return the memory of a rank in bytes for its own names, and for the names of one listed directory."""
        return _MEMORY_OF_A_NAME * (-(-self.files // ranks) + -(-self.files // self.directories))

    @property
    def groups(self) -> tuple[str, ...]:
        """The names of the groups, the parent directories of the directories with files."""
        return tuple(f"group-{n:04d}" for n in range(-(-self.directories // _DIRECTORIES_OF_A_GROUP)))

    def directory(self, number: int) -> str:
        """Return the path of a directory, given its number."""
        return f"group-{number // _DIRECTORIES_OF_A_GROUP:04d}/directory-{number:07d}"

    def path(self, file: int) -> str:
        """Return the path of a file, given its number."""
        return f"{self.directory(file * self.directories // self.files)}/{file_name(file)}"

    def names_in(self, directory: int) -> list[str]:
        """Return the names of the files in a directory."""
        first, end = (-(-(directory + n) * self.files // self.directories) for n in (0, 1))
        return [file_name(file) for file in range(first, end)]

    def files_of(self, rank: int, ranks: int) -> range:
        """Return the numbers of the files that a rank creates and removes."""
        return _share(self.files, rank, ranks)

    def directories_of(self, rank: int, ranks: int) -> range:
        """Return the numbers of the directories that a rank creates and removes."""
        return _share(self.directories, rank, ranks)

    def old_files_of(self, rank: int, ranks: int) -> list[str]:
        """Return the names of the files that a rank creates in each directory that simulates an old checkpoint."""
        return [file_name(file) for file in _share(self.checkpoint_files, rank, ranks)]


def file_name(number: int) -> str:
    """Return the name of a file."""
    return f"file-{number:08d}"


def old_checkpoint(number: int) -> str:
    """Return the path of a directory that simulates an old checkpoint.

    The suite metadata measures the removal of this directory.
    """
    return f"old-checkpoint-{number}"


def top_directory(subject: str) -> str:
    """Return the name of the directory that contains all names of a subject.

    The directory is in the area (the location on the target) of the run.
    """
    return f"metadata-{subject}"


def counterparts(hosts: Sequence[Hashable]) -> list[int]:
    """Return, for each rank, the number of the rank whose files it looks up. ``hosts`` contains the host of each rank.

    If no host has more than half of the ranks, each rank looks up files of another host. On a single host, each rank
    looks up its own files.
    """
    order = sorted(range(len(hosts)), key=lambda rank: (hosts.index(hosts[rank]), rank))
    shift = max(hosts.count(host) for host in set(hosts))
    counterpart_of = dict(zip(order, order[shift:] + order[:shift], strict=True))
    return [counterpart_of[rank] for rank in range(len(hosts))]


def _share(count: int, rank: int, ranks: int) -> range:
    return range(count * rank // ranks, count * (rank + 1) // ranks)
