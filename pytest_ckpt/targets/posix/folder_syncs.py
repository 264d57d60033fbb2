"""Folders that are made durable, counted: how many had to be, and for how many fsync really returned."""

from __future__ import annotations

import os
from pathlib import Path


class FolderSyncs:
    """What one rank's draft, or one commit, does to make the names in folders durable.

    A folder is owed from the moment at which a name in it is made or changed. So a call that is left out, or raises,
    shows as one that was owed and did not return.
    """

    def __init__(self) -> None:
        self.attempted = 0
        self.returned = 0

    def owe(self) -> None:
        """Count a folder that must become durable, before anything is done for it."""
        self.attempted += 1

    def sync(self, folder: Path) -> None:
        """Fsync a folder that is owed, and count that it returned."""
        sync_folder(folder)
        self.returned += 1


def sync_folder(folder: Path) -> None:
    """Fsync a folder: the names in it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
