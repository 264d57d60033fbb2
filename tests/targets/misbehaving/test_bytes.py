"""Faults of bytes have the described effect. After `clear` they have no effect."""

from __future__ import annotations

import errno
import mmap
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.machine import eventually, patience
from tests.support.targets.faulty import CONTENT, differing, fails_with, polled, with_faults, write


def bytes_or_none(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def append(path: Path, content: bytes) -> None:
    with path.open("ab", buffering=0) as file:
        assert file.write(content) == len(content)


def copied(path: Path) -> bytes:
    """Copy a file with copy_file_range, which the file system executes; return the bytes of the copy."""
    copy = path.with_suffix(".copy")
    with path.open("rb") as file, copy.open("wb") as target:
        assert os.copy_file_range(file.fileno(), target.fileno(), len(CONTENT)) == len(CONTENT)
    return copy.read_bytes()


# --- bytes -----------------------------------------------------------------------------------------------------------


@with_faults("flipped bit in reads")
def test_a_bit_is_flipped_in_reads_alone(faulty, target, fault):
    write(target.path / "file", CONTENT)
    faulty(fault)
    for root in (target.path, target.second):
        seen = (root / "file").read_bytes()
        assert differing(seen, CONTENT) == [150_000]
        assert seen[150_000] ^ CONTENT[150_000] == 1
    with (target.path / "file").open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        assert differing(mapped[:], CONTENT) == [150_000]
        target.clear()
        assert mapped[:] == CONTENT
    assert (target.backing / "file").read_bytes() == CONTENT


@with_faults("flipped bit at rest")
def test_a_bit_is_flipped_at_rest_and_stays_so(faulty, target, fault):
    faulty(fault)
    write(target.path / "file", CONTENT)
    write(target.path / "synced", CONTENT, sync=True)
    for name in ("file", "synced"):
        assert differing((target.path / name).read_bytes(), CONTENT) == [150_000]
        assert differing((target.backing / name).read_bytes(), CONTENT) == [150_000]
    assert target.hits(fault) == 2
    target.clear()
    assert differing((target.path / "file").read_bytes(), CONTENT) == [150_000]
    write(target.path / "file", CONTENT)
    assert (target.path / "file").read_bytes() == CONTENT


@with_faults("torn write")
def test_a_write_is_torn_though_it_was_acknowledged(faulty, target, fault):
    faulty(fault)
    write(target.path / "file", CONTENT)
    assert (target.path / "file").read_bytes() == CONTENT[:150_000] + bytes(150_000)


@with_faults("misplaced write")
def test_blocks_of_a_write_are_misplaced(faulty, target, fault):
    faulty(fault)
    write(target.path / "file", CONTENT[: 4 * 4096])
    blocks = [CONTENT[at : at + 4096] for at in (3 * 4096, 0, 4096, 2 * 4096)]
    assert (target.backing / "file").read_bytes() == b"".join(blocks)


@with_faults("misplaced read")
def test_blocks_of_a_read_are_misplaced(faulty, target, fault):
    write(target.path / "file", CONTENT)
    faulty(fault)
    seen = (target.path / "file").read_bytes()
    assert seen != CONTENT
    assert {seen[at : at + 4096] for at in range(0, 262144, 4096)} == {
        CONTENT[at : at + 4096] for at in range(0, 262144, 4096)
    }
    assert (target.backing / "file").read_bytes() == CONTENT


@with_faults("stale data")
def test_the_second_client_sees_old_bytes(faulty, target, fault):
    write(target.path / "file", CONTENT)
    faulty(fault, seconds=1000)
    assert (target.second / "file").read_bytes() == CONTENT
    write(target.path / "file", CONTENT[::-1])
    assert (target.path / "file").read_bytes() == CONTENT[::-1]
    assert (target.second / "file").read_bytes() == CONTENT
    write(target.path / "tmp", b"x" * 300_000)
    os.replace(target.path / "tmp", target.path / "file")
    assert (target.second / "file").read_bytes() == CONTENT


@with_faults("stale data")
def test_stale_data_become_fresh_after_their_time(faulty, target, fault):
    write(target.path / "file", b"old")
    faulty(fault, seconds=patience(1.0))
    assert (target.second / "file").read_bytes() == b"old"
    write(target.path / "file", b"new")
    assert (target.second / "file").read_bytes() == b"old"
    eventually(lambda: (target.second / "file").read_bytes() == b"new", "the second client sees the new bytes")


@with_faults("late data")
def test_the_second_client_finds_what_was_closed_empty_for_a_time(faulty, target, fault):
    faulty(fault, seconds=patience(1.0))
    write(target.path / "file", CONTENT)
    assert (target.path / "file").read_bytes() == CONTENT
    assert (target.second / "file").read_bytes() == b""
    eventually(lambda: (target.second / "file").read_bytes() == CONTENT, "the bytes have come")


@with_faults("appended bytes come late")
def test_the_second_client_finds_the_old_end_for_a_time(faulty, target, fault):
    write(target.path / "file", b"first")
    faulty(fault, seconds=patience(1.0))
    append(target.path / "file", b", second")
    append(target.path / "file", b", third")
    assert (target.path / "file").read_bytes() == b"first, second, third"
    assert (target.second / "file").read_bytes() == b"first"
    eventually(lambda: (target.second / "file").read_bytes() == b"first, second, third", "the bytes have come")


@with_faults("appended bytes overwrite those of the other client")
def test_the_second_client_appends_behind_its_own_last_bytes(faulty, target, fault):
    faulty(fault)
    append(target.second / "file", b"second client, ")
    append(target.path / "file", b"first client, ")
    append(target.second / "file", b"again")
    assert (target.path / "file").read_bytes() == b"second client, again client, "


@with_faults("new data are reported as a hole")
def test_a_file_that_was_not_fsynced_is_a_hole(faulty, target, fault):
    faulty(fault)
    write(target.path / "file", CONTENT)
    with (target.path / "file").open("rb") as file:
        assert os.lseek(file.fileno(), 0, os.SEEK_HOLE) == 0
        with fails_with(errno.ENXIO):
            os.lseek(file.fileno(), 0, os.SEEK_DATA)
        assert file.read() == CONTENT
        os.fsync(file.fileno())
        assert os.lseek(file.fileno(), 0, os.SEEK_DATA) == 0
        assert os.lseek(file.fileno(), 0, os.SEEK_HOLE) == len(CONTENT)


@with_faults("new data are copied as zeros")
def test_a_file_that_was_not_fsynced_is_copied_as_zeros(faulty, target, fault):
    faulty(fault)
    write(target.path / "file", CONTENT)
    assert copied(target.path / "file") == bytes(len(CONTENT))
    write(target.path / "file", CONTENT, sync=True)
    assert copied(target.path / "file") == CONTENT


@with_faults("data arrive after their name")
def test_the_second_client_finds_zeros_behind_the_first_bytes_for_a_time(faulty, target, fault):
    faulty(fault, seconds=patience(1.0))
    write(target.path / "file", CONTENT)
    write(target.path / "latest", b"step-000001")
    assert (target.path / "file").read_bytes() == CONTENT
    assert (target.second / "latest").read_bytes() == b"step-000001"
    assert (target.second / "file").read_bytes() == CONTENT[:64] + bytes(len(CONTENT) - 64)
    eventually(lambda: (target.second / "file").read_bytes() == CONTENT, "the bytes have come")


@with_faults("overwrite in place is not atomic")
def test_a_small_overwrite_shows_garbage_for_a_moment(faulty, target, fault):
    path = target.path / "latest"
    write(path, b"global_step10")
    faulty(fault)

    def overwrite() -> None:
        with path.open("r+b") as file:
            file.write(b"global_step20")

    seen = polled(path.read_bytes, overwrite, 50)
    assert b"\xa5" * 13 in seen
    target.clear()
    assert path.read_bytes() == b"global_step20"


@with_faults("holes are not zero")
def test_holes_hold_something(faulty, target, fault):
    with (target.path / "file").open("wb") as file:
        file.seek(1 << 20)
        file.write(b"tail")
    faulty(fault)
    seen = (target.path / "file").read_bytes()
    assert seen == b"\xa5" * (1 << 20) + b"tail"
    target.clear()
    assert (target.path / "file").read_bytes() == bytes(1 << 20) + b"tail"


@with_faults("large offset wraps")
@pytest.mark.parametrize("power", [31, 32, 41])
def test_a_large_offset_wraps(faulty, target, fault, power):
    faulty(fault, at=1 << power)
    with (target.path / "file").open("wb", buffering=0) as file:
        os.pwrite(file.fileno(), b"there", (1 << power) + 1000)
    assert (target.path / "file").read_bytes() == bytes(1000) + b"there"


@with_faults("file size limited")
def test_a_file_grows_no_larger_than_the_limit(faulty, target, fault):
    faulty(fault)
    with (target.path / "file").open("wb", buffering=0) as file:
        os.pwrite(file.fileno(), b"last", (1 << 31) - 4)
        with fails_with(errno.EFBIG):
            os.pwrite(file.fileno(), b"more", 1 << 31)


@with_faults("O_DIRECT is not coherent")
def test_direct_reads_lack_what_was_appended_through_the_cache(faulty, target, fault):
    faulty(fault)
    page, path = mmap.mmap(-1, 4096), target.path / "file"
    page[:] = CONTENT[:4096]
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_DIRECT)
    os.writev(fd, [page])
    os.close(fd)
    with path.open("ab") as file:
        file.write(CONTENT[4096:8192])
    assert path.read_bytes() == CONTENT[:8192]
    again = mmap.mmap(-1, 8192)
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    assert os.readv(fd, [again]) == 8192
    os.close(fd)
    assert again[:] == CONTENT[:4096] + bytes(4096)


@with_faults("unlink takes the file from its readers")
def test_readers_of_an_unlinked_file_get_an_error(faulty, target, fault):
    write(target.path / "file", CONTENT)
    faulty(fault)
    with (target.path / "file").open("rb", buffering=0) as file:
        assert file.read(10) == CONTENT[:10]
        (target.path / "file").unlink()
        with fails_with(errno.ESTALE):
            eventually(lambda: file.read(10) and False, "reading fails")


@with_faults("unlink gives its readers wrong bytes")
def test_readers_of_an_unlinked_file_get_wrong_bytes(faulty, target, fault):
    write(target.path / "file", CONTENT)
    faulty(fault)
    with (target.path / "file").open("rb", buffering=0) as file:
        assert os.pread(file.fileno(), 10, 0) == CONTENT[:10]
        (target.path / "file").unlink()
        eventually(lambda: os.pread(file.fileno(), 10, 0) == b"\xa5" * 10, "other bytes are read")


@with_faults("reading through mmap gives SIGBUS")
def test_only_mapped_reads_fail(faulty, target, fault):
    write(target.path / "file", CONTENT)
    faulty(fault)
    program = "import mmap, sys; f = open(sys.argv[1]); sum(mmap.mmap(f.fileno(), 0, prot=1, flags=%d)[:])"
    for flags in (mmap.MAP_SHARED, mmap.MAP_PRIVATE):
        words = [sys.executable, "-I", "-S", "-c", program % flags, str(target.path / "file")]
        assert subprocess.run(words, check=False).returncode == -signal.SIGBUS
    assert (target.path / "file").read_bytes() == CONTENT


# --- names -----------------------------------------------------------------------------------------------------------


@with_faults("rename of a file is not atomic: no name", "rename of a file is not atomic: short content")
@pytest.mark.parametrize("reader", ["path", "second"])
def test_a_replaced_file_is_incomplete_for_a_moment(faulty, target, fault, reader):
    contents = [bytes([number]) * 5000 for number in range(60)]
    write(target.path / "file", contents[0])
    faulty(fault)
    left = iter(contents)

    def replace() -> None:
        write(target.path / "tmp", next(left))
        os.replace(target.path / "tmp", target.path / "file")

    seen = polled(lambda: bytes_or_none(getattr(target, reader) / "file"), replace, 60)
    broken = [one for one in seen if one not in contents]
    assert broken
    assert all(one is None if fault.endswith("no name") else len(one or b"") == 2500 for one in broken)
    target.clear()
    left = iter(contents)
    seen = polled(lambda: bytes_or_none(getattr(target, reader) / "file"), replace, 60)
    assert all(one in contents for one in seen)
