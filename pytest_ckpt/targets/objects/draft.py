"""A draft: the objects that one rank saves of a checkpoint, which is none before its marker."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Collection, Sequence

from pytest_ckpt.facts.proofs import CommitProof, DurabilityProof, Entry
from pytest_ckpt.targets.objects.client import Bucket
from pytest_ckpt.targets.objects.library_errors import in_our_words
from pytest_ckpt.targets.objects.library_place import library_place
from pytest_ckpt.targets.objects.sink import ObjectSink
from pytest_ckpt.targets.protocol import ObjectPlace, Phases
from pytest_ckpt.targets.without_paths import DraftWithoutPaths

CHECKED, SIZED = "size and CRC-32", "size and ETag alone"
"""What stores acknowledge of an object."""


class ObjectsDraft(DraftWithoutPaths):
    """This rank's objects below ``key``; ``publish`` commits the checkpoint from the entries of all ranks."""

    def __init__(
        self, bucket: Bucket, key: str, phases: Phases, publish: Callable[[Sequence[Entry]], CommitProof]
    ) -> None:
        self._bucket, self._key, self._phases, self._publish = bucket, key, phases, publish
        self._sinks: dict[str, ObjectSink] = {}
        self._finished: list[Entry] = []
        self._adopted: list[str] = []

    def create(self, name: str, size: int | None) -> ObjectSink:
        """Begin an object."""
        key = f"{self._key}/{name}"
        with self._phases.phase("open", name):
            if name in self._sinks or self._bucket.is_there(key):
                raise FileExistsError(errno.EEXIST, "the object is there", self._bucket.url(key))
        self._sinks[name] = ObjectSink(self._bucket, key, size, self._phases, self._finished.append)
        return self._sinks[name]

    def place(self) -> ObjectPlace:
        """Return where a library that writes itself puts this draft's objects."""
        return library_place(self._bucket, self._key)

    def in_our_words(self, error: BaseException, library: str, what: str, place: str) -> Exception:
        """Return what a library met at the store, without its words."""
        return in_our_words(error, library, what, place)

    def adopt(self, names: Collection[str]) -> None:
        """Take objects that a library put there as this draft's own: ask the store what it has of each."""
        self._adopted += names
        for name in names:
            with self._phases.phase("fsync", name):
                seen = self._bucket.head(f"{self._key}/{name}")
            self._finished.append(Entry(name=name, bytes=seen.bytes, checksum=f"etag:{seen.etag}"))

    def seal(self) -> tuple[Sequence[Entry], DurabilityProof]:
        """Say what the store has acknowledged; there are no folders."""
        proof = DurabilityProof(
            files_attempted=len(self._sinks) + len(self._adopted),
            files_returned=len(self._finished),
            folders_attempted=0,
            folders_returned=0,
            acknowledged=tuple(sorted({CHECKED if e.checksum.startswith("crc32:") else SIZED for e in self._finished})),
        )
        return tuple(self._finished), proof

    def commit(self, entries: Sequence[Entry]) -> CommitProof:
        """Put the marker."""
        return self._publish(entries)

    def abort(self) -> None:
        """Remove what this rank sent."""
        for name, sink in self._sinks.items():
            with contextlib.suppress(FileNotFoundError):
                sink.abort()
            self._bucket.delete(f"{self._key}/{name}")
        for name in self._adopted:
            self._bucket.delete(f"{self._key}/{name}")
        self._sinks, self._finished, self._adopted = {}, [], []
