"""Speaks the kernel's side of FUSE (linux/fuse.h, 7.38) on /dev/fuse, with the standard library alone.

A session is one mount: threads that read requests, hand them as plain calls to a file system, and write what came back.
The file system is a function ``run(operation, call, *arguments)`` that raises OSError for what cannot be done.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import functools
import itertools
import mmap
import os
import stat
import struct
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.targets.fuse_nodes import Attributes, Handle, Node, Nodes

TYPE = "fuse.misbehaving"

_MAX_WRITE = 1 << 20
_HEAD_BYTES = 80  # fuse_in_header and fuse_write_in: what precedes the bytes of a write, which so lie on a page
_SPARE_THREADS, _MAXIMUM_THREADS = 16, 256
_IN = struct.Struct("<IIQQIIIHH")
_OUT = struct.Struct("<IiQ")
_ATTRIBUTES = struct.Struct("<6Q10I")
_ENTRY = struct.Struct("<4Q2I")
_PRIMER = b".interrupts-are-not-served"

# What the kernel is asked for in INIT.
_ASYNC_READ, _ATOMIC_O_TRUNC, _BIG_WRITES, _FLOCK_LOCKS = 1 << 0, 1 << 3, 1 << 5, 1 << 10
_AUTO_INVAL_DATA, _ASYNC_DIO, _PARALLEL_DIROPS = 1 << 12, 1 << 15, 1 << 18
_MAX_PAGES, _HANDLE_KILLPRIV_V2 = 1 << 22, 1 << 28
_WANTED = (
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
_FATTR = {"mode": 1, "uid": 2, "gid": 4, "size": 8, "atime": 16, "mtime": 32, "atime_now": 128, "mtime_now": 256}

_libc = ctypes.CDLL(None, use_errno=True)
MNT_FORCE, MNT_DETACH = 1, 2
_MS_NOSUID_NODEV = 2 | 4


class NoAnswerError(Exception):
    """The request is to get no answer."""


@dataclass(slots=True, eq=False)
class Call:
    """One request: who asks, through which mount, and where its bytes may be put."""

    session: Session
    unique: int
    pid: int
    uid: int
    gid: int
    buffer: memoryview
    answered: bool = False
    afterwards: list[Callable[[], None]] = field(default_factory=list)

    @property
    def client(self) -> int:
        """0 on the first mount, 1 on the second."""
        return self.session.client

    @property
    def interrupted(self) -> bool:
        return self.session.gone or self.unique in self.session.interrupted

    def acknowledge(self) -> None:
        """Answer with success now, though there is work left to do; only for requests whose answer is empty."""
        self.session.send(self, 0)


def unmount(mountpoint: Path) -> None:
    """Take a mount away at once: what waits in it gets an error, what still holds it open cannot go on."""
    while _libc.umount2(os.fsencode(mountpoint), MNT_FORCE | MNT_DETACH) == 0:
        pass


def _mount(mountpoint: Path) -> int:
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={device},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()},default_permissions,allow_other"
    words = (b"misbehaving", os.fsencode(mountpoint), TYPE.encode(), _MS_NOSUID_NODEV, options.encode())
    if _libc.mount(*words) != 0:
        number = ctypes.get_errno()
        os.close(device)
        raise OSError(number, os.strerror(number), str(mountpoint))
    return device


class Session:
    """A mount and the threads that serve it until it is gone."""

    def __init__(
        self,
        run: Callable[..., Any],
        nodes: Nodes,
        mountpoint: Path,
        client: int,
        open_flags: int,
        cache_seconds: float,
    ) -> None:
        self.client, self.mountpoint = client, mountpoint
        self.interrupted: set[int] = set()
        self.failures: list[str] = []
        self.gone = False
        self._takes_interrupts = True
        self._primer_asks, self._refused = threading.Event(), threading.Event()
        self.peers: list[Session] = []  # all mounts of the same folder
        self._run, self._nodes = run, nodes
        self._open_flags = open_flags
        self._valid = (int(cache_seconds), int(cache_seconds % 1 * 1e9))
        self._known: dict[int, list[Any]] = {nodes.root.id: [nodes.pin(nodes.root), 1]}
        self._handles: dict[int, Handle] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._idle = 0
        self._threads: set[threading.Thread] = set()
        self.device = _mount(mountpoint)
        self._start_thread()

    def unmount(self) -> None:
        """Give an error to all who wait, and take the mount away."""
        self.gone = True
        unmount(self.mountpoint)

    def end(self) -> None:
        """When it is unmounted, wait for what is under way, and forget all handles and nodes."""
        while threads := list(self._threads):
            for thread in threads:
                thread.join()
        os.close(self.device)
        for handle in self._handles.values():
            handle.close()
        for node, _ in self._known.values():
            self._nodes.unpin(node)
        self._known.clear()

    def invalidate(self) -> None:
        """Have the kernel drop the pages it keeps of every file."""
        for number in list(self._known):
            self.invalidate_node(number)

    def invalidate_node(self, number: int) -> None:
        """Have the kernel drop the pages of one file."""
        self._notify(2, struct.pack("<Qqq", number, 0, 0))

    def invalidate_name(self, number: int, name: bytes) -> None:
        """Have the kernel forget what a name in a folder leads to."""
        self._notify(3, struct.pack("<QII", number, len(name), 0) + name + b"\0")

    def _notify(self, code: int, body: bytes) -> None:
        with contextlib.suppress(OSError):  # the kernel has no such node any more
            os.write(self.device, _OUT.pack(_OUT.size + len(body), code, 0) + body)

    def _name_goes(self, call: Call, number: int, name: bytes) -> None:
        """When the call is answered, let the other mounts give back what they keep of a file that may be gone."""
        for peer in self.peers:
            if peer is not self:
                call.afterwards.append(functools.partial(peer.invalidate_name, number, name))

    def refuse_interrupts(self) -> None:
        """Have the tasks that wait here show as D: when the kernel sends an interrupt it learns that none is served."""
        if not self._takes_interrupts:
            return
        self._takes_interrupts = False
        name = os.fsencode(self.mountpoint) + b"/" + _PRIMER
        with subprocess.Popen(["stat", name], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as primer:
            self._primer_asks.wait()
            primer.terminate()

    # --- the loop ----------------------------------------------------------------------------------------------------

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._work, daemon=True)
        self._threads.add(thread)
        self._idle += 1
        thread.start()

    def _work(self) -> None:
        head, body = bytearray(_HEAD_BYTES), memoryview(mmap.mmap(-1, _MAX_WRITE + mmap.PAGESIZE))
        try:
            while (count := self._receive(head, body)) is not None:
                with self._lock:
                    self._idle -= 1
                    if not self._idle and len(self._threads) < _MAXIMUM_THREADS:
                        self._start_thread()
                self._answer(head, body, count)
                with self._lock:
                    if self._idle >= _SPARE_THREADS:
                        return
                    self._idle += 1
        finally:
            with self._lock:
                self._threads.discard(threading.current_thread())

    def _receive(self, head: bytearray, body: memoryview) -> int | None:
        while True:
            try:
                return os.readv(self.device, [head, body])
            except OSError as error:
                # ENOENT: the asker gave up while the request was handed over.
                if error.errno not in (errno.ENOENT, errno.EINTR, errno.EAGAIN):
                    return None

    def _answer(self, head: bytearray, body: memoryview, count: int) -> None:
        _, opcode, unique, number, uid, gid, pid, _, _ = _IN.unpack_from(head)
        call = Call(self, unique, pid, uid, gid, body)
        operation = _OPERATIONS.get(opcode)
        if operation is None:
            self.send(call, -errno.ENOSYS)
            return
        if opcode == _WRITE:
            data: Any = head, body[: count - _HEAD_BYTES]
        else:
            data = bytes(head[_IN.size : min(count, _HEAD_BYTES)]) + bytes(body[: max(count - _HEAD_BYTES, 0)])
        try:
            parts = operation(self, call, number, data)
        except NoAnswerError:
            return
        except OSError as error:
            if call.answered:  # nobody can be told any more
                self.failures.append(traceback.format_exc())
            self.send(call, -(error.errno or errno.EIO))
        except Exception:  # a fault of ours must not pass for one of the target
            self.failures.append(traceback.format_exc())
            print(self.failures[-1], file=sys.stderr, flush=True)
            self.send(call, -errno.EIO)
        else:
            self.send(call, 0, *parts)
        self.interrupted.discard(unique)
        for work in call.afterwards:
            work()

    def send(self, call: Call, error: int, *parts: Any) -> None:
        """Answer a request, once."""
        if call.answered:
            return
        call.answered = True
        # Only when the mount is gone does the kernel no longer want an answer; all is forgotten then anyway.
        with contextlib.suppress(OSError):
            os.writev(self.device, [_OUT.pack(_OUT.size + sum(map(len, parts)), error, call.unique), *parts])

    # --- what stands behind the numbers ------------------------------------------------------------------------------

    def _node(self, number: int) -> Node:
        return self._known[number][0]

    def _handle(self, number: int) -> Handle:
        return self._handles[number]

    def _remember(self, handle: Handle) -> bytes:
        number = next(self._numbers)
        self._handles[number] = handle
        flags = 0 if handle.is_folder else OPEN_DIRECT_IO if handle.bypasses_cache else self._open_flags
        return struct.pack("<QII", number, flags, 0)

    def _forget_one(self, number: int, count: int) -> None:
        with self._lock:
            known = self._known[number]
            known[1] -= count
            gone = known[1] <= 0 and number != self._nodes.root.id
            if gone:
                del self._known[number]
        if gone:
            self._nodes.unpin(known[0])

    def _entry(self, call: Call, node: Node) -> bytes:
        """Encode a node that was pinned for this answer."""
        with self._lock:
            known = self._known.setdefault(node.id, [node, 0])
            known[1] += 1
            again = known[1] > 1
        if again:
            self._nodes.unpin(node)
        attributes = _packed(self._run("attributes", call, node))
        seconds, nanoseconds = self._valid
        return _ENTRY.pack(node.id, 0, seconds, seconds, nanoseconds, nanoseconds) + attributes

    def _attributes(self, call: Call, node: Node) -> tuple[bytes]:
        return (struct.pack("<QII", *self._valid, 0) + _packed(self._run("attributes", call, node)),)

    # --- the requests ------------------------------------------------------------------------------------------------

    def _init(self, call: Call, number: int, data: bytes) -> tuple[bytes]:
        _, minor, readahead, offered = struct.unpack_from("<4I", data)
        pages = _MAX_WRITE // mmap.PAGESIZE
        numbers = (7, min(minor, 38), readahead, offered & _WANTED, 64, 48, _MAX_WRITE, 1, pages, 0, 0)
        return (struct.pack("<4I2H2I2HI28x", *numbers),)

    def _lookup(self, call: Call, number: int, data: bytes) -> tuple[bytes]:
        name = data[:-1]
        if name == _PRIMER and not self._takes_interrupts:
            self._primer_asks.set()
            self._refused.wait()
            raise FileNotFoundError(errno.ENOENT, "only asked for to be interrupted")
        return (self._entry(call, self._run("lookup", call, self._node(number), name)),)

    def _forget(self, call: Call, number: int, data: bytes) -> tuple[bytes]:
        self._forget_one(number, struct.unpack("<Q", data)[0])
        raise NoAnswerError

    def _batch_forget(self, call: Call, number: int, data: bytes) -> tuple[bytes]:
        for one, count in struct.iter_unpack("<QQ", data[8:]):
            self._forget_one(one, count)
        raise NoAnswerError

    def _getattr(self, call: Call, number: int, data: bytes) -> tuple[bytes]:
        return self._attributes(call, self._node(number))

    def _setattr(self, call: Call, number: int, data: bytes) -> tuple[bytes]:
        valid, _, _, size, _, atime, mtime, _, atime_ns, mtime_ns, _, mode, _, uid, gid, _ = struct.unpack(
            "<II6Q8I", data
        )
        node = self._node(number)
        asked = {name for name, bit in _FATTR.items() if valid & bit}
        if "size" in asked:
            self._run("truncate", call, node, size)
        change: dict[str, Any] = {"mode": mode} if "mode" in asked else {}
        if asked & {"uid", "gid"}:
            change["owner"] = (uid if "uid" in asked else -1, gid if "gid" in asked else -1)
        if asked & {"atime", "mtime"}:
            given = [("atime", atime * 10**9 + atime_ns), ("mtime", mtime * 10**9 + mtime_ns)]
            change["times"] = tuple(
                "now" if f"{name}_now" in asked else value if name in asked else None for name, value in given
            )
        if change:
            self._run("change", call, node, **change)
        return self._attributes(call, node)

    def _readlink(self, call: Call, number: int, data: bytes) -> tuple[bytes]:
        return (self._run("readlink", call, self._node(number)),)

    def _symlink(self, call: Call, number: int, data: bytes) -> tuple[bytes]:
        name, content, _ = data.split(b"\0")
        return (self._entry(call, self._run("symlink", call, self._node(number), name, content)),)

    def _mknod(self, call: Call, number: int, data: bytes) -> tuple[bytes]:
        mode, device, _, _ = struct.unpack_from("<4I", data)
        return (self._entry(call, self._run("mknod", call, self._node(number), data[16:-1], mode, device)),)

    def _mkdir(self, call: Call, number: int, data: bytes) -> tuple[bytes]:
        mode = struct.unpack_from("<I", data)[0]
        return (self._entry(call, self._run("mkdir", call, self._node(number), data[8:-1], mode)),)

    def _unlink(self, call: Call, number: int, data: bytes) -> tuple[bytes, ...]:
        self._run("unlink", call, self._node(number), data[:-1])
        self._name_goes(call, number, data[:-1])
        return ()

    def _rmdir(self, call: Call, number: int, data: bytes) -> tuple[bytes, ...]:
        self._run("rmdir", call, self._node(number), data[:-1])
        self._name_goes(call, number, data[:-1])
        return ()

    def _rename(self, call: Call, number: int, data: bytes) -> tuple[bytes, ...]:
        return self._rename2(call, number, data[:8] + bytes(8) + data[8:])

    def _rename2(self, call: Call, number: int, data: bytes) -> tuple[bytes, ...]:
        target, flags, _ = struct.unpack_from("<QII", data)
        old, new, _ = data[16:].split(b"\0")
        self._run("rename", call, self._node(number), old, self._node(target), new, flags)
        self._name_goes(call, target, new)
        return ()

    def _link(self, call: Call, number: int, data: bytes) -> tuple[bytes]:
        node = self._node(struct.unpack_from("<Q", data)[0])
        return (self._entry(call, self._run("link", call, self._node(number), data[8:-1], node)),)

    def _open(self, call: Call, number: int, data: bytes) -> tuple[bytes]:
        flags = struct.unpack_from("<I", data)[0]
        return (self._remember(self._run("open", call, self._node(number), flags)),)

    def _create(self, call: Call, number: int, data: bytes) -> tuple[bytes, bytes]:
        flags, mode, _, _ = struct.unpack_from("<4I", data)
        node, handle = self._run("create", call, self._node(number), data[16:-1], flags, mode)
        return self._entry(call, node), self._remember(handle)

    def _opendir(self, call: Call, number: int, data: bytes) -> tuple[bytes]:
        return (self._remember(self._run("opendir", call, self._node(number))),)

    def _read(self, call: Call, number: int, data: bytes) -> tuple[memoryview]:
        fh, offset, size = struct.unpack_from("<QQI", data)
        return (self._run("read", call, self._handle(fh), offset, size),)

    def _write(self, call: Call, number: int, data: tuple[bytearray, memoryview]) -> tuple[bytes]:
        fh, offset, size = struct.unpack_from("<QQI", data[0], _IN.size)
        return (struct.pack("<II", self._run("write", call, self._handle(fh), offset, data[1][:size]), 0),)

    def _statfs(self, call: Call, number: int, data: bytes) -> tuple[bytes]:
        seen = self._run("statfs", call, self._node(number))
        counts = (seen.f_blocks, seen.f_bfree, seen.f_bavail, seen.f_files, seen.f_ffree)
        return (struct.pack("<5Q4I24x", *counts, seen.f_bsize, seen.f_namemax, seen.f_frsize, 0),)

    def _flush(self, call: Call, number: int, data: bytes) -> tuple[bytes, ...]:
        self._run("flush", call, self._handle(struct.unpack_from("<Q", data)[0]))
        return ()

    def _release(self, call: Call, number: int, data: bytes) -> tuple[bytes, ...]:
        self._handles.pop(struct.unpack_from("<Q", data)[0]).close()
        return ()

    def _fsync(self, call: Call, number: int, data: bytes) -> tuple[bytes, ...]:
        self._run("fsync", call, self._handle(struct.unpack_from("<Q", data)[0]))
        return ()

    def _fsyncdir(self, call: Call, number: int, data: bytes) -> tuple[bytes, ...]:
        self._run("fsyncdir", call, self._handle(struct.unpack_from("<Q", data)[0]))
        return ()

    def _readdir(self, call: Call, number: int, data: bytes) -> tuple[bytes]:
        fh, offset, size = struct.unpack_from("<QQI", data)
        handle = self._handle(fh)
        if offset == 0 or handle.listing is None:
            found = self._run("list", call, handle)
            handle.listing = [_dirent(place, *entry) for place, entry in enumerate(found, 1)]
        full, end = 0, offset
        while end < len(handle.listing) and full + len(handle.listing[end]) <= size:
            full += len(handle.listing[end])
            end += 1
        return (b"".join(handle.listing[offset:end]),)

    def _setxattr(self, call: Call, number: int, data: bytes) -> tuple[bytes, ...]:
        size, flags = struct.unpack_from("<II", data)
        name, _, value = data[8:].partition(b"\0")
        self._run("setxattr", call, self._node(number), name, value[:size], flags)
        return ()

    def _getxattr(self, call: Call, number: int, data: bytes) -> tuple[bytes]:
        return _sized(self._run("getxattr", call, self._node(number), data[8:-1]), data)

    def _listxattr(self, call: Call, number: int, data: bytes) -> tuple[bytes]:
        return _sized(self._run("listxattr", call, self._node(number)), data)

    def _removexattr(self, call: Call, number: int, data: bytes) -> tuple[bytes, ...]:
        self._run("removexattr", call, self._node(number), data[:-1])
        return ()

    def _lock_file(self, call: Call, number: int, data: bytes, wait: bool = False) -> tuple[bytes, ...]:
        fh, _, _, _, kind, _, _ = struct.unpack_from("<4Q3I", data)
        wanted = {fcntl.F_RDLCK: fcntl.LOCK_SH, fcntl.F_WRLCK: fcntl.LOCK_EX, fcntl.F_UNLCK: fcntl.LOCK_UN}[kind]
        self._run("flock", call, self._handle(fh), wanted, wait)
        return ()

    def _lock_file_wait(self, call: Call, number: int, data: bytes) -> tuple[bytes, ...]:
        return self._lock_file(call, number, data, wait=True)

    def _interrupt(self, call: Call, number: int, data: bytes) -> tuple[bytes, ...]:
        if not self._takes_interrupts:
            call.afterwards.append(self._refused.set)  # while what it interrupts is still to be answered
            raise OSError(errno.ENOSYS, "interrupts are not served")
        self.interrupted.add(struct.unpack("<Q", data)[0])
        raise NoAnswerError

    def _fallocate(self, call: Call, number: int, data: bytes) -> tuple[bytes, ...]:
        fh, offset, length, mode, _ = struct.unpack("<3Q2I", data)
        self._run("fallocate", call, self._handle(fh), offset, length, mode)
        return ()

    def _lseek(self, call: Call, number: int, data: bytes) -> tuple[bytes]:
        fh, offset, whence, _ = struct.unpack("<QQII", data)
        return (struct.pack("<Q", self._run("seek", call, self._handle(fh), offset, whence)),)


_WRITE = 16
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
}


def _packed(known: Attributes) -> bytes:
    times = (known.atime_ns, known.mtime_ns, known.ctime_ns)
    return _ATTRIBUTES.pack(
        known.ino, known.size, known.blocks, *(t // 10**9 for t in times), *(t % 10**9 for t in times),
        known.mode, known.nlink, known.uid, known.gid, known.rdev, known.blksize, 0,
    )  # fmt: skip


def _dirent(place: int, name: bytes, ino: int, mode: int) -> bytes:
    length = 24 + len(name)
    return struct.pack("<QQII", ino, place, len(name), stat.S_IFMT(mode) >> 12) + name + bytes(-length % 8)


def _sized(value: bytes, data: bytes) -> tuple[bytes]:
    """Answer a question for an extended attribute: its length when nothing may be sent, else its bytes."""
    room = struct.unpack_from("<I", data)[0]
    if not room:
        return (struct.pack("<II", len(value), 0),)
    if len(value) > room:
        raise OSError(errno.ERANGE, "longer than asked for")
    return (value,)
