"""The data of the server: buckets with their objects, and unfinished uploads.

An object is a list of pieces, so completing an upload copies no data. The bytes of pieces are in a file; keys are in
memory. A piece is written completely before it becomes visible. If an object is overwritten or deleted, a current
reader still reads the old pieces. The space of the old pieces is freed when the last reader has finished.
"""

from __future__ import annotations

import ctypes
import errno
import itertools
import os
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, cast

from pytest_ckpt.sizing.object_parts import MINIMUM_PART_BYTES
from pytest_ckpt.targets.objects import parts

_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_BLOCK_BYTES = 4096
_READ_BYTES = 1 << 20


class Space:
    """A file that stores the pieces of objects at offsets.

    The disk space of freed pieces is released if the file system can punch holes.
    """

    def __init__(self) -> None:
        # The file is open as long as this process exists.
        self.file = cast("IO[bytes]", tempfile.TemporaryFile(buffering=0))  # noqa: SIM115
        self._lock = threading.Lock()
        self._end = 0
        self._fallocate = ctypes.CDLL(None, use_errno=True).fallocate
        self._fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_longlong, ctypes.c_longlong)

    def reserve(self, size: int) -> int:
        """Reserve ``size`` unused bytes; return their offset in the file."""
        with self._lock:
            offset, self._end = self._end, self._end + -(-size // _BLOCK_BYTES) * _BLOCK_BYTES
        return offset

    def write(self, offset: int, data: bytes) -> None:
        """Write all of ``data`` to the file at ``offset``."""
        done = 0
        while done < len(data):
            done += os.pwrite(self.file.fileno(), data[done:], offset + done)

    def read(self, offset: int, size: int) -> Iterator[bytes]:
        """Yield copies of all bytes of a range.

        sendfile is not used, because it sends pages of the file without a copy. If the space were freed before these
        pages are sent, the client would receive zeros.
        """
        end = offset + size
        while offset < end:
            data = os.pread(self.file.fileno(), min(_READ_BYTES, end - offset), offset)
            if not data:
                raise OSError(errno.EIO, "the bytes of an object end too early")
            yield data
            offset += len(data)

    def free(self, offset: int, size: int) -> None:
        """Free a range of bytes. The range must have no readers."""
        if size and not self.file.closed:
            whole = -(-size // _BLOCK_BYTES) * _BLOCK_BYTES
            self._fallocate(self.file.fileno(), _KEEP_SIZE | _PUNCH_HOLE, offset, whole)


class RequestRefused(Exception):  # noqa: N818 - it is an answer
    """A request that the server refuses, with S3's error code and the HTTP status."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


class StoredPart:
    """A piece of an object: the body of one request, stored in a file.

    ``crc32`` is complete after all bytes have arrived. ``checksums`` is {header: checksum} for further checksums that
    the client sent, except MD5.
    """

    def __init__(self, space: Space, size: int) -> None:
        self.bytes, self.crc32 = size, 0
        self.checksums: Mapping[str, str] = {}
        self.space, self.offset = space, space.reserve(size)

    @property
    def etag(self) -> str:
        """The ETag as a part of an upload. As in S3, parts with equal bytes have equal ETags.

        A client that gave up a request sends the part again. If the server then processes the first request last, the
        client's ETag stays valid.
        """
        return f"{self.bytes:024x}{self.crc32:08x}"

    def __del__(self) -> None:
        """Free the space of the piece in the file."""
        self.space.free(self.offset, self.bytes)


@dataclass(frozen=True, kw_only=True, slots=True)
class Object:
    """A complete object in a bucket.

    ``crc32`` is in S3's form. For an object from a single PUT, it is the CRC-32 of the bytes. For an object from a
    multipart upload, it is the CRC-32 of the pieces' CRC-32s, then ``-`` and the number of pieces. ``modified`` is in
    seconds since 1970. ``checksums`` are the further checksums of a single PUT (`StoredPart`); otherwise it is empty.
    """

    pieces: tuple[StoredPart, ...]
    etag: str
    crc32: str
    modified: float
    checksums: Mapping[str, str] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """The size in bytes."""
        return sum(piece.bytes for piece in self.pieces)


@dataclass(kw_only=True, slots=True)
class _Upload:
    key: str
    pieces: dict[int, StoredPart] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Condition:
    """The condition of a request on an object.

    If ``absent`` is true, no object may have the key. If ``etag`` is not empty, the object must have this ETag.
    """

    absent: bool = False
    etag: str = ""

    def check(self, found: Object | None) -> None:
        """Raise RequestRefused if the condition is not met."""
        if (self.absent and found) or (self.etag and (found is None or found.etag != self.etag)):
            raise RequestRefused(
                412, "PreconditionFailed", "At least one of the preconditions you specified did not hold"
            )


class BucketStore:
    """All buckets: names are in memory, bytes of objects in a file. Safe for several threads.

    A reader sees the complete object or no object.
    """

    def __init__(self) -> None:
        self._space = Space()
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._buckets: dict[str, dict[str, Object]] = {}
        self._uploads: dict[tuple[str, str], _Upload] = {}

    def new_piece(self, size: int) -> StoredPart:
        """Reserve space for a new piece of ``size`` bytes. The piece does not belong to an object yet."""
        return StoredPart(self._space, size)

    def _new_etag(self) -> str:
        return f"{next(self._numbers):032x}"

    # --- buckets ------------------------------------------------------------------------------------------------------

    def make_bucket(self, bucket: str) -> None:
        """Create a bucket, unless it exists."""
        with self._lock:
            self._buckets.setdefault(bucket, {})

    def keys(self, bucket: str, prefix: str) -> list[tuple[str, Object]]:
        """Return all objects whose keys begin with a prefix, in byte order of the keys."""
        with self._lock:
            objects = [(key, item) for key, item in self._of(bucket).items() if key.startswith(prefix)]
        return sorted(objects, key=lambda pair: pair[0].encode())

    def uploads(self, bucket: str, prefix: str) -> list[tuple[str, str]]:
        """Return (key, upload id) of each upload that was neither completed nor aborted."""
        with self._lock:
            self._of(bucket)
            uploads = [(u.key, name) for (of, name), u in self._uploads.items() if of == bucket]
        return sorted(pair for pair in uploads if pair[0].startswith(prefix))

    # --- objects ------------------------------------------------------------------------------------------------------

    def get(self, bucket: str, key: str) -> Object:
        """Return an object. Raises RequestRefused if the bucket or the object does not exist."""
        with self._lock:
            stored_object = self._of(bucket).get(key)
        if stored_object is None:
            raise RequestRefused(404, "NoSuchKey", "The specified key does not exist.")
        return stored_object

    def put(self, bucket: str, key: str, piece: StoredPart, condition: Condition) -> Object:
        """Create an object from one piece; an existing object is replaced."""
        return self._publish(bucket, key, (piece,), parts.encoded(piece.crc32), self._new_etag(), condition)

    def copy(self, source: Object, bucket: str, key: str, condition: Condition) -> Object:
        """Create an object from the pieces of the object ``source``; an existing object is replaced."""
        count = f"-{len(source.pieces)}" if len(source.pieces) > 1 else ""
        return self._publish(bucket, key, source.pieces, source.crc32, f"{self._new_etag()}{count}", condition)

    def delete(self, bucket: str, key: str) -> None:
        """Delete an object; a missing object is not an error."""
        with self._lock:
            self._of(bucket).pop(key, None)

    # --- uploads ------------------------------------------------------------------------------------------------------

    def begin_upload(self, bucket: str, key: str) -> str:
        """Begin a multipart upload and return its id."""
        with self._lock:
            self._of(bucket)
            name = f"upload-{next(self._numbers)}"
            self._uploads[bucket, name] = _Upload(key=key)
        return name

    def put_part(self, bucket: str, upload: str, number: int, piece: StoredPart) -> None:
        """Add a piece to an upload; an earlier piece with the same number is replaced."""
        with self._lock:
            self._upload(bucket, upload).pieces[number] = piece

    def end_upload(
        self, bucket: str, upload: str, wanted: Sequence[tuple[int, str, str]], condition: Condition
    ) -> Object:
        """Complete an object from the pieces ``wanted``, and discard the other pieces.

        ``wanted`` lists (number, ETag, CRC-32 or empty) of each piece.
        """
        with self._lock:
            pending = self._upload(bucket, upload)
            pieces = tuple(_chosen(pending.pieces, wanted))
            key = pending.key
        composite = f"{parts.composite([piece.crc32 for piece in pieces])}-{len(pieces)}"
        made = self._publish(bucket, key, pieces, composite, f"{self._new_etag()}-{len(pieces)}", condition)
        with self._lock:
            self._uploads.pop((bucket, upload), None)
        return made

    def abort_upload(self, bucket: str, upload: str) -> None:
        """Discard an upload and its pieces."""
        with self._lock:
            self._upload(bucket, upload)
            del self._uploads[bucket, upload]

    def _of(self, bucket: str) -> dict[str, Object]:
        if bucket not in self._buckets:
            raise RequestRefused(404, "NoSuchBucket", "The specified bucket does not exist")
        return self._buckets[bucket]

    def _upload(self, bucket: str, upload: str) -> _Upload:
        if (bucket, upload) not in self._uploads:
            raise RequestRefused(404, "NoSuchUpload", "The specified upload does not exist.")
        return self._uploads[bucket, upload]

    def _publish(
        self, bucket: str, key: str, pieces: tuple[StoredPart, ...], crc32: str, etag: str, condition: Condition
    ) -> Object:
        sent = pieces[0].checksums if len(pieces) == 1 and "-" not in crc32 else {}
        made = Object(pieces=pieces, etag=etag, crc32=crc32, modified=time.time(), checksums=sent)
        with self._lock:
            objects = self._of(bucket)
            condition.check(objects.get(key))
            objects[key] = made
        return made


def ranges(stored_object: Object, first: int, stop: int) -> Iterator[tuple[StoredPart, int, int]]:
    """Yield the pieces with the bytes of an object from ``first`` up to, but not including, ``stop``.

    Each item is (piece, first offset in the piece, number of bytes).
    """
    begin = 0
    for piece in stored_object.pieces:
        start, end = max(first, begin), min(stop, begin + piece.bytes)
        if start < end:
            yield piece, start - begin, end - start
        begin += piece.bytes


def _chosen(pieces: dict[int, StoredPart], wanted: Sequence[tuple[int, str, str]]) -> Iterator[StoredPart]:
    if not wanted:
        raise RequestRefused(400, "MalformedXML", "You must specify at least one part")
    if [number for number, _, _ in wanted] != sorted({number for number, _, _ in wanted}):
        raise RequestRefused(400, "InvalidPartOrder", "The list of parts was not in ascending order.")
    for place, (number, etag, crc32) in enumerate(wanted, 1):
        piece = pieces.get(number)
        if piece is None or piece.etag != etag or crc32 not in ("", parts.encoded(piece.crc32)):
            raise RequestRefused(400, "InvalidPart", "One or more of the specified parts could not be found.")
        if piece.bytes < MINIMUM_PART_BYTES and place < len(wanted):
            raise RequestRefused(400, "EntityTooSmall", "Your proposed upload is smaller than the minimum allowed size")
        yield piece
