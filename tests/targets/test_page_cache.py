"""The number of cached (resident) bytes of a file: the kernel calls cachestat and mincore must agree."""

from __future__ import annotations

import mmap
import os
import tempfile
from pathlib import Path

import pytest

from pytest_ckpt.targets.posix.page_cache import evict, find_cache_probe, resident_bytes
from pytest_ckpt.targets.posix.storage_stack import mount_of

# Other tests drop the caches of the whole machine.
pytestmark = pytest.mark.alone

GAUGES = ("cachestat", "mincore")
SIZE = (8 << 20) + 123


def write(directory, size=SIZE):
    path = directory / "file"
    with path.open("wb") as file:
        file.write(os.urandom(size))
        file.flush()
        os.fsync(file.fileno())
    return path


def drop(path):
    evict([path])
    if resident_bytes(path, "mincore")[0]:
        pytest.skip("this file system does not let go of pages when it is asked to")


@pytest.fixture
def on_disk(tmp_path):
    """Return an empty directory on a disk, where the kernel can drop pages; skip the test if there is no disk."""
    if mount_of(tmp_path.resolve()).file_system == "tmpfs":
        home = Path(tempfile.mkdtemp(prefix="ckpt-", dir="/var/tmp"))
        if mount_of(home).file_system == "tmpfs":
            home.rmdir()
            pytest.skip("every directory here is in memory")
        yield home
        for file in home.iterdir():
            file.unlink()
        home.rmdir()
    else:
        yield tmp_path


@pytest.fixture(params=GAUGES)
def probe(request, tmp_path):
    (tmp_path / "try").write_bytes(b"x")
    try:
        resident_bytes(tmp_path / "try", request.param)
    except OSError as error:
        pytest.skip(f"{request.param}: {error.strerror}")
    return request.param


def test_a_file_just_written_and_read_is_resident(on_disk, probe):
    path = write(on_disk)
    path.read_bytes()
    assert resident_bytes(path, probe) == (SIZE, SIZE)


def test_after_it_was_dropped_nothing_is_resident(on_disk, probe):
    path = write(on_disk)
    drop(path)
    assert resident_bytes(path, probe) == (0, SIZE)


def test_after_a_part_was_read_again_that_part_is_resident(on_disk, probe):
    path = write(on_disk)
    drop(path)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        os.pread(descriptor, 1 << 20, 4 << 20)
    finally:
        os.close(descriptor)
    assert resident_bytes(path, probe) == (1 << 20, SIZE)


@pytest.mark.parametrize("pages", [0, 1, 3, 64])
def test_both_cache_probes_agree_page_by_page(on_disk, pages):
    path = write(on_disk)
    drop(path)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        for number in range(pages):
            os.pread(descriptor, 1, number * 17 * mmap.PAGESIZE)
    finally:
        os.close(descriptor)
    try:
        by_cachestat = resident_bytes(path, "cachestat")
    except OSError as error:
        pytest.skip(f"cachestat: {error.strerror}")
    assert by_cachestat == resident_bytes(path, "mincore") == (pages * mmap.PAGESIZE, SIZE)


def test_dirty_pages_stay_until_they_are_synced(on_disk, probe):
    """Dropping the cache does not remove dirty pages, so an fsync is required first."""
    path = on_disk / "file"
    with path.open("wb") as file:
        file.write(os.urandom(SIZE))
        file.flush()
        evict([path])
        dirty = resident_bytes(path, probe)[0]
        os.fsync(file.fileno())
    if not dirty:
        pytest.skip("the kernel wrote them back by itself")
    drop(path)
    assert resident_bytes(path, probe) == (0, SIZE)


def test_in_memory_everything_is_resident_and_nothing_can_be_dropped(probe):
    if mount_of(Path("/dev/shm")).file_system != "tmpfs":
        pytest.skip("there is no file system in memory")
    with tempfile.TemporaryDirectory(prefix="ckpt-", dir="/dev/shm") as home:
        path = write(Path(home))
        evict([path])
        assert resident_bytes(path, probe) == (SIZE, SIZE)


def test_an_empty_file_has_nothing_to_be_resident(tmp_path, probe):
    (tmp_path / "empty").touch()
    assert resident_bytes(tmp_path / "empty", probe) == (0, 0)


def test_a_missing_file_is_an_error_and_not_zero(tmp_path, probe):
    with pytest.raises(FileNotFoundError):
        resident_bytes(tmp_path / "missing", probe)


def test_a_cache_probe_is_tried_before_it_is_believed_and_leaves_nothing(on_disk):
    assert find_cache_probe(on_disk) in {"cachestat", "mincore"}
    assert not any(on_disk.iterdir())


def test_cache_probes_that_see_nothing_are_not_believed(tmp_path, monkeypatch):
    monkeypatch.setattr("pytest_ckpt.targets.posix.page_cache.resident_bytes", lambda path, _: (0, path.stat().st_size))
    assert find_cache_probe(tmp_path) is None
    assert not any(tmp_path.iterdir())


def test_a_concurrent_drop_of_caches_does_not_disqualify_a_cache_probe(on_disk, monkeypatch):
    looks = []

    def dropped_at_first(path, probe):
        looks.append(probe)
        if len(looks) <= 2:
            evict([path])
        return resident_bytes(path, probe)

    monkeypatch.setattr("pytest_ckpt.targets.posix.page_cache.resident_bytes", dropped_at_first)
    assert find_cache_probe(on_disk) == looks[2]


def test_the_second_cache_probe_is_used_if_the_first_does_not_work(tmp_path, monkeypatch):
    def only_mincore(path, probe):
        if probe == "cachestat":
            raise OSError(38, "Function not implemented")
        return path.stat().st_size, path.stat().st_size

    monkeypatch.setattr("pytest_ckpt.targets.posix.page_cache.resident_bytes", only_mincore)
    assert find_cache_probe(tmp_path) == "mincore"


def test_the_file_for_the_trial_never_writes_over_another(tmp_path, monkeypatch):
    monkeypatch.setattr("pytest_ckpt.targets.posix.page_cache.own_name", lambda: "taken")
    (tmp_path / "canary-taken").write_text("mine")
    with pytest.raises(FileExistsError):
        find_cache_probe(tmp_path)


def test_two_pods_whose_processes_have_one_number_may_try_the_same_directory(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "getpid", lambda: 7)
    names = set()
    unlink = Path.unlink
    monkeypatch.setattr(Path, "unlink", lambda path, **how: names.add(path.name) or unlink(path, **how))
    for _ in range(2):
        find_cache_probe(tmp_path)
    assert len(names) == 2
