"""Queries about saved checkpoints: the size of a file, and whether it was deleted."""

from __future__ import annotations

from pathlib import Path

from pytest_ckpt.facts.targets import CheckpointRef
from pytest_ckpt.ranks.checkpoints import size_of_file
from pytest_ckpt.ranks.process.activity import Activity
from pytest_ckpt.targets.posix.names import checkpoint_name
from pytest_ckpt.targets.posix.store import PosixStore


def test_a_file_that_is_gone_is_reported_and_no_later_error_is_blamed_on_it(tmp_path: Path) -> None:
    ref, activity = CheckpointRef(subject="made", number=3), Activity()
    directory = tmp_path / ref.subject / checkpoint_name(ref.number)
    directory.mkdir(parents=True)
    (directory / "there").write_bytes(bytes(5000))
    store = PosixStore(tmp_path)
    assert size_of_file(store, ref, "there", activity) == 5000
    assert size_of_file(store, ref, "gone", activity) is None
    # When a rank reports an error, it names the first phase and file that an error left.
    assert activity.forgive() == ("", "")
