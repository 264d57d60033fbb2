"""Engine ``safetensors``: writes and reads Hugging Face's file format with the safetensors library.

Each rank keeps its state in memory. In a save, the library serialises a complete file in one call. In a load, it
creates all tensors of a file in one call. The store writes one file after the other, each with one write and one fsync,
like torch's HuggingFaceStorageWriter.

After its own files, rank 0 writes the index, which lists the file of each tensor. The layout defines the content of the
index, so rank 0 does not wait for other ranks. pytest-ckpt adds the index and its fsync.

Files are read and are not mapped into memory. A failed read raises an error with an errno and the file's name. If a
page of a mapped file could not be read, the kernel would kill the process.
"""

from __future__ import annotations

import io
import time
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from safetensors import __version__
from safetensors.numpy import load as tensors_of
from safetensors.numpy import save as bytes_of_file

from pytest_ckpt.facts.file_rules import SAFETENSORS_FILES
from pytest_ckpt.ranks.engines.protocol import MAXIMUM_FAULTS_OF_RANK, Clock, Comparison, LocalFault, write_in_order
from pytest_ckpt.ranks.engines.safetensors_files import (
    INDEX,
    LENGTH_BYTES,
    MAXIMUM_HEADER_BYTES,
    METADATA,
    files_of_tensors,
    header_end,
    index_of,
    places_in,
    stored_name,
    weight_map,
)
from pytest_ckpt.ranks.engines.whole_state import (
    CompleteState,
    Loaded,
    compare_loaded,
    load_files,
    loaded_bytes,
)
from pytest_ckpt.ranks.process.group import longest_seconds
from pytest_ckpt.sizing.files import shard_files

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    from pytest_ckpt.facts.proofs import FaultKind
    from pytest_ckpt.ranks.content import Bytes, Content
    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.ranks.process.job import EngineOptions
    from pytest_ckpt.sizing.models import RankLayout, ShardFile, Tensor
    from pytest_ckpt.targets.protocol import CommittedCheckpoint, Draft, ReadableFile, Sink

    Array = NDArray[Any]


class SafetensorsEngine:
    """An engine that keeps the rank's complete state in memory, like a training process."""

    def __init__(self, shard: RankLayout, content: Content, group: Group, options: EngineOptions) -> None:
        self._shard, self._content, self._group, self._options = shard, content, group, options
        self._files = shard_files(shard, SAFETENSORS_FILES)
        self._whole = CompleteState(self._files, shard.rank, content, empty=_empty, bytes_of=_bytes, options=options)
        self._index = b""
        self._index_seen = b""
        self._index_fault: LocalFault | None = None
        self._sizes: dict[str, int] = {}
        self._loaded: Loaded = {}
        self._added_seconds = 0.0

    def facts(self) -> dict[str, str]:
        """Return the library's version, how the library is called, and the duration of the added write of the index."""
        added = longest_seconds(self._group, self._added_seconds)
        return {
            "safetensors": __version__,
            "save": "safetensors.numpy.save, each file one write and one fsync",
            "load": "each file read completely, safetensors.numpy.load",
            "added": f"the index with an fsync, in every save: {added * 1000:.1f} ms at most",
        }

    def fill(self, checkpoint: int) -> None:
        """Write the content of checkpoint number ``checkpoint`` into the state. The first call allocates the state."""
        self._compute_index()
        self._whole.fill(checkpoint)

    def state(self) -> list[Bytes]:
        """Return the memory of the tensors."""
        return self._whole.memory()

    def stage(self) -> int:
        """Copy every tensor into the staging buffer. Return the number of bytes copied."""
        return self._whole.stage()

    def save(self, draft: Draft, clock: Clock) -> None:
        """Write the files one after the other. Rank 0 then writes the index.

        Each file is durable before the next file is begun.
        """
        for file in self._files:
            self._sizes[file.name] = write_in_order(draft, clock, file.name, partial(self._write, file))
        self._whole.saved()
        began = time.perf_counter()
        if self._shard.rank == 0:
            write_in_order(draft, clock, INDEX, lambda sink: sink.write(self._index))
        self._added_seconds = max(self._added_seconds, time.perf_counter() - began)

    def load_steps(self) -> int:
        """Return 1, because all data are loaded before they are compared. Also compute the expected index."""
        self._compute_index()
        return 1

    def load(self, committed: CommittedCheckpoint, step: int, clock: Clock) -> int:
        """Read the index, then the files one after the other. Return the number of tensor bytes read.

        If a file cannot be parsed, a fault is recorded and no error is raised. If the index is invalid, or lists a
        wrong file for one of this rank's tensors, a fault is recorded and no file is loaded.
        """
        self.release()
        source = committed.file(INDEX)
        try:
            with clock.phase("read", INDEX):
                self._index_fault = self._read_index(source)
        finally:
            source.close()
        if self._index_fault is None:
            self._loaded = load_files(self._files, committed, clock, self._read)
        return loaded_bytes(self._loaded)

    def verify(self, checkpoint: int) -> Comparison:
        """Compare every byte of the tensors that were loaded, and every byte of the index."""
        comparison = compare_loaded(
            self._loaded, self._files, self._shard.rank, checkpoint, self._content, self._options
        )
        fault = self._index_fault
        if fault is None and self._index_seen != self._index:
            fault = _fault(
                "foreign", INDEX, len(self._index), "places of other ranks' tensors are not what was written"
            )
        if fault is None:
            return comparison
        return Comparison(
            bytes_checked=comparison.bytes_checked,
            fault_count=comparison.fault_count + 1,
            faults=(fault, *comparison.faults)[:MAXIMUM_FAULTS_OF_RANK],
        )

    def release(self) -> None:
        """Free the state and the loaded data."""
        self._whole.clear()
        self._loaded, self._index_seen = {}, b""

    def _compute_index(self) -> None:
        """Compute the expected index, outside the timed part. The index is the same for all checkpoints."""
        self._index = self._index or index_of(self._shard)

    def _write(self, file: ShardFile, sink: Sink) -> None:
        arrays = self._whole.to_save()[file.name]
        stored = {stored_name(name, self._shard.rank): array for name, array in arrays.items()}
        sink.write(bytes_of_file(stored, METADATA))

    def _read_index(self, source: ReadableFile) -> LocalFault | None:
        """Read the index. Return a fault, or None if the index is correct for this rank's tensors.

        The index has a fault if its size is wrong, if it cannot be parsed, or if it lists a wrong file for a tensor.
        """
        size, written = source.size, len(self._index)
        if size != written:
            detail = f"the index has {size} bytes, {written} were written"
            return _fault("short" if size < written else "foreign", INDEX, size, detail)
        self._index_seen = _read_at(source, 0, size)
        try:
            placed = weight_map(self._index_seen)
        except ValueError as error:
            return _fault("unreadable", INDEX, size, f"the index cannot be read: {error}")
        if any(placed.get(name) != file for name, file in files_of_tensors(self._shard).items()):
            return _fault("foreign", INDEX, size, "the index places tensors of this rank elsewhere")
        return None

    def _read(self, file: ShardFile, source: ReadableFile) -> dict[str, Bytes] | LocalFault:
        return self._read_tensors(file, source) if self._options.parts == 1 else self._read_part(file, source)

    def _read_tensors(self, file: ShardFile, source: ReadableFile) -> dict[str, Bytes] | LocalFault:
        """Return {tensor name: bytes} of the tensors that the library creates from a file.

        If the library cannot read the file, return a fault.
        """
        size, written = source.size, self._written(file)
        if size > file.bytes + LENGTH_BYTES + MAXIMUM_HEADER_BYTES:
            # A file may have grown to any size.
            return _fault(
                "foreign", file.name, size, f"the file has {size} bytes, {file.bytes} of tensors were written"
            )
        data = _read_at(source, 0, size)
        end = header_end(data)
        try:
            arrays = tensors_of(data)
            places_in(data[LENGTH_BYTES:end], written)
        except Exception as error:  # a damaged file raises various errors
            return self._refused(file, size, end, error)
        return {tensor.name: _bytes(arrays[name]) for name, tensor in written.items()}

    def _read_part(self, file: ShardFile, source: ReadableFile) -> dict[str, Bytes] | LocalFault:
        """Return {tensor name: bytes} of the part of every tensor that this reader loads.

        The header of the file contains the offsets. If the header or the length of the file is wrong, return a fault.
        """
        size = source.size
        end = header_end(_read_at(source, 0, min(LENGTH_BYTES, size)))
        try:
            places = places_in(_read_at(source, LENGTH_BYTES, min(end or 0, size) - LENGTH_BYTES), self._written(file))
        except ValueError as error:
            return self._refused(file, size, end, error)
        if end is None or size != end + file.bytes:
            return self._refused(file, size, end, ValueError("it is not a file of these tensors"))
        loaded: dict[str, Bytes] = {}
        for tensor in file.tensors:
            start, stop = (number * tensor.bytes // tensor.elements for number in self._options.span(tensor.elements))
            data = loaded[tensor.name] = np.empty(stop - start, dtype=np.uint8)
            source.seek(end + places[stored_name(tensor.name, self._shard.rank)] + start)
            got = source.readinto(data)
            if got < len(data):
                detail = f"the file ends after {got} of {len(data)} bytes of a tensor's part"
                return _fault("short", file.name, len(data), detail, tensor=tensor.name, offset=start)
        return loaded

    def _written(self, file: ShardFile) -> dict[str, Tensor]:
        return {stored_name(tensor.name, self._shard.rank): tensor for tensor in file.tensors}

    def _refused(self, file: ShardFile, size: int, header: int | None, error: Exception) -> LocalFault:
        """Return a fault for a file whose length or content is wrong.

        ``header`` is the offset of the tensors in the file; None if it is unknown. ``error`` is the reason.
        """
        message = str(error).splitlines()[0] if str(error) else type(error).__name__
        wanted = self._sizes.get(file.name) or (header or 0) + file.bytes
        kind: FaultKind = "short" if size < wanted else "unreadable"
        if header is not None and size > wanted:
            kind = "foreign"
        detail = f"safetensors cannot read it ({size} bytes, {file.bytes} of tensors expected): {message}"
        return _fault(kind, file.name, size, detail)


def _read_at(source: ReadableFile, offset: int, count: int) -> bytes:
    """Return ``count`` bytes, beginning at ``offset``. If the file ends earlier, return fewer bytes."""
    if count <= 0:
        return b""
    buffer_file = io.BytesIO()
    buffer_file.seek(count - 1)
    buffer_file.write(b"\0")
    source.seek(offset)
    with buffer_file.getbuffer() as buffer:
        got = source.readinto(buffer)
    # A full buffer is returned without a copy.
    return buffer_file.getvalue() if got == count else buffer_file.getvalue()[:got]


def _fault(kind: FaultKind, file: str, size: int, detail: str, *, tensor: str = "", offset: int = 0) -> LocalFault:
    return LocalFault(kind=kind, file=file, tensor=tensor, offset=offset, bytes=size, detail=detail)


def _empty(tensor: Tensor) -> Array:
    return np.empty(tensor.elements, dtype=tensor.dtype)


def _bytes(array: Array) -> Bytes:
    return array.view(np.uint8)


def make(
    *, shard: RankLayout, content: Content, group: Group, activity: Activity, options: EngineOptions
) -> SafetensorsEngine:
    """Return the engine for a rank's files. Only `SafetensorsEngine.facts` communicates with other ranks."""
    del activity
    return SafetensorsEngine(shard, content, group, options)
