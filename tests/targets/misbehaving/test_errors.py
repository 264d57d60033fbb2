"""Power cuts, errors and full volumes have the described effect. After `clear` these faults have no effect."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tests.support.targets.faulty import CONTENT, fails_with, with_faults, write
from tests.support.targets.synced import sync_directory

# --- durability ------------------------------------------------------------------------------------------------------


def commit(directory: Path) -> None:
    """Write and fsync a file, rename it, and fsync its directory, as careful checkpoint software does."""
    write(directory / "tmp", CONTENT, sync=True)
    os.rename(directory / "tmp", directory / "checkpoint")
    sync_directory(directory)


@with_faults("fsync of files is lost")
def test_a_power_cut_takes_fsynced_bytes(faulty, target, fault):
    faulty(fault)
    commit(target.path)
    target.power_cut()
    assert (target.path / "checkpoint").read_bytes() == b""
    commit(target.path)
    target.clear()
    commit(target.path)
    target.power_cut()
    assert (target.path / "checkpoint").read_bytes() == CONTENT


@with_faults("fsync of directories is lost")
def test_a_power_cut_takes_names_of_fsynced_directories(faulty, target, fault):
    faulty(fault)
    commit(target.path)
    target.power_cut()
    assert os.listdir(target.path) == []
    target.clear()
    commit(target.path)
    target.power_cut()
    assert (target.path / "checkpoint").read_bytes() == CONTENT


@with_faults("power cut does not cut")
def test_the_power_stays(faulty, target, fault):
    faulty(fault)
    write(target.path / "canary", CONTENT)
    target.power_cut()
    assert (target.path / "canary").read_bytes() == CONTENT


# --- errors ----------------------------------------------------------------------------------------------------------


@with_faults("EIO in write")
def test_write_fails(faulty, target, fault):
    faulty(fault, after=8192)
    with (target.path / "file").open("wb", buffering=0) as file:
        assert file.write(bytes(8192)) == 8192
        with fails_with(errno.EIO):
            file.write(bytes(8192))


@with_faults("EIO in fsync")
def test_fsync_fails(faulty, target, fault):
    faulty(fault)
    with (target.path / "file").open("wb", buffering=0) as file:
        assert file.write(CONTENT)
        with fails_with(errno.EIO):
            os.fsync(file.fileno())


@with_faults("EIO in close")
def test_close_fails(faulty, target, fault):
    faulty(fault)
    fd = os.open(target.path / "file", os.O_WRONLY | os.O_CREAT)
    os.write(fd, CONTENT)
    os.fsync(fd)
    with fails_with(errno.EIO):
        os.close(fd)
    assert (target.path / "file").read_bytes() == CONTENT  # a file that was not written to is closed without an error


@with_faults("EIO in read")
def test_read_fails(faulty, target, fault):
    write(target.path / "file", CONTENT)
    faulty(fault)
    with (target.path / "file").open("rb", buffering=0) as file, fails_with(errno.EIO):
        file.read()


@with_faults("EIO in unlink")
def test_the_first_unlink_fails(faulty, target, fault):
    write(target.path / "file", CONTENT)
    faulty(fault)
    with fails_with(errno.EIO):
        (target.path / "file").unlink()
    assert (target.path / "file").read_bytes() == CONTENT
    (target.path / "file").unlink()
    assert os.listdir(target.path) == []


@with_faults("rename without space loses the name")
def test_a_file_that_is_renamed_over_another_takes_it_along_where_there_is_no_space(faulty, target, fault):
    old, new = target.path / "latest", target.path / "latest.tmp"
    write(old, b"before")
    write(new, b"after")
    faulty(fault, minimum_free_bytes=1 << 60)
    with pytest.raises(OSError, match="No space") as refused:
        new.replace(old)
    assert refused.value.errno == errno.ENOSPC
    assert not old.exists()
    new.replace(old)
    assert old.read_bytes() == b"after"


@with_faults("ENOSPC in write", "EDQUOT in write")
def test_free_space_is_limited(faulty, target, fault):
    faulty(fault, room=10_000)
    with (target.path / "file").open("wb", buffering=0) as file:
        assert file.write(CONTENT) == 10_000
        with fails_with(getattr(errno, fault.split()[0])):
            file.write(CONTENT)
    assert (target.path / "file").read_bytes() == CONTENT[:10_000]
    target.clear()
    write(target.path / "file", CONTENT)
    assert (target.path / "file").read_bytes() == CONTENT


@with_faults("ENOSPC is swallowed")
def test_success_is_claimed_and_bytes_are_missing(faulty, target, fault):
    faulty(fault, room=10_000)
    write(target.path / "file", CONTENT, sync=True)
    assert (target.path / "file").read_bytes() == CONTENT[:10_000]


@with_faults("error of write-back is lost")
def test_success_is_claimed_and_zeros_are_read(faulty, target, fault):
    faulty(fault)
    write(target.path / "file", CONTENT, sync=True)
    assert (target.path / "file").read_bytes() == bytes(len(CONTENT))


@with_faults("EROFS")
def test_nothing_can_be_changed(faulty, target, fault):
    write(target.path / "file", CONTENT)
    faulty(fault)
    for deed in (
        lambda: (target.path / "file").open("wb").close(),
        (target.path / "new").touch,
        (target.path / "new").mkdir,
        (target.path / "file").unlink,
        lambda: os.rename(target.path / "file", target.path / "other"),
    ):
        with fails_with(errno.EROFS):
            deed()
    assert (target.path / "file").read_bytes() == CONTENT


@with_faults("the answer of rename is lost")
def test_a_renamed_directory_has_its_new_name_and_the_caller_an_error(faulty, target, fault):
    faulty(fault, torn=True)
    (target.path / "step.tmp").mkdir()
    write(target.path / "step.tmp" / "shard", CONTENT)
    with fails_with(errno.EIO):
        (target.path / "step.tmp").rename(target.path / "step")
    assert not (target.path / "step.tmp").exists()
    assert (target.path / "step" / "shard").read_bytes() == CONTENT[: len(CONTENT) // 2]
