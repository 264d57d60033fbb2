"""The healthy file system: it forwards every call to a backing directory.

Its journal records the changes that are not durable, to simulate power cuts.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import stat
import time
from pathlib import Path
from typing import Any

from tests.support.targets.fuse_channel import Call
from tests.support.targets.fuse_nodes import Attributes, Handle, Node, Nodes
from tests.support.targets.fuse_volatile import KEEP_SIZE, PUNCH_HOLE, Volatile, allocate

_ZERO_RANGE = 0x10
_NOREPLACE, _EXCHANGE = 1, 2
_LOCK_POLL_SECONDS = 0.002
# The answer to a request to copy has 32 bits for the number of bytes.
_MAXIMUM_COPY_BYTES = 1 << 30
_FLAGS_OF_THE_CLIENT = os.O_APPEND | os.O_DIRECT | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_NOATIME
_STATVFS = (
    "f_bsize", "f_frsize", "f_blocks", "f_bfree", "f_bavail", "f_files", "f_ffree", "f_favail", "f_flag", "f_namemax",
)  # fmt: skip
_libc = ctypes.CDLL(None, use_errno=True)

Listing = list[tuple[bytes, int, int]]


class Passthrough:
    """The file system of all mounts, on one backing directory. Its methods are the operations that a session calls."""

    def __init__(self, directory: Path) -> None:
        self.files, attic = directory / "files", directory / "attic"
        for path in (self.files, attic):
            path.mkdir(parents=True, exist_ok=True)
        self.nodes = Nodes(self.files)
        self.volatile = self.journal(attic)

    def journal(self, attic: Path) -> Volatile:
        """Create the journal of changes that are not durable. ``attic`` is the directory for removed files."""
        return Volatile(self.nodes, attic)

    def cut(self) -> None:
        """Discard the data that are not durable, as in a power cut. Call it after the last unmount."""
        self.volatile.cut()
        self.close()

    def close(self) -> None:
        """Keep all data, and close the file system. Call it after the last unmount."""
        self.volatile.close()
        self.nodes.close()

    # --- names -------------------------------------------------------------------------------------------------------

    def lookup(self, call: Call, parent: Node, name: bytes) -> Node:
        return self.nodes.find(parent, name)

    def create(self, call: Call, parent: Node, name: bytes, flags: int, mode: int) -> tuple[Node, Handle]:
        with self.volatile.names:
            try:
                os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, stat.S_IMODE(mode), dir_fd=parent.fd))
            except FileExistsError:
                if flags & os.O_EXCL:
                    raise
                node = self.nodes.find(parent, name)
            else:
                node = self._created(call, parent, name)
        try:
            return node, self.open(call, node, flags)
        except OSError:
            self.nodes.unpin(node)
            raise

    def _created(self, call: Call, parent: Node, name: bytes) -> Node:
        node = self.nodes.find(parent, name)
        if call.uid or call.gid:
            os.chown(name, call.uid, call.gid, dir_fd=parent.fd, follow_symlinks=False)
        self.volatile.created(parent, name, node)
        return node

    def mkdir(self, call: Call, parent: Node, name: bytes, mode: int) -> Node:
        with self.volatile.names:
            os.mkdir(name, stat.S_IMODE(mode), dir_fd=parent.fd)
            return self._created(call, parent, name)

    def mknod(self, call: Call, parent: Node, name: bytes, mode: int, device: int) -> Node:
        with self.volatile.names:
            os.mknod(name, mode, device, dir_fd=parent.fd)
            return self._created(call, parent, name)

    def symlink(self, call: Call, parent: Node, name: bytes, content: bytes) -> Node:
        with self.volatile.names:
            os.symlink(content, name, dir_fd=parent.fd)
            return self._created(call, parent, name)

    def link(self, call: Call, parent: Node, name: bytes, node: Node) -> Node:
        with self.volatile.names:
            with self.nodes.at(node) as path:
                os.link(path, name, dst_dir_fd=parent.fd, follow_symlinks=True)
            self.volatile.created(parent, name, node, is_new=False)
            return self.nodes.pin(node)

    def unlink(self, call: Call, parent: Node, name: bytes) -> None:
        with self.volatile.names, self.volatile.removing(parent, name):
            os.unlink(name, dir_fd=parent.fd)

    def rmdir(self, call: Call, parent: Node, name: bytes) -> None:
        with self.volatile.names, self.volatile.removing(parent, name):
            os.rmdir(name, dir_fd=parent.fd)

    def rename(self, call: Call, old: Node, old_name: bytes, new: Node, new_name: bytes, flags: int) -> None:
        places = (old, old_name), (new, new_name)

        def move() -> None:
            words = (old.fd, old_name, new.fd, new_name, flags)
            if _libc.renameat2(*words) != 0:
                raise OSError(ctypes.get_errno(), "rename")

        with self.volatile.names:
            same = flags == 0 and self._is_same_file(*places)
            with contextlib.nullcontext() if flags or same else self.volatile.removing(new, new_name):
                move()
            if not same:  # the rename of one name over another of the same file does nothing
                self.volatile.renamed(*places, move if flags & _EXCHANGE else None)

    def _is_same_file(self, *places: tuple[Node, bytes]) -> bool:
        with contextlib.suppress(FileNotFoundError):
            return os.path.samestat(*(os.stat(name, dir_fd=at.fd, follow_symlinks=False) for at, name in places))
        return False

    def readlink(self, call: Call, node: Node) -> bytes:
        with self.nodes.at(node) as path:
            return os.readlink(b"", dir_fd=int(path.rpartition("/")[2]))

    def opendir(self, call: Call, node: Node) -> Handle:
        return Handle(node, self.nodes.open(node, os.O_RDONLY | os.O_DIRECTORY), 0, is_directory=True)

    def list(self, call: Call, handle: Handle) -> Listing:
        """Return (name, inode number, file type) of all entries."""
        with os.scandir(handle.fd) as found:
            return [(os.fsencode(entry.name), entry.inode(), _kind(entry)) for entry in found]

    # --- attributes -------------------------------------------------------------------------------------

    def attributes(self, call: Call, node: Node) -> Attributes:
        seen = self.nodes.stat(node)
        return Attributes(
            seen.st_ino, seen.st_size, seen.st_blocks, seen.st_atime_ns, seen.st_mtime_ns, seen.st_ctime_ns,
            seen.st_mode, max(0, seen.st_nlink - node.kept_links), seen.st_uid, seen.st_gid, seen.st_rdev,
            seen.st_blksize,
        )  # fmt: skip

    def change(
        self,
        call: Call,
        node: Node,
        mode: int | None = None,
        owner: tuple[int, int] | None = None,
        times: tuple[Any, Any] | None = None,
    ) -> None:
        """Change mode, owner and times; None keeps a value. A time is in nanoseconds, or ``now``."""
        with self.nodes.at(node) as path:
            if owner is not None:
                os.chown(path, *owner)
            if mode is not None:
                os.chmod(path, stat.S_IMODE(mode))
            if times is not None:
                seen, now = os.stat(path), time.time_ns()
                given = zip(times, (seen.st_atime_ns, seen.st_mtime_ns), strict=True)
                os.utime(path, ns=tuple(now if new == "now" else old if new is None else new for new, old in given))

    def statfs(self, call: Call, node: Node) -> os.statvfs_result:
        seen = os.statvfs(self.files)
        kept = self.volatile.attic_bytes() // seen.f_frsize
        if not kept:
            return seen
        free = {"f_bfree": seen.f_bfree + kept, "f_bavail": seen.f_bavail + kept}
        return os.statvfs_result([free.get(name, getattr(seen, name)) for name in _STATVFS])

    def getxattr(self, call: Call, node: Node, name: bytes) -> bytes:
        with self.nodes.at(node) as path:
            return os.getxattr(path, name)

    def setxattr(self, call: Call, node: Node, name: bytes, value: bytes, flags: int) -> None:
        with self.nodes.at(node) as path:
            os.setxattr(path, name, value, flags)

    def listxattr(self, call: Call, node: Node) -> bytes:
        with self.nodes.at(node) as path:
            return b"".join(os.fsencode(name) + b"\0" for name in os.listxattr(path))

    def removexattr(self, call: Call, node: Node, name: bytes) -> None:
        with self.nodes.at(node) as path:
            os.removexattr(path, name)

    # --- bytes -------------------------------------------------------------------------------------------------------

    def open(self, call: Call, node: Node, flags: int) -> Handle:
        if flags & os.O_TRUNC:
            self.volatile.before_change(node, 0)
        # O_APPEND is removed, because the kernel sets the offset. Write-only files are also opened for reads by the
        # volatile layer.
        mode = os.O_RDONLY if flags & os.O_ACCMODE == os.O_RDONLY else os.O_RDWR
        kept = flags & ~(_FLAGS_OF_THE_CLIENT | os.O_ACCMODE)
        return Handle(node, self.nodes.open(node, kept | mode), flags)

    def read(self, call: Call, handle: Handle, offset: int, size: int) -> memoryview:
        return call.buffer[: os.preadv(handle.fd, [call.buffer[:size]], offset)]

    def write(self, call: Call, handle: Handle, offset: int, data: memoryview) -> int:
        self.volatile.before_change(handle.node, offset, offset + len(data))
        done = 0
        while done < len(data):
            try:
                done += os.pwrite(handle.fd, data[done:], offset + done)
            except OSError as error:
                # Like a real file system, commit the journal to free the space of removed files, and try again.
                if error.errno in (errno.ENOSPC, errno.EDQUOT) and self.volatile.attic_bytes():
                    self.volatile.sync_names()
                elif not done:
                    raise
                else:
                    break
        if handle.flags & os.O_DSYNC:
            self.fsync(call, handle)
        return done

    def truncate(self, call: Call, node: Node, size: int) -> None:
        self.volatile.before_change(node, size)
        with self.nodes.at(node) as path:
            os.truncate(path, size)

    def fallocate(self, call: Call, handle: Handle, offset: int, length: int, mode: int) -> None:
        if mode & ~(KEEP_SIZE | PUNCH_HOLE | _ZERO_RANGE):
            raise OSError(errno.EOPNOTSUPP, "a mode of fallocate that is not supported")
        self.volatile.before_change(handle.node, offset, offset + length)
        allocate(handle.fd, mode, offset, length)

    def seek(self, call: Call, handle: Handle, offset: int, whence: int) -> int:
        return os.lseek(handle.fd, offset, whence)

    def copy(self, call: Call, source: Handle, offset: int, target: Handle, target_offset: int, length: int) -> int:
        """Copy bytes from one file into another; return the number of copied bytes."""
        length = min(length, _MAXIMUM_COPY_BYTES)
        self.volatile.before_change(target.node, target_offset, target_offset + length)
        return os.copy_file_range(source.fd, target.fd, length, offset, target_offset)

    def flush(self, call: Call, handle: Handle) -> None:
        os.close(os.dup(handle.fd))  # report errors of the backing file system at close

    def fsync(self, call: Call, handle: Handle) -> None:
        self.sync_bytes(call, handle)
        self.sync_names(call, handle)

    def sync_bytes(self, call: Call, handle: Handle) -> None:
        """Make the data of one file durable, but not its name."""
        os.fsync(handle.fd)
        self.volatile.sync_bytes(handle.node)

    def sync_names(self, call: Call, handle: Handle) -> None:
        """Make all changes of names durable, in every directory."""
        self.volatile.sync_names()

    def fsyncdir(self, call: Call, handle: Handle) -> None:
        os.fsync(handle.fd)
        self.sync_names(call, handle)

    def flock(self, call: Call, handle: Handle, wanted: int, wait: bool) -> None:
        """Lock the file for all mounts. An interrupt of the caller ends the wait with EINTR."""
        while True:
            try:
                return fcntl.flock(handle.fd, wanted | fcntl.LOCK_NB)
            except BlockingIOError:
                if not wait:
                    raise
            if call.interrupted:
                raise InterruptedError(errno.EINTR, "interrupted")
            time.sleep(_LOCK_POLL_SECONDS)


def _kind(entry: os.DirEntry[str]) -> int:
    if entry.is_symlink():
        return stat.S_IFLNK
    if entry.is_dir(follow_symlinks=False):
        return stat.S_IFDIR
    return stat.S_IFREG if entry.is_file(follow_symlinks=False) else stat.S_IFCHR
