"""Faulty object stores: faults of parts, digests, ranges, overwrites and listings."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from typing import Any

from pytest_ckpt.targets.objects import parts
from pytest_ckpt.targets.objects.server.bucket_store import BucketStore, Condition, Object, RequestRefused, StoredPart
from tests.support.targets.object_faults import (
    MAXIMUM_CHANGED_BYTES,
    Requests,
    Store,
    _Late,
    _of_command,
    bytes_of,
    of_bytes,
)

Wanted = Sequence[tuple[int, str, str]]


# --- parts ------------------------------------------------------------------------------------------------------------


class EarlyParts(
    Store, fault="early visible multipart", fails="MULTIPART.hidden CREATE.multipart", expected_text="upload seen"
):
    """A part is visible as an object before its upload is completed."""

    def put_part(self, bucket: str, upload: str, number: int, piece: StoredPart) -> None:
        super().put_part(bucket, upload, number, piece)
        key = self._uploads[bucket, upload].key
        BucketStore._publish(self, bucket, key, (piece,), parts.encoded(piece.crc32), piece.etag, Condition())


class LostPart(
    Store, fault="lost part", fails="MULTIPART.parts LARGE.ranges LIMITS.many", expected_text="object is not its parts"
):
    """An object of three or more parts is acknowledged, but lacks one part."""

    def _publish(self, bucket: str, key: str, pieces: tuple[StoredPart, ...], *words: Any) -> Object:
        return super()._publish(bucket, key, pieces[:1] + pieces[2:] if len(pieces) > 2 else pieces, *words)


class PartsInArrivalOrder(
    Store,
    fault="parts in order of arrival",
    fails="MULTIPART.parts LARGE.ranges LIMITS.many",
    expected_text="object is not its parts",
):
    """A completed object has its parts in the order of their arrival, instead of their part numbers."""

    def _publish(self, bucket: str, key: str, pieces: tuple[StoredPart, ...], *words: Any) -> Object:
        return super()._publish(bucket, key, tuple(sorted(pieces, key=lambda piece: piece.offset)), *words)


class AllParts(
    Store, fault="parts that were not named", fails="MULTIPART.parts", expected_text="object is not its parts"
):
    """A completed object contains all uploaded parts, including those missing in the completing request."""

    def end_upload(self, bucket: str, upload: str, wanted: Wanted, condition: Condition) -> Object:
        found = self._upload(bucket, upload)
        made = super().end_upload(bucket, upload, wanted, condition)
        if len(found.pieces) > len(wanted):
            every = tuple(piece for _, piece in sorted(found.pieces.items()))
            BucketStore._publish(self, bucket, found.key, every, made.crc32, made.etag, Condition())
        return made


class NeverAborted(
    Store, fault="abort that does nothing", fails="MULTIPART.hidden", expected_text="aborted upload still listed"
):
    """An aborted upload remains."""

    def abort_upload(self, bucket: str, upload: str) -> None:
        self._upload(bucket, upload)


class HiddenUploads(
    Store, fault="uploads that no listing shows", fails="MULTIPART.hidden", expected_text="unfinished upload not listed"
):
    """No listing shows unfinished uploads."""

    def uploads(self, bucket: str, prefix: str) -> list[tuple[str, str]]:
        return []


class SmallParts(Store, fault="small parts accepted", fails="LIMITS.parts", expected_text="not refused"):
    """Parts of any size are accepted, although only the last part may be small."""

    def end_upload(self, bucket: str, upload: str, wanted: Wanted, condition: Condition) -> Object:
        try:
            return super().end_upload(bucket, upload, wanted, condition)
        except RequestRefused as refused:
            if refused.code != "EntityTooSmall":
                raise
        found = self._uploads.pop((bucket, upload))
        pieces = tuple(found.pieces[number] for number, _, _ in wanted)
        return self._publish(bucket, found.key, pieces, "", f"small-{len(pieces)}", condition)


class FewParts(Store, fault="1,000 parts at most", fails="LIMITS.parts LIMITS.many", expected_text="part refused"):
    """A part number above 1,000 is refused."""

    def put_part(self, bucket: str, upload: str, number: int, piece: StoredPart) -> None:
        if number > 1000:
            raise RequestRefused(400, "InvalidArgument", "Part number must be an integer between 1 and 1000")
        super().put_part(bucket, upload, number, piece)


# --- digests ----------------------------------------------------------------------------------------------------------


class IgnoredDigest(
    Store, fault="ignored digest", fails="DIGEST.object DIGEST.part", expected_text="wrong digest accepted"
):
    """An object is accepted even if its digest is wrong."""

    class handler(Requests):  # noqa: N801 - an attribute
        def _check_digests(self, declared: Mapping[str, str], computed: Mapping[str, str]) -> None:
            """Accept every digest."""


class IgnoredDigestOfParts(
    Store, fault="ignored digest of parts", fails="DIGEST.part", expected_text="wrong digest accepted"
):
    """A part is accepted even if its digest is wrong."""

    class handler(Requests):  # noqa: N801 - an attribute
        def _check_digests(self, declared: Mapping[str, str], computed: Mapping[str, str]) -> None:
            if "uploadId" not in self._query:
                super()._check_digests(declared, computed)


class OnlyMd5(
    Store, fault="only Content-MD5 checked", fails="DIGEST.object DIGEST.part", expected_text="x-amz-checksum-crc32 of"
):
    """Newer checksums are ignored, as by older object stores."""

    class handler(Requests):  # noqa: N801 - an attribute
        def _check_digests(self, declared: Mapping[str, str], computed: Mapping[str, str]) -> None:
            super()._check_digests({n: v for n, v in declared.items() if n == "content-md5"}, computed)


class RefusedButStored(Store, fault="refused and kept", fails="DIGEST.object", expected_text="refused object is there"):
    """An object with a wrong digest is refused, but stored."""

    class handler(Requests):  # noqa: N801 - an attribute
        def _put(self, upload: str, number: str) -> None:
            self.wrong: RequestRefused | None = None
            super()._put(upload, number)

        def _check_digests(self, declared: Mapping[str, str], computed: Mapping[str, str]) -> None:
            try:
                super()._check_digests(declared, computed)
            except RequestRefused as refused:
                if "uploadId" in self._query:
                    raise
                self.wrong = refused

        def _respond(self, status: int, *words: Any, **more: Any) -> None:
            wrong, self.wrong = getattr(self, "wrong", None), None
            if wrong:
                self._refuse(wrong)
            else:
                super()._respond(status, *words, **more)


class ForgottenChecksums(Store, fault="forgotten checksums", fails="DIGEST.kept", expected_text="checksum not kept"):
    """The checksums of an upload are verified, but not stored."""

    class handler(Requests):  # noqa: N801 - an attribute
        def send_header(self, name: str, value: str) -> None:
            if not name.startswith("x-amz-checksum-"):
                super().send_header(name, value)


# --- ranges and writers -----------------------------------------------------------------------------------------------


class ShiftedRange(
    Store, fault="shifted range", fails="RANGE.bytes RANGE.overwritten", expected_text="wrong bytes in a range"
):
    """A range that does not start at 0 returns bytes from one byte earlier."""

    class handler(Requests):  # noqa: N801 - an attribute
        def _get(self, held: Object) -> None:
            is_inside = self.headers.get("Range", "bytes=0-")[6:8] not in ("0-",)
            if is_inside and self.command == "GET" and held.bytes < MAXIMUM_CHANGED_BYTES:
                held = of_bytes(held, b"x" + bytes_of(held)[:-1])
            super()._get(held)


class IgnoredRange(
    Store,
    fault="ignored range",
    fails="RANGE.bytes RANGE.overwritten LARGE.ranges LIMITS.many",
    expected_text="wrong bytes in a range",
):
    """A GET of a range returns the complete object."""

    class handler(Requests):  # noqa: N801 - an attribute
        def _get(self, held: Object) -> None:
            del self.headers["Range"]
            super()._get(held)


class SwappedParts(Store, fault="swapped ranges", fails="RANGE.bytes", expected_text="wrong bytes in a range"):
    """A GET of a range over two parts returns the bytes of the second part first."""

    class handler(Requests):  # noqa: N801 - an attribute
        def _get(self, held: Object) -> None:
            if "Range" in self.headers and len(held.pieces) == 2:
                size = held.pieces[0].bytes
                first, _, stop = self.headers["Range"].removeprefix("bytes=").partition("-")
                if first and stop and int(first) < size <= int(stop):
                    data, low, high = bytes_of(held), int(first), int(stop) + 1
                    held = of_bytes(held, data[:low] + data[size:high] + data[low:size] + data[high:])
            super()._get(held)


class Torn(
    _Late,
    fault="torn overwrite",
    fails="OVERWRITE.writers",
    expected_text="object of several writers",
    may="RANGE.overwritten",
):
    """The first GET after an overwrite of the same size returns the second half of the old object."""

    handler = _of_command("GET")

    def late(self, bucket: str, key: str) -> Object | None:
        found, before = self.now(bucket, key), self.before.get(key)
        if not (found and before and before.bytes == found.bytes > 10_000 and self.first_look(key)):
            return found
        middle = found.bytes // 2
        return of_bytes(found, bytes_of(found)[:middle] + bytes_of(before)[middle:])


# --- listings ---------------------------------------------------------------------------------------------------------


class _Pages(Store):
    class handler(Requests):  # noqa: N801 - an attribute
        def _listing(self, prefix: str) -> ET.Element:
            page = super()._listing(prefix)
            found = [child for child in page if child.tag == "Contents"]
            if "continuation-token" in self._query or len(found) > 10:
                self._store.wrong(page, found)
            return page

    def wrong(self, page: ET.Element, found: list[ET.Element]) -> None:
        raise NotImplementedError


class MissingKeys(_Pages, fault="missing keys", fails="LIST.pages", expected_text="key missing in a listing"):
    """Every page of a long listing except the last page lacks its last key."""

    def wrong(self, page: ET.Element, found: list[ET.Element]) -> None:
        if page.find("NextContinuationToken") is not None and found:
            page.remove(found[-1])


class DoubledKeys(_Pages, fault="doubled keys", fails="LIST.pages", expected_text="key listed twice"):
    """Every page of a long listing except the last page contains its last key twice."""

    def wrong(self, page: ET.Element, found: list[ET.Element]) -> None:
        if page.find("NextContinuationToken") is not None and found:
            page.append(found[-1])


class WrongOrder(_Pages, fault="wrong order", fails="LIST.pages LIST.names", expected_text="keys in wrong order"):
    """A page of a listing contains its last key first."""

    def wrong(self, page: ET.Element, found: list[ET.Element]) -> None:
        if len(found) > 1:
            page.remove(found[-1])
            page.insert(list(page).index(found[0]), found[-1])


class OnePage(_Pages, fault="one page only", fails="LIST.pages", expected_text="key missing in a listing"):
    """Keys beyond the first page are never listed."""

    def wrong(self, page: ET.Element, found: list[ET.Element]) -> None:
        for child in page:
            if child.tag == "IsTruncated":
                child.text = "false"


class FoldedKeys(
    Store, fault="keys folded to lower case", fails="LIST.names", expected_text="key missing in a listing"
):
    """Keys that differ only in case refer to the same object."""

    class handler(Requests):  # noqa: N801 - an attribute
        def _done(self) -> None:
            self._key = self._key.replace("UPPER", "upper").replace("AND", "and")
            super()._done()


class CleanedKeys(Store, fault="keys cleaned like paths", fails="LIST.names", expected_text="key refused"):
    """Keys with doubled slashes are refused."""

    class handler(Requests):  # noqa: N801 - an attribute
        def _done(self) -> None:
            if "//" in self._key:
                raise RequestRefused(400, "XMinioInvalidObjectName", "Object name contains unsupported characters.")
            super()._done()
