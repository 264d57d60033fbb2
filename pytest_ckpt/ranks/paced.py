"""Paced saves: a store whose files accept bytes at a limited rate, so that a save takes a given time.

A pace is a schedule from the start of a save. If a save is late, it continues as fast as the storage allows, so short
delays do not add up.
"""

from __future__ import annotations

import math
import threading
import time
from typing import TYPE_CHECKING, Any, cast

from pytest_ckpt.targets.protocol import WrappedDraft

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_ckpt.facts.targets import CheckpointRef
    from pytest_ckpt.targets.protocol import Buffer, CachedSink, Draft, Phases, Sink, Store

# A larger request is written in pieces, because one request for a whole file cannot be paced. Direct I/O needs no finer
# alignment.
_PIECE_SECONDS = 0.05
_PIECE_STEP_BYTES = 64 << 10


class Pace:
    """The schedule of one rank's saves. It spreads the bytes of a save over ``seconds``.

    Saves before the first call of `learn` are not paced. ``bytes`` is the number of bytes written since `begin`.
    ``is_bypassed`` is true if an engine may have written bytes without the pace.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._rate, self._piece_bytes = math.inf, _PIECE_STEP_BYTES
        self._lock = threading.Lock()
        self._start = 0.0
        self._over = threading.Event()
        self.bytes = 0
        self.is_bypassed = False

    def until(self, over: threading.Event) -> None:
        """Stop pacing when ``over`` is set. Bytes that follow are written without a wait."""
        self._over = over

    def learn(self) -> None:
        """Set the rate of the following saves so that the number of bytes of the last save takes the pace's time."""
        # A rank may have no files.
        if self.bytes:
            self._rate = self.bytes / self._seconds
            self._piece_bytes = math.ceil(self._rate * _PIECE_SECONDS / _PIECE_STEP_BYTES) * _PIECE_STEP_BYTES

    def begin(self) -> None:
        """Start the schedule of a save."""
        self._start, self.bytes = time.perf_counter(), 0

    def pieces(self, data: Buffer, *, cut: bool) -> Iterator[memoryview]:
        """Yield ``data`` at the time when it may be written. If ``cut``, yield it in pieces, each at its own time."""
        view = memoryview(data).cast("B")
        step = self._piece_bytes if cut else len(view)
        for offset in range(0, len(view), step or 1):
            piece = view[offset : offset + step]
            with self._lock:
                begin = self._start + self.bytes / self._rate
                self.bytes += len(piece)
                end = self._start + self.bytes / self._rate
            self._wait(begin)
            yield piece
            self._wait(end)

    def _wait(self, due: float) -> None:
        """Wait until the clock reads ``due`` or the pace is stopped."""
        if (early := due - time.perf_counter()) > 0:
            self._over.wait(early)


class _PacedSink:
    """A file that accepts bytes at a pace.

    Write-back of the page cache is started after each piece. Without this, fsync would write all bytes at once, without
    a pace.
    """

    def __init__(self, sink: Sink, pace: Pace) -> None:
        self._sink, self._pace = sink, pace
        self._cached = cast("CachedSink", sink) if hasattr(sink, "start_writeback") else None
        self._end = 0

    def write(self, data: Buffer) -> int:
        """Append all of ``data``; return the number of bytes."""
        start = self._end
        for piece in self._pace.pieces(data, cut=True):
            self._sink.write(piece)
            self._written(self._end, len(piece))
            self._end += len(piece)
        return self._end - start

    def write_at(self, offset: int, data: Buffer) -> None:
        """Write ``data`` at an offset. If the store uses parts, ``data`` is one complete part and is not divided."""
        for piece in self._pace.pieces(data, cut=self._sink.part_bytes is None):
            self._sink.write_at(offset, piece)
            self._written(offset, len(piece))
            offset += len(piece)

    def _written(self, offset: int, count: int) -> None:
        if self._cached:
            self._cached.start_writeback(offset, count)

    def __getattr__(self, name: str) -> Any:
        """Return any other attribute of the wrapped file."""
        return getattr(self._sink, name)


class _PacedDraft(WrappedDraft):
    """A draft (the files of one rank before the commit) whose files accept bytes at a pace."""

    def __init__(self, draft: Draft, pace: Pace) -> None:
        super().__init__(draft)
        self._pace = pace

    def create(self, name: str, size: int | None) -> Sink:
        """Create a file that accepts bytes at the pace."""
        return cast("Sink", _PacedSink(self._draft.create(name, size), self._pace))

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the wrapped draft, and record that the pace may be bypassed.

        The engine may use the attribute to write without the pace.
        """
        self._pace.is_bypassed = True
        return getattr(self._draft, name)


class _PacedStore:
    """A store whose drafts (files before the commit) accept bytes at a pace."""

    def __init__(self, store: Store, pace: Pace) -> None:
        self._store, self._pace = store, pace

    def begin(self, ref: CheckpointRef, phases: Phases) -> Draft:
        """Start the schedule of a save. Return a paced draft, to which this rank writes its files of the checkpoint."""
        draft = self._store.begin(ref, phases)
        self._pace.begin()
        return cast("Draft", _PacedDraft(draft, self._pace))

    def __getattr__(self, name: str) -> Any:
        """Return any other attribute of the wrapped store."""
        return getattr(self._store, name)


def paced_store(store: Store, pace: Pace) -> Store:
    """Return a wrapper of ``store`` whose files accept bytes at ``pace``."""
    return cast("Store", _PacedStore(store, pace))
