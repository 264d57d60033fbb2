"""Faults that refuse calls or report wrong values have the described effect. After `clear` they have no effect."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os

from tests.support.targets.faulty import CONTENT, MIB, fails_with, with_faults, write
from tests.support.targets.fuse_volatile import allocate

# --- errors ----------------------------------------------------------------------------------------------------------


@with_faults("no O_DIRECT")
def test_direct_access_is_refused(faulty, target, fault):
    write(target.path / "file", CONTENT)
    faulty(fault)
    for flags in (os.O_RDONLY, os.O_RDWR | os.O_CREAT):
        with fails_with(errno.EINVAL):
            os.open(target.path / ("new" if flags else "file"), flags | os.O_DIRECT)
    assert (target.path / "file").read_bytes() == CONTENT


@with_faults("no mmap")
def test_shared_mappings_are_refused(faulty, target, fault):
    write(target.path / "file", CONTENT)
    faulty(fault)
    with (target.path / "file").open("rb") as file, fails_with(errno.ENODEV):
        mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    assert (target.path / "file").read_bytes() == CONTENT


@with_faults("no symbolic links")
def test_symbolic_links_are_refused(faulty, target, fault):
    faulty(fault)
    with fails_with(errno.EPERM):
        (target.path / "link").symlink_to("file")


@with_faults("no hard links")
def test_hard_links_are_refused(faulty, target, fault):
    write(target.path / "file", CONTENT)
    faulty(fault)
    with fails_with(errno.EPERM):
        (target.path / "link").hardlink_to(target.path / "file")


@with_faults("no extended attributes")
def test_extended_attributes_are_refused(faulty, target, fault):
    write(target.path / "file", CONTENT)
    faulty(fault)
    with fails_with(errno.EOPNOTSUPP):
        os.setxattr(target.path / "file", "user.some", b"value")


@with_faults("extended attributes lose a byte")
def test_extended_attributes_come_back_cut(faulty, target, fault):
    write(target.path / "file", CONTENT)
    faulty(fault)
    os.setxattr(target.path / "file", "user.some", b"v" * 200)
    assert os.getxattr(target.path / "file", "user.some") == b"v" * 199
    os.setxattr(target.path / "file", "user.some", b"short")
    assert os.getxattr(target.path / "file", "user.some") == b"short"


@with_faults("no fallocate")
def test_fallocate_is_refused(faulty, target, fault):
    faulty(fault)
    with (target.path / "file").open("wb") as file, fails_with(errno.EOPNOTSUPP):
        allocate(file.fileno(), 0, 0, 100)  # posix_fallocate would write zeros instead


@with_faults("flock refuses a free lock")
def test_no_process_gets_the_lock(faulty, target, fault):
    (target.path / "lock").touch()
    faulty(fault)
    with (target.path / "lock").open() as file:
        for mode in (fcntl.LOCK_EX, fcntl.LOCK_SH):
            with fails_with(errno.EAGAIN):
                fcntl.flock(file, mode | fcntl.LOCK_NB)
        fcntl.flock(file, fcntl.LOCK_UN)


@with_faults("flock locks nobody out")
def test_everybody_gets_the_lock(faulty, target, fault):
    (target.path / "lock").touch()
    faulty(fault)
    with (target.path / "lock").open() as one, (target.second / "lock").open() as other:
        fcntl.flock(one, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


# --- time and numbers ------------------------------------------------------------------------------------------------


@with_faults("statfs never changes")
def test_free_space_is_constant(faulty, target, fault):
    faulty(fault)
    before = os.statvfs(target.path)
    write(target.path / "file", bytes(4 * MIB), sync=True)
    assert os.statvfs(target.path) == before


@with_faults("mtime goes back")
def test_the_later_file_has_the_earlier_mtime(faulty, target, fault):
    faulty(fault)
    write(target.path / "one", b"x")
    os.utime(target.path / "one", ns=(0, 10**18))
    write(target.path / "two", b"x")
    os.utime(target.path / "two", ns=(0, 10**18 + 10**7))
    assert (target.path / "one").stat().st_mtime_ns > (target.path / "two").stat().st_mtime_ns


@with_faults("mtime is coarse")
def test_mtime_comes_in_steps(faulty, target, fault):
    faulty(fault)
    write(target.path / "one", b"x")
    assert (target.path / "one").stat().st_mtime_ns % (2 * 10**9) == 0
