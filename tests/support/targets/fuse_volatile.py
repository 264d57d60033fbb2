"""Simulates the loss of data in a power cut: records undo information for all changes since the last fsync.

The model is a journalling file system without a write cache, such as ext4 or XFS. fsync of a file makes its data
durable. Any fsync makes all earlier changes of names durable. A power cut restores the size and content of a file at
its last fsync.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.targets.fuse_nodes import Node, Nodes

KEEP_SIZE, PUNCH_HOLE = 1, 2
_libc = ctypes.CDLL(None, use_errno=True)


def allocate(fd: int, mode: int, offset: int, length: int) -> None:
    """Call fallocate(2)."""
    if _libc.fallocate(fd, mode, ctypes.c_int64(offset), ctypes.c_int64(length)) != 0:
        raise OSError(ctypes.get_errno(), "fallocate")


def pieces(fd: int, low: int, high: int) -> Iterator[tuple[int, int, bool]]:
    """Yield (offset, end, is data) for each hole and each range with data between the offsets ``low`` and ``high``."""
    while low < high:
        try:
            data = min(os.lseek(fd, low, os.SEEK_DATA), high)
        except OSError:  # ENXIO: only a hole up to the end
            data = high
        if low < data:
            yield low, data, False
        if data < high:
            end = min(os.lseek(fd, data, os.SEEK_HOLE), high)
            yield data, end, True
            low = end
        else:
            low = high


@dataclass(slots=True)
class _Before:
    """A file at its last fsync: its size, and the durable content that was overwritten since then."""

    size: int
    saved: list[tuple[int, int, int | None]] = field(
        default_factory=list
    )  # (offset, end, offset in the spool file; None: a hole)

    def missing(self, offset: int, end: int) -> list[tuple[int, int]]:
        """Return the parts of the durable content between two offsets that are not in ``saved``, as (offset, end)."""
        parts = [(offset, min(end, self.size))]
        for begin, stop, _ in self.saved:
            parts = [
                cut
                for low, high in parts
                for cut in ((low, min(high, begin)), (max(low, stop), high))
                if cut[0] < cut[1]
            ]
        return [part for part in parts if part[0] < part[1]]


class Volatile:
    """The journal of changes that are not durable. The method `cut` undoes these changes."""

    def __init__(self, nodes: Nodes, attic: Path) -> None:
        self._nodes = nodes
        self._attic = attic  # a directory for unlinked files until their removal is durable; on the same file system
        self._undo: list[Callable[[], None]] = []
        self._pinned: list[Node] = []
        self._in_attic: list[tuple[str, Node]] = []
        self._number = 0
        self._epoch = 0
        self._changed: dict[int, Node] = {}
        self._spool = tempfile.TemporaryFile(dir=attic, buffering=0)  # noqa: SIM115 - closed in `close`
        self._lock = threading.Lock()
        # Acquired by every change of names, so that the journal has the order of the changes.
        self.names = threading.RLock()

    # --- bytes -------------------------------------------------------------------------------------------------------

    def before_change(self, node: Node, offset: int, end: int | None = None) -> None:
        """Save the durable data between ``offset`` and ``end``, before a caller overwrites these data.

        If ``end`` is None, save all data up to the end of the file.
        """
        before = node.before
        if before is not None and offset >= before.size:
            return
        with node.lock:
            if (before := node.before) is None:
                seen = self._nodes.stat(node)
                if seen.st_nlink == node.kept_links == 0:
                    return  # after a cut, no name would lead to the file
                before = node.before = _Before(0 if node.born == self._epoch else seen.st_size)
                with self._lock:
                    self._changed[node.id] = self._nodes.pin(node)
            for low, high in before.missing(offset, before.size if end is None else end):
                with open(self._nodes.open(node, os.O_RDONLY), "rb", buffering=0) as file, self._lock:
                    for begin, stop, is_data in pieces(file.fileno(), low, high):
                        start = self._keep(file.fileno(), begin, stop) if is_data else None
                        before.saved.append((begin, stop, start))

    def _keep(self, fd: int, low: int, high: int) -> int:
        start = self._spool.seek(0, os.SEEK_END)
        os.lseek(fd, low, os.SEEK_SET)
        left = high - low
        while left and (count := os.sendfile(self._spool.fileno(), fd, None, left)):
            left -= count
        self._spool.truncate(start + high - low)
        return start

    def sync_bytes(self, node: Node) -> None:
        """Mark the bytes of a file as durable."""
        with node.lock:
            if node.before is None:
                return
            node.before = None
            node.born = -1
            with self._lock:
                del self._changed[node.id]
                if not self._changed:
                    self._spool.truncate(0)
        self._nodes.unpin(node)

    # --- names -------------------------------------------------------------------------------------------------------

    def created(self, parent: Node, name: bytes, node: Node, is_new: bool = True) -> None:
        """Record a new name. If the name is a link to an existing file, ``is_new`` is False."""
        if is_new:
            node.born = self._epoch

        def undo() -> None:
            if self._nodes.is_here(parent, name, node):
                _remove(name, parent)

        self._note(undo, parent, *([node] if node.fd is not None else []))

    @contextlib.contextmanager
    def removing(self, parent: Node, name: bytes) -> Iterator[None]:
        """Record that the block removes or replaces a name, and keep the file with this name for a power cut."""
        with self._nodes.pinned(parent, name) as node:
            if node is None:
                yield
                return
            if node.fd is not None:
                undo = functools.partial(self._make_again, parent, name, os.fstat(node.fd).st_mode, node)
            elif node.born == self._epoch:
                undo = None  # after a cut, the file would not exist in any case
            else:
                undo = functools.partial(_link_again, self._to_attic(node), parent, name)
            if node.fd is None:
                self._nodes.keep_alive(node)
            yield
            if undo:
                self._note(undo, parent, *([node] if node.fd is not None else []))
            elif node.before and not self._has_names(node):
                self.sync_bytes(node)  # a cut cannot restore a file without a name

    def _has_names(self, node: Node) -> bool:
        try:
            return self._nodes.stat(node).st_nlink > 0
        except OSError:  # ESTALE: the inode does not exist any more
            return False

    def _to_attic(self, node: Node) -> str:
        self._number += 1
        kept = str(self._attic / str(self._number))
        with self._nodes.at(node) as path:
            os.link(path, kept, dst_dir_fd=self._nodes.root.fd, follow_symlinks=True)
        node.kept_links += 1
        self._in_attic.append((kept, self._nodes.pin(node)))
        return kept

    def _make_again(self, parent: Node, name: bytes, mode: int, node: Node) -> None:
        os.mkdir(name, stat.S_IMODE(mode), dir_fd=parent.fd)
        # Earlier changes in the removed directory are undone in the new one.
        self._nodes.replace(node, parent, name)

    def renamed(self, old: tuple[Node, bytes], new: tuple[Node, bytes], exchange: Callable[[], None] | None) -> None:
        """Record a rename, or an exchange of two names."""
        ways = [(new, old), (old, new)] if exchange else [(new, old)]
        nodes = [self._nodes.find(*here) for here, _ in ways]

        def undo() -> None:
            # A file that was never durable is not restored and may be missing.
            left = [way for way, node in zip(ways, nodes, strict=True) if self._nodes.is_here(*way[0], node)]
            if exchange and len(left) == 2:
                exchange()
                return
            for here, there in left:
                os.rename(here[1], there[1], src_dir_fd=here[0].fd, dst_dir_fd=there[0].fd)

        self._note(undo, old[0], new[0], *(node for node in nodes if node.fd is not None))
        for node in nodes:
            self._nodes.unpin(node)

    def attic_bytes(self) -> int:
        """Return the bytes used by removed files whose removal is not durable yet."""
        with self.names:
            seen = (self._seen(kept) for kept, _ in self._in_attic)
            return sum(one.st_blocks * 512 for one in seen if one and one.st_nlink == 1)

    @staticmethod
    def _seen(kept: str) -> os.stat_result | None:
        """Return the status of a removed file in the attic; None if the file was deleted concurrently."""
        with contextlib.suppress(FileNotFoundError):
            # Not followed: a symbolic link may lead into this mount, which waits for the present answer.
            return os.lstat(kept)
        return None

    def _note(self, undo: Callable[[], None], *nodes: Node) -> None:
        self._undo.append(undo)
        self._pinned += map(self._nodes.pin, nodes)

    def sync_names(self) -> None:
        """Mark all changes of names until now as durable."""
        with self.names:
            self._epoch += 1
            self._undo.clear()
            self._empty_attic()

    def _empty_attic(self) -> None:
        for kept, node in self._in_attic:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(kept)
            node.kept_links -= 1
            self._nodes.unpin(node)
        self._in_attic.clear()
        for node in self._pinned:
            self._nodes.unpin(node)
        self._pinned.clear()

    # --- the cut -----------------------------------------------------------------------------------------------------

    def cut(self) -> None:
        """Undo all changes that are not durable. No request may be in progress."""
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()
        for node in list(self._changed.values()):
            if self._has_names(node):
                self._restore(node)
        self.sync_names()

    def _restore(self, node: Node) -> None:
        with open(self._nodes.open(node, os.O_RDWR), "r+b", buffering=0) as file:
            file.truncate(node.before.size)
            for low, high, start in node.before.saved:
                if start is None:
                    allocate(file.fileno(), PUNCH_HOLE | KEEP_SIZE, low, high - low)
                    continue
                done = 0
                while done < high - low:
                    part = os.pread(self._spool.fileno(), min(1 << 20, high - low - done), start + done)
                    done += os.pwrite(file.fileno(), part, low + done)
        self.sync_bytes(node)

    def close(self) -> None:
        """Keep all changes, and discard the undo information."""
        for node in list(self._changed.values()):
            self.sync_bytes(node)
        self.sync_names()
        self._spool.close()


def _link_again(kept: str, parent: Node, name: bytes) -> None:
    os.link(kept, name, dst_dir_fd=parent.fd, follow_symlinks=False)


def _remove(name: bytes, parent: Node) -> None:
    try:
        os.unlink(name, dir_fd=parent.fd)
    except IsADirectoryError:
        os.rmdir(name, dir_fd=parent.fd)
