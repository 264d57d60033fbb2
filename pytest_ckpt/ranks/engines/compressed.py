"""An engine that compresses its files with a codec. It saves and loads through another engine, the wrapped engine.

The wrapped engine writes to sinks (files being written) that compress data, and reads from sources (open files) that
decompress data. The names of files do not change.

A file contains frames in the order in which they were compressed. A frame contains at most 4 MiB of uncompressed data.
After the frames, the file contains a table of the frames, and a tail with the offset of the table. Each frame has the
codec's checksum; the table has a separate checksum.

If a read needs only a part of a frame, the complete frame is read. Damaged frames are reported as faults. The engine
measures the CPU time of the codec.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import itertools
import struct
import threading
import time
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pytest_ckpt.facts.compression import CODECS, FRAME_BYTES
from pytest_ckpt.ranks.content import AS_NUMBERS
from pytest_ckpt.ranks.engines.protocol import MAXIMUM_FAULTS_OF_RANK, Clock, Comparison, LocalFault, expect, state_of
from pytest_ckpt.support.units import format_binary_bytes
from pytest_ckpt.targets.protocol import WrappedDraft
from pytest_ckpt.targets.without_paths import SourceFile

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from pytest_ckpt.facts.proofs import CommitProof, Entry
    from pytest_ckpt.ranks.content import Bytes
    from pytest_ckpt.ranks.engines.protocol import Engine
    from pytest_ckpt.targets.protocol import Buffer, CommittedCheckpoint, Draft, ReadableFile, Sink

_TAIL = struct.Struct("<8sQQQL4x")
_MAGIC = b"CKPTFRMS"


class CompressedEngine:
    """An engine that saves and loads compressed files through the wrapped engine ``engine``.

    ``stated`` names the codec and its level, such as ``zstd:1``. ``stored_bytes`` is the compressed size of this rank's
    files in the last save.
    """

    def __init__(self, engine: Engine, stated: str) -> None:
        self._engine, self._codec = engine, CodecInUse(stated)
        self.stored_bytes = 0
        self._damage: list[LocalFault] = []

    @property
    def codec_seconds(self) -> float:
        """The codec's CPU time so far, in seconds."""
        return self._codec.seconds

    def facts(self) -> dict[str, str]:
        """Return the facts of the wrapped engine and of the codec."""
        return self._engine.facts() | {
            "compression": f"{self._codec.description}; frames of {format_binary_bytes(FRAME_BYTES)}, each with a "
            "checksum, written and read through the client's page cache; files keep their names",
            "content": f"{AS_NUMBERS}: the ratio of one measured state, and of no other job",
        }

    def fill(self, checkpoint: int) -> None:
        """Generate the content of checkpoint number ``checkpoint``."""
        self._engine.fill(checkpoint)

    def state(self) -> Sequence[Bytes]:
        """Return the memory of the wrapped engine's state."""
        return state_of(self._engine)

    def save(self, draft: Draft, clock: Clock) -> CommitProof | None:
        """Save compressed files through the wrapped engine. Return the wrapped engine's proof of a commit, or None."""
        self.stored_bytes = 0
        return self._engine.save(CompressingDraft(draft, self._codec, self._count), clock)

    def load_steps(self) -> int:
        """Return the number of load steps of the wrapped engine."""
        return self._engine.load_steps()

    def expect(self, checkpoint: int) -> None:
        """Announce the checkpoint of the next load to the wrapped engine."""
        expect(self._engine, checkpoint)

    def load(self, committed: CommittedCheckpoint, step: int, clock: Clock) -> int:
        """Read and decompress the data of load step ``step``. Return the number of uncompressed tensor bytes."""
        return self._engine.load(DecompressingCheckpoint(committed, self._codec, self._note), step, clock)

    def verify(self, checkpoint: int) -> Comparison:
        """Compare the data of the last step with the expected content.

        Damaged frames are the first faults of the result.
        """
        comparison, damage = self._engine.verify(checkpoint), self._damage
        self._damage = []
        faults = (*damage, *comparison.faults)[:MAXIMUM_FAULTS_OF_RANK]
        return replace(comparison, fault_count=comparison.fault_count + len(damage), faults=faults)

    def release(self) -> None:
        """Free the memory of the wrapped engine."""
        self._engine.release()

    def _count(self, stored: int) -> None:
        self.stored_bytes += stored

    def _note(self, file: str, offset: int, count: int, detail: str) -> None:
        fault = LocalFault(kind="unreadable", file=file, tensor="", offset=offset, bytes=count, detail=detail)
        # A damaged frame that is read in parts is listed once.
        if fault not in self._damage:
            self._damage.append(fault)


class Frame(NamedTuple):
    """A compressed piece of a file.

    The frame contains the ``bytes`` uncompressed bytes that begin at ``offset`` of the uncompressed file. The stored
    frame has ``stored`` bytes and begins at ``place`` of the stored file.
    """

    offset: int
    bytes: int
    place: int
    stored: int


_ROW_BYTES = 8 * len(Frame._fields)


class CompressingDraft(WrappedDraft):
    """The files of a checkpoint that is being saved. Data are compressed when they are written.

    ``stored`` is called with the compressed size of each finished file. The draft's entries contain compressed sizes;
    `CompressingSink.finish` returns an entry with the uncompressed size.
    """

    def __init__(self, draft: Draft, codec: CodecInUse, stored: Callable[[int], None]) -> None:
        super().__init__(draft)
        self._codec, self._report_bytes = codec, stored

    def create(self, name: str, size: int | None) -> Sink:
        """Begin a file that will be written in order. ``size`` is ignored, because the compressed size is not known."""
        del size
        return CompressingSink(self._draft.create(name, None), self._codec, self._report_bytes)

    def location(self) -> str:
        """Raise NotImplementedError, because files that a library writes by itself cannot be compressed."""
        raise NotImplementedError("files that a library writes itself are not compressed")

    def adopt(self, names: Collection[str]) -> None:
        """Raise NotImplementedError, because files that a library writes by itself cannot be compressed."""
        self.location()


class CompressingSink:
    """A file being written, with compressed frames.

    The data are divided into frames. Each frame is compressed and appended to the stored file.
    """

    alignment = 1
    part_bytes: int | None = FRAME_BYTES

    def __init__(self, sink: Sink, codec: CodecInUse, stored: Callable[[int], None]) -> None:
        self._sink, self._codec, self._report_bytes = sink, codec, stored
        self._lock = threading.Lock()
        self._frames: list[Frame] = []
        self._stored = 0
        # Bytes that were written in order and do not fill a frame yet, and their offset.
        self._rest, self._end = bytearray(), 0

    @property
    def io_mode(self) -> str:
        """The I/O mode of the writes (direct or buffered), as text."""
        return self._sink.io_mode

    def write(self, data: Buffer) -> int:
        """Append all of ``data``. Return the number of uncompressed bytes."""
        view, done = memoryview(data).cast("B"), 0
        while done < len(view):
            # A frame that is completely within ``data`` is not copied first.
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
        """Compress ``data`` as one frame, and append the frame to the file.

        ``offset`` is the position of ``data`` in the uncompressed file. Several threads may call this method. They
        compress concurrently and append one after the other.
        """
        self._append(offset, data)

    def finish(self) -> Entry:
        """Write the table and the tail, make the file durable and close it.

        Return the file's name and uncompressed size.
        """
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
        self._report_bytes(entry.bytes)
        return replace(entry, bytes=size)

    def abort(self) -> None:
        """Close the file without a table, so that the file is unusable."""
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
    """A committed checkpoint whose files are decompressed when they are read.

    ``damaged`` is called for each damaged frame or table with (file name, offset, length, description).
    """

    def __init__(
        self, committed: CommittedCheckpoint, codec: CodecInUse, damaged: Callable[[str, int, int, str], None]
    ) -> None:
        self._committed, self._codec, self._damaged = committed, codec, damaged

    def entries(self) -> Sequence[Entry]:
        """Return the names and compressed sizes of all files."""
        return self._committed.entries()

    def source(self, name: str, *, fresh: bool = False) -> Frames:
        """Open a file for reads at offsets in the uncompressed data."""
        del fresh
        return Frames(self._committed.file(name), name, self._codec, self._damaged)

    def file(self, name: str) -> ReadableFile:
        """Open a file as a file object that returns uncompressed bytes."""
        return SourceFile(self.source(name))

    def local_path(self, name: str) -> None:
        """Return None, because a library cannot read the compressed file."""
        del name


class Frames:
    """A compressed file, open for reads at offsets in the uncompressed data. ``size`` is the uncompressed size.

    A damaged frame is reported and is read as zeros.
    """

    io_mode = "through the client's page cache"

    def __init__(
        self, file: ReadableFile, name: str, codec: CodecInUse, damaged: Callable[[str, int, int, str], None]
    ) -> None:
        self._file, self._name, self._codec, self._damaged = file, name, codec, damaged
        self._lock = threading.Lock()
        # The last frame that was read in part, because the next read often needs it again.
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
        """Fill ``buffer`` with uncompressed bytes, beginning at ``offset``. Return the number of bytes.

        The number is smaller than the size of ``buffer`` if the file ends earlier. Several threads may call this
        method.
        """
        out = np.frombuffer(buffer, dtype=np.uint8)
        stop = min(offset + len(out), self.size)
        at = offset
        while at < stop:
            frame = self._frames[int(np.searchsorted(self._starts, at, side="right")) - 1]
            upto = min(stop, frame.offset + frame.bytes)
            is_complete = at == frame.offset and upto == frame.offset + frame.bytes
            out[at - offset : upto - offset] = self._data(frame, is_complete=is_complete)[at - frame.offset :][
                : upto - at
            ]
            at = upto
        return max(0, at - offset)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _data(self, frame: Frame, *, is_complete: bool) -> Bytes:
        """Return the uncompressed bytes of a frame; zeros if the frame is damaged.

        If ``is_complete`` is False, the caller needs only a part of the frame. The frame is then cached for the next
        read.
        """
        with self._lock:
            last = self._last
            if last and last[0] == frame:
                return last[1]
            stored = self._read(frame.place, frame.stored)
        try:
            data = np.frombuffer(self._codec.decompress(stored, frame.bytes), dtype=np.uint8)
        except DamagedError as error:
            where = f"the frame at byte {frame.place} of the stored file"
            detail = f"{where} cannot be decompressed, and counts as zeros: {error}"
            self._damaged(self._name, frame.offset, frame.bytes, detail)
            data = np.zeros(frame.bytes, dtype=np.uint8)
        if not is_complete:
            with self._lock:
                self._last = (frame, data)
        return data

    def _table(self) -> tuple[Frame, ...]:
        """Read and return the table of frames. Raises DamagedError if the table is invalid."""
        stored = self._file.size
        if stored < _TAIL.size:
            raise DamagedError(f"the file has {stored} bytes")
        magic, place, count, size, checksum = _TAIL.unpack(self._read(stored - _TAIL.size, _TAIL.size))
        if magic != _MAGIC or place + count * _ROW_BYTES + _TAIL.size != stored:
            raise DamagedError(f"the last {_TAIL.size} of {stored} bytes are not a tail")
        rows = self._read(place, count * _ROW_BYTES)
        if zlib.crc32(rows) != checksum:
            raise DamagedError("its checksum is another one")
        frames = tuple(Frame(*row) for row in np.frombuffer(rows, dtype="<u8").reshape(-1, len(Frame._fields)).tolist())
        ends = itertools.accumulate((frame.bytes for frame in frames), initial=0)
        if [*ends] != [*(frame.offset for frame in frames), size]:
            raise DamagedError("its frames leave gaps")
        return frames

    def _read(self, place: int, count: int) -> bytes:
        """Return ``count`` stored bytes, beginning at offset ``place``; fewer bytes if the file ends earlier."""
        data = bytearray(count)
        self._file.seek(place)
        return bytes(data[: self._file.readinto(data)])


class DamagedError(Exception):
    """Raised if stored data are not valid compressed data."""


class CodecInUse:
    """The codec of the option ``--ckpt-strategy=compressed:codec``, such as ``zstd:1``. All threads of a rank share it.

    ``seconds`` is the CPU time of the codec, summed over all threads.
    """

    def __init__(self, stated: str) -> None:
        """Import the library of the codec that ``stated`` names, such as ``zstd:1``.

        Raises ImportError if the library is not installed.
        """
        self._name, _, level = stated.partition(":")
        self._level = int(level)
        self._library: Any = importlib.import_module(CODECS[self._name].module)
        self._error: type[Exception] = self._library.ZstdError if self._name == "zstd" else RuntimeError
        self._lock, self._of_thread = threading.Lock(), threading.local()
        self.seconds = 0.0

    @property
    def description(self) -> str:
        """The codec, its level and its library, as text for the report."""
        package = CODECS[self._name].package
        return f"{self._name} at level {self._level}, by {package} {importlib.metadata.version(package)}"

    def compress(self, data: Buffer) -> bytes:
        """Return ``data`` as a compressed frame with a checksum."""
        began = time.thread_time()
        if self._name == "zstd":
            frame: bytes = self._zstd("compressor").compress(data)
        else:
            frame = self._library.compress(memoryview(data), compression_level=self._level, content_checksum=True)
        self._add(began)
        return frame

    def decompress(self, frame: bytes, size: int) -> bytes:
        """Return the uncompressed bytes of a frame.

        Raises DamagedError if the frame is invalid or does not contain exactly ``size`` bytes.
        """
        began = time.thread_time()
        try:
            data = self._of_zstd(frame, size) if self._name == "zstd" else self._of_lz4(frame, size)
        except self._error as error:
            raise DamagedError(f"{self._name} says: {error}") from None
        finally:
            self._add(began)
        if len(data) != size:
            raise DamagedError(f"it holds {len(data)} bytes instead of {size}")
        return data

    def _of_zstd(self, frame: bytes, size: int) -> bytes:
        # The library allocates the size that the frame states, which damage may change.
        if self._library.get_frame_parameters(frame).content_size != size:
            raise DamagedError(f"its head does not state a size of {size} bytes")
        data: bytes = self._zstd("decompressor").decompress(frame)
        return data

    def _of_lz4(self, frame: bytes, size: int) -> bytes:
        reader = self._library.LZ4FrameDecompressor()
        data: bytes = reader.decompress(frame, max_length=size)
        if not reader.eof:
            raise DamagedError(f"it does not end after {size} bytes")
        return data

    def _zstd(self, what: str) -> Any:
        """Return this thread's zstd object: the "compressor" or the "decompressor", as named by ``what``.

        Threads must not share these objects.
        """
        made = getattr(self._of_thread, what, None)
        if made is None:
            made = (
                self._library.ZstdCompressor(level=self._level, write_checksum=True)
                if what == "compressor"
                else self._library.ZstdDecompressor()
            )
            setattr(self._of_thread, what, made)
        return made

    def _add(self, began: float) -> None:
        took = time.thread_time() - began
        with self._lock:
            self.seconds += took
