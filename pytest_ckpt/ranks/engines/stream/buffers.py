"""Memory for direct I/O. It is aligned, written once before use, and in huge pages if the kernel has them."""

from __future__ import annotations

import ctypes
import mmap
import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from pytest_ckpt.ranks.content import Bytes

MAXIMUM_ALIGNMENT_BYTES = 1 << 20
"""The maximum alignment of a sink. A buffer that ends at a multiple of it has space for padding."""

_HUGE_PAGE_BYTES = 2 << 20


class Buffers:
    """``count`` buffers of ``size`` bytes each, in one block of memory.

    The block is aligned to a huge page (2 MiB).
    """

    def __init__(self, count: int, size: int) -> None:
        whole = -(-count * size // _HUGE_PAGE_BYTES) * _HUGE_PAGE_BYTES
        self._map = mmap.mmap(-1, whole + _HUGE_PAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memory = np.frombuffer(self._map, dtype=np.uint8)
        skip = -memory.ctypes.data % _HUGE_PAGE_BYTES
        self._address = memory.ctypes.data + skip
        self._bytes = whole
        # The kernel may ignore the advice; the huge pages that it provided are counted below.
        ctypes.CDLL(None).madvise(ctypes.c_void_p(self._address), ctypes.c_size_t(whole), mmap.MADV_HUGEPAGE)
        memory[skip : skip + whole] = 0
        self.slots: list[Bytes] = [memory[skip + n * size : skip + (n + 1) * size] for n in range(count)]

    def huge_bytes(self) -> int:
        """Return the number of bytes of the buffers that are in huge pages."""
        total, inside = 0, False
        for line in Path("/proc/self/smaps").read_text().splitlines():
            if span := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
                inside = int(span[1], 16) < self._address + self._bytes and int(span[2], 16) > self._address
            elif inside and line.startswith("AnonHugePages:"):
                total += int(line.split()[1]) * 1024
        return min(total, self._bytes)
