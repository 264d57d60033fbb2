"""A file system on which checkpoints need little memory, so that full-size checkpoints fit on a small machine.

A page of generated content is a row of a random block, XORed with one 8-byte word (see `pytest_ckpt.ranks.content`). A
page XORed with its own first word therefore depends only on the row. This file system stores each such row once. For
each page it stores the number of the row and the page's first word: 12 bytes for 4 KiB.

The file system knows neither the seed nor the layout, so it compares each page with the stored row. Pages that differ
are stored unchanged. Power cuts are not supported, because the row numbers are in the memory of the serving process.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.support.targets.fuse_channel import Call
from tests.support.targets.fuse_nodes import Attributes, Handle, Node, Nodes
from tests.support.targets.fuse_passthrough import Passthrough
from tests.support.targets.fuse_volatile import Volatile

_PAGE_BYTES, _LANES = 4096, 512
_ROWS = 2_000_000
"""At most 8 GB of rows; further pages are stored as they are."""
_CAPACITY_BYTES = 4 << 40
_KEY = 2
"""The word that differs between blocks: the first two words of a row are the same in all blocks."""

_Words = NDArray[np.uint64]


class _Rows:
    """The table of all rows, which is thread-safe. Rows are numbered from 1; the number 0 means no row."""

    def __init__(self) -> None:
        self._rows: _Words = np.empty((_ROWS, _LANES), dtype=np.uint64)
        self._numbers: dict[int, int] = {}
        self._count = 1
        self._lock = threading.Lock()

    def numbers(self, pages: _Words) -> NDArray[np.uint32]:
        """Store new rows, and return the row number of each page (0: the page has no row)."""
        keys = (pages[:, _KEY] ^ pages[:, 0]).tolist()
        found = [self._numbers.get(key, 0) for key in keys]
        if 0 in found:
            with self._lock:
                for place, key in enumerate(keys):
                    if not found[place]:
                        found[place] = self._numbers.get(key) or self._added(key, pages[place])
        numbers = np.array(found, dtype=np.uint32)
        for start, stop in _runs(numbers):
            if first := int(numbers[start]):
                plain = pages[start:stop] ^ pages[start:stop, :1]
                if not np.array_equal(plain, self._rows[first : first + stop - start]):
                    same = np.all(plain == self._rows[first : first + stop - start], axis=1)
                    numbers[start:stop][~same] = 0
        return numbers

    def _added(self, key: int, page: _Words) -> int:
        if self._count == _ROWS:
            return 0
        number = self._count
        np.bitwise_xor(page, page[0], out=self._rows[number])
        self._numbers[key] = number
        self._count += 1
        return number

    def page(self, number: int, word: int) -> bytes:
        """Return the page with this row number and first word."""
        return (self._rows[number] ^ np.uint64(word)).tobytes()

    def make(self, out: _Words, numbers: NDArray[np.uint32], words: _Words) -> None:
        """Write all pages that have a row into ``out``. ``numbers`` and ``words`` describe all pages."""
        for start, stop in _runs(numbers):
            if first := int(numbers[start]):
                rows = self._rows[first : first + stop - start]
                np.bitwise_xor(rows, words[start:stop, None], out=out[start:stop])


def _runs(numbers: NDArray[np.uint32]) -> Iterator[tuple[int, int]]:
    """Yield (first page, page after the last) of each range of pages that can be copied together.

    The row numbers in a range are consecutive, or all are 0.
    """
    steps = np.diff(numbers.astype(np.int64))
    both = (numbers[:-1] == 0) & (numbers[1:] == 0)
    cuts = np.flatnonzero(~(both | ((steps == 1) & (numbers[:-1] != 0)))) + 1
    yield from zip([0, *cuts.tolist()], [*cuts.tolist(), len(numbers)], strict=True)


class _Pages:
    """The row number and the first word of each page of a file. Pages without a row are in the backing file."""

    def __init__(self) -> None:
        self.numbers: NDArray[np.uint32] = np.zeros(0, dtype=np.uint32)
        self.words: _Words = np.zeros(0, dtype=np.uint64)
        self.lock = threading.Lock()

    def grow(self, pages: int) -> None:
        """Extend the arrays to at least this number of pages. The caller must have acquired the lock."""
        if pages > len(self.numbers):
            room = max(pages, 2 * len(self.numbers))
            self.numbers = np.concatenate([self.numbers, np.zeros(room - len(self.numbers), dtype=np.uint32)])
            self.words = np.concatenate([self.words, np.zeros(room - len(self.words), dtype=np.uint64)])

    def cut(self, pages: int) -> None:
        """Remove the entries of all pages from number ``pages`` on."""
        with self.lock:
            self.numbers, self.words = self.numbers[:pages].copy(), self.words[:pages].copy()


class _NoJournal(Volatile):
    """A journal that records nothing, because power cuts are not supported.

    When the last name of a file has been removed, the journal calls ``forget`` with the node of the file.
    """

    def __init__(self, nodes: Nodes, attic: Path, forget: Callable[[Node], None]) -> None:
        super().__init__(nodes, attic)
        self._forget = forget

    def before_change(self, node: Node, offset: int, end: int | None = None) -> None:
        """Do nothing, because no power cut restores data."""

    def sync_bytes(self, node: Node) -> None:
        """Do nothing, because no power cut loses data."""

    def created(self, parent: Node, name: bytes, node: Node, is_new: bool = True) -> None:
        """Do nothing, because no power cut removes the name."""

    def renamed(self, old: Any, new: Any, exchange: Any) -> None:
        """Do nothing, because no power cut undoes the rename."""

    @contextlib.contextmanager
    def removing(self, parent: Node, name: bytes) -> Iterator[None]:
        """During the block, a name is removed. Keep the inode of the file as long as the kernel uses the file."""
        with self._nodes.pinned(parent, name) as node:
            if node is None or node.fd is not None:
                yield
                return
            self._nodes.keep_alive(node)
            yield
            if not self._has_names(node):
                self._forget(node)


class Compact(Passthrough):
    """A file system that stores the pages of checkpoints as row numbers."""

    def __init__(self, directory: Path) -> None:
        self._rows = _Rows()
        self._pages: dict[bytes, _Pages] = {}
        super().__init__(directory)

    def journal(self, attic: Path) -> Volatile:
        return _NoJournal(self.nodes, attic, self._forget)

    def cut(self) -> None:
        raise NotImplementedError("a compact target has no power cut")

    def _forget(self, node: Node) -> None:
        """Move the page table of a file without a name to the file's node, so that the node frees the table."""
        if node.key in self._pages:
            node.before = self._pages.pop(node.key)

    def _pages_of(self, node: Node) -> _Pages:
        return node.before or self._pages.setdefault(node.key, _Pages())

    # --- attributes --------------------------------------------------------------------------------------------------

    def attributes(self, call: Call, node: Node) -> Attributes:
        known = super().attributes(call, node)
        return known._replace(blocks=-(-known.size // 512)) if stat.S_ISREG(known.mode) else known

    def statfs(self, call: Call, node: Node) -> os.statvfs_result:
        seen = super().statfs(call, node)
        used = sum(len(pages.numbers) for pages in list(self._pages.values()))
        blocks = _CAPACITY_BYTES // _PAGE_BYTES
        return os.statvfs_result((_PAGE_BYTES, _PAGE_BYTES, blocks, blocks - used, blocks - used, *seen[5:]))

    # --- bytes -------------------------------------------------------------------------------------------------------

    def open(self, call: Call, node: Node, flags: int) -> Handle:
        if flags & os.O_TRUNC:
            self._pages_of(node).cut(0)
        return super().open(call, node, flags)

    def read(self, call: Call, handle: Handle, offset: int, size: int) -> memoryview:
        size = max(0, min(size, os.fstat(handle.fd).st_size - offset))
        out = call.buffer[:size]
        first, stop = offset // _PAGE_BYTES, -(-(offset + size) // _PAGE_BYTES)
        pages = self._pages_of(handle.node)
        with pages.lock:
            numbers, words = pages.numbers[first:stop].copy(), pages.words[first:stop].copy()
        if not size or not numbers.any():
            return super().read(call, handle, offset, size)
        if not (len(numbers) == stop - first and numbers.all()):
            super().read(call, handle, offset, size)
        if offset % _PAGE_BYTES == size % _PAGE_BYTES == 0:
            made = np.frombuffer(out, dtype=np.uint64).reshape(-1, _LANES)
            self._rows.make(made, numbers, words)
            return out
        for place in np.flatnonzero(numbers).tolist():
            page = self._rows.page(numbers[place], words[place])
            start = (first + place) * _PAGE_BYTES - offset
            low, high = max(start, 0), min(start + _PAGE_BYTES, size)
            out[low:high] = page[low - start : high - start]
        return out

    def write(self, call: Call, handle: Handle, offset: int, data: memoryview) -> int:
        end = offset + len(data)
        pages = self._pages_of(handle.node)
        if offset % _PAGE_BYTES or len(data) % _PAGE_BYTES:
            self._store_plainly(handle, pages, offset // _PAGE_BYTES, -(-end // _PAGE_BYTES))
            return super().write(call, handle, offset, data)
        given = np.frombuffer(data, dtype=np.uint64).reshape(-1, _LANES)
        numbers = self._rows.numbers(given)
        first, stop = offset // _PAGE_BYTES, end // _PAGE_BYTES
        for place in np.flatnonzero(numbers == 0).tolist():
            start = place * _PAGE_BYTES
            super().write(call, handle, offset + start, data[start : start + _PAGE_BYTES])
        with pages.lock:
            pages.grow(stop)
            pages.numbers[first:stop], pages.words[first:stop] = numbers, given[:, 0]
            if os.fstat(handle.fd).st_size < end:
                os.ftruncate(handle.fd, end)
        return len(data)

    def _store_plainly(self, handle: Handle, pages: _Pages, first: int, stop: int) -> None:
        """Write the pages from ``first`` to ``stop`` into the backing file.

        This method is called before some bytes of these pages are overwritten.
        """
        with pages.lock:
            for place in (np.flatnonzero(pages.numbers[first:stop]) + first).tolist():
                page = self._rows.page(pages.numbers[place], pages.words[place])
                left = os.fstat(handle.fd).st_size - place * _PAGE_BYTES
                os.pwrite(handle.fd, page[:left], place * _PAGE_BYTES)
                pages.numbers[place] = 0

    def truncate(self, call: Call, node: Node, size: int) -> None:
        pages = self._pages_of(node)
        if size % _PAGE_BYTES:
            handle = self.open(call, node, os.O_RDWR)
            self._store_plainly(handle, pages, size // _PAGE_BYTES, size // _PAGE_BYTES + 1)
            handle.close()
        pages.cut(-(-size // _PAGE_BYTES))
        super().truncate(call, node, size)

    def fallocate(self, call: Call, handle: Handle, offset: int, length: int, mode: int) -> None:
        if mode:
            raise OSError(errno.EOPNOTSUPP, "a mode of fallocate that is not supported")
        if os.fstat(handle.fd).st_size < offset + length:
            os.ftruncate(handle.fd, offset + length)

    def seek(self, call: Call, handle: Handle, offset: int, whence: int) -> int:
        size = os.fstat(handle.fd).st_size
        if offset >= size:
            raise OSError(errno.ENXIO, "behind the end")
        return offset if whence == os.SEEK_DATA else size

    def copy(self, call: Call, source: Handle, offset: int, target: Handle, target_offset: int, length: int) -> int:
        raise OSError(errno.EOPNOTSUPP, "files are copied by reading and writing")
