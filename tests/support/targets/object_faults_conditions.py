"""Faulty object stores that violate the conditions of requests (If-None-Match and If-Match)."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence

from pytest_ckpt.targets.objects.server.bucket_store import Condition, Object, StoredPart
from tests.support.targets.object_faults import Requests, Store

HeldParts = tuple[StoredPart, ...]


class _Conditions(Store):
    def loosened(self, condition: Condition) -> Condition:
        """Return the condition that the faulty store applies instead of the requested one."""
        return condition

    def put(self, bucket: str, key: str, piece: StoredPart, condition: Condition) -> Object:
        return super().put(bucket, key, piece, self.loosened(condition))

    def end_upload(
        self, bucket: str, upload: str, wanted: Sequence[tuple[int, str, str]], condition: Condition
    ) -> Object:
        return super().end_upload(bucket, upload, wanted, self.loosened(condition))


class IgnoredCreate(
    _Conditions, fault="If-None-Match ignored", fails="CREATE.put CREATE.multipart", expected_text="condition ignored"
):
    """A request to create an object succeeds, even if the object exists (If-None-Match is ignored)."""

    def loosened(self, condition: Condition) -> Condition:
        return Condition(etag=condition.etag)


class IgnoredUpdate(_Conditions, fault="If-Match ignored", fails="UPDATE.put", expected_text="condition ignored"):
    """A request to replace an object succeeds, even if its ETag is not the one in If-Match."""

    def loosened(self, condition: Condition) -> Condition:
        return Condition(absent=condition.absent)


class IgnoredByUploads(
    Store, fault="If-None-Match of uploads ignored", fails="CREATE.multipart", expected_text="condition ignored"
):
    """The request that completes a multipart upload ignores its condition."""

    def end_upload(
        self, bucket: str, upload: str, wanted: Sequence[tuple[int, str, str]], condition: Condition
    ) -> Object:
        return super().end_upload(bucket, upload, wanted, Condition())


class _TwoWinners(Store):
    """Base class: the store checks the condition before the write, and not atomically with the write.

    Two concurrent requests can therefore both succeed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lines: dict[str, threading.Barrier] = {}

    def _publish(self, bucket: str, key: str, pieces: HeldParts, crc32: str, etag: str, condition: Condition) -> Object:
        if self.is_meant(condition):
            condition.check(self.now(bucket, key))
            with contextlib.suppress(threading.BrokenBarrierError):
                self.lines.setdefault(key, threading.Barrier(2)).wait(0.5)
            condition = Condition()
        return super()._publish(bucket, key, pieces, crc32, etag, condition)

    def is_meant(self, condition: Condition) -> bool:
        raise NotImplementedError


class TwoCreators(
    _TwoWinners, fault="two creators", fails="CREATE.put CREATE.multipart", expected_text="several winners"
):
    """Two clients that create an object concurrently both get a success."""

    def is_meant(self, condition: Condition) -> bool:
        return condition.absent


class TwoUpdaters(_TwoWinners, fault="two updaters", fails="UPDATE.put", expected_text="several winners"):
    """Two clients that update an object concurrently both get a success."""

    def is_meant(self, condition: Condition) -> bool:
        return bool(condition.etag)


class IgnoredByReads(
    Store, fault="If-Match of reads ignored", fails="RANGE.overwritten", expected_text="condition of a range ignored"
):
    """A GET ignores the condition If-Match."""

    class handler(Requests):  # noqa: N801 - an attribute
        def _get(self, held: Object) -> None:
            del self.headers["If-Match"]
            super()._get(held)
