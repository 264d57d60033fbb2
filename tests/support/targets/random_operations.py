"""Random file operations that must have the same effect on a target and on an ordinary directory."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import random
import stat
from pathlib import Path

NAMES = ["a", "b", "c", "d", "sub", "sub/a", "sub/b", "sub/deep", "sub/deep/a", "other", "other/b"]


def picture(directory: Path) -> dict[str, object]:
    """Return {relative path: (mode, number of links, size, content)} of everything below a directory."""
    found: dict[str, object] = {}
    for path in sorted(directory.rglob("*")):
        seen = path.lstat()
        content: object = None
        if stat.S_ISLNK(seen.st_mode):
            content = os.readlink(path)
        elif stat.S_ISREG(seen.st_mode):
            content = path.read_bytes()
        links = seen.st_nlink if stat.S_ISREG(seen.st_mode) else None
        size = seen.st_size if stat.S_ISREG(seen.st_mode) else None
        found[str(path.relative_to(directory))] = (oct(seen.st_mode), links, size, content)
    return found


class RandomOperation:
    """One random file operation. The same seed gives the same operation in every directory."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def __call__(self, root: Path, opened: dict[int, int]) -> object:
        """Perform the operation below ``root``; return its name, together with its result or the name of its error.

        ``opened`` contains the file descriptors that earlier operations keep open.
        """
        luck = random.Random(self.seed)
        operation = luck.choice([name for name in sorted(vars(type(self))) if name.startswith("do_")])
        first, second = (root / luck.choice(NAMES) for _ in range(2))
        try:
            return operation, getattr(self, operation)(luck, first, second, opened)
        except OSError as error:
            return operation, errno.errorcode[error.errno]

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

    def do_open(self, luck, path, _, opened):
        fd = os.open(path, os.O_RDWR | os.O_CREAT)
        where = luck.randrange(4)
        if where in opened:
            os.close(opened[where])
        opened[where] = fd

    def do_write_open(self, luck, path, _, opened):
        fd = opened.get(luck.randrange(4))
        return fd is not None and (os.pwrite(fd, luck.randbytes(5000), luck.randrange(20_000)), os.fstat(fd).st_nlink)

    def do_read_open(self, luck, path, _, opened):
        fd = opened.get(luck.randrange(4))
        return fd is not None and (os.pread(fd, 10_000, luck.randrange(20_000)), os.fstat(fd).st_size)

    def do_truncate(self, luck, path, _, opened):
        os.truncate(path, luck.choice([0, 10, 5000, 200_000]))

    def do_copy(self, luck, path, second, opened):
        with open(path, "rb") as source, open(second, "r+b") as copy:
            return os.copy_file_range(
                source.fileno(), copy.fileno(), luck.choice([1, 5000, 100_000]), luck.choice([0, 4095]), 0
            )

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
