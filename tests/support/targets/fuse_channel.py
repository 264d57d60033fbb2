"""A FUSE mount and the threads that serve it.

The threads read requests from /dev/fuse, pass them to the file system, and write the answers.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import itertools
import mmap
import os
import struct
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.targets.fuse_messages import (
    ANSWER,
    ENTRY,
    HEAD_BYTES,
    OPEN_DIRECT_IO,
    REQUEST,
    NoAnswerError,
    packed,
)
from tests.support.targets.fuse_nodes import Handle, Node, Nodes

TYPE = "fuse.misbehaving"
MAXIMUM_WRITE_BYTES = 1 << 20
# A name whose lookup has no other purpose than to be interrupted.
PRIMER = b".interrupts-are-not-served"
_SPARE_THREADS, _MAXIMUM_THREADS = 16, 256
_WRITE = 16

_libc = ctypes.CDLL(None, use_errno=True)
MNT_FORCE, MNT_DETACH = 1, 2
_MS_NOSUID_NODEV = 2 | 4


@dataclass(slots=True, eq=False)
class Call:
    """One request to the file system: the calling process, the mount of the call, and a buffer for data."""

    session: Channel
    unique: int
    pid: int
    uid: int
    gid: int
    buffer: memoryview
    answered: bool = False
    afterwards: list[Callable[[], None]] = field(default_factory=list)

    @property
    def client(self) -> int:
        """0 for a call on the first mount, 1 on the second mount."""
        return self.session.client

    @property
    def interrupted(self) -> bool:
        return self.session.gone or self.unique in self.session.interrupted

    def acknowledge(self) -> None:
        """Report success to the caller before the operation is complete. For requests with an empty answer only."""
        self.session.send(self, 0)


def unmount(mountpoint: Path) -> None:
    """Unmount immediately: calls in progress get an error, and open files become unusable."""
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


class Channel:
    """A mount and the threads that serve it until it is unmounted."""

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
        self.takes_interrupts = True
        self.primer_asks, self.refused = threading.Event(), threading.Event()
        self.peers: list[Channel] = []  # all mounts of the same directory
        self.run, self._nodes = run, nodes
        self._open_flags = open_flags
        self.valid = (int(cache_seconds), int(cache_seconds % 1 * 1e9))
        self._known: dict[int, list[Any]] = {nodes.root.id: [nodes.pin(nodes.root), 1]}
        self.handles: dict[int, Handle] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._idle = 0
        self._threads: set[threading.Thread] = set()
        self.device = _mount(mountpoint)
        self._start_thread()

    def unmount(self) -> None:
        """Unmount; calls in progress get an error."""
        self.gone = True
        unmount(self.mountpoint)

    def end(self) -> None:
        """Wait for requests in progress, and release all handles and nodes. Call `unmount` first."""
        while threads := list(self._threads):
            for thread in threads:
                thread.join()
        os.close(self.device)
        for handle in self.handles.values():
            handle.close()
        for node, _ in self._known.values():
            self._nodes.unpin(node)
        self._known.clear()

    def invalidate(self) -> None:
        """Make the kernel drop the cached pages of every file."""
        for number in list(self._known):
            self.invalidate_node(number)

    def invalidate_node(self, number: int) -> None:
        """Make the kernel drop the cached pages of one file."""
        self._notify(2, struct.pack("<Qqq", number, 0, 0))

    def invalidate_name(self, number: int, name: bytes) -> None:
        """Make the kernel drop a cached name of directory ``number``."""
        self._notify(3, struct.pack("<QII", number, len(name), 0) + name + b"\0")

    def _notify(self, code: int, body: bytes) -> None:
        with contextlib.suppress(OSError):  # the kernel no longer knows the node
            os.write(self.device, ANSWER.pack(ANSWER.size + len(body), code, 0) + body)

    def name_goes(self, call: Call, number: int, name: bytes) -> None:
        """Make the other mounts drop the cached ``name`` of directory ``number``, after the call has been answered.

        The requests unlink, rmdir and rename use this method, because they may remove the file with this name.
        """
        for peer in self.peers:
            if peer is not self:
                call.afterwards.append(functools.partial(peer.invalidate_name, number, name))

    def refuse_interrupts(self) -> None:
        """Make the kernel send no more interrupts. Tasks that wait for an answer are then in state D.

        The kernel stops sending interrupts when an interrupt is answered with ENOSYS.
        """
        if not self.takes_interrupts:
            return
        self.takes_interrupts = False
        name = os.fsencode(self.mountpoint) + b"/" + PRIMER
        with subprocess.Popen(["stat", name], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as primer:
            self.primer_asks.wait()
            primer.terminate()

    def operation(self, opcode: int) -> Callable[[Call, int, Any], Any] | None:
        """Return the method for this opcode of the FUSE protocol; None if the opcode is not supported."""
        raise NotImplementedError

    # --- the loop ----------------------------------------------------------------------------------------------------

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._work, daemon=True)
        self._threads.add(thread)
        self._idle += 1
        thread.start()

    def _work(self) -> None:
        head, body = bytearray(HEAD_BYTES), memoryview(mmap.mmap(-1, MAXIMUM_WRITE_BYTES + mmap.PAGESIZE))
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
                # ENOENT: the request was interrupted while the kernel passed it on.
                if error.errno not in (errno.ENOENT, errno.EINTR, errno.EAGAIN):
                    return None

    def _answer(self, head: bytearray, body: memoryview, count: int) -> None:
        _, opcode, unique, number, uid, gid, pid, _, _ = REQUEST.unpack_from(head)
        call = Call(self, unique, pid, uid, gid, body)
        operation = self.operation(opcode)
        if operation is None:
            self.send(call, -errno.ENOSYS)
            return
        if opcode == _WRITE:
            data: Any = head, body[: count - HEAD_BYTES]
        else:
            data = bytes(head[REQUEST.size : min(count, HEAD_BYTES)]) + bytes(body[: max(count - HEAD_BYTES, 0)])
        try:
            parts = operation(call, number, data)
        except NoAnswerError:
            return
        except OSError as error:
            if call.answered:  # the caller already has an answer, so record the error
                self.failures.append(traceback.format_exc())
            self.send(call, -(error.errno or errno.EIO))
        except Exception:  # an internal error must not look like a fault of the target
            self.failures.append(traceback.format_exc())
            print(self.failures[-1], file=sys.stderr, flush=True)
            self.send(call, -errno.EIO)
        else:
            self.send(call, 0, *parts)
        self.interrupted.discard(unique)
        for work in call.afterwards:
            work()

    def send(self, call: Call, error: int, *parts: Any) -> None:
        """Answer a request; do nothing if it has already been answered."""
        if call.answered:
            return
        call.answered = True
        # The kernel refuses an answer only if the mount is gone; then no state remains to be corrected.
        with contextlib.suppress(OSError):
            os.writev(self.device, [ANSWER.pack(ANSWER.size + sum(map(len, parts)), error, call.unique), *parts])

    # --- nodes and handles by number ------------------------------------------------------------------------------

    def node(self, number: int) -> Node:
        return self._known[number][0]

    def handle(self, number: int) -> Handle:
        return self.handles[number]

    def remember(self, handle: Handle) -> bytes:
        number = next(self._numbers)
        self.handles[number] = handle
        flags = 0 if handle.is_directory else OPEN_DIRECT_IO if handle.bypasses_cache else self._open_flags
        return struct.pack("<QII", number, flags, 0)

    def forget(self, number: int, count: int) -> None:
        with self._lock:
            known = self._known[number]
            known[1] -= count
            gone = known[1] <= 0 and number != self._nodes.root.id
            if gone:
                del self._known[number]
        if gone:
            self._nodes.unpin(known[0])

    def entry(self, call: Call, node: Node) -> bytes:
        """Return the encoded answer that describes a node. The caller must have pinned the node."""
        with self._lock:
            known = self._known.setdefault(node.id, [node, 0])
            known[1] += 1
            again = known[1] > 1
        if again:
            self._nodes.unpin(node)
        attributes = packed(self.run("attributes", call, node))
        seconds, nanoseconds = self.valid
        return ENTRY.pack(node.id, 0, seconds, seconds, nanoseconds, nanoseconds) + attributes

    def attributes(self, call: Call, node: Node) -> tuple[bytes]:
        return (struct.pack("<QII", *self.valid, 0) + packed(self.run("attributes", call, node)),)
