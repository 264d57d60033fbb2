"""Each fault does what its sentence says, and stops when it is cleared. Every fault of the table has a test here."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.machine import eventually, patience
from tests.support.targets.fuse_volatile import allocate
from tests.support.targets.misbehaving import FAULTS, Target

TESTED: set[str] = set()
MIB = 1 << 20


@pytest.fixture
def faulty(target) -> Iterator[Callable[..., Target]]:
    """Switch a fault on; when the test is over, it must have done something."""
    switched: list[str] = []

    def switch(name: str, **parameters) -> Target:
        switched.append(name)
        target.fault(name, **parameters)
        return target

    yield switch
    for name in switched:
        assert target.hits(name) or FAULTS[name].keeps_the_power, f"{name!r} did nothing"


def of(name: str, *more: str):
    """Say which faults a test is about."""
    TESTED.update((name, *more))
    return pytest.mark.parametrize("fault", [name, *more])


def write(path: Path, content: bytes, sync: bool = False) -> None:
    with path.open("wb", buffering=0) as file:
        assert file.write(content) == len(content)
        if sync:
            os.fsync(file.fileno())


def sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def differing(seen: bytes, content: bytes) -> list[int]:
    assert len(seen) == len(content)
    return [place for place, (one, other) in enumerate(zip(seen, content, strict=True)) if one != other]


@contextlib.contextmanager
def fails_with(number: int) -> Iterator[None]:
    with pytest.raises(OSError, match=r".*") as raised:
        yield
    assert raised.value.errno == number, errno.errorcode[raised.value.errno]


def seen_by_others(program: str, *words: object) -> str:
    """Run a program in a process of its own and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, *map(str, words)], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or done.stderr.strip().rpartition("\n")[2]


def polled(look: Callable[[], object], deed: Callable[[], None], times: int) -> list[object]:
    """Return all that somebody who looks all the time sees while something is done a number of times."""
    seen: list[object] = []
    over = threading.Event()

    def watch() -> None:
        while not over.is_set():
            seen.append(look())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        for _ in range(times):
            deed()
    finally:
        over.set()
        watcher.join()
    return seen


def bytes_or_none(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


# --- bytes -----------------------------------------------------------------------------------------------------------

CONTENT = os.urandom(300_000)


@of("flipped bit in reads")
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


@of("flipped bit at rest")
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


@of("torn write")
def test_a_write_is_torn_though_it_was_acknowledged(faulty, target, fault):
    faulty(fault)
    write(target.path / "file", CONTENT)
    assert (target.path / "file").read_bytes() == CONTENT[:150_000] + bytes(150_000)


@of("misplaced write")
def test_blocks_of_a_write_are_misplaced(faulty, target, fault):
    faulty(fault)
    write(target.path / "file", CONTENT[: 4 * 4096])
    blocks = [CONTENT[at : at + 4096] for at in (3 * 4096, 0, 4096, 2 * 4096)]
    assert (target.backing / "file").read_bytes() == b"".join(blocks)


@of("misplaced read")
def test_blocks_of_a_read_are_misplaced(faulty, target, fault):
    write(target.path / "file", CONTENT)
    faulty(fault)
    seen = (target.path / "file").read_bytes()
    assert seen != CONTENT
    assert {seen[at : at + 4096] for at in range(0, 262144, 4096)} == {
        CONTENT[at : at + 4096] for at in range(0, 262144, 4096)
    }
    assert (target.backing / "file").read_bytes() == CONTENT


@of("stale data")
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


@of("stale data")
def test_stale_data_become_fresh_after_their_time(faulty, target, fault):
    write(target.path / "file", b"old")
    faulty(fault, seconds=0.2)
    assert (target.second / "file").read_bytes() == b"old"
    write(target.path / "file", b"new")
    assert (target.second / "file").read_bytes() == b"old"
    eventually(lambda: (target.second / "file").read_bytes() == b"new", "the second client sees the new bytes")


@of("late data")
def test_the_second_client_finds_what_was_closed_empty_for_a_time(faulty, target, fault):
    faulty(fault, seconds=patience(1.0))
    write(target.path / "file", CONTENT)
    assert (target.path / "file").read_bytes() == CONTENT
    assert (target.second / "file").read_bytes() == b""
    eventually(lambda: (target.second / "file").read_bytes() == CONTENT, "the bytes have come")


@of("data arrive after their name")
def test_the_second_client_finds_zeros_behind_the_first_bytes_for_a_time(faulty, target, fault):
    faulty(fault, seconds=patience(0.5))
    write(target.path / "file", CONTENT)
    write(target.path / "latest", b"step-000001")
    assert (target.path / "file").read_bytes() == CONTENT
    assert (target.second / "latest").read_bytes() == b"step-000001"
    assert (target.second / "file").read_bytes() == CONTENT[:64] + bytes(len(CONTENT) - 64)
    eventually(lambda: (target.second / "file").read_bytes() == CONTENT, "the bytes have come")


@of("overwrite in place is not atomic")
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


@of("holes are not zero")
def test_holes_hold_something(faulty, target, fault):
    with (target.path / "file").open("wb") as file:
        file.seek(1 << 20)
        file.write(b"tail")
    faulty(fault)
    seen = (target.path / "file").read_bytes()
    assert seen == b"\xa5" * (1 << 20) + b"tail"
    target.clear()
    assert (target.path / "file").read_bytes() == bytes(1 << 20) + b"tail"


@of("large offset wraps")
@pytest.mark.parametrize("power", [31, 32, 41])
def test_a_large_offset_wraps(faulty, target, fault, power):
    faulty(fault, at=1 << power)
    with (target.path / "file").open("wb", buffering=0) as file:
        os.pwrite(file.fileno(), b"there", (1 << power) + 1000)
    assert (target.path / "file").read_bytes() == bytes(1000) + b"there"


@of("file size limited")
def test_a_file_grows_no_larger_than_the_limit(faulty, target, fault):
    faulty(fault)
    with (target.path / "file").open("wb", buffering=0) as file:
        os.pwrite(file.fileno(), b"last", (1 << 31) - 4)
        with fails_with(errno.EFBIG):
            os.pwrite(file.fileno(), b"more", 1 << 31)


@of("O_DIRECT is not coherent")
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


@of("unlink takes the file from its readers")
def test_readers_of_an_unlinked_file_get_an_error(faulty, target, fault):
    write(target.path / "file", CONTENT)
    faulty(fault)
    with (target.path / "file").open("rb", buffering=0) as file:
        assert file.read(10) == CONTENT[:10]
        (target.path / "file").unlink()
        with fails_with(errno.ESTALE):
            eventually(lambda: file.read(10) and False, "reading fails")


@of("unlink gives its readers wrong bytes")
def test_readers_of_an_unlinked_file_get_wrong_bytes(faulty, target, fault):
    write(target.path / "file", CONTENT)
    faulty(fault)
    with (target.path / "file").open("rb", buffering=0) as file:
        assert os.pread(file.fileno(), 10, 0) == CONTENT[:10]
        (target.path / "file").unlink()
        eventually(lambda: os.pread(file.fileno(), 10, 0) == b"\xa5" * 10, "other bytes are read")


@of("reading through mmap gives SIGBUS")
def test_only_mapped_reads_fail(faulty, target, fault):
    write(target.path / "file", CONTENT)
    faulty(fault)
    program = "import mmap, sys; f = open(sys.argv[1]); sum(mmap.mmap(f.fileno(), 0, prot=1, flags=%d)[:])"
    for flags in (mmap.MAP_SHARED, mmap.MAP_PRIVATE):
        words = [sys.executable, "-I", "-S", "-c", program % flags, str(target.path / "file")]
        assert subprocess.run(words, check=False).returncode == -signal.SIGBUS
    assert (target.path / "file").read_bytes() == CONTENT


# --- names -----------------------------------------------------------------------------------------------------------


@of("rename of a file is not atomic: no name", "rename of a file is not atomic: short content")
@pytest.mark.parametrize("reader", ["path", "second"])
def test_a_replaced_file_is_not_whole_for_a_moment(faulty, target, fault, reader):
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


@of("rename of a folder is not atomic")
def test_a_renamed_folder_fills_up(faulty, target, fault):
    (target.path / "tmp").mkdir()
    for number in range(200):
        (target.path / "tmp" / str(number)).touch()
    faulty(fault)

    def names() -> int | None:
        try:
            return len(os.listdir(target.path / "done"))
        except FileNotFoundError:
            return None

    def rename_and_wait() -> None:
        os.rename(target.path / "tmp", target.path / "done")
        eventually(lambda: names() == 200, "all are there")

    counts = polled(names, rename_and_wait, 1)
    assert any(count not in (None, 200) for count in counts)
    target.clear()
    os.rename(target.path / "done", target.path / "tmp")
    assert set(polled(names, rename_and_wait, 1)) <= {None, 200}


@of("names dropped in a listing", "names twice in a listing")
def test_a_listing_has_one_name_too_few_or_too_many(faulty, target, fault):
    names = sorted(str(number) for number in range(100))
    for name in names:
        (target.path / name).touch()
    faulty(fault)
    seen = sorted(os.listdir(target.path))
    assert len(seen) == (99 if "dropped" in fault else 101)
    assert set(seen) <= set(names)


@of("still listed after delete")
def test_a_deleted_name_is_listed_for_a_time(faulty, target, fault):
    faulty(fault, seconds=patience(1.0))
    (target.path / "file").touch()
    (target.path / "file").unlink()
    assert os.listdir(target.path) == ["file"]
    assert not (target.path / "file").exists()
    eventually(lambda: os.listdir(target.path) == [], "it is no longer listed")


@of("not listed after create")
def test_a_new_name_is_not_listed_for_a_time(faulty, target, fault):
    faulty(fault, seconds=patience(1.0))
    (target.path / "file").touch()
    assert os.listdir(target.path) == []
    assert (target.path / "file").exists()
    eventually(lambda: os.listdir(target.path) == ["file"], "it is listed")


@of("O_EXCL is not exclusive", "mkdir is not exclusive")
def test_two_processes_make_the_same_thing(faulty, target, fault):
    faulty(fault, seconds=1000)
    make = "os.mkdir(sys.argv[1])" if "mkdir" in fault else "os.open(sys.argv[1], os.O_CREAT | os.O_EXCL | os.O_WRONLY)"
    program = f"import os, sys; {make}; print('made')"
    assert [seen_by_others(program, target.path / "name") for _ in range(2)] == ["made", "made"]
    assert seen_by_others(program, target.second / "name") == "made"
    target.clear()
    assert "FileExistsError" in seen_by_others(program, target.path / "name")


@of("new folder is not visible")
def test_others_do_not_find_a_new_folder_for_a_time(faulty, target, fault):
    faulty(fault, seconds=1000)
    (target.path / "folder").mkdir()
    (target.path / "folder" / "file").touch()
    program = "import os, sys; print(os.listdir(sys.argv[1]))"
    assert "FileNotFoundError" in seen_by_others(program, target.path / "folder")
    assert "FileNotFoundError" in seen_by_others(program, target.second / "folder")
    target.clear()
    assert seen_by_others(program, target.path / "folder") == "['file']"


@of("stale names")
def test_the_second_client_finds_what_was_deleted_or_replaced(faulty, target, fault):
    write(target.path / "file", b"old")
    write(target.path / "gone", b"gone")
    faulty(fault, seconds=1000)
    assert (target.second / "file").read_bytes() == b"old"
    assert (target.second / "gone").exists()
    write(target.path / "new", b"new")
    os.replace(target.path / "new", target.path / "file")
    (target.path / "gone").unlink()
    assert (target.second / "file").read_bytes() == b"old"
    assert (target.second / "gone").read_bytes() == b"gone"
    target.clear()
    assert (target.second / "file").read_bytes() == b"new"
    assert not (target.second / "gone").exists()


@of("stale negative names")
def test_the_second_client_does_not_find_what_it_once_missed(faulty, target, fault):
    faulty(fault, seconds=patience(1.0))
    assert not (target.second / "file").exists()
    write(target.path / "file", b"new")
    assert not (target.second / "file").exists()
    assert (target.path / "file").exists()
    eventually((target.second / "file").exists, "the second client finds it")


@of("stale attributes")
def test_the_second_client_sees_the_old_size(faulty, target, fault):
    write(target.path / "file", b"old")
    faulty(fault, seconds=patience(1.0))
    assert (target.second / "file").stat().st_size == 3
    write(target.path / "file", b"longer than before")
    assert (target.second / "file").stat().st_size == 3
    assert (target.path / "file").stat().st_size == 18
    eventually(lambda: (target.second / "file").stat().st_size == 18, "the second client sees the size")


@of("stale listing")
def test_the_second_client_lists_what_was_there(faulty, target, fault):
    faulty(fault, seconds=patience(1.0))
    assert os.listdir(target.second) == []
    (target.path / "file").touch()
    assert os.listdir(target.second) == []
    assert os.listdir(target.path) == ["file"]
    eventually(lambda: os.listdir(target.second) == ["file"], "the second client lists it")


@of("names regardless of case")
def test_names_that_differ_in_case_are_one(faulty, target, fault):
    faulty(fault)
    write(target.path / "File", b"one")
    write(target.path / "file", b"two")
    assert os.listdir(target.path) == ["File"]
    assert (target.path / "FILE").read_bytes() == b"two"


@of("names of limited length")
def test_long_names_are_refused(faulty, target, fault):
    faulty(fault)
    write(target.path / ("n" * 64), b"fits")
    with fails_with(errno.ENAMETOOLONG):
        write(target.path / ("n" * 65), b"does not")


# --- durability ------------------------------------------------------------------------------------------------------


def commit(folder: Path) -> None:
    """Do what careful checkpoint software does."""
    write(folder / "tmp", CONTENT, sync=True)
    os.rename(folder / "tmp", folder / "checkpoint")
    sync(folder)


@of("fsync of files is lost")
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


@of("fsync of folders is lost")
def test_a_power_cut_takes_names_of_fsynced_folders(faulty, target, fault):
    faulty(fault)
    commit(target.path)
    target.power_cut()
    assert os.listdir(target.path) == []
    target.clear()
    commit(target.path)
    target.power_cut()
    assert (target.path / "checkpoint").read_bytes() == CONTENT


@of("power cut does not cut")
def test_the_power_stays(faulty, target, fault):
    faulty(fault)
    write(target.path / "canary", CONTENT)
    target.power_cut()
    assert (target.path / "canary").read_bytes() == CONTENT


# --- errors ----------------------------------------------------------------------------------------------------------


@of("EIO in write")
def test_write_fails(faulty, target, fault):
    faulty(fault, after=8192)
    with (target.path / "file").open("wb", buffering=0) as file:
        assert file.write(bytes(8192)) == 8192
        with fails_with(errno.EIO):
            file.write(bytes(8192))


@of("EIO in fsync")
def test_fsync_fails(faulty, target, fault):
    faulty(fault)
    with (target.path / "file").open("wb", buffering=0) as file:
        assert file.write(CONTENT)
        with fails_with(errno.EIO):
            os.fsync(file.fileno())


@of("EIO in close")
def test_close_fails(faulty, target, fault):
    faulty(fault)
    fd = os.open(target.path / "file", os.O_WRONLY | os.O_CREAT)
    os.write(fd, CONTENT)
    os.fsync(fd)
    with fails_with(errno.EIO):
        os.close(fd)
    assert (target.path / "file").read_bytes() == CONTENT  # what was not written to is closed in peace


@of("EIO in read")
def test_read_fails(faulty, target, fault):
    write(target.path / "file", CONTENT)
    faulty(fault)
    with (target.path / "file").open("rb", buffering=0) as file, fails_with(errno.EIO):
        file.read()


@of("rename without space loses the name")
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


@of("ENOSPC in write", "EDQUOT in write")
def test_there_is_only_so_much_room(faulty, target, fault):
    faulty(fault, room=10_000)
    with (target.path / "file").open("wb", buffering=0) as file:
        assert file.write(CONTENT) == 10_000
        with fails_with(getattr(errno, fault.split()[0])):
            file.write(CONTENT)
    assert (target.path / "file").read_bytes() == CONTENT[:10_000]
    target.clear()
    write(target.path / "file", CONTENT)
    assert (target.path / "file").read_bytes() == CONTENT


@of("ENOSPC is swallowed")
def test_success_is_claimed_and_bytes_are_missing(faulty, target, fault):
    faulty(fault, room=10_000)
    write(target.path / "file", CONTENT, sync=True)
    assert (target.path / "file").read_bytes() == CONTENT[:10_000]


@of("error of write-back is lost")
def test_success_is_claimed_and_zeros_are_read(faulty, target, fault):
    faulty(fault)
    write(target.path / "file", CONTENT, sync=True)
    assert (target.path / "file").read_bytes() == bytes(len(CONTENT))


@of("EROFS")
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


@of("no O_DIRECT")
def test_direct_access_is_refused(faulty, target, fault):
    write(target.path / "file", CONTENT)
    faulty(fault)
    for flags in (os.O_RDONLY, os.O_RDWR | os.O_CREAT):
        with fails_with(errno.EINVAL):
            os.open(target.path / ("new" if flags else "file"), flags | os.O_DIRECT)
    assert (target.path / "file").read_bytes() == CONTENT


@of("no mmap")
def test_shared_mappings_are_refused(faulty, target, fault):
    write(target.path / "file", CONTENT)
    faulty(fault)
    with (target.path / "file").open("rb") as file, fails_with(errno.ENODEV):
        mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    assert (target.path / "file").read_bytes() == CONTENT


@of("no symbolic links")
def test_symbolic_links_are_refused(faulty, target, fault):
    faulty(fault)
    with fails_with(errno.EPERM):
        (target.path / "link").symlink_to("file")


@of("no hard links")
def test_hard_links_are_refused(faulty, target, fault):
    write(target.path / "file", CONTENT)
    faulty(fault)
    with fails_with(errno.EPERM):
        (target.path / "link").hardlink_to(target.path / "file")


@of("no extended attributes")
def test_extended_attributes_are_refused(faulty, target, fault):
    write(target.path / "file", CONTENT)
    faulty(fault)
    with fails_with(errno.EOPNOTSUPP):
        os.setxattr(target.path / "file", "user.some", b"value")


@of("extended attributes lose a byte")
def test_extended_attributes_come_back_cut(faulty, target, fault):
    write(target.path / "file", CONTENT)
    faulty(fault)
    os.setxattr(target.path / "file", "user.some", b"v" * 200)
    assert os.getxattr(target.path / "file", "user.some") == b"v" * 199
    os.setxattr(target.path / "file", "user.some", b"short")
    assert os.getxattr(target.path / "file", "user.some") == b"short"


@of("no fallocate")
def test_fallocate_is_refused(faulty, target, fault):
    faulty(fault)
    with (target.path / "file").open("wb") as file, fails_with(errno.EOPNOTSUPP):
        allocate(file.fileno(), 0, 0, 100)  # posix_fallocate would write instead


@of("flock refuses a free lock")
def test_nobody_gets_the_lock(faulty, target, fault):
    (target.path / "lock").touch()
    faulty(fault)
    with (target.path / "lock").open() as file:
        for mode in (fcntl.LOCK_EX, fcntl.LOCK_SH):
            with fails_with(errno.EAGAIN):
                fcntl.flock(file, mode | fcntl.LOCK_NB)
        fcntl.flock(file, fcntl.LOCK_UN)


@of("flock locks nobody out")
def test_everybody_gets_the_lock(faulty, target, fault):
    (target.path / "lock").touch()
    faulty(fault)
    with (target.path / "lock").open() as one, (target.second / "lock").open() as other:
        fcntl.flock(one, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


# --- time and figures ------------------------------------------------------------------------------------------------


def seconds_of(deed: Callable[[], object]) -> float:
    begin = time.monotonic()
    deed()
    return time.monotonic() - begin


@of("slow file")
def test_the_files_that_match_are_slow(faulty, target, fault):
    faulty(fault, path="*/rank1.*", seconds=0.2)
    (target.path / "checkpoint").mkdir()
    assert seconds_of(lambda: write(target.path / "checkpoint" / "rank1.pt", CONTENT)) >= 0.2
    hits = target.hits(fault)
    write(target.path / "checkpoint" / "rank0.pt", CONTENT)
    assert target.hits(fault) == hits > 0


@of("slow")
def test_all_is_as_slow_as_the_rate_says(faulty, target, fault):
    faulty(fault, bytes_per_second=20e6)
    assert seconds_of(lambda: write(target.path / "file", bytes(4 * MIB))) >= 0.2
    assert seconds_of((target.path / "file").read_bytes) >= 0.15


@of("slow")
def test_files_that_have_a_device_each_take_as_long_as_one(faulty, target, fault):
    faulty(fault, bytes_per_second=20e6, is_by_file=True)
    paths = [target.path / f"file-{number}" for number in range(8)]
    with ThreadPoolExecutor(len(paths)) as pool:
        seconds = seconds_of(lambda: list(pool.map(lambda path: write(path, bytes(4 * MIB)), paths)))
    assert 0.2 <= seconds < 8 * 0.2


@of("writes trickle")
def test_a_write_takes_little_and_a_while(faulty, target, fault):
    faulty(fault, bytes_per_second=20e3)
    with (target.path / "file").open("wb", buffering=0) as file:
        begin = time.monotonic()
        assert file.write(bytes(20_000)) == 4096
        assert time.monotonic() - begin >= 0.2
    assert (target.path / "file").stat().st_size == 4096


@of("fast for duplicate data")
def test_what_was_written_before_costs_nothing(faulty, target, fault):
    faulty(fault, bytes_per_second=10e6)
    fresh = os.urandom(3 * MIB)
    assert seconds_of(lambda: write(target.path / "one", fresh)) >= 0.3
    hits = target.hits(fault)
    write(target.path / "two", fresh)
    assert target.hits(fault) == hits


@of("fast when cached")
def test_what_was_written_lately_is_read_fast_and_the_rest_is_not(faulty, target, fault):
    write(target.path / "old", bytes(3 * MIB))
    faulty(fault, bytes_per_second=10e6, cache_bytes=8 * MIB)
    write(target.path / "new", bytes(3 * MIB))
    (target.path / "new").read_bytes()
    assert target.hits(fault) == 0
    assert seconds_of((target.path / "old").read_bytes) >= 0.3
    hits = target.hits(fault)
    (target.path / "old").read_bytes()
    assert target.hits(fault) == hits  # it is in the cache now


@of("client cache survives the drop")
@pytest.mark.parametrize("survives", [True, False])
def test_each_client_reads_fast_what_it_wrote_or_read_until_it_drops_that(faulty, target, fault, survives):
    write(target.path / "old", bytes(MIB))
    faulty(fault, bytes_per_second=10e6, survives=survives)
    assert seconds_of((target.path / "old").read_bytes) >= 0.1
    write(target.path / "new", bytes(3 * MIB))
    drop = subprocess.run(target.drop_command, check=False)
    assert drop.returncode == 0
    hits = target.hits(fault)
    (target.path / "new").read_bytes()
    assert (target.hits(fault) == hits) == survives
    # Read once, it is in the cache of the client, whether or not that can be dropped.
    hits = target.hits(fault)
    (target.path / "new").read_bytes()
    assert target.hits(fault) == hits


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@of("hang")
@pytest.mark.parametrize("operation", ["write", "read", "fsync", "open", "list", "rename", "attributes"])
def test_an_operation_hangs_until_it_is_released(faulty, target, fault, operation):
    programs = {
        "write": "open(sys.argv[1], 'r+b', buffering=0).write(b'x')",
        "read": "open(sys.argv[1], 'rb', buffering=0).read(10)",
        "fsync": "f = open(sys.argv[1], 'r+b'); os.fsync(f.fileno())",
        "open": "open(sys.argv[1])",
        "list": "os.listdir(os.path.dirname(sys.argv[1]))",
        "rename": "os.rename(sys.argv[1], sys.argv[1] + '.new')",
        "attributes": "os.stat(sys.argv[1])",
    }
    (target.path / "sub").mkdir()
    write(target.path / "sub" / "file", CONTENT)
    write(target.path / "free", CONTENT)
    faulty(fault, operation=operation, path="sub*")
    words = [sys.executable, "-I", "-S", "-c", f"import os, sys; {programs[operation]}; print('done')"]
    with subprocess.Popen([*words, str(target.path / "sub" / "file")], stdout=subprocess.PIPE) as process:
        try:
            eventually(lambda: target.hits(fault), "it hangs")
            eventually(lambda: state_of(process.pid) == "D", "the task shows as D")
            assert (target.path / "free").read_bytes() == CONTENT  # nobody else is held up
            if operation == "write":
                process.kill()
                eventually(lambda: state_of(process.pid) == "D", "not even that ends it")
                target.release()
        finally:
            target.clear()  # some programs do it more than once
        assert process.communicate()[0] == (b"" if operation == "write" else b"done\n")


@of("hang")
def test_clearing_lets_everything_that_hangs_go_on(faulty, target, fault):
    faulty(fault)
    threads = [threading.Thread(target=write, args=(target.path / f"file-{number}", b"x")) for number in range(40)]
    for thread in threads:
        thread.start()
    eventually(lambda: target.hits(fault) == 40, "all hang")
    target.clear()
    for thread in threads:
        thread.join()
    assert {path.read_bytes() for path in target.path.iterdir()} == {b"x"}


@of("concurrent O_TRUNC hangs")
def test_opening_with_truncation_at_once_hangs(faulty, target, fault):
    write(target.path / "file", CONTENT)
    faulty(fault)
    loop = "import os, sys\nwhile True: os.close(os.open(sys.argv[1], os.O_WRONLY | os.O_TRUNC))"
    words = [sys.executable, "-I", "-S", "-c", loop, str(target.path / "file")]
    with subprocess.Popen(words) as one, subprocess.Popen(words) as other:
        eventually(lambda: target.hits(fault), "one of them hangs")
        eventually(lambda: "D" in (state_of(one.pid), state_of(other.pid)), "it shows as D")
        for process in (one, other):
            process.kill()
        target.release()


@of("statfs never changes")
def test_free_space_stands(faulty, target, fault):
    faulty(fault)
    before = os.statvfs(target.path)
    write(target.path / "file", bytes(4 * MIB), sync=True)
    assert os.statvfs(target.path) == before


@of("mtime goes back")
def test_the_later_file_has_the_earlier_mtime(faulty, target, fault):
    faulty(fault)
    write(target.path / "one", b"x")
    os.utime(target.path / "one", ns=(0, 10**18))
    write(target.path / "two", b"x")
    os.utime(target.path / "two", ns=(0, 10**18 + 10**7))
    assert (target.path / "one").stat().st_mtime_ns > (target.path / "two").stat().st_mtime_ns


@of("mtime is coarse")
def test_mtime_comes_in_steps(faulty, target, fault):
    faulty(fault)
    write(target.path / "one", b"x")
    assert (target.path / "one").stat().st_mtime_ns % (2 * 10**9) == 0


# --- the table -------------------------------------------------------------------------------------------------------


def test_every_fault_of_the_table_is_tested_here():
    assert set(FAULTS) == TESTED


def test_several_faults_act_at_once_and_are_cleared_together(faulty, target):
    faulty("torn write", path="torn")
    faulty("flipped bit in reads", path="flipped")
    for name in ("torn", "flipped", "whole"):
        write(target.path / name, CONTENT)
    assert (target.path / "torn").read_bytes() == CONTENT[:150_000] + bytes(150_000)
    assert differing((target.path / "flipped").read_bytes(), CONTENT) == [150_000]
    assert (target.path / "whole").read_bytes() == CONTENT
