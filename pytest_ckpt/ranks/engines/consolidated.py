"""Engine ``safetensors-consolidated``: torch's HuggingFaceStorageWriter with ``enable_consolidation``.

Each rank writes and syncs its own files. Then rank 0 consolidates: it reads the files of all ranks, writes files of
complete tensors, and writes the index of these files. The library does not sync the files that rank 0 writes. Therefore
pytest-ckpt makes every file durable through the store, within the timed part and before the commit. The ranks
communicate over gloo.

A load reads the files of complete tensors; each rank reads only its rows. The library's own reader is not used, because
it maps the files into memory. If a page of a mapped file cannot be read, the kernel kills the process.

During the consolidation, one client reads and writes a complete checkpoint. For this, torch opens files with the
built-in `open` and reports no progress. Therefore pytest-ckpt replaces `open` in torch's module by a function that
opens watched files. Watched files make the same calls, in pieces of at most 64 MiB.
"""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from torch.distributed.checkpoint import _consolidate_hf_safetensors as library
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter

from pytest_ckpt.facts.file_rules import CONSOLIDATED_FILES
from pytest_ckpt.ranks.engines.dcp import DcpEngine, of_places, size_fault
from pytest_ckpt.ranks.engines.dcp_watch import WatchedFiles
from pytest_ckpt.ranks.engines.protocol import LocalFault
from pytest_ckpt.ranks.engines.safetensors_files import DTYPES, LENGTH_BYTES, header_end
from pytest_ckpt.ranks.process.group import longest_seconds
from pytest_ckpt.sizing.files import consolidated_files, read_of_consolidated

if TYPE_CHECKING:
    import io
    from collections.abc import Iterator, Mapping

    from torch.distributed.checkpoint.filesystem import FileSystemWriter
    from torch.distributed.checkpoint.metadata import Metadata
    from torch.distributed.checkpoint.storage import WriteResult

    from pytest_ckpt.ranks.content import Content
    from pytest_ckpt.ranks.engines.protocol import Clock
    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.ranks.process.job import EngineOptions
    from pytest_ckpt.sizing.files import ConsolidatedFile
    from pytest_ckpt.sizing.models import RankLayout
    from pytest_ckpt.targets.protocol import CommittedCheckpoint

(INDEX,) = CONSOLIDATED_FILES.shared


class ConsolidatedEngine(DcpEngine):
    """An engine that saves with torch's writer of Hugging Face files, and loads files of complete tensors.

    All other work is done as in `DcpEngine`.
    """

    places = INDEX

    def __init__(
        self, shard: RankLayout, content: Content, group: Group, activity: Activity, options: EngineOptions
    ) -> None:
        super().__init__(shard, content, group, activity, options, rule=CONSOLIDATED_FILES)
        self._numbers = {
            name: number
            for number, file in enumerate(consolidated_files(shard, CONSOLIDATED_FILES), start=1)
            for name in file.tensors
        }
        self._to_read = read_of_consolidated(shard, CONSOLIDATED_FILES)
        self._own = {tensor.name: tensor for tensor in self._tensors}
        self._saved_by: ConsolidatingWriter | None = None
        self._longest_seconds = 0.0

    def facts(self) -> dict[str, str]:
        """Return facts on how the library is called, and the duration of the longest consolidation.

        Only rank 0 consolidates; the other ranks wait for it.
        """
        self._update_longest()
        seconds = longest_seconds(self._group, self._longest_seconds)
        return super().facts() | {
            "save": "torch.distributed.checkpoint.save, HuggingFaceStorageWriter with save_distributed and "
            "enable_consolidation, all files in one directory",
            "load": "each rank reads its rows of the consolidated files; the shards are not read again",
            "consolidation": f"only rank 0, in every save, when all shards are written: {seconds:.3f} s at most",
        }

    def _writer(self, directory: str, files: WatchedFiles) -> FileSystemWriter:
        self._update_longest()
        self._saved_by = ConsolidatingWriter(directory, files, self._numbers)
        return self._saved_by

    def _update_longest(self) -> None:
        self._longest_seconds = max(self._longest_seconds, self._saved_by.seconds if self._saved_by else 0.0)

    def load(self, committed: CommittedCheckpoint, step: int, clock: Clock) -> int:
        """Read the index, then this rank's rows of each file, one file after the other.

        Return the number of tensor bytes read. Unreadable content is recorded as a fault; no error is raised.
        """
        self._arrived, self._faults, self._file_of = frozenset(), [], {}
        files = WatchedFiles(clock, self._summed)
        directory = Path(committed.local_path(INDEX) or "").parent
        with clock.activity.wait():
            with files.create_stream(directory / INDEX, "rb") as source:
                fault = self._fault_of_index(source.read(files.sizes[INDEX]))
            if fault:
                self._faults.append(fault)
            for file in self._to_read if not fault else ():
                with files.create_stream(directory / file.name, "rb") as source:
                    self._read_rows(file, source, files.sizes[file.name])
        self._arrived, self._seen_checksum = frozenset(self._file_of), files.checksum
        return sum(self._own[name].bytes for name in self._arrived)

    def _fault_of_index(self, index: bytes) -> LocalFault | None:
        """Return a fault if the index does not list the correct file for each tensor of this rank; otherwise None."""
        try:
            placed = json.loads(index)["weight_map"]
            right = all(placed.get(name) == file.name for file in self._to_read for name in file.tensors)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            return of_places(INDEX, "unreadable", len(index), f"the index cannot be read: {error}")
        return None if right else of_places(INDEX, "foreign", len(index), "the index places tensors elsewhere")

    def _read_rows(self, file: ConsolidatedFile, source: io.IOBase, size: int) -> None:
        begin = header_end(source.read(LENGTH_BYTES))
        header = source.read(begin - LENGTH_BYTES) if begin and begin <= size else b""
        wanted, offsets = _header_of(file)
        if begin is None or not _is_header(header, wanted):
            self._faults.append(of_places(file.name, "foreign", size, "its header is not what was written"))
            return
        if size > begin + file.bytes:
            self._faults.append(size_fault(file.name, size, begin + file.bytes))
        state = self._ready()
        for name, (_, ranks) in file.tensors.items():
            if name not in self._own:
                continue
            rows = state.bytes_of(name)
            start = begin + offsets[name] + ranks.index(self._shard.rank) * len(rows)
            source.seek(start)
            count = source.readinto(rows)  # type: ignore[attr-defined]
            if count == len(rows):
                self._file_of[name] = file.name
                continue
            detail = f"the file has {size} bytes, the rows of this rank end at {start + len(rows)}"
            self._faults.append(
                LocalFault(
                    kind="short", file=file.name, tensor=name, offset=count, bytes=len(rows) - count, detail=detail
                )
            )


def _header_of(file: ConsolidatedFile) -> tuple[dict[str, object], dict[str, int]]:
    """Return (expected header, offsets) of a file. The offsets are {tensor: bytes from the end of the header}.

    A tensor has one row for each rank that has a part of the tensor, in rank order.
    """
    header: dict[str, object] = {}
    offsets: dict[str, int] = {}
    end = 0
    for name, (part, ranks) in file.tensors.items():
        offsets[name], end = end, end + part.bytes * len(ranks)
        header[name] = {
            "shape": [len(ranks), part.elements],
            "dtype": DTYPES[part.dtype],
            "data_offsets": [offsets[name], end],
        }
    return header, offsets


def _is_header(found: bytes, wanted: dict[str, object]) -> bool:
    """Return whether the bytes ``found`` are the header ``wanted`` as JSON, with or without spaces between items."""
    forms = (json.dumps(wanted, separators=separators) for separators in ((", ", ": "), (",", ":")))
    return found.rstrip(b" ") in {form.encode() for form in forms}


def make(
    *, shard: RankLayout, content: Content, group: Group, activity: Activity, options: EngineOptions
) -> ConsolidatedEngine:
    """Return the engine for the files of one rank. All ranks call each of the engine's methods together."""
    return ConsolidatedEngine(shard, content, group, activity, options)


class ConsolidatingWriter(HuggingFaceStorageWriter):
    """torch's writer of Hugging Face files, with all files in one directory. Rank 0 also writes the complete tensors.

    ``numbers`` is {tensor name: number of its file, from 1}. ``seconds`` is the duration of the consolidation.
    """

    def __init__(self, directory: str, files: WatchedFiles, numbers: Mapping[str, int]) -> None:
        super().__init__(directory, dict(numbers), save_distributed=True, enable_consolidation=True)
        # The library would put the shards into a separate directory.
        self.path = directory
        self.fs = files
        self._files = files
        self.seconds = 0.0

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Write the files of complete tensors. The library calls this on rank 0 after all ranks have written."""
        began = time.perf_counter()
        with _opening_by(self._files):
            super().finish(metadata, results)
        self.seconds = time.perf_counter() - began


@contextmanager
def _opening_by(files: WatchedFiles) -> Iterator[None]:
    """In the ``with`` block, let the library's consolidation open its files through ``files``."""
    vars(library)["open"] = files.open
    try:
        yield
    finally:
        del vars(library)["open"]
