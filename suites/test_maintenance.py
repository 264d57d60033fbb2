"""The storage is restarted, upgraded and snapshotted while checkpoints are saved and loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    Judge = Callable[[str], None]


@pytest.mark.requirement("UPGRADE")
def test_storage_that_is_changed_goes_on_serving(subject: str, judge: Judge) -> None:
    """While the storage is restarted or upgraded, every save and load succeeds, and no save takes over 1.5 limits.

    Storage is maintained while jobs run: servers are restarted one after the other. The command of --ckpt-during is run
    once, at a random moment of a save; saves and loads take turns until it has returned. None may fail, every byte that
    is loaded must be right, and each save takes at most 1.5 times the save limit.
    """
    judge(subject)


@pytest.mark.requirement("SNAPSHOT")
def test_a_snapshot_holds_no_commit_or_a_whole_one(subject: str, judge: Judge) -> None:
    """A snapshot that is taken in the middle of a save shows no commit of it, or a whole checkpoint, and costs little.

    Backups and clones are taken while jobs write. The command of --ckpt-snapshot takes a snapshot at a random moment
    of six saves. The clone must hold the checkpoint that was committed before, whole; where it shows the save as
    committed, that one must be whole, too. In the median a save with a snapshot takes at most 10 % longer than the one
    before it without.
    """
    judge(subject)
