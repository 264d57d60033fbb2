"""The base of engines that save to an object store with torch.distributed.checkpoint.

The state, the communication of ranks and the comparison are the same as in engine ``dcp``. The library makes its usual
requests. To commit, rank 0 puts `.metadata.tmp`, copies it to `.metadata` and deletes `.metadata.tmp`. pytest-ckpt adds
a HEAD request for each object, within the timed part.

The client is the library that accesses the object store. Its calls are watched: they are timed by phase, their bytes
count as progress, and their errors are recorded.
"""

from __future__ import annotations

import errno
import io
import logging
import os
import zlib
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
from torch.distributed.checkpoint.filesystem import FileSystemBase

from pytest_ckpt.facts.file_rules import DCP_OBJECTS
from pytest_ckpt.facts.proofs import CommitProof
from pytest_ckpt.ranks.engines.dcp import METADATA, DcpEngine, size_fault
from pytest_ckpt.ranks.engines.dcp_watch import LibraryOperation

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterator, Sequence

    from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter

    from pytest_ckpt.facts.failure import Phase
    from pytest_ckpt.facts.proofs import Entry
    from pytest_ckpt.ranks.content import Content
    from pytest_ckpt.ranks.engines.protocol import Clock, Comparison
    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.ranks.process.job import EngineOptions
    from pytest_ckpt.sizing.models import RankLayout
    from pytest_ckpt.targets.protocol import (
        Buffer,
        CommittedCheckpoint,
        CommittedObjects,
        Draft,
        DraftOfObjects,
        ObjectPlace,
    )

    Path = str | os.PathLike[str]

_READ_BYTES = 1 << 20


class ObjectsDcpEngine(DcpEngine):
    """Base class of the engines for object stores. ``client`` is the engine's client library.

    ``writes`` and ``reads`` describe the client's writer and reader for the report. The client's log is discarded,
    because it may contain access keys.
    """

    client: Client
    writes: str
    reads: str

    def __init__(
        self, shard: RankLayout, content: Content, group: Group, activity: Activity, options: EngineOptions
    ) -> None:
        super().__init__(shard, content, group, activity, options, rule=DCP_OBJECTS)
        # Without a handler, Python would print warnings and errors.
        logging.getLogger().addHandler(logging.NullHandler())
        self._loaded: CommittedObjects | None = None

    def facts(self) -> dict[str, str]:
        """Return the versions, how the library is called, how it commits, and the requests that pytest-ckpt adds."""
        return {
            "torch": torch.__version__,
            "client": self.client.name,
            "save": f"torch.distributed.checkpoint.save, {self.writes}",
            "load": f"torch.distributed.checkpoint.load, {self.reads}, into tensors that are there",
            "commit": "the library's and not ours: .metadata.tmp is put, copied to .metadata and deleted",
            "added": f"HEAD of each object after the library's own calls, in every save: {self.added_text()}",
            "requests": f"{self.client.name} makes requests that are not counted; only pytest-ckpt's are listed",
        }

    def verify(self, checkpoint: int) -> Comparison:
        """Compare the sizes of this rank's objects with the written sizes, then compare the data as in `DcpEngine`."""
        if self._loaded and not self._faults:
            sizes = self._loaded.sizes(list(self._sizes))
            self._faults += [
                size_fault(name, sizes.get(name, 0), size)
                for name, size in self._sizes.items()
                if sizes.get(name, 0) != size
            ]
        return super().verify(checkpoint)

    def new_writer(self, place: ObjectPlace) -> FileSystemWriter:
        """Return the client's writer for a checkpoint at ``place``."""
        raise NotImplementedError

    def new_reader(self, place: ObjectPlace) -> FileSystemReader:
        """Return the client's reader for a checkpoint at ``place``."""
        raise NotImplementedError

    def _begin_save(self, draft: Draft, clock: Clock) -> tuple[FileSystemWriter, LibraryOperation]:
        objects = cast("DraftOfObjects", draft)
        writer = self.new_writer(objects.place())
        watch = WatchedObjects(clock, self._summed, writer.fs, self.client, objects.translate_error)
        writer.fs = watch  # type: ignore[assignment]
        return writer, watch

    def _end_save(self, draft: Draft, files: LibraryOperation) -> None:
        """Do nothing, because the library has written all files."""

    def _committed_as(self, entries: Sequence[Entry], files: LibraryOperation) -> CommitProof | None:
        """On rank 0, return the proof of the library's commit; on other ranks, return None.

        Raises OSError if the size of an object in the store differs from the number of bytes passed to the client.
        """
        for entry in entries:
            if (sent := files.sizes.get(entry.name)) != entry.bytes:
                what = f"the store acknowledges {entry.bytes} bytes, and {sent} were handed to {self.client.name}"
                raise OSError(errno.EIO, what, entry.name)
        return CommitProof(method="copy") if self._group.rank == 0 else None

    def _begin_load(self, committed: CommittedCheckpoint, clock: Clock) -> tuple[FileSystemReader, LibraryOperation]:
        self._loaded = cast("CommittedObjects", committed)
        reader = self.new_reader(self._loaded.place())
        watch = WatchedObjects(clock, self._summed, reader.fs, self.client, self._loaded.translate_error)
        reader.fs = watch  # type: ignore[assignment]
        return reader, watch

    def _query_sizes(self, committed: CommittedCheckpoint, files: LibraryOperation) -> None:
        files.sizes |= cast("CommittedObjects", committed).sizes([*self._own_files, METADATA])


class Client(NamedTuple):
    """A client library of an object store.

    ``name`` includes the version; ``errors`` are the types of errors that the library raises.
    """

    name: str
    errors: tuple[type[BaseException], ...]


ErrorTranslator = Callable[[BaseException, str, str, str], Exception]
"""A function that converts a client's error, as `pytest_ckpt.targets.protocol.DraftOfObjects.translate_error` does."""


class WatchedObjects(LibraryOperation, FileSystemBase):
    """A file system for the library that watches the calls on objects, during one save or load of one rank.

    ``inner`` makes the requests; ``translate`` converts the client's errors. In a save, ``sizes`` is {object name:
    number of bytes passed to the client}. In a load, ``sizes`` contains the sizes of this rank's objects in the store.
    """

    def __init__(
        self, clock: Clock, summed: Collection[str], inner: FileSystemBase, client: Client, translate: ErrorTranslator
    ) -> None:
        super().__init__(clock, summed)
        self._inner, self._client, self._translate = inner, client, translate
        self._ours: list[Exception] = []

    @contextmanager
    def create_stream(self, path: Path, mode: str) -> Generator[io.IOBase, None, None]:
        """Open an object through the client. A written object is complete in the store after the ``with`` block."""
        name = _name(path)
        phase: Phase = "write" if "w" in mode else "read"
        with self.work(phase, name), self.converted_errors(phase, path), self._inner.create_stream(path, mode) as raw:
            if name in self._summed:
                self.checksum = 0
            stream = _WatchedStream(raw, self, path, phase)
            yield stream
            if phase == "write":
                self.sizes[name] = stream.moved
            elif name in self._summed:
                # A reader of a pickle stops at the pickle's end, so read the rest as well.
                while stream.read(_READ_BYTES):
                    pass

    def concat_path(self, path: Path, suffix: str) -> Path:
        """Return the path of the object ``suffix`` below ``path``."""
        return self._inner.concat_path(path, suffix)

    def init_path(self, path: Path) -> Path:
        """Return ``path`` in the client's form."""
        return self._inner.init_path(path)

    def rename(self, path: Path, new_path: Path) -> None:
        """Rename an object: the client copies the object and deletes the original."""
        with self.call("write", _name(path)), self.converted_errors("rename", path):
            self._inner.rename(path, new_path)
        if _name(path) in self.sizes:
            self.sizes[_name(new_path)] = self.sizes[_name(path)]

    def mkdir(self, path: Path) -> None:
        """Let the client create its equivalent of a directory."""
        with self.call("open", _name(path)), self.converted_errors("make a directory", path):
            self._inner.mkdir(path)

    def exists(self, path: Path) -> bool:
        """Return whether an object exists."""
        with self.call("open", _name(path)), self.converted_errors("head", path):
            return self._inner.exists(path)

    def rm_file(self, path: Path) -> None:
        """Delete an object."""
        with self.call("write", _name(path)), self.converted_errors("delete", path):
            self._inner.rm_file(path)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Path) -> bool:
        """Return True: the library may use any path for a checkpoint."""
        del checkpoint_id
        return True

    @contextmanager
    def converted_errors(self, what: str, path: Path) -> Iterator[None]:
        """In the ``with`` block, convert the client's errors to errors without access keys.

        Also record the first OSError. ``what`` is the name of the request.
        """
        with self.keeping_errors():
            try:
                yield
            except self._client.errors as error:
                if any(error is ours for ours in self._ours):
                    raise
                self._ours.append(self._translate(error, self._client.name, what, str(path)))
                raise self._ours[-1] from None

    def passed(self, path: Path, data: memoryview) -> None:
        """Count the transferred bytes ``data``. If a checksum of the object is computed, update the checksum."""
        self.moved(len(data))
        if _name(path) in self._summed:
            self.checksum = zlib.crc32(data, self.checksum or 0)


class _WatchedStream(io.IOBase):
    """An object that is open for writing or reading. ``moved`` is the number of bytes transferred so far."""

    def __init__(self, raw: Any, watch: WatchedObjects, path: Path, phase: Phase) -> None:
        self._raw, self._watch, self._path, self._what = raw, watch, path, phase
        self.moved = 0

    def write(self, data: Buffer) -> int:
        """Pass all of ``data`` to the client. Return the number of bytes passed."""
        view = memoryview(data).cast("B")
        with self._watch.converted_errors(self._what, self._path):
            self._raw.write(data)
        self._passed(view)
        return len(view)

    def read(self, size: int | None = -1) -> bytes:
        """Read and return at most ``size`` bytes; with -1 or None, all remaining bytes."""
        with self._watch.converted_errors(self._what, self._path):
            data: bytes = self._raw.read(size)
        self._passed(memoryview(data))
        return data

    def readinto(self, buffer: Buffer) -> int:
        """Read some bytes into a buffer. Return the number of bytes read."""
        view = memoryview(buffer).cast("B")
        with self._watch.converted_errors(self._what, self._path):
            count: int = self._raw.readinto(view) or 0
        self._passed(view[:count])
        return count

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Seek to an offset."""
        with self._watch.converted_errors(self._what, self._path):
            return int(self._raw.seek(offset, whence))

    def tell(self) -> int:
        """Return the current offset."""
        return int(self._raw.tell())

    def flush(self) -> None:
        """Do nothing, because the client decides when it sends buffered bytes."""

    def readable(self) -> bool:
        """Return whether the stream was opened for reading."""
        return self._what == "read"

    def writable(self) -> bool:
        """Return whether the stream was opened for writing."""
        return self._what == "write"

    def seekable(self) -> bool:
        """Return whether the stream supports seeks."""
        return bool(self._raw.seekable())

    def _passed(self, view: memoryview) -> None:
        self.moved += len(view)
        self._watch.passed(self._path, view)


def _name(path: Path) -> str:
    return PurePosixPath(str(path)).name
