"""A committed checkpoint in a bucket, and its objects as they are read."""

from __future__ import annotations

import contextlib
import errno
import json
from collections.abc import Collection, Mapping, Sequence

from pytest_ckpt.facts.proofs import Entry
from pytest_ckpt.targets.objects.client import Bucket
from pytest_ckpt.targets.objects.errors import StoreError
from pytest_ckpt.targets.objects.keys import MARKER
from pytest_ckpt.targets.objects.library_errors import in_our_words
from pytest_ckpt.targets.objects.library_place import library_place
from pytest_ckpt.targets.objects.sink import WAY
from pytest_ckpt.targets.protocol import Buffer, ObjectPlace, Phases
from pytest_ckpt.targets.without_paths import SourceFile


def marker_text(entries: Sequence[Entry]) -> bytes:
    """Return what a marker holds: every object of the checkpoint, with its bytes and what the store acknowledged."""
    objects = [{"name": e.name, "bytes": e.bytes, "checksum": e.checksum} for e in sorted(entries, key=_name)]
    return json.dumps({"objects": objects}, indent=1).encode() + b"\n"


class ObjectsCommitted:
    """The objects that a marker names, read in the phases of whoever opened them. The marker is read once.

    Where a library commits by an object of its own, ``commit``, that names none: all that lie beside it are meant.
    """

    def __init__(self, bucket: Bucket, key: str, phases: Phases, commit: str = "") -> None:
        self._bucket, self._key, self._phases, self._commit = bucket, key, phases, commit
        self._entries: tuple[Entry, ...] | None = None

    def entries(self) -> Sequence[Entry]:
        """Return what the marker names. Raises FileNotFoundError where there is no marker."""
        if self._entries is None and self._commit:
            with self._phases.phase("open", self._commit):
                self._bucket.head(f"{self._key}/{self._commit}")
                names = [key.rpartition("/")[2] for key in self._bucket.keys(f"{self._key}/")]
            self._entries = tuple(Entry(name=name, bytes=size) for name, size in self.sizes(names).items())
        elif self._entries is None:
            key = f"{self._key}/{MARKER}"
            with self._phases.phase("open", MARKER):
                text = self._bucket.get(key)
            try:
                objects = json.loads(text)["objects"]
                self._entries = tuple(
                    Entry(name=str(o["name"]), bytes=int(o["bytes"]), checksum=str(o["checksum"])) for o in objects
                )
            except (ValueError, LookupError, TypeError):
                place = self._bucket.url(key)
                raise StoreError(errno.EIO, "the marker is not what was put there", place) from None
        return self._entries

    def source(self, name: str, *, fresh: bool = False) -> ObjectSource:
        """Open an object for reads at offsets; each of them comes from the store."""
        if name not in {entry.name for entry in self.entries()}:
            raise FileNotFoundError(
                errno.ENOENT, "the marker does not name it", self._bucket.url(f"{self._key}/{name}")
            )
        return ObjectSource(self._bucket, f"{self._key}/{name}", self._phases)

    def file(self, name: str) -> SourceFile:
        """Open an object as a file object."""
        return SourceFile(self.source(name))

    def place(self) -> ObjectPlace:
        """Return where a library that reads by itself finds the objects."""
        return library_place(self._bucket, self._key)

    def in_our_words(self, error: BaseException, library: str, what: str, place: str) -> Exception:
        """Return what a library met at the store, without its words."""
        return in_our_words(error, library, what, place)

    def sizes(self, names: Collection[str]) -> Mapping[str, int]:
        """Return the bytes of those objects that are there."""
        found: dict[str, int] = {}
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                found[name] = self._bucket.head(f"{self._key}/{name}").bytes
        return found

    def local_path(self, name: str) -> str | None:
        """There are no paths."""
        return None


class ObjectSource:
    """An object that is open for reads of ranges."""

    way = WAY

    def __init__(self, bucket: Bucket, key: str, phases: Phases) -> None:
        self._bucket, self._key, self._phases = bucket, key, phases
        with phases.phase("open", key.rpartition("/")[2]):
            self.size = bucket.head(key).bytes

    def read_into(self, offset: int, buffer: Buffer) -> int:
        """Read until the buffer is full or the object ends."""
        view = memoryview(buffer).cast("B")
        wanted = max(0, min(len(view), self.size - offset))
        return self._bucket.read_into(self._key, offset, view[:wanted], self._phases.moved)

    def close(self) -> None:
        """Nothing is open between requests."""
        with self._phases.phase("close", self._key.rpartition("/")[2]):
            pass


def _name(entry: Entry) -> str:
    return entry.name
