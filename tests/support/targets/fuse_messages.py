"""The messages of FUSE (linux/fuse.h, 7.38): the binary format of requests and answers."""

from __future__ import annotations

import errno
import stat
import struct

from tests.support.targets.fuse_nodes import Attributes

# The size of fuse_in_header and fuse_write_in, which precede the data of a write; so the data are page-aligned.
HEAD_BYTES = 80
REQUEST = struct.Struct("<IIQQIIIHH")
ANSWER = struct.Struct("<IiQ")
_ATTRIBUTES = struct.Struct("<6Q10I")
ENTRY = struct.Struct("<4Q2I")
# The flags that INIT requests from the kernel.
_ASYNC_READ, _ATOMIC_O_TRUNC, _BIG_WRITES, _FLOCK_LOCKS = 1 << 0, 1 << 3, 1 << 5, 1 << 10
_AUTO_INVAL_DATA, _ASYNC_DIO, _PARALLEL_DIROPS = 1 << 12, 1 << 15, 1 << 18
_MAX_PAGES, _HANDLE_KILLPRIV_V2 = 1 << 22, 1 << 28
WANTED = (
    _ASYNC_READ
    | _ATOMIC_O_TRUNC
    | _BIG_WRITES
    | _FLOCK_LOCKS
    | _AUTO_INVAL_DATA
    | _ASYNC_DIO
    | _PARALLEL_DIROPS
    | _MAX_PAGES
    | _HANDLE_KILLPRIV_V2
)
OPEN_DIRECT_IO = 1 << 0
OPEN_KEEP_CACHE = 1 << 1
CHANGED = {"mode": 1, "uid": 2, "gid": 4, "size": 8, "atime": 16, "mtime": 32, "atime_now": 128, "mtime_now": 256}


class NoAnswerError(Exception):
    """Raised if the file system must send no answer to a request."""


def packed(known: Attributes) -> bytes:
    times = (known.atime_ns, known.mtime_ns, known.ctime_ns)
    return _ATTRIBUTES.pack(
        known.ino, known.size, known.blocks, *(t // 10**9 for t in times), *(t % 10**9 for t in times),
        known.mode, known.nlink, known.uid, known.gid, known.rdev, known.blksize, 0,
    )  # fmt: skip


def directory_entry(place: int, name: bytes, ino: int, mode: int) -> bytes:
    length = 24 + len(name)
    return struct.pack("<QQII", ino, place, len(name), stat.S_IFMT(mode) >> 12) + name + bytes(-length % 8)


def sized(value: bytes, data: bytes) -> tuple[bytes]:
    """Answer a query for the value of an extended attribute.

    If the caller's buffer is empty, the answer is the length of the value, and otherwise the value. Raises OSError
    (ERANGE) if the buffer is too small.
    """
    room = struct.unpack_from("<I", data)[0]
    if not room:
        return (struct.pack("<II", len(value), 0),)
    if len(value) > room:
        raise OSError(errno.ERANGE, "longer than asked for")
    return (value,)
