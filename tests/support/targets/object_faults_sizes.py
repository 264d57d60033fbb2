"""Faulty object stores: faults of large objects, many parts and many clients, and requests without an answer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence

from pytest_ckpt.targets.objects.keys import MARKER
from pytest_ckpt.targets.objects.server.bucket_store import Condition, Object, RequestRefused
from pytest_ckpt.targets.objects.server.http import Handler
from tests.support.targets.object_faults import Requests, Store

_FEW = 24
"""The number of other connections from which on a connection is late in a crowd."""


class FoldedOffsets(
    Store, fault="offsets of 32 bits", fails="LARGE.ranges LIMITS.many", expected_text="wrong bytes in a large object"
):
    """A GET of a range that starts at 4 GiB or later returns bytes from 4 GiB earlier."""

    class handler(Requests):  # noqa: N801 - an attribute
        def _get(self, held: Object) -> None:
            first, _, stop = self.headers.get("Range", "").removeprefix("bytes=").partition("-")
            if first and stop and int(first) >= 1 << 32:
                del self.headers["Range"]
                self.headers["Range"] = f"bytes={int(first) - (1 << 32)}-{int(stop) - (1 << 32)}"
            super()._get(held)


class NoLargeObjects(Store, fault="5 GiB at most", fails="LARGE.ranges", expected_text="large object refused"):
    """An upload of more than 5 GiB in parts is refused when it is completed."""

    def end_upload(
        self, bucket: str, upload: str, wanted: Sequence[tuple[int, str, str]], condition: Condition
    ) -> Object:
        if sum(piece.bytes for piece in self._upload(bucket, upload).pieces.values()) > 5 << 30:
            raise RequestRefused(400, "EntityTooLarge", "Your proposed upload exceeds the maximum allowed size")
        return super().end_upload(bucket, upload, wanted, condition)


class FewPartsNamed(
    Store, fault="completion of 1,000 parts at most", fails="LIMITS.many", expected_text="large object refused"
):
    """The completion of an upload is refused if it names more than 1,000 parts."""

    def end_upload(
        self, bucket: str, upload: str, wanted: Sequence[tuple[int, str, str]], condition: Condition
    ) -> Object:
        if len(wanted) > 1000:
            raise RequestRefused(400, "MalformedXML", "The XML you provided was not well-formed")
        return super().end_upload(bucket, upload, wanted, condition)


class _Crowded(Store):
    """Base class: records the checkpoint that each connection looks for."""

    def __init__(self) -> None:
        super().__init__()
        self.looked_for: dict[Handler, str] = {}
        self.line = threading.Lock()

    def is_late(self, connection: Handler, checkpoint: str) -> bool:
        """Record that a connection looks for a checkpoint; return whether many other connections already do so."""
        with self.line:
            others = sum(found == checkpoint for other, found in self.looked_for.items() if other is not connection)
            self.looked_for[connection] = checkpoint
        return others >= _FEW

    class handler(Requests):  # noqa: N801 - an attribute
        _store: _Crowded

        @property
        def is_late(self) -> bool:
            """Whether many other connections already look for the checkpoint in this request."""
            place, _, name = (self._key or self._query.get("prefix", "")).rpartition("/")
            return place.endswith("/checkpoint") and name in ("", MARKER) and self._store.is_late(self, place)

        def finish(self) -> None:
            self._store.looked_for.pop(self, None)
            super().finish()


class BusyForCrowds(
    _Crowded, fault="busy for a crowd", fails="CROWD.marker", expected_text="client of a crowd turned away"
):
    """If 24 connections already look for a checkpoint, a further connection gets 503."""

    class handler(_Crowded.handler):  # noqa: N801 - an attribute
        def _done(self) -> None:
            if self.command in ("GET", "HEAD") and self.is_late:
                raise RequestRefused(503, "SlowDown", "Please reduce your request rate.")
            super()._done()


class LessForCrowds(
    _Crowded, fault="less for a crowd", fails="CROWD.marker", expected_text="client of a crowd sees less"
):
    """If 24 connections already look for a checkpoint, a further connection does not find its marker."""

    class handler(_Crowded.handler):  # noqa: N801 - an attribute
        def _done(self) -> None:
            if self.command == "GET" and self.is_late and self._key:
                raise RequestRefused(404, "NoSuchKey", "The specified key does not exist.")
            super()._done()


# --- silence ----------------------------------------------------------------------------------------------------------


class Stalled(
    Store,
    fault="stalled put",
    fails="LIVE.requests LARGE.ranges LIMITS.many",
    expected_text="did not answer in time",
    silent_seconds=0.4,
):
    """A put of an object of 5 MiB or more in one request gets no answer."""

    class handler(Requests):  # noqa: N801 - an attribute
        def _put(self, upload: str, number: str) -> None:
            if not upload and self._unread >= 5 << 20:
                self._store.release_blocked.wait()
                self.close_connection = True
            else:
                super()._put(upload, number)


class Reset(
    Store,
    fault="reset connections",
    fails="MULTIPART.parts LIMITS.parts LIVE.requests",
    expected_text="the connection was cut",
):
    """The connection is reset in the middle of each GET of a complete large object."""

    class handler(Requests):  # noqa: N801 - an attribute
        def _get(self, held: Object) -> None:
            if self.command == "GET" and held.bytes >= 5 << 20 and "Range" not in self.headers:
                self.send_response(200)
                self.send_header("Content-Length", str(held.bytes))
                self.end_headers()
                self.wfile.write(bytes(1000))
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True
            else:
                super()._get(held)
