"""The FUSE target without a fault behaves as an ordinary folder does, and a power cut takes what it should."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import random
import shutil
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.machine import eventually
from tests.support.targets.misbehaving import FAULTS, misbehaving

GIB = 1 << 30
NAMES = ["a", "b", "c", "d", "sub", "sub/a", "sub/b", "sub/deep", "sub/deep/a", "other", "other/b"]


def picture(folder: Path) -> dict[str, object]:
    """Return all that can be told of the files of a folder."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        seen = path.lstat()
        content: object = None
        if stat.S_ISLNK(seen.st_mode):
            content = os.readlink(path)
        elif stat.S_ISREG(seen.st_mode):
            content = path.read_bytes()
        links = seen.st_nlink if stat.S_ISREG(seen.st_mode) else None
        size = seen.st_size if stat.S_ISREG(seen.st_mode) else None
        found[str(path.relative_to(folder))] = (oct(seen.st_mode), links, size, content)
    return found


# --- a random comparison with a folder -------------------------------------------------------------------------------


class Deeds:
    """One random deed, the same on whatever folder it is done to."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def __call__(self, root: Path, opened: dict[int, int]) -> object:
        """Do it and return what came of it: a value or the number of an error."""
        luck = random.Random(self.seed)
        deed = luck.choice([name for name in sorted(vars(type(self))) if name.startswith("do_")])
        first, second = (root / luck.choice(NAMES) for _ in range(2))
        try:
            return deed, getattr(self, deed)(luck, first, second, opened)
        except OSError as error:
            return deed, errno.errorcode[error.errno]

    def do_write(self, luck, path, _, opened):
        flags = os.O_RDWR | luck.choice([0, os.O_CREAT, os.O_CREAT | os.O_EXCL, os.O_CREAT | os.O_TRUNC, os.O_APPEND])
        fd = os.open(path, flags, 0o640)
        try:
            data = luck.randbytes(luck.choice([1, 100, 4096, 70_000, 300_000]))
            os.lseek(fd, luck.choice([0, 0, 1, 4095, 100_000]), os.SEEK_SET)
            return os.write(fd, data), os.fstat(fd).st_size
        finally:
            os.close(fd)

    do_write_again = do_write

    def do_keep_open(self, luck, path, _, opened):
        fd = os.open(path, os.O_RDWR | os.O_CREAT)
        where = luck.randrange(4)
        if where in opened:
            os.close(opened[where])
        opened[where] = fd

    def do_write_kept(self, luck, path, _, opened):
        fd = opened.get(luck.randrange(4))
        return fd is not None and (os.pwrite(fd, luck.randbytes(5000), luck.randrange(20_000)), os.fstat(fd).st_nlink)

    def do_read_kept(self, luck, path, _, opened):
        fd = opened.get(luck.randrange(4))
        return fd is not None and (os.pread(fd, 10_000, luck.randrange(20_000)), os.fstat(fd).st_size)

    def do_truncate(self, luck, path, _, opened):
        os.truncate(path, luck.choice([0, 10, 5000, 200_000]))

    def do_allocate(self, luck, path, _, opened):
        fd = os.open(path, os.O_RDWR)
        try:
            os.posix_fallocate(fd, luck.randrange(10_000), 1 + luck.randrange(50_000))
        finally:
            os.close(fd)

    def do_map(self, luck, path, _, opened):
        with open(path, "r+b") as file, contextlib.suppress(ValueError), mmap.mmap(file.fileno(), 0) as mapped:
            where = luck.randrange(len(mapped))
            mapped[where] ^= 0x55
            mapped.flush()
            return bytes(mapped[:5000])

    def do_rename(self, luck, path, second, opened):
        os.rename(path, second)

    do_rename_again = do_rename

    def do_exchange(self, luck, path, second, opened):
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.renameat2(-100, os.fsencode(path), -100, os.fsencode(second), luck.choice([1, 2])) != 0:
            raise OSError(ctypes.get_errno(), "renameat2")

    def do_unlink(self, luck, path, _, opened):
        os.unlink(path)

    def do_rmdir(self, luck, path, _, opened):
        os.rmdir(path)

    def do_mkdir(self, luck, path, _, opened):
        os.mkdir(path, 0o750)

    do_mkdir_again = do_mkdir

    def do_link(self, luck, path, second, opened):
        os.link(path, second)

    def do_symlink(self, luck, path, second, opened):
        os.symlink(second.name, path)

    def do_chmod(self, luck, path, _, opened):
        os.chmod(path, luck.choice([0o600, 0o644, 0o755]))

    def do_times(self, luck, path, _, opened):
        os.utime(path, ns=(1_700_000_000_123_456_789, luck.randrange(10**18)))
        return path.stat().st_mtime_ns

    def do_attribute(self, luck, path, _, opened):
        os.setxattr(path, "user.some", luck.randbytes(20))
        return os.listxattr(path), os.getxattr(path, "user.some")

    def do_sync(self, luck, path, _, opened):
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def do_list(self, luck, path, _, opened):
        return sorted(os.listdir(path))


@pytest.mark.parametrize("seed", range(6))
def test_random_deeds_do_to_the_target_what_they_do_to_a_folder(target, tmp_path, seed):
    plain = tmp_path / "plain"
    plain.mkdir()
    roots: list[tuple[Path, dict[int, int]]] = [(plain, {}), (target.path, {})]
    luck = random.Random(seed)
    for step in range(400):
        deed = Deeds(luck.randrange(10**9))
        plainly, here = (deed(root, opened) for root, opened in roots)
        # A descriptor's number differs, what is read through it does not.
        assert here == plainly, f"step {step}"
    for _, opened in roots:
        for fd in opened.values():
            os.close(fd)
    expected = picture(plain)
    assert picture(target.path) == expected
    assert picture(target.second) == expected
    assert {name: known[3] for name, known in picture(target.backing).items()} == {
        name: known[3] for name, known in expected.items()
    }


# --- what checkpoint software does -----------------------------------------------------------------------------------


def test_the_mount_names_its_type(target):
    line = next(line for line in Path("/proc/self/mountinfo").read_text().splitlines() if f" {target.path} " in line)
    assert line.partition(" - ")[2].split()[0] == "fuse.misbehaving"


@pytest.mark.parametrize("size", [512, 4096])
def test_direct_access_at_the_size_of_a_sector_and_appended_through_the_cache(target, size):
    page = mmap.mmap(-1, 8192)
    page[:] = os.urandom(8192)
    fd = os.open(target.path / "direct", os.O_RDWR | os.O_CREAT | os.O_DIRECT)
    written = sum(os.pwritev(fd, [memoryview(page)[at : at + size]], at) for at in range(0, 8192, size))
    assert written == 8192
    os.close(fd)
    with (target.path / "direct").open("ab") as file:
        file.write(b"appended")
    assert (target.path / "direct").read_bytes() == page[:] + b"appended"
    fd = os.open(target.path / "direct", os.O_RDONLY | os.O_DIRECT)
    again = mmap.mmap(-1, 8192)
    assert os.preadv(fd, [again], 0) == 8192
    assert again[:] == page[:]
    os.close(fd)


def test_mapped_bytes_are_those_of_the_file_shared_and_private(target):
    content = os.urandom(3_000_001)
    (target.path / "mapped").write_bytes(content)
    with (target.path / "mapped").open("r+b") as file:
        with mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE) as private:
            assert private[:] == content
            private[0] = content[0] ^ 1
        with mmap.mmap(file.fileno(), 0) as shared:
            assert shared[:] == content
            shared[1_000_000:1_000_003] = b"new"
            shared.flush()
    assert (target.second / "mapped").read_bytes() == content[:1_000_000] + b"new" + content[1_000_003:]


@pytest.mark.parametrize("offset", [2 * GIB, 4 * GIB, 2048 * GIB, 8192 * GIB])
def test_large_offsets(target, offset):
    with (target.path / "large").open("wb") as file:
        file.seek(offset)
        file.write(b"there")
        file.flush()
        os.fsync(file.fileno())
    with (target.second / "large").open("rb") as file:
        assert file.seek(0, os.SEEK_END) == offset + 5
        assert os.pread(file.fileno(), 10, offset) == b"there"
        assert os.pread(file.fileno(), 10, offset - 5) == bytes(5) + b"there"
        assert os.lseek(file.fileno(), 0, os.SEEK_DATA) > 0
    (target.path / "large").open("wb").close()


def test_every_one_of_many_names_is_listed_once(target):
    names = {f"shard-{number:05d}-of-02000" for number in range(2000)}
    for name in names:
        (target.path / name).touch()
    assert sorted(os.listdir(target.path)) == sorted(names)
    assert sorted(os.listdir(target.second)) == sorted(names)


def test_one_of_many_threads_creates_a_name(target):
    def make(where: Path) -> int:
        try:
            os.close(os.open(where, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            return 0
        return 1

    with ThreadPoolExecutor(8) as pool:
        for number in range(50):
            name = f"name-{number}"
            assert sum(pool.map(make, [target.path / name, target.second / name] * 4)) == 1


def test_a_lock_of_one_mount_locks_out_the_other_and_goes_with_its_process(target):
    path = target.path / "lock"
    path.touch()
    holder = (
        "import fcntl, sys; f = open(sys.argv[1]); fcntl.flock(f, fcntl.LOCK_EX); print('held', flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holder, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"held\n"
        with (target.second / "lock").open() as file:
            with pytest.raises(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            process.kill()
            fcntl.flock(file, fcntl.LOCK_EX)


def test_the_second_mount_sees_at_once_what_the_first_did(target):
    for number in range(30):
        content = os.urandom(1000 + number)
        (target.path / "new").write_bytes(content)
        os.replace(target.path / "new", target.path / "file")
        assert (target.second / "file").read_bytes() == content
        assert not (target.second / "new").exists()
        (target.path / "file").write_bytes(content[:10])
        assert (target.second / "file").stat().st_size == 10
        assert (target.second / "file").read_bytes() == content[:10]


@pytest.mark.thorough
@pytest.mark.usefixtures("mounted")  # it needs what this needs
def test_space_is_told_as_it_is_and_what_was_deleted_is_there_to_write_to(make_home, mount):
    with misbehaving(make_home("small"), second=True, backing=mount("tmpfs", 64)) as small:
        free = os.statvfs(small.path).f_bfree
        for number in range(3):
            ballast = small.path / f"ballast-{number}"
            write(ballast, bytes(40 << 20))
            sync_folder(small.path)
            assert (small.second / ballast.name).stat().st_size == 40 << 20
            assert free - os.statvfs(small.path).f_bfree == (40 << 20) // 4096
            ballast.unlink()
            assert os.statvfs(small.second).f_bfree == free


def test_many_files_at_once_are_read_as_they_were_written(target):
    def write_and_read(number: int) -> bool:
        content = random.Random(number).randbytes(3_000_000 + number)
        path = target.path / f"file-{number}"
        for _ in range(3):
            path.write_bytes(content)
            if path.read_bytes() != content:
                return False
        return True

    with ThreadPoolExecutor(12) as pool:
        assert all(pool.map(write_and_read, range(24)))


def test_a_file_that_is_replaced_all_the_time_is_always_there_and_whole(target):
    contents = [bytes([number]) * 5000 for number in range(100)]
    (target.path / "file").write_bytes(contents[0])

    def replace() -> None:
        for content in contents * 3:
            (target.path / "tmp").write_bytes(content)
            os.replace(target.path / "tmp", target.path / "file")

    with ThreadPoolExecutor(3) as pool:
        replacing = pool.submit(replace)

        def watch(path: Path) -> int:
            looks = 0
            while not replacing.done():
                assert path.read_bytes() in contents
                looks += 1
            return looks

        watching = [pool.submit(watch, root / "file") for root in (target.path, target.second)]
        replacing.result()
        assert all(one.result() for one in watching)


# --- power cuts ------------------------------------------------------------------------------------------------------


def write(path: Path, content: bytes, sync: bool = True) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        if sync:
            os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(fd)
    os.close(fd)


def test_a_power_cut_keeps_what_was_fsynced_and_takes_the_rest(target):
    kept = os.urandom(2_000_000)
    write(target.path / "kept", kept)
    write(target.path / "replaced", b"old")
    write(target.path / "unlinked", b"still there")
    sync_folder(target.path)
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


def test_a_commit_by_rename_survives_a_power_cut_once_its_folder_is_fsynced(target):
    (target.path / "checkpoint.partial").mkdir()
    write(target.path / "checkpoint.partial" / "shard", b"shard")
    sync_folder(target.path / "checkpoint.partial")
    os.rename(target.path / "checkpoint.partial", target.path / "checkpoint")
    target.power_cut()
    assert os.listdir(target.path) == ["checkpoint.partial"]
    os.rename(target.path / "checkpoint.partial", target.path / "checkpoint")
    sync_folder(target.path)
    target.power_cut()
    assert (target.second / "checkpoint" / "shard").read_bytes() == b"shard"


def test_bytes_that_were_not_fsynced_go_even_if_their_name_is_durable(target):
    write(target.path / "file", b"bytes", sync=False)
    sync_folder(target.path)
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
    sync_folder(target.path)
    # Until that is durable, the target keeps the link, and counts what it takes.
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
        Deeds(luck.randrange(10**9))(target.path, opened)
    for path in [target.path, *target.path.rglob("*")]:
        if path.is_dir() or (path.is_file() and not path.is_symlink()):
            sync_folder(path) if path.is_dir() else write_through(path)
    before = picture(target.path)
    deeds = [deed for deed in (Deeds(luck.randrange(10**9)) for _ in range(300)) if not syncs(deed)]
    for deed in deeds:
        deed(target.path, opened)
    assert picture(target.path) != before
    for fd in opened.values():
        os.close(fd)
    target.power_cut()
    after = picture(target.path)
    assert without_modes(after) == without_modes(before)


def write_through(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def syncs(deed: Deeds) -> bool:
    luck = random.Random(deed.seed)
    return luck.choice([name for name in sorted(vars(Deeds)) if name.startswith("do_")]) in ("do_sync", "do_map")


def without_modes(seen: dict[str, object]) -> dict[str, object]:
    """Leave out what a power cut does not take: permissions."""
    return {name: known[1:] for name, known in seen.items()}


# --- the process -----------------------------------------------------------------------------------------------------


def mounts_below(folder: Path) -> list[str]:
    return [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(folder) in line]


@pytest.mark.usefixtures("mounted")  # it needs what this needs
def test_nothing_is_left_mounted_when_a_test_dies(make_home):
    home = make_home("dies")
    program = (
        "import os, sys; from pathlib import Path; from misbehaving import misbehaving\n"
        "with misbehaving(Path(sys.argv[1]), second=True) as target: os.kill(os.getpid(), 9)"
    )
    here = Path(__file__).parent
    subprocess.run([sys.executable, "-c", program, str(home)], cwd=here, check=False)
    eventually(lambda: not mounts_below(home), "both mounts are gone")


@pytest.mark.usefixtures("mounted")
def test_nothing_is_left_mounted_when_the_target_dies(make_home):
    home = make_home("killed")

    def kill_it() -> None:
        with misbehaving(home) as short:
            assert mounts_below(home)
            os.kill(short.pid, 9)
            eventually(lambda: not mounts_below(home), "the guard has unmounted")

    with pytest.raises(ConnectionError):
        kill_it()
    shutil.rmtree(home)


def test_every_fault_has_a_sentence_and_says_where_it_acts():
    for name, fault in FAULTS.items():
        assert fault.name == name
        assert fault.sentence.endswith("."), name
        assert fault.operations or fault.keeps_the_power, name


def test_an_unknown_fault_and_an_unknown_parameter_are_errors(target):
    with pytest.raises(ValueError, match="no fault 'flippd'"):
        target.fault("flippd")
    with pytest.raises(ValueError, match="no parameter 'speed'"):
        target.fault("slow", speed=1)
