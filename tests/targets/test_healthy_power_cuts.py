"""A power cut of the healthy FUSE target removes unsynced data and nothing else."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
from pathlib import Path

import pytest

from tests.support.targets.random_operations import RandomOperation, picture
from tests.support.targets.synced import sync_directory, write


def test_a_power_cut_keeps_what_was_fsynced_and_takes_the_rest(target):
    kept = os.urandom(2_000_000)
    write(target.path / "kept", kept)
    write(target.path / "replaced", b"old")
    write(target.path / "unlinked", b"still there")
    sync_directory(target.path)
    write(target.path / "lost", b"lost", sync=False)
    with (target.path / "kept").open("r+b") as file:
        os.pwrite(file.fileno(), b"x" * 100_000, 500_000)
        os.ftruncate(file.fileno(), 600_000)
        os.pwrite(file.fileno(), b"y" * 100, 3_000_000)
    write(target.path / "tmp", b"new", sync=False)
    os.replace(target.path / "tmp", target.path / "replaced")
    (target.path / "unlinked").unlink()
    target.power_cut()
    assert {path.name: path.read_bytes() for path in target.path.iterdir()} == {
        "kept": kept,
        "replaced": b"old",
        "unlinked": b"still there",
    }


def test_a_commit_by_rename_survives_a_power_cut_once_its_directory_is_fsynced(target):
    (target.path / "checkpoint.partial").mkdir()
    write(target.path / "checkpoint.partial" / "shard", b"shard")
    sync_directory(target.path / "checkpoint.partial")
    os.rename(target.path / "checkpoint.partial", target.path / "checkpoint")
    target.power_cut()
    assert os.listdir(target.path) == ["checkpoint.partial"]
    os.rename(target.path / "checkpoint.partial", target.path / "checkpoint")
    sync_directory(target.path)
    target.power_cut()
    assert (target.second / "checkpoint" / "shard").read_bytes() == b"shard"


def test_bytes_that_were_not_fsynced_go_even_if_their_name_is_durable(target):
    write(target.path / "file", b"bytes", sync=False)
    sync_directory(target.path)
    target.power_cut()
    assert (target.path / "file").read_bytes() == b""


def test_the_power_is_cut_from_another_process_and_who_has_a_file_open_loses_it(target):
    fd = os.open(target.path / "file", os.O_WRONLY | os.O_CREAT)
    os.write(fd, b"some")
    subprocess.run(target.power_cut_command, check=True)
    with pytest.raises(OSError, match=r"not connected|aborted"):
        os.write(fd, b"more")
    with contextlib.suppress(OSError):
        os.close(fd)
    assert os.listdir(target.path) == []


def test_a_removed_link_into_the_target_is_not_followed_by_the_target(target):
    trap, link = target.path / "trap", target.path / "link"
    trap.touch()
    link.symlink_to(trap)
    sync_directory(target.path)
    # Until the removal is durable, the target keeps the link, and counts its space.
    link.unlink()
    target.fault("hang", path="trap", operation="lookup")
    try:
        subprocess.run(["stat", "--file-system", target.path], check=True, stdout=subprocess.DEVNULL, timeout=30)
        assert target.hits("hang") == 0
    finally:
        target.clear()


@pytest.mark.parametrize("seed", range(4))
def test_after_random_deeds_a_power_cut_leaves_what_the_last_fsync_of_everything_saw(target, seed):
    luck = random.Random(1000 + seed)
    opened: dict[int, int] = {}
    for _ in range(150):
        RandomOperation(luck.randrange(10**9))(target.path, opened)
    for path in [target.path, *target.path.rglob("*")]:
        if path.is_dir() or (path.is_file() and not path.is_symlink()):
            sync_directory(path) if path.is_dir() else write_through(path)
    before = picture(target.path)
    operations = [
        operation for operation in (RandomOperation(luck.randrange(10**9)) for _ in range(300)) if not syncs(operation)
    ]
    for operation in operations:
        operation(target.path, opened)
    assert picture(target.path) != before
    for fd in opened.values():
        os.close(fd)
    target.power_cut()
    after = picture(target.path)
    assert without_modes(after) == without_modes(before)


def write_through(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def syncs(operation: RandomOperation) -> bool:
    luck = random.Random(operation.seed)
    return luck.choice([name for name in sorted(vars(RandomOperation)) if name.startswith("do_")]) in (
        "do_sync",
        "do_map",
    )


def without_modes(seen: dict[str, object]) -> dict[str, object]:
    """Return the state of each name without its permissions. A power cut does not undo changes of permissions."""
    return {name: known[1:] for name, known in seen.items()}
