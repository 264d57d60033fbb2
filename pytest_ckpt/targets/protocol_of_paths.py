"""What a store of a target with paths can be asked for beside what every store can."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager
from typing import Protocol

from pytest_ckpt.facts.across_hosts import MountSeen, Sign
from pytest_ckpt.facts.client_proofs import FsyncCounts
from pytest_ckpt.facts.targets import StorageStack
from pytest_ckpt.targets.protocol import Store


class Sighting(Protocol):
    """The folder of an area, as this host sees it: whether it is the folder that other hosts see."""

    @property
    def is_folder(self) -> bool:
        """Whether there is a folder at all."""

    @property
    def mount(self) -> MountSeen:
        """The mount that the folder is on."""

    @property
    def storage(self) -> StorageStack:
        """What lies below the folder, and why the count of cached pages misses a cache there."""

    @property
    def free_bytes(self) -> int:
        """The space that is free for this process; 0 where there is no folder."""

    @property
    def device(self) -> str:
        """The device of the folder's file system as the kernel numbers it, ``major:minor``. Raises OSError."""

    def shown(self, sign: Sign) -> AbstractContextManager[str]:
        """Make a file for other hosts, and remove it; give why that cannot be done, empty where it is done."""

    def instead_of(self, sign: Sign, seconds: float) -> str:
        """Look for a file that another host made, for so long; return what was there instead, empty if it is found."""


class StoreOfPaths(Store, Protocol):
    """A store whose area has a path, whose files become durable by fsync, and of which snapshots show in a folder."""

    def sighting(self) -> Sighting:
        """Return the area's folder as this host sees it."""

    def fsync_counts(self, subject: str) -> FsyncCounts:
        """Fsync a file in the subject's folder, and return what the kernel counted. Raises OSError."""

    def replaced(self) -> str:
        """Return what has taken the place of the run's folder, in words; empty where nothing has."""

    def clone(self, stated: str) -> tuple[Store, str]:
        """Return the area as a snapshot in the folder ``stated`` shows it, and why this host sees none."""


class TierStore(Store, Protocol):
    """A store of which every host has one of its own."""

    def settle(self) -> None:
        """Make the area where this host has none yet; called by one rank of each host."""

    def leave(self, subjects: Collection[str]) -> None:
        """Remove the area that was made here, with all that is in it of these subjects."""
