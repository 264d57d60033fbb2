"""The objects of a run's checkpoints in a bucket.

The objects of a checkpoint have a common prefix. To commit, rank 0 puts one more object, the marker. The marker lists
all other objects with their sizes and checksums. A checkpoint without a marker does not exist. So a load reads the
marker first, and a deletion removes the marker first. If a job's library commits, an object of the library replaces the
marker.
"""

from __future__ import annotations

import contextlib
import errno
import json
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal

from pytest_ckpt.facts.proofs import CommitProof, DurabilityProof, Entry
from pytest_ckpt.facts.requests import Tallies
from pytest_ckpt.facts.targets import AreaRef, Capability, CheckpointRef
from pytest_ckpt.sizing.object_parts import MAXIMUM_PARTS, part_bytes
from pytest_ckpt.targets.objects import parts
from pytest_ckpt.targets.objects.authentication import is_aws_itself
from pytest_ckpt.targets.objects.client import Bucket, ObjectState
from pytest_ckpt.targets.objects.errors import StoreError, translate_error
from pytest_ckpt.targets.objects.keys import MARKER, checkpoint_key, checkpoint_number, prefix_of
from pytest_ckpt.targets.protocol import Buffer, ObjectPlace, Phases
from pytest_ckpt.targets.without_paths import DraftWithoutPaths, SourceFile, StoreWithoutCache


def library_place(bucket: Bucket, key: str) -> ObjectPlace:
    """Return the place of the objects below a key, for a library that reads or writes these objects itself.

    The place contains the endpoint that this process currently uses.
    """
    return ObjectPlace(
        url=bucket.url(key),
        endpoint="" if is_aws_itself(bucket.endpoint, bucket.region) else bucket.endpoint,
        region=bucket.region,
        ca_bundle=bucket.access.ca_bundle,
        is_open=bool(bucket.access.embedded),
    )


IO_MODE = "by requests over the network: the client keeps no cache"


class ObjectSink:
    """An object that is being written. ``size`` is in bytes; None: the size is unknown, and only `write` is used.

    `write` collects data until a part is complete. `write_at` sends from the caller's memory. `finish` completes the
    upload, and compares size and CRC-32 of the stored object with those of the sent bytes.
    """

    alignment = 1
    io_mode = IO_MODE

    def __init__(
        self, bucket: Bucket, key: str, size: int | None, phases: Phases, finished: Callable[[Entry], None]
    ) -> None:
        self._bucket, self._key, self._size, self._phases, self._finished = bucket, key, size, phases, finished
        self._name = key.rpartition("/")[2]
        self._part_bytes = part_bytes(size, bucket.part_bytes)
        self._sent: dict[int, tuple[int, str, int]] = {}
        self._lock = threading.Lock()
        self._rest = bytearray()
        self._end = 0
        self._upload = ""
        if size is not None and size > self._part_bytes:
            with phases.phase("open", self._name):
                self._upload = bucket.begin_upload(key)

    @property
    def part_bytes(self) -> int | None:
        """The size of every part except the last."""
        return self._part_bytes

    def write(self, data: Buffer) -> int:
        """Append ``data``, and return the number of bytes in ``data``.

        Complete parts are sent immediately. The bytes of an incomplete part are kept for the next call.
        """
        view = memoryview(data).cast("B")
        step, done = self._part_bytes, 0
        while len(self._rest) + len(view) - done >= step:
            if self._rest:
                wanted = step - len(self._rest)
                self._rest += view[done : done + wanted]
                with memoryview(self._rest) as part:
                    self._send_next(part)
                self._rest = bytearray()
            else:
                wanted = step
                self._send_next(view[done : done + step])
            done += wanted
        self._rest += view[done:]
        return len(view)

    def write_at(self, offset: int, data: Buffer) -> None:
        """Send ``data`` as the part at ``offset`` (in bytes). An object of only one part is sent by a single PUT.

        Raises OSError if ``data`` is not exactly one part.
        """
        view = memoryview(data).cast("B")
        number, into = divmod(offset, self._part_bytes)
        is_last = offset + len(view) == self._size
        if into or len(view) > self._part_bytes or (len(view) < self._part_bytes and not is_last):
            raise OSError(errno.EINVAL, "parts are whole and at multiples of their size", self._name)
        self._send(number + 1, view, is_complete=is_last and not number)

    def finish(self) -> Entry:
        """Complete the object; return its entry, with the checksum or ETag that the store acknowledged.

        Raises OSError if the acknowledged size or checksum differs from the sent data.
        """
        with self._phases.phase("fsync", self._name):
            if self._rest or not self._sent:
                with memoryview(self._rest) as part:
                    self._send(len(self._sent) + 1, part, is_complete=not self._sent)
                self._rest = bytearray()
            listed = [(number, *self._sent[number]) for number in sorted(self._sent)]
            size = parts.check_complete(
                self._name, [(n, count) for n, count, _, _ in listed], self._size, self._part_bytes
            )
            if self._upload:
                # If the answer was lost, the upload no longer exists; then the object in the store decides.
                with contextlib.suppress(FileNotFoundError):
                    self._bucket.end_upload(self._key, self._upload, [(n, etag, crc) for n, _, etag, crc in listed])
            checksums = [crc for _, _, _, crc in listed]
            expected = parts.composite(checksums) if self._upload else parts.encoded(checksums[0])
            self._upload = ""
            entry = self._acknowledged(self._bucket.head(self._key), size, expected)
        self._finished(entry)
        return entry

    def abort(self) -> None:
        """Discard the sent data."""
        if self._upload:
            with contextlib.suppress(FileNotFoundError):
                self._bucket.abort_upload(self._key, self._upload)
            self._upload = ""
        elif self._sent:
            self._bucket.delete(self._key)
        self._sent = {}

    def _send_next(self, part: memoryview) -> None:
        if not self._upload:
            self._upload = self._bucket.begin_upload(self._key)
        self._send(len(self._sent) + 1, part, is_complete=False)

    def _send(self, number: int, view: memoryview, *, is_complete: bool) -> None:
        with self._lock:
            if number in self._sent:
                raise OSError(errno.EINVAL, "the part is there", self._name)
        if is_complete and not self._upload:
            etag, checksum = "", self._bucket.put(self._key, view)
        elif number > MAXIMUM_PARTS:
            raise OSError(errno.EFBIG, f"an object has at most {MAXIMUM_PARTS:,} parts", self._name)
        else:
            etag, checksum = self._bucket.put_part(self._key, self._upload, number, view)
        with self._lock:
            self._sent[number] = (len(view), etag, checksum)
        self._phases.moved(len(view))

    def _acknowledged(self, seen: ObjectState, size: int, own: str) -> Entry:
        place = self._bucket.url(self._key)
        if seen.bytes != size:
            raise StoreError(errno.EIO, f"the store acknowledges {seen.bytes} bytes, and {size} were sent", place)
        if seen.crc32 and seen.crc32 != own:
            raise StoreError(errno.EIO, f"the store has the CRC-32 {seen.crc32}, and {own} was sent", place)
        return Entry(name=self._name, bytes=size, checksum=f"crc32:{own}" if seen.crc32 else f"etag:{seen.etag}")


CHECKED, SIZED = "size and CRC-32", "only size and ETag"
"""Descriptions of the acknowledgements that stores send for an object."""


class ObjectsDraft(DraftWithoutPaths):
    """This rank's objects of a checkpoint that is being saved, below ``key``.

    The function ``publish`` commits the checkpoint; it receives the entries of all ranks.
    """

    def __init__(
        self, bucket: Bucket, key: str, phases: Phases, publish: Callable[[Sequence[Entry]], CommitProof]
    ) -> None:
        self._bucket, self._key, self._phases, self._publish = bucket, key, phases, publish
        self._sinks: dict[str, ObjectSink] = {}
        self._finished: list[Entry] = []
        self._adopted: list[str] = []

    def create(self, name: str, size: int | None) -> ObjectSink:
        """Begin an object of ``size`` bytes. None: the size is unknown, and only `ObjectSink.write` is used.

        Raises FileExistsError if the object exists.
        """
        key = f"{self._key}/{name}"
        with self._phases.phase("open", name):
            if name in self._sinks or self._bucket.is_there(key):
                raise FileExistsError(errno.EEXIST, "the object is there", self._bucket.url(key))
        self._sinks[name] = ObjectSink(self._bucket, key, size, self._phases, self._finished.append)
        return self._sinks[name]

    def place(self) -> ObjectPlace:
        """Return the place of this rank's objects, for a library that writes these objects itself."""
        return library_place(self._bucket, self._key)

    def translate_error(self, error: BaseException, library: str, action: str, place: str) -> Exception:
        """Return a library's error as an OSError without the library's text, which may contain access keys."""
        return translate_error(error, library, action, place)

    def adopt(self, names: Collection[str]) -> None:
        """Add objects that a library wrote at `place` to the objects of this rank.

        The sizes and ETags of the added objects are queried from the store.
        """
        self._adopted += names
        for name in names:
            with self._phases.phase("fsync", name):
                state = self._bucket.head(f"{self._key}/{name}")
            self._finished.append(Entry(name=name, bytes=state.bytes, checksum=f"etag:{state.etag}"))

    def seal(self) -> tuple[Sequence[Entry], DurabilityProof]:
        """Return this rank's entries, and a proof of durability: the store's acknowledgements.

        Nothing is synced here, because a bucket has no directories.
        """
        proof = DurabilityProof(
            files_attempted=len(self._sinks) + len(self._adopted),
            files_returned=len(self._finished),
            directories_attempted=0,
            directories_returned=0,
            acknowledged=tuple(sorted({CHECKED if e.checksum.startswith("crc32:") else SIZED for e in self._finished})),
        )
        return tuple(self._finished), proof

    def commit(self, entries: Sequence[Entry]) -> CommitProof:
        """Commit the checkpoint by a marker that lists ``entries``, the objects of all ranks."""
        return self._publish(entries)

    def abort(self) -> None:
        """Remove this rank's objects and unfinished uploads, and the objects that a library wrote."""
        for name, sink in self._sinks.items():
            with contextlib.suppress(FileNotFoundError):
                sink.abort()
            self._bucket.delete(f"{self._key}/{name}")
        for name in self._adopted:
            self._bucket.delete(f"{self._key}/{name}")
        self._sinks, self._finished, self._adopted = {}, [], []


def marker_text(entries: Sequence[Entry]) -> bytes:
    """Return the content of a marker: name, size and acknowledged checksum of every object of the checkpoint."""
    objects = [{"name": e.name, "bytes": e.bytes, "checksum": e.checksum} for e in sorted(entries, key=_name)]
    return json.dumps({"objects": objects}, indent=1).encode() + b"\n"


class ObjectsCommitted:
    """The objects of a committed checkpoint, as its marker lists them. ``phases`` records the times of the reads.

    If a library commits with its own object (named ``commit``), there is no marker. The checkpoint then consists of all
    objects with the checkpoint's prefix.
    """

    def __init__(self, bucket: Bucket, key: str, phases: Phases, commit: str = "") -> None:
        self._bucket, self._key, self._phases, self._commit = bucket, key, phases, commit
        self._entries: tuple[Entry, ...] | None = None

    def entries(self) -> Sequence[Entry]:
        """Return the objects of the checkpoint. They are listed at the first call.

        Raises FileNotFoundError if the checkpoint has neither a marker nor a library's commit object.
        """
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
        """Open an object for reads at offsets; every read comes from the store."""
        if name not in {entry.name for entry in self.entries()}:
            raise FileNotFoundError(
                errno.ENOENT, "the marker does not name it", self._bucket.url(f"{self._key}/{name}")
            )
        return ObjectSource(self._bucket, f"{self._key}/{name}", self._phases)

    def file(self, name: str) -> SourceFile:
        """Open an object as a file object."""
        return SourceFile(self.source(name))

    def place(self) -> ObjectPlace:
        """Return the place of the objects, for a library that reads these objects itself."""
        return library_place(self._bucket, self._key)

    def translate_error(self, error: BaseException, library: str, action: str, place: str) -> Exception:
        """Return a library's error as an OSError without the library's text, which may contain access keys."""
        return translate_error(error, library, action, place)

    def sizes(self, names: Collection[str]) -> Mapping[str, int]:
        """Return {name: size in bytes} for the names of existing objects."""
        sizes_by_name: dict[str, int] = {}
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                sizes_by_name[name] = self._bucket.head(f"{self._key}/{name}").bytes
        return sizes_by_name

    def local_path(self, name: str) -> str | None:
        """Return None, because a bucket has no local paths."""
        return None


class ObjectSource:
    """An object that is open for reads at offsets."""

    io_mode = IO_MODE

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
        """Do nothing on the store, because no object is open between requests."""
        with self._phases.phase("close", self._key.rpartition("/")[2]):
            pass


def _name(entry: Entry) -> str:
    return entry.name


CAPABILITIES: frozenset[Capability] = frozenset()
"""A bucket has none of the capabilities of a mounted file system, and clients do not cache."""


def open_store(area: AreaRef) -> ObjectStore:
    """Return the store of an area (the location of a run). The area may not exist yet."""
    return ObjectStore(area)


class ObjectStore(StoreWithoutCache):
    """The store for the area of a run, which is a prefix in a bucket."""

    capabilities = CAPABILITIES
    wants_entries = True
    of_each_host = False

    def __init__(self, area: AreaRef) -> None:
        place = prefix_of(area)
        self._below = place.below
        self._bucket = Bucket(place, area.access)

    def is_reachable(self) -> bool:
        """Return whether the bucket answers this process."""
        try:
            self._bucket.probe(self._below)
        except OSError:
            return False
        return True

    def prepare(self, subject: str) -> None:
        """Do nothing, because a bucket needs no preparation."""

    def part_bytes(self, size: int) -> int:
        """Return the part size for an object of ``size`` bytes; the last part may be smaller."""
        return part_bytes(size, self._bucket.part_bytes)

    def begin(self, ref: CheckpointRef, phases: Phases) -> ObjectsDraft:
        """Return an `ObjectsDraft`, with which this rank writes its objects of a checkpoint."""

        def publish(entries: Sequence[Entry]) -> CommitProof:
            return self.commit(ref, entries, phases)

        return ObjectsDraft(self._bucket, self._key(ref), phases, publish)

    def commit(self, ref: CheckpointRef, entries: Sequence[Entry], phases: Phases) -> CommitProof:
        """Write the marker, which lists every object of the checkpoint.

        Raises FileExistsError if a marker with another content exists.
        """
        key, text = self._marker(ref), marker_text(entries)
        with phases.phase("commit", MARKER):
            try:
                self._bucket.put(key, text, if_absent=True)
            except FileExistsError:
                # A repeated request may find the effect of its first attempt.
                if self._bucket.get(key) != text:
                    raise
            if (seen := self._bucket.head(key).bytes) != len(text):
                raise OSError(errno.EIO, f"the store acknowledges {seen} bytes of {len(text)}", self._bucket.url(key))
        return CommitProof(method="marker")

    def is_committed(self, ref: CheckpointRef) -> bool:
        """Return whether the checkpoint has a marker or a library's own commit object."""
        return self._bucket.is_there(self._marker(ref))

    def put(self, name: str, data: bytes, when: Literal["always", "if absent"] = "always") -> bool:
        """Write a small object. If ``when`` is "if absent" and the object exists, return False."""
        try:
            self._bucket.put(f"{self._below}{name}", data, if_absent=when == "if absent")
        except FileExistsError:
            return False
        return True

    def committed(self, subject: str) -> Sequence[int]:
        """Return the numbers of the subject's checkpoints that have a marker."""
        keys = [key.split("/")[-2:] for key in self._bucket.keys(f"{self._below}{subject}/")]
        numbers = {checkpoint_number(directory) for directory, name in keys if name == MARKER}
        return sorted(number for number in numbers if number is not None)

    def open(self, ref: CheckpointRef, phases: Phases) -> ObjectsCommitted:
        """Return a committed checkpoint. The marker of the checkpoint is read when the first object is opened."""
        return ObjectsCommitted(self._bucket, self._key(ref), phases, ref.commit)

    def delete(self, ref: CheckpointRef, names: Collection[str]) -> None:
        """Delete the marker, unless another rank has deleted it. Then delete this rank's objects, ``names``."""
        self._bucket.delete(self._marker(ref))
        for name in names:
            self._bucket.delete(f"{self._key(ref)}/{name}")

    def finish_delete(self, ref: CheckpointRef) -> None:
        """Do nothing, because a bucket has no directories."""

    def clear(self, subject: str) -> None:
        """Do nothing, because a bucket has no directories."""

    def requests(self) -> Tallies:
        """Return the counts of this process's requests, by endpoint and operation."""
        return self._bucket.tallies()

    def close(self) -> None:
        """Close the connections."""
        self._bucket.close()

    def _key(self, ref: CheckpointRef) -> str:
        return f"{self._below}{checkpoint_key(ref)}"

    def _marker(self, ref: CheckpointRef) -> str:
        return f"{self._key(ref)}/{ref.commit or MARKER}"
