"""S3 requests of a run to a bucket.

Every body of data is sent with its CRC-32, which is computed here. Errors are StoreErrors: OSErrors with the operation,
the object, and the store's answer.
"""

from __future__ import annotations

import contextlib
import errno
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pytest_ckpt.facts.requests import Tallies
from pytest_ckpt.facts.targets import Access
from pytest_ckpt.targets.objects import parts
from pytest_ckpt.targets.objects.authentication import DialectOfS3
from pytest_ckpt.targets.objects.checksums import ALGORITHMS, MD5
from pytest_ckpt.targets.objects.errors import StoreError, fields_in, fields_of, local_name
from pytest_ckpt.targets.objects.keys import BucketPrefix
from pytest_ckpt.targets.objects.wire import OF_RANKS, Answer, Patience, Wire
from pytest_ckpt.targets.protocol import Buffer

_NOT_REQUESTED = "x-amz-checksum-sha1"


class S3Requests(Protocol):
    """S3 requests to a store, directly or through an adapter.

    ``digests`` are the headers that may contain the checksum of a body. ``kept`` are the checksum headers that a HEAD
    request for the stored object returns.
    """

    digests: tuple[str, ...]
    kept: tuple[str, ...]

    @property
    def region(self) -> str:
        """The region for signatures; empty for a store without regions."""

    @property
    def endpoint(self) -> str:
        """The URL to which requests are currently sent."""

    def request(
        self,
        action: str,
        method: str,
        place: str,
        *,
        key: str = "",
        query: Sequence[tuple[str, str]] = (),
        headers: Mapping[str, str] | None = None,
        body: memoryview | bytes = b"",
        into: memoryview | None = None,
        moved: Callable[[int], None] = lambda _count: None,
    ) -> Answer:
        """Return the answer to a request; arguments as for `Wire.request`. Raises StoreError."""

    def tallies(self) -> Tallies:
        """Return the counts of the requests so far, by endpoint and operation."""

    def close(self) -> None:
        """Close all connections."""


class S3Wire(Wire):
    """Sends S3 requests directly, without an adapter."""

    digests = tuple(header for header in ALGORITHMS if header != _NOT_REQUESTED)
    kept = tuple(header for header in digests if header != MD5)


def open_wire(place: BucketPrefix, access: Access, patience: Patience) -> S3Requests:
    """Return the client for the bucket of a place. Raises StoreError without credentials."""
    if place.scheme == "az":
        from pytest_ckpt.targets.objects.azure import AzureAdapter  # noqa: PLC0415 - only for this store

        return AzureAdapter(place, access, patience)
    if place.scheme == "gs":
        from pytest_ckpt.targets.objects.google import GoogleAdapter  # noqa: PLC0415

        return GoogleAdapter(place, access, patience)
    return S3Wire(DialectOfS3(place, access), access, patience)


_NO_SUCH_RANGE = 416
_XML = {"Content-Type": "application/xml"}


@dataclass(frozen=True, kw_only=True, slots=True)
class ObjectState:
    """A store's facts about an object: its size in bytes, its ETag, and its CRC-32 (empty if unknown).

    For an object made of parts, ``crc32`` does not contain the suffix with the number of parts.
    """

    bytes: int
    etag: str
    crc32: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Version:
    """A version that a bucket keeps under a key: the current or an older object, or a deletion marker."""

    key: str
    version: str
    is_marker: bool


class Bucket:
    """A bucket, as accessed by one process. Several threads may use it."""

    def __init__(self, place: BucketPrefix, access: Access, patience: Patience = OF_RANKS) -> None:
        self.place, self.access = place, access
        self.part_bytes = access.part_bytes
        self._wire = open_wire(place, access, patience)

    @property
    def region(self) -> str:
        """The region for signatures."""
        return self._wire.region

    @property
    def endpoint(self) -> str:
        """The URL to which requests are sent."""
        return self._wire.endpoint

    def url(self, key: str) -> str:
        """Return the URL of an object, such as s3://bucket/key."""
        return self.place.url_of(key)

    # --- the bucket ---------------------------------------------------------------------------------------------------

    def probe(self, prefix: str) -> Answer:
        """List at most one key with a prefix. The headers of the answer contain the server's name and time."""
        query = [("list-type", "2"), ("prefix", prefix), ("max-keys", "1")]
        return self._wire.request("list", "GET", self.place.url, query=query)

    def keeps_versions(self) -> bool:
        """Return whether the bucket keeps deleted or overwritten objects."""
        answer = self._wire.request("read versioning", "GET", self.place.url, query=[("versioning", "")])
        return fields_of(answer.data).get("Status") == "Enabled"

    def versions(self, prefix: str) -> list[Version]:
        """Return the versions of keys with a prefix; empty if the bucket keeps no versions."""
        return [
            Version(key=each["Key"], version=each["VersionId"], is_marker=group == "DeleteMarker")
            for page in self._marked("list versions", "versions", prefix, "version-id-marker", "NextVersionIdMarker")
            for group in ("Version", "DeleteMarker")
            for each in _fields(page, group)
            # An object from before versioning has the version "null". As the newest it is listed as an object, and is
            # deleted as such; below a newer version or a marker it stays.
            if each["Key"].startswith(prefix)
            and (each["VersionId"] != "null" or group == "DeleteMarker" or each.get("IsLatest") == "false")
        ]

    def make(self) -> None:
        """Create the bucket."""
        self._wire.request("make bucket", "PUT", self.place.url)

    # --- whole objects ------------------------------------------------------------------------------------------------

    def put(self, key: str, data: Buffer, *, if_absent: bool = False) -> int:
        """Write a whole object; return its CRC-32.

        Raises FileExistsError if ``if_absent`` is true and the object exists.
        """
        view = memoryview(data).cast("B")
        checksum = parts.crc32(view)
        self._put(key, view, checksum, {"If-None-Match": "*"} if if_absent else {})
        return checksum

    def put_version(self, key: str, data: bytes) -> str:
        """Write a small object. Return its version id; empty if the store returned no version id."""
        view = memoryview(data)
        version = self._put(key, view, parts.crc32(view), {}).headers.get("x-amz-version-id", "")
        return "" if version == "null" else version

    def get(self, key: str) -> bytes:
        """Return the bytes of a small object."""
        return self._wire.request("get", "GET", self.url(key), key=key).data

    def head(self, key: str) -> ObjectState:
        """Return the store's facts about an object. Raises FileNotFoundError if the object does not exist."""
        answer = self._wire.request("head", "HEAD", self.url(key), key=key, headers={"x-amz-checksum-mode": "ENABLED"})
        etag = answer.headers.get("etag", "").strip('"')
        # Of an object made of parts, this client knows the checksums of the parts, but not of the complete object.
        is_ours = answer.headers.get("x-amz-checksum-type", "COMPOSITE") == "COMPOSITE" or "-" not in etag
        checksum = answer.headers.get("x-amz-checksum-crc32", "").partition("-")[0] if is_ours else ""
        return ObjectState(bytes=int(answer.headers.get("content-length", -1)), etag=etag, crc32=checksum)

    def is_there(self, key: str) -> bool:
        """Return whether an object exists."""
        try:
            self.head(key)
        except FileNotFoundError:
            return False
        return True

    def read_into(self, key: str, offset: int, view: memoryview, moved: Callable[[int], None]) -> int:
        """Read a range of an object into ``view``, and return the number of bytes.

        The read ends when ``view`` is full or the object ends. If the connection breaks, the complete range is read
        again. `Patience` limits the number of attempts.
        """
        stop = offset + len(view) - 1
        if not len(view):
            return 0
        parameter = {"Range": f"bytes={offset}-{stop}"}
        try:
            answer = self._wire.request("get", "GET", self.url(key), key=key, headers=parameter, into=view, moved=moved)
        except StoreError as error:
            if error.status == _NO_SUCH_RANGE:
                return 0
            raise
        if offset and not answer.headers.get("content-range", "").startswith(f"bytes {offset}-"):
            raise StoreError(errno.EIO, "get: the store ignored the requested range", self.url(key))
        return answer.read

    def delete(self, key: str, version: str = "") -> None:
        """Delete an object. With ``version``, permanently delete this version of the object instead.

        As in S3, a missing object is not an error.
        """
        query = [("versionId", version)] if version else []
        with contextlib.suppress(FileNotFoundError):
            self._wire.request("delete", "DELETE", self.url(key), key=key, query=query)

    def keys(self, prefix: str) -> list[str]:
        """Return all keys that begin with a prefix."""
        return [text for page in self._list(prefix) for text in _texts(page, "Contents", "Key")]

    def states_below(self, prefix: str) -> Iterator[tuple[str, int, str]]:
        """Yield (key, bytes, ISO 8601 time of the last change) of each object below a prefix.

        The function works only for S3 itself, because the listings of adapters contain no times.
        """
        for page in self._list(prefix):
            keys, sizes, times = (_texts(page, "Contents", name) for name in ("Key", "Size", "LastModified"))
            yield from zip(keys, map(int, sizes), times, strict=True)

    def directories(self, prefix: str) -> list[str]:
        """Return the directories below a prefix: each key that starts with ``prefix``, up to the next slash.

        The results include the prefix and the slash, and contain no duplicates. Keys without such a slash are omitted.
        """
        return [text for page in self._list(prefix, "/") for text in _texts(page, "CommonPrefixes", "Prefix")]

    # --- objects of parts ---------------------------------------------------------------------------------------------

    def begin_upload(self, key: str) -> str:
        """Begin a multipart upload; return its id. The object is invisible until the upload is completed."""
        headers = {"x-amz-checksum-algorithm": "CRC32"}
        answer = self._wire.request(
            "begin upload", "POST", self.url(key), key=key, query=[("uploads", "")], headers=headers
        )
        upload = fields_of(answer.data).get("UploadId", "")
        if not upload:
            raise StoreError(errno.EIO, "begin upload: the store gave no name to it", self.url(key))
        return upload

    def put_part(self, key: str, upload: str, number: int, view: memoryview) -> tuple[str, int]:
        """Send a part, numbered from 1; return its ETag and its CRC-32."""
        checksum = parts.crc32(view)
        query = [("partNumber", str(number)), ("uploadId", upload)]
        answer = self._wire.request(
            "put part", "PUT", self.url(key), key=key, query=query, headers=_checked(checksum), body=view
        )
        return answer.headers.get("etag", ""), checksum

    def end_upload(self, key: str, upload: str, sent: Sequence[tuple[int, str, int]]) -> None:
        """Complete an upload from its parts. ``sent`` lists (number, ETag, CRC-32) of each part, sorted by number."""
        top = ET.Element("CompleteMultipartUpload", xmlns="http://s3.amazonaws.com/doc/2006-03-01/")
        for number, etag, checksum in sent:
            part = ET.SubElement(top, "Part")
            ET.SubElement(part, "PartNumber").text = str(number)
            ET.SubElement(part, "ETag").text = etag
            ET.SubElement(part, "ChecksumCRC32").text = parts.encoded(checksum)
        self._wire.request(
            "end upload",
            "POST",
            self.url(key),
            key=key,
            query=[("uploadId", upload)],
            headers=_XML,
            body=ET.tostring(top),
        )

    def abort_upload(self, key: str, upload: str) -> None:
        """Abort an unfinished multipart upload; the store removes its parts."""
        self._wire.request("abort upload", "DELETE", self.url(key), key=key, query=[("uploadId", upload)])

    def uploads(self, prefix: str) -> list[tuple[str, str]]:
        """Return (key, upload id) of each unfinished upload below a prefix."""
        return [
            pair
            for page in self._marked("list uploads", "uploads", prefix, "upload-id-marker", "NextUploadIdMarker")
            for pair in zip(_texts(page, "Upload", "Key"), _texts(page, "Upload", "UploadId"), strict=True)
            # Some stores list the uploads of the whole bucket.
            if pair[0].startswith(prefix)
        ]

    # --- counts, and the end ------------------------------------------------------------------------------------------

    def tallies(self) -> Tallies:
        """Return the counts of the requests so far, by endpoint and operation."""
        return self._wire.tallies()

    def close(self) -> None:
        """Close all connections."""
        self._wire.close()

    def _put(self, key: str, view: memoryview, checksum: int, condition: dict[str, str]) -> Answer:
        return self._wire.request(
            "put", "PUT", self.url(key), key=key, headers=_checked(checksum) | condition, body=view
        )

    def _marked(self, action: str, word: str, prefix: str, parameter: str, field_name: str) -> Iterator[ET.Element]:
        """Yield the pages of a listing. Two markers identify the next page: a key, and a second marker.

        ``word`` is the query parameter that selects the kind of listing. A page contains the second marker in the field
        ``field_name``. The next request sends the second marker in the query parameter ``parameter``.
        """
        marker: list[tuple[str, str]] = []
        while True:
            query = [(word, ""), ("prefix", prefix), *marker]
            page = _parsed(self._wire.request(action, "GET", self.place.url, query=query), self.place.url)
            yield page
            fields = fields_in(page)
            if fields.get("IsTruncated") != "true" or not fields.get("NextKeyMarker"):
                return
            marker = [("key-marker", fields["NextKeyMarker"]), (parameter, fields.get(field_name, ""))]

    def _list(self, prefix: str, delimiter: str = "") -> Iterator[ET.Element]:
        token = ""
        while True:
            query = [("list-type", "2"), ("prefix", prefix)]
            query += [(n, v) for n, v in (("delimiter", delimiter), ("continuation-token", token)) if v]
            page = _parsed(self._wire.request("list", "GET", self.place.url, query=query), self.place.url)
            yield page
            fields = fields_in(page)
            token = fields.get("NextContinuationToken", "")
            if fields.get("IsTruncated") != "true" or not token:
                return


def _checked(checksum: int) -> dict[str, str]:
    return {"x-amz-sdk-checksum-algorithm": "CRC32", "x-amz-checksum-crc32": parts.encoded(checksum)}


def _parsed(answer: Answer, place: str) -> ET.Element:
    try:
        return ET.fromstring(answer.data)
    except ET.ParseError:
        raise StoreError(errno.EIO, "list: the store's answer is no XML", place) from None


def _fields(page: ET.Element, group: str) -> list[dict[str, str]]:
    """Return {name of a field: text} for each element ``group`` in a page."""
    return [{local_name(field): field.text or "" for field in child} for child in page if local_name(child) == group]


def _texts(page: ET.Element, group: str, name: str) -> list[str]:
    """Return the text of every field ``name`` in the elements ``group`` of a page, in order."""
    return [
        field.text or "" for child in page if local_name(child) == group for field in child if local_name(field) == name
    ]
