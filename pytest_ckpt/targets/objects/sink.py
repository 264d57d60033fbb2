"""One object as it is written: in one request where it is small, else in parts, in any order and from any thread."""

from __future__ import annotations

import contextlib
import errno
import threading
from collections.abc import Callable

from pytest_ckpt.facts.proofs import Entry
from pytest_ckpt.targets.objects import parts
from pytest_ckpt.targets.objects.client import Bucket, ObjectState
from pytest_ckpt.targets.objects.errors import StoreError
from pytest_ckpt.targets.protocol import Buffer, Phases

WAY = "by requests over the network: the client keeps no cache"


class ObjectSink:
    """An object of ``size`` bytes; None: only `write` is used, which sends a part when it has one.

    What is given to `write_at` is sent from the caller's memory. `finish` ends the upload and compares what the store
    then says of the object with what was sent.
    """

    alignment = 1
    way = WAY

    def __init__(
        self, bucket: Bucket, key: str, size: int | None, phases: Phases, finished: Callable[[Entry], None]
    ) -> None:
        self._bucket, self._key, self._size, self._phases, self._finished = bucket, key, size, phases, finished
        self._name = key.rpartition("/")[2]
        self._part_bytes = parts.part_bytes(size, bucket.part_bytes)
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
        """The bytes of every part but the last."""
        return self._part_bytes

    def write(self, data: Buffer) -> int:
        """Send whole parts of ``data``, together with what was left of the last one; keep the rest."""
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
        """Send one part, or the whole object where it has one only."""
        view = memoryview(data).cast("B")
        number, into = divmod(offset, self._part_bytes)
        is_last = offset + len(view) == self._size
        if into or len(view) > self._part_bytes or (len(view) < self._part_bytes and not is_last):
            raise OSError(errno.EINVAL, "parts are whole and at multiples of their size", self._name)
        self._send(number + 1, view, is_whole=is_last and not number)

    def finish(self) -> Entry:
        """End the object; return what the store then acknowledges of it. Raises OSError where that is not all."""
        with self._phases.phase("fsync", self._name):
            if self._rest or not self._sent:
                with memoryview(self._rest) as part:
                    self._send(len(self._sent) + 1, part, is_whole=not self._sent)
                self._rest = bytearray()
            listed = [(number, *self._sent[number]) for number in sorted(self._sent)]
            size = parts.check_whole(
                self._name, [(n, count) for n, count, _, _ in listed], self._size, self._part_bytes
            )
            if self._upload:
                # Where the answer to it was lost, there is no such upload any more: what the store has then decides.
                with contextlib.suppress(FileNotFoundError):
                    self._bucket.end_upload(self._key, self._upload, [(n, etag, crc) for n, _, etag, crc in listed])
            checksums = [crc for _, _, _, crc in listed]
            own = parts.composite(checksums) if self._upload else parts.encoded(checksums[0])
            self._upload = ""
            entry = self._acknowledged(self._bucket.head(self._key), size, own)
        self._finished(entry)
        return entry

    def abort(self) -> None:
        """Forget what was sent."""
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
        self._send(len(self._sent) + 1, part, is_whole=False)

    def _send(self, number: int, view: memoryview, *, is_whole: bool) -> None:
        with self._lock:
            if number in self._sent:
                raise OSError(errno.EINVAL, "the part is there", self._name)
        if is_whole and not self._upload:
            etag, checksum = "", self._bucket.put(self._key, view)
        elif number > parts.MAXIMUM_PARTS:
            raise OSError(errno.EFBIG, f"an object has at most {parts.MAXIMUM_PARTS:,} parts", self._name)
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
