"""Implements the FUSE protocol (linux/fuse.h, 7.38) on /dev/fuse, with only the standard library.

A session is one mount. Its threads read requests, call the file system, and write the results. The file system is a
function ``run(operation, call, *arguments)`` that raises OSError on failure.
"""

from __future__ import annotations

import errno
import fcntl
import functools
import mmap
import struct
from collections.abc import Callable
from typing import Any

from tests.support.targets.fuse_channel import MAXIMUM_WRITE_BYTES, PRIMER, Call, Channel
from tests.support.targets.fuse_messages import CHANGED, REQUEST, WANTED, NoAnswerError, directory_entry, sized


class Session(Channel):
    """One mount: decodes requests, and passes them to a file system."""

    def operation(self, opcode: int) -> Callable[[Call, int, Any], Any] | None:
        """Return the method for this opcode of the FUSE protocol; None if the opcode is not supported."""
        function = _OPERATIONS.get(opcode)
        return function and functools.partial(function, self)

    def _init(self, call: Call, number: int, data: bytes) -> tuple[bytes]:
        _, minor, readahead, offered = struct.unpack_from("<4I", data)
        pages = MAXIMUM_WRITE_BYTES // mmap.PAGESIZE
        numbers = (7, min(minor, 38), readahead, offered & WANTED, 64, 48, MAXIMUM_WRITE_BYTES, 1, pages, 0, 0)
        return (struct.pack("<4I2H2I2HI28x", *numbers),)

    def _lookup(self, call: Call, number: int, data: bytes) -> tuple[bytes]:
        name = data[:-1]
        if name == PRIMER and not self.takes_interrupts:
            self.primer_asks.set()
            self.refused.wait()
            raise FileNotFoundError(errno.ENOENT, "only asked for to be interrupted")
        return (self.entry(call, self.run("lookup", call, self.node(number), name)),)

    def _forget(self, call: Call, number: int, data: bytes) -> tuple[bytes]:
        self.forget(number, struct.unpack("<Q", data)[0])
        raise NoAnswerError

    def _batch_forget(self, call: Call, number: int, data: bytes) -> tuple[bytes]:
        for one, count in struct.iter_unpack("<QQ", data[8:]):
            self.forget(one, count)
        raise NoAnswerError

    def _getattr(self, call: Call, number: int, data: bytes) -> tuple[bytes]:
        return self.attributes(call, self.node(number))

    def _setattr(self, call: Call, number: int, data: bytes) -> tuple[bytes]:
        valid, _, _, size, _, atime, mtime, _, atime_ns, mtime_ns, _, mode, _, uid, gid, _ = struct.unpack(
            "<II6Q8I", data
        )
        node = self.node(number)
        asked = {name for name, bit in CHANGED.items() if valid & bit}
        if "size" in asked:
            self.run("truncate", call, node, size)
        change: dict[str, Any] = {"mode": mode} if "mode" in asked else {}
        if asked & {"uid", "gid"}:
            change["owner"] = (uid if "uid" in asked else -1, gid if "gid" in asked else -1)
        if asked & {"atime", "mtime"}:
            given = [("atime", atime * 10**9 + atime_ns), ("mtime", mtime * 10**9 + mtime_ns)]
            change["times"] = tuple(
                "now" if f"{name}_now" in asked else value if name in asked else None for name, value in given
            )
        if change:
            self.run("change", call, node, **change)
        return self.attributes(call, node)

    def _readlink(self, call: Call, number: int, data: bytes) -> tuple[bytes]:
        return (self.run("readlink", call, self.node(number)),)

    def _symlink(self, call: Call, number: int, data: bytes) -> tuple[bytes]:
        name, content, _ = data.split(b"\0")
        return (self.entry(call, self.run("symlink", call, self.node(number), name, content)),)

    def _mknod(self, call: Call, number: int, data: bytes) -> tuple[bytes]:
        mode, device, _, _ = struct.unpack_from("<4I", data)
        return (self.entry(call, self.run("mknod", call, self.node(number), data[16:-1], mode, device)),)

    def _mkdir(self, call: Call, number: int, data: bytes) -> tuple[bytes]:
        mode = struct.unpack_from("<I", data)[0]
        return (self.entry(call, self.run("mkdir", call, self.node(number), data[8:-1], mode)),)

    def _unlink(self, call: Call, number: int, data: bytes) -> tuple[bytes, ...]:
        self.run("unlink", call, self.node(number), data[:-1])
        self.name_goes(call, number, data[:-1])
        return ()

    def _rmdir(self, call: Call, number: int, data: bytes) -> tuple[bytes, ...]:
        self.run("rmdir", call, self.node(number), data[:-1])
        self.name_goes(call, number, data[:-1])
        return ()

    def _rename(self, call: Call, number: int, data: bytes) -> tuple[bytes, ...]:
        return self._rename2(call, number, data[:8] + bytes(8) + data[8:])

    def _rename2(self, call: Call, number: int, data: bytes) -> tuple[bytes, ...]:
        target, flags, _ = struct.unpack_from("<QII", data)
        old, new, _ = data[16:].split(b"\0")
        self.run("rename", call, self.node(number), old, self.node(target), new, flags)
        self.name_goes(call, target, new)
        return ()

    def _link(self, call: Call, number: int, data: bytes) -> tuple[bytes]:
        node = self.node(struct.unpack_from("<Q", data)[0])
        return (self.entry(call, self.run("link", call, self.node(number), data[8:-1], node)),)

    def _open(self, call: Call, number: int, data: bytes) -> tuple[bytes]:
        flags = struct.unpack_from("<I", data)[0]
        return (self.remember(self.run("open", call, self.node(number), flags)),)

    def _create(self, call: Call, number: int, data: bytes) -> tuple[bytes, bytes]:
        flags, mode, _, _ = struct.unpack_from("<4I", data)
        node, handle = self.run("create", call, self.node(number), data[16:-1], flags, mode)
        return self.entry(call, node), self.remember(handle)

    def _opendir(self, call: Call, number: int, data: bytes) -> tuple[bytes]:
        return (self.remember(self.run("opendir", call, self.node(number))),)

    def _read(self, call: Call, number: int, data: bytes) -> tuple[memoryview]:
        fh, offset, size = struct.unpack_from("<QQI", data)
        return (self.run("read", call, self.handle(fh), offset, size),)

    def _write(self, call: Call, number: int, data: tuple[bytearray, memoryview]) -> tuple[bytes]:
        fh, offset, size = struct.unpack_from("<QQI", data[0], REQUEST.size)
        return (struct.pack("<II", self.run("write", call, self.handle(fh), offset, data[1][:size]), 0),)

    def _statfs(self, call: Call, number: int, data: bytes) -> tuple[bytes]:
        seen = self.run("statfs", call, self.node(number))
        counts = (seen.f_blocks, seen.f_bfree, seen.f_bavail, seen.f_files, seen.f_ffree)
        return (struct.pack("<5Q4I24x", *counts, seen.f_bsize, seen.f_namemax, seen.f_frsize, 0),)

    def _flush(self, call: Call, number: int, data: bytes) -> tuple[bytes, ...]:
        self.run("flush", call, self.handle(struct.unpack_from("<Q", data)[0]))
        return ()

    def _release(self, call: Call, number: int, data: bytes) -> tuple[bytes, ...]:
        self.handles.pop(struct.unpack_from("<Q", data)[0]).close()
        return ()

    def _fsync(self, call: Call, number: int, data: bytes) -> tuple[bytes, ...]:
        self.run("fsync", call, self.handle(struct.unpack_from("<Q", data)[0]))
        return ()

    def _fsyncdir(self, call: Call, number: int, data: bytes) -> tuple[bytes, ...]:
        self.run("fsyncdir", call, self.handle(struct.unpack_from("<Q", data)[0]))
        return ()

    def _readdir(self, call: Call, number: int, data: bytes) -> tuple[bytes]:
        fh, offset, size = struct.unpack_from("<QQI", data)
        handle = self.handle(fh)
        if offset == 0 or handle.listing is None:
            found = self.run("list", call, handle)
            handle.listing = [directory_entry(place, *entry) for place, entry in enumerate(found, 1)]
        full, end = 0, offset
        while end < len(handle.listing) and full + len(handle.listing[end]) <= size:
            full += len(handle.listing[end])
            end += 1
        return (b"".join(handle.listing[offset:end]),)

    def _setxattr(self, call: Call, number: int, data: bytes) -> tuple[bytes, ...]:
        size, flags = struct.unpack_from("<II", data)
        name, _, value = data[8:].partition(b"\0")
        self.run("setxattr", call, self.node(number), name, value[:size], flags)
        return ()

    def _getxattr(self, call: Call, number: int, data: bytes) -> tuple[bytes]:
        return sized(self.run("getxattr", call, self.node(number), data[8:-1]), data)

    def _listxattr(self, call: Call, number: int, data: bytes) -> tuple[bytes]:
        return sized(self.run("listxattr", call, self.node(number)), data)

    def _removexattr(self, call: Call, number: int, data: bytes) -> tuple[bytes, ...]:
        self.run("removexattr", call, self.node(number), data[:-1])
        return ()

    def _lock_file(self, call: Call, number: int, data: bytes, wait: bool = False) -> tuple[bytes, ...]:
        fh, _, _, _, kind, _, _ = struct.unpack_from("<4Q3I", data)
        wanted = {fcntl.F_RDLCK: fcntl.LOCK_SH, fcntl.F_WRLCK: fcntl.LOCK_EX, fcntl.F_UNLCK: fcntl.LOCK_UN}[kind]
        self.run("flock", call, self.handle(fh), wanted, wait)
        return ()

    def _lock_file_wait(self, call: Call, number: int, data: bytes) -> tuple[bytes, ...]:
        return self._lock_file(call, number, data, wait=True)

    def _interrupt(self, call: Call, number: int, data: bytes) -> tuple[bytes, ...]:
        if not self.takes_interrupts:
            call.afterwards.append(self.refused.set)  # the interrupted request is still unanswered
            raise OSError(errno.ENOSYS, "interrupts are not served")
        self.interrupted.add(struct.unpack("<Q", data)[0])
        raise NoAnswerError

    def _fallocate(self, call: Call, number: int, data: bytes) -> tuple[bytes, ...]:
        fh, offset, length, mode, _ = struct.unpack("<3Q2I", data)
        self.run("fallocate", call, self.handle(fh), offset, length, mode)
        return ()

    def _lseek(self, call: Call, number: int, data: bytes) -> tuple[bytes]:
        fh, offset, whence, _ = struct.unpack("<QQII", data)
        return (struct.pack("<Q", self.run("seek", call, self.handle(fh), offset, whence)),)

    def _copy_file_range(self, call: Call, number: int, data: bytes) -> tuple[bytes]:
        fh, offset, _, target, target_offset, length, _ = struct.unpack("<7Q", data)
        done = self.run("copy", call, self.handle(fh), offset, self.handle(target), target_offset, length)
        return (struct.pack("<2I", done, 0),)


_OPERATIONS: dict[int, Callable[[Session, Call, int, Any], Any]] = {
    1: Session._lookup,
    2: Session._forget,
    3: Session._getattr,
    4: Session._setattr,
    5: Session._readlink,
    6: Session._symlink,
    8: Session._mknod,
    9: Session._mkdir,
    10: Session._unlink,
    11: Session._rmdir,
    12: Session._rename,
    13: Session._link,
    14: Session._open,
    15: Session._read,
    16: Session._write,
    17: Session._statfs,
    18: Session._release,
    20: Session._fsync,
    21: Session._setxattr,
    22: Session._getxattr,
    23: Session._listxattr,
    24: Session._removexattr,
    25: Session._flush,
    26: Session._init,
    27: Session._opendir,
    28: Session._readdir,
    29: Session._release,
    30: Session._fsyncdir,
    32: Session._lock_file,
    33: Session._lock_file_wait,
    35: Session._create,
    36: Session._interrupt,
    42: Session._batch_forget,
    43: Session._fallocate,
    45: Session._rename2,
    46: Session._lseek,
    47: Session._copy_file_range,
}
