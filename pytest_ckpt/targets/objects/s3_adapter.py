"""Base class of adapters: an adapter performs S3 requests on an object store that has another protocol."""

from __future__ import annotations

import base64
import errno
import hashlib
import secrets
import xml.etree.ElementTree as ET
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence

from pytest_ckpt.facts.requests import Tallies
from pytest_ckpt.targets.objects.checksums import MD5
from pytest_ckpt.targets.objects.errors import StoreError
from pytest_ckpt.targets.objects.wire import Answer, Wire


def answer_of(top: ET.Element, headers: Mapping[str, str] | None = None) -> Answer:
    """Return an answer whose body is an XML document."""
    return Answer(headers=headers or {}, data=ET.tostring(top))


def element(name: str, **words: str) -> ET.Element:
    """Return an XML element with a child for each keyword."""
    made = ET.Element(name)
    for field, text in words.items():
        ET.SubElement(made, field).text = text
    return made


def added(top: ET.Element, name: str, **words: str) -> None:
    """Append an XML element with a child for each keyword to ``top``."""
    top.append(element(name, **words))


def not_implemented(message: str, place: str) -> StoreError:
    """Return the error "NotImplemented" (HTTP status 501) for a request that the store does not support."""
    error = StoreError(errno.ENOSYS, f"NotImplemented: {message}", place)
    error.status, error.code = 501, "NotImplemented"
    return error


DONE = Answer(headers={}, data=b"", status=204)
"""The answer to a deletion."""


class S3Adapter(ABC):
    """An object store with another protocol, with the interface of an S3 bucket. Safe for several threads.

    The MD5 of each body is sent with the body.
    """

    digests: tuple[str, ...] = (MD5,)
    kept: tuple[str, ...] = (MD5,)
    not_copied: str
    """The reason why a part is not copied from another object."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self.region = wire.region

    @property
    def endpoint(self) -> str:
        """The URL to which requests are currently sent."""
        return self._wire.endpoint

    def tallies(self) -> Tallies:
        """Return the counts of the requests so far, by endpoint and operation."""
        return self._wire.tallies()

    def close(self) -> None:
        """Close all connections."""
        self._wire.close()

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
        """Perform an S3 request with requests in the store's own protocol; return an S3 answer. Raises StoreError."""
        words, fields = dict(query), {name.lower(): value for name, value in (headers or {}).items()}
        upload = words.get("uploadId", "")
        match method:
            case "GET" if not key and "versioning" in words:
                keeps = self._keeps_deleted_objects(action, place)
                return answer_of(element("VersioningConfiguration", Status="Enabled" if keeps else "Suspended"))
            case "GET" if not key and "uploads" in words:
                top = element("ListMultipartUploadsResult", IsTruncated="false")
                for begun, name in self._uploads(action, place, words.get("prefix", "")):
                    added(top, "Upload", Key=begun, UploadId=name)
                return answer_of(top)
            case "GET" if not key:
                return self._list(action, place, words)
            case "PUT" if not key:
                return self._make_bucket(action, place)
            case "PUT" if "x-amz-copy-source" in fields:
                raise not_implemented(self.not_copied, place)
            case "PUT" if upload:
                return self._put_part(action, place, key, upload, int(words["partNumber"]), fields, body)
            case "PUT":
                return self._put(action, place, key, fields, body)
            case "POST" if not upload:
                return answer_of(element("InitiateMultipartUploadResult", UploadId=secrets.token_hex(8)))
            case "POST":
                return self._end(action, place, key, upload, fields, bytes(body))
            case "DELETE" if upload:
                self._abort(action, place, key, upload)
                return DONE
            case "DELETE":
                self._delete(action, place, key)
                return DONE
        return self._read(action, method, place, key, fields, into, moved)

    @abstractmethod
    def _keeps_deleted_objects(self, action: str, place: str) -> bool:
        """Return whether the store keeps deleted objects for some time, so that their space is freed later."""

    @abstractmethod
    def _uploads(self, action: str, place: str, prefix: str) -> Iterable[tuple[str, str]]:
        """Return (key, upload id) of each unfinished upload below a prefix."""

    @abstractmethod
    def _list(self, action: str, place: str, words: Mapping[str, str]) -> Answer:
        """Return a page of the bucket's keys as S3 lists them; ``words`` are the parameters of the S3 request."""

    @abstractmethod
    def _make_bucket(self, action: str, place: str) -> Answer: ...

    @abstractmethod
    def _put(
        self, action: str, place: str, key: str, stated: Mapping[str, str], body: memoryview | bytes
    ) -> Answer: ...

    @abstractmethod
    def _put_part(
        self,
        action: str,
        place: str,
        key: str,
        upload: str,
        number: int,
        stated: Mapping[str, str],
        body: memoryview | bytes,
    ) -> Answer:
        """Send a part, numbered from 1."""

    @abstractmethod
    def _end(self, action: str, place: str, key: str, upload: str, stated: Mapping[str, str], body: bytes) -> Answer:
        """Complete an object from the parts listed in the body."""

    @abstractmethod
    def _abort(self, action: str, place: str, key: str, upload: str) -> None: ...

    @abstractmethod
    def _delete(self, action: str, place: str, key: str) -> None:
        """Delete an object; in S3 a missing object is not an error."""

    @abstractmethod
    def _read(
        self,
        action: str,
        method: str,
        place: str,
        key: str,
        stated: Mapping[str, str],
        into: memoryview | None,
        moved: Callable[[int], None],
    ) -> Answer:
        """Answer GET and HEAD of an object."""


def md5_of(stated: Mapping[str, str], body: memoryview | bytes) -> str:
    """Return the MD5 of a body in base64. If the headers ``stated`` contain an MD5, return this MD5."""
    return stated.get(MD5) or base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()
