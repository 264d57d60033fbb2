"""A run's area in a local tier, attached: a folder on each host, under one path, that no other host sees."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from pytest_ckpt.facts.targets import AreaRef
from pytest_ckpt.targets.posix.run_folder import PREFIX, RunFolder, remove
from pytest_ckpt.targets.posix.store import PosixStore

OPENER = "pytest_ckpt.targets.posix.tier:open_tier"


def open_tier(area: AreaRef) -> PosixTier:
    """Attach to an area."""
    return PosixTier(Path(area.location))


class PosixTier(PosixStore):
    """The folder of a run on this host. That of the controller's host is the controller's to make and remove."""

    of_each_host = True

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._made: RunFolder | None = None

    def settle(self) -> None:
        """Make the folder where this host has none yet; called by one rank of each host. Raises UsageError."""
        if not self._folder.exists():
            made = RunFolder(self._folder.parent, self._folder.name.removeprefix(PREFIX))
            made.create()
            self._made = made

    def leave(self, subjects: Collection[str]) -> None:
        """Remove the folder that was made here, with all that is in the folders of these subjects."""
        if self._made:
            remove(self._made.path, self._made.identity, [f"{subject}/" for subject in subjects])
            self._made = None
