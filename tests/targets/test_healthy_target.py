"""The healthy FUSE target behaves like an ordinary directory, and is unmounted when it ends."""

from __future__ import annotations

import fcntl
import mmap
import os
import random
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support import CHECKOUT
from tests.support.machine import eventually
from tests.support.targets.misbehaving import FAULTS, misbehaving
from tests.support.targets.random_operations import RandomOperation, picture
from tests.support.targets.synced import sync_directory, write

GIB = 1 << 30


# --- a random comparison with a directory
# -------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_random_deeds_do_to_the_target_what_they_do_to_a_directory(target, tmp_path, seed):
    plain = tmp_path / "plain"
    plain.mkdir()
    roots: list[tuple[Path, dict[int, int]]] = [(plain, {}), (target.path, {})]
    luck = random.Random(seed)
    for step in range(400):
        deed = RandomOperation(luck.randrange(10**9))
        plainly, here = (deed(root, opened) for root, opened in roots)
        # The numbers of descriptors differ, but not the data that are read through them.
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


# --- calls of checkpoint software ------------------------------------------------------------------------------------


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
@pytest.mark.usefixtures("mounted")  # it needs the same privileges
def test_free_space_is_correct_and_deleted_space_is_usable(create_home, mount):
    with misbehaving(create_home("small"), second=True, backing=mount("tmpfs", 64)) as small:
        free = os.statvfs(small.path).f_bfree
        for number in range(3):
            ballast = small.path / f"ballast-{number}"
            write(ballast, bytes(40 << 20))
            sync_directory(small.path)
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


def test_a_file_that_is_replaced_all_the_time_is_always_there_and_complete(target):
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


# --- the process -----------------------------------------------------------------------------------------------------


def mounts_below(directory: Path) -> list[str]:
    return [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(directory) in line]


@pytest.mark.usefixtures("mounted")  # it needs the same privileges
def test_nothing_is_left_mounted_when_a_test_dies(create_home):
    home = create_home("dies")
    program = (
        "import os, sys; from pathlib import Path; from tests.support.targets.misbehaving import misbehaving\n"
        "with misbehaving(Path(sys.argv[1]), second=True) as target: os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", program, str(home)], cwd=CHECKOUT, check=False).returncode == -9
    eventually(lambda: not mounts_below(home), "both mounts are gone")


@pytest.mark.usefixtures("mounted")
def test_nothing_is_left_mounted_when_the_target_dies(create_home):
    home = create_home("killed")

    def kill_it() -> None:
        with misbehaving(home) as short:
            assert mounts_below(home)
            os.kill(short.pid, 9)
            eventually(lambda: not mounts_below(home), "the guard has unmounted")

    with pytest.raises(ConnectionError):
        kill_it()
    shutil.rmtree(home)


def test_every_fault_has_a_description_and_a_place():
    for name, fault in FAULTS.items():
        assert fault.name == name
        assert fault.sentence.endswith("."), name
        assert fault.operations or fault.ignores_power_cut, name


def test_an_unknown_fault_and_an_unknown_parameter_are_errors(target):
    with pytest.raises(ValueError, match="no fault 'flippd'"):
        target.fault("flippd")
    with pytest.raises(ValueError, match="no parameter 'speed'"):
        target.fault("slow", speed=1)
