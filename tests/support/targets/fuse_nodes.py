"""The table of nodes: one node for each inode of the backing directory that the kernel uses.

An inode is identified by its file handle (name_to_handle_at(2)). The handle contains the generation of the inode, so a
handle is not reused for another file. A handle needs no descriptor, so the number of files may exceed the limit of
descriptors. The process needs CAP_DAC_READ_SEARCH.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import itertools
import os
import stat
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

_PATH_ONLY = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_MAXIMUM_HANDLE_BYTES = 128
_libc = ctypes.CDLL(None, use_errno=True)


class Attributes(NamedTuple):
    """The attributes of a file, as in the FUSE protocol."""

    ino: int
    size: int
    blocks: int
    atime_ns: int
    mtime_ns: int
    ctime_ns: int
    mode: int
    nlink: int
    uid: int
    gid: int
    rdev: int
    blksize: int


@dataclass(slots=True, eq=False)
class Node:
    """An inode of the backing directory, which may have any number of names."""

    id: int
    key: bytes  # its file handle
    fd: int | None  # an open descriptor, only of directories, in which names are looked up
    pins: int = 0
    # A descriptor that keeps the inode of a file without a name, as long as the kernel knows the file.
    alive: int | None = None
    # Fields of the volatile layer: the state to which a power cut would return the file.
    before: Any = None
    born: int = -1
    kept_links: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(slots=True, eq=False)
class Handle:
    """An open file or directory."""

    node: Node
    fd: int
    flags: int
    is_directory: bool = False
    bypasses_cache: bool = False
    listing: list[bytes] | None = None
    closing: list[Any] = field(default_factory=list)

    def close(self) -> None:
        os.close(self.fd)
        for work in self.closing:
            work()


class Nodes:
    """The table of nodes. A node is removed when its count of pins reaches zero."""

    def __init__(self, root: Path) -> None:
        self._lock = threading.Lock()
        self._by_key: dict[bytes, Node] = {}
        self._numbers = itertools.count(1)  # the root is 1; no number is used twice
        self._mount = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.path = root
        self.root = self.find(None, os.fsencode(root))

    def close(self) -> None:
        self.unpin(self.root)
        os.close(self._mount)

    def find(self, parent: Node | None, name: bytes) -> Node:
        """Return the node of a name, and pin the node. Raises OSError if there is no such name."""
        while True:
            key = _handle_of(-1 if parent is None else parent.fd, name)
            with self._lock:
                if (node := self._by_key.get(key)) is None:
                    try:
                        fd = self._open(key, _PATH_ONLY)
                    except OSError as error:
                        if error.errno == errno.ESTALE:
                            continue  # it was deleted concurrently, so look up the name again
                        raise
                    if not stat.S_ISDIR(os.fstat(fd).st_mode):
                        os.close(fd)
                        fd = None
                    node = self._by_key[key] = Node(next(self._numbers), key, fd)
                node.pins += 1
                return node

    @contextlib.contextmanager
    def pinned(self, parent: Node, name: bytes) -> Iterator[Node | None]:
        """Yield the node of a name, pinned during the block; yield None if there is no such name."""
        try:
            node = self.find(parent, name)
        except FileNotFoundError:
            yield None
            return
        try:
            yield node
        finally:
            self.unpin(node)

    def pin(self, node: Node) -> Node:
        with self._lock:
            node.pins += 1
        return node

    def unpin(self, node: Node) -> None:
        with self._lock:
            node.pins -= 1
            if not node.pins:
                del self._by_key[node.key]
                for fd in (node.fd, node.alive):
                    if fd is not None:
                        os.close(fd)

    def keep_alive(self, node: Node) -> None:
        """If a file has only one name, keep its inode until the node is no longer pinned.

        Call this method before a name of the file is removed.
        """
        fd = self.open(node, _PATH_ONLY)
        with self._lock:
            if node.alive is None and os.fstat(fd).st_nlink - node.kept_links == 1:
                node.alive, fd = fd, -1
        if fd >= 0:
            os.close(fd)

    def open(self, node: Node, flags: int) -> int:
        """Return a new descriptor of a node. This works even after the last name of its file was removed."""
        return self._open(node.key, flags | os.O_CLOEXEC)

    def _open(self, key: bytes, flags: int) -> int:
        fd: int = _libc.open_by_handle_at(self._mount, key, flags)
        if fd < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return fd

    @contextlib.contextmanager
    def at(self, node: Node) -> Iterator[str]:
        """Yield a path in /proc/self/fd to a node, for functions that do not accept a descriptor.

        The node needs no name in a directory.
        """
        fd = self.open(node, _PATH_ONLY)
        try:
            yield f"/proc/self/fd/{fd}"
        finally:
            os.close(fd)

    def stat(self, node: Node) -> os.stat_result:
        if node.fd is not None:
            return os.fstat(node.fd)
        fd = self.open(node, _PATH_ONLY)
        try:
            return os.fstat(fd)
        finally:
            os.close(fd)

    def replace(self, node: Node, parent: Node, name: bytes) -> None:
        """Assign the directory ``name`` in ``parent`` to a node whose own directory was removed."""
        key = _handle_of(parent.fd, name)
        fd = self._open(key, _PATH_ONLY)
        with self._lock:
            os.dup2(fd, node.fd, inheritable=False)
            self._by_key[key] = self._by_key.pop(node.key)
            node.key = key
        os.close(fd)

    def path_of(self, node: Node, name: bytes | None = None) -> str:
        """Return the present path of a node relative to the root, or the path of ``name`` in this node.

        Without ``name``, the path of a removed file ends with " (deleted)".
        """
        with self.at(node) as link:
            path = os.path.relpath(os.readlink(link), self.path)
        return os.path.join(path, os.fsdecode(name)).removeprefix("./") if name is not None else path

    def is_here(self, parent: Node, name: bytes, node: Node) -> bool:
        """Whether this name in the directory ``parent`` refers to the node."""
        try:
            return _handle_of(parent.fd, name) == node.key
        except OSError:
            return False


def _handle_of(at: int | None, name: bytes) -> bytes:
    buffer, mount = ctypes.create_string_buffer(8 + _MAXIMUM_HANDLE_BYTES), ctypes.c_int()
    ctypes.c_uint.from_buffer(buffer).value = _MAXIMUM_HANDLE_BYTES
    if at is None:
        raise NotADirectoryError(errno.ENOTDIR, "not a directory")
    if _libc.name_to_handle_at(at, name, buffer, ctypes.byref(mount), 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return buffer.raw[: 8 + ctypes.c_uint.from_buffer(buffer).value]
