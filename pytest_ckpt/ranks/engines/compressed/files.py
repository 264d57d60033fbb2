"""Files of compressed frames: a draft whose sinks compress, and a checkpoint whose sources decompress.

A file keeps its name. It holds frames of 4 MiB at most, in the order in which they were made, then a table of them,
then a tail that says where the table is. Each frame has the codec's checksum, the table one of its own. A reader that
wants some bytes reads the frames that hold them, whole.
"""

from __future__ import annotations

import itertools
import struct
import threading
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pytest_ckpt.facts.compression import FRAME_BYTES
from pytest_ckpt.ranks.engines.compressed.codecs import DamagedError
from pytest_ckpt.targets.source_file import SourceFile

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from pytest_ckpt.facts.proofs import CommitProof, DurabilityProof, Entry
    from pytest_ckpt.ranks.content.generator import Bytes
    from pytest_ckpt.ranks.engines.compressed.codecs import CodecInUse
    from pytest_ckpt.targets.protocol import Buffer, Committed, Draft, ReadableFile, Sink

_TAIL = struct.Struct("<8sQQQL4x")
_MAGIC = b"CKPTFRMS"


class Frame(NamedTuple):
    """``bytes`` of a file from ``offset`` on stand from ``place`` on as ``stored`` bytes."""

    offset: int
    bytes: int
    place: int
    stored: int


_ROW_BYTES = 8 * len(Frame._fields)


class CompressingDraft:
    """A draft whose files are compressed; ``stored`` learns how many bytes each has then."""

    def __init__(self, draft: Draft, codec: CodecInUse, stored: Callable[[int], None]) -> None:
        self._draft, self._codec, self._tells = draft, codec, stored

    def create(self, name: str, size: int | None) -> Sink:
        """Begin a file, which will be written in order: how large it gets nobody knows before."""
        del size
        return CompressingSink(self._draft.create(name, None), self._codec, self._tells)

    def location(self) -> str:
        """Raise NotImplementedError: what a library writes itself passes no codec."""
        raise NotImplementedError("files that a library writes itself are not compressed")

    def adopt(self, names: Collection[str]) -> None:
        """Raise NotImplementedError, as `location`."""
        self.location()

    def seal(self) -> tuple[Sequence[Entry], DurabilityProof]:
        """Make names durable; entries tell what is stored."""
        return self._draft.seal()

    def commit(self, entries: Sequence[Entry]) -> CommitProof:
        """Commit the checkpoint."""
        return self._draft.commit(entries)

    def abort(self) -> None:
        """Remove what this rank wrote of it."""
        self._draft.abort()


class CompressingSink:
    """Compresses what it is given in frames, and appends each to the file as it is ready."""

    alignment = 1
    part_bytes: int | None = FRAME_BYTES

    def __init__(self, sink: Sink, codec: CodecInUse, stored: Callable[[int], None]) -> None:
        self._sink, self._codec, self._tells = sink, codec, stored
        self._lock = threading.Lock()
        self._frames: list[Frame] = []
        self._stored = 0
        # What was written in order and fills no frame yet, and where it begins.
        self._rest, self._end = bytearray(), 0

    @property
    def way(self) -> str:
        """How requests pass the client's page cache."""
        return self._sink.way

    def write(self, data: Buffer) -> int:
        """Write all of ``data`` behind what was written; return its bytes."""
        view, done = memoryview(data).cast("B"), 0
        while done < len(view):
            # A frame that stands whole in what is given is not copied before.
            if not self._rest and len(view) - done >= FRAME_BYTES:
                self._append(self._end, view[done : done + FRAME_BYTES])
                self._end += FRAME_BYTES
                done += FRAME_BYTES
                continue
            step = min(FRAME_BYTES - len(self._rest), len(view) - done)
            self._rest += view[done : done + step]
            done += step
            if len(self._rest) == FRAME_BYTES:
                self._flush()
        return len(view)

    def write_at(self, offset: int, data: Buffer) -> None:
        """Write a frame: threads compress side by side, and append one after the other."""
        self._append(offset, data)

    def finish(self) -> Entry:
        """Write the table, make the file durable and close it; the entry has the size before the codec."""
        try:
            self._flush()
            rows = np.array(sorted(self._frames), dtype="<u8").tobytes()
            size = sum(frame.bytes for frame in self._frames)
            table = rows + _TAIL.pack(_MAGIC, self._stored, len(self._frames), size, zlib.crc32(rows))
            self._sink.write(table)
        except BaseException:
            self._sink.abort()
            raise
        entry = self._sink.finish()
        self._tells(entry.bytes)
        return replace(entry, bytes=size)

    def abort(self) -> None:
        """Close it; what was written is of no use."""
        self._sink.abort()

    def _flush(self) -> None:
        if self._rest:
            self._append(self._end, bytes(self._rest))
            self._end += len(self._rest)
            self._rest.clear()

    def _append(self, offset: int, data: Buffer) -> None:
        frame = self._codec.compress(data)
        with self._lock:
            self._sink.write(frame)
            self._frames.append(Frame(offset, memoryview(data).nbytes, self._stored, len(frame)))
            self._stored += len(frame)


class DecompressingCheckpoint:
    """A committed checkpoint whose files are compressed; ``damaged`` learns where a file could not be decompressed."""

    def __init__(self, committed: Committed, codec: CodecInUse, damaged: Callable[[str, int, int, str], None]) -> None:
        self._committed, self._codec, self._damaged = committed, codec, damaged

    def entries(self) -> Sequence[Entry]:
        """Return all files of it, with the bytes that are stored."""
        return self._committed.entries()

    def source(self, name: str, *, fresh: bool = False) -> Frames:
        """Open a file for reads at offsets of what it held before the codec."""
        del fresh
        return Frames(self._committed.file(name), name, self._codec, self._damaged)

    def file(self, name: str) -> ReadableFile:
        """Open a file as a file object."""
        return SourceFile(self.source(name))

    def local_path(self, name: str) -> None:
        """Return None: what lies there is not what a library expects."""
        del name


class Frames:
    """The frames of a file, open for reading. ``size`` is what it held before the codec.

    What cannot be decompressed is told, and reads as zeros: the engine compares them as it does any bytes.
    """

    way = "through the client's page cache"

    def __init__(
        self, file: ReadableFile, name: str, codec: CodecInUse, damaged: Callable[[str, int, int, str], None]
    ) -> None:
        self._file, self._name, self._codec, self._damaged = file, name, codec, damaged
        self._lock = threading.Lock()
        # The frame that was read last in part: what follows is often in it.
        self._last: tuple[Frame, Bytes] | None = None
        try:
            self._frames = self._table()
        except DamagedError as error:
            self._frames = ()
            damaged(name, 0, file.size, f"the table of its frames is damaged: {error}")
        except BaseException:
            file.close()
            raise
        self._starts = [frame.offset for frame in self._frames]
        self.size = self._frames[-1].offset + self._frames[-1].bytes if self._frames else 0

    def read_into(self, offset: int, buffer: Buffer) -> int:
        """Read until the buffer is full or the file ends; return the bytes. Safe from several threads."""
        out = np.frombuffer(buffer, dtype=np.uint8)
        stop = min(offset + len(out), self.size)
        at = offset
        while at < stop:
            frame = self._frames[int(np.searchsorted(self._starts, at, side="right")) - 1]
            upto = min(stop, frame.offset + frame.bytes)
            is_whole = at == frame.offset and upto == frame.offset + frame.bytes
            out[at - offset : upto - offset] = self._data(frame, is_whole=is_whole)[at - frame.offset :][: upto - at]
            at = upto
        return max(0, at - offset)

    def close(self) -> None:
        """Close it."""
        self._file.close()

    def _data(self, frame: Frame, *, is_whole: bool) -> Bytes:
        """Return what a frame holds."""
        with self._lock:
            last = self._last
            if last and last[0] == frame:
                return last[1]
            stored = self._read(frame.place, frame.stored)
        try:
            data = np.frombuffer(self._codec.decompress(stored, frame.bytes), dtype=np.uint8)
        except DamagedError as error:
            where = f"the frame at byte {frame.place} of what is stored"
            detail = f"{where} cannot be decompressed, and counts as zeros: {error}"
            self._damaged(self._name, frame.offset, frame.bytes, detail)
            data = np.zeros(frame.bytes, dtype=np.uint8)
        if not is_whole:
            with self._lock:
                self._last = (frame, data)
        return data

    def _table(self) -> tuple[Frame, ...]:
        """Read the table. Raises DamagedError where it cannot be one."""
        stored = self._file.size
        if stored < _TAIL.size:
            raise DamagedError(f"the file has {stored} bytes")
        magic, place, count, size, checksum = _TAIL.unpack(self._read(stored - _TAIL.size, _TAIL.size))
        if magic != _MAGIC or place + count * _ROW_BYTES + _TAIL.size != stored:
            raise DamagedError(f"the last {_TAIL.size} of {stored} bytes are no tail")
        rows = self._read(place, count * _ROW_BYTES)
        if zlib.crc32(rows) != checksum:
            raise DamagedError("its checksum is another one")
        frames = tuple(Frame(*row) for row in np.frombuffer(rows, dtype="<u8").reshape(-1, len(Frame._fields)).tolist())
        ends = itertools.accumulate((frame.bytes for frame in frames), initial=0)
        if [*ends] != [*(frame.offset for frame in frames), size]:
            raise DamagedError("its frames leave gaps")
        return frames

    def _read(self, place: int, count: int) -> bytes:
        """Read stored bytes; fewer where the file ends before."""
        data = bytearray(count)
        self._file.seek(place)
        return bytes(data[: self._file.readinto(data)])
