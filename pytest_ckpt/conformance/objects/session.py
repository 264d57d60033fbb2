"""A client of a bucket, for the checks. It returns each answer of the store unchanged, including refusals.

Each version of each object has unique bytes, so that bytes of another version or object are recognised.
"""

from __future__ import annotations

import contextlib
import errno
import threading
import urllib.parse
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_ckpt.conformance.content import random_bytes
from pytest_ckpt.conformance.context import Effort
from pytest_ckpt.facts.targets import Access
from pytest_ckpt.targets.objects.client import open_wire
from pytest_ckpt.targets.objects.errors import StoreError, fields_in, fields_of, local_name
from pytest_ckpt.targets.objects.keys import BucketPrefix
from pytest_ckpt.targets.objects.wire import Patience

if TYPE_CHECKING:
    from pytest_ckpt.conformance.client import Client

T = TypeVar("T")
S = TypeVar("S")

AT_ONCE = 8
"""The number of threads of a client that act concurrently, each with a separate connection."""

CROWD = 32
"""The number of threads of a client that simulates a crowd."""

_CONNECT_SECONDS, _ATTEMPTS = 10.0, 3
_XML = {"Content-Type": "application/xml"}


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionSpec:
    """The settings that both clients of a check share.

    ``access`` describes the connection to the store. ``prefix`` is the common prefix of all objects of the check.
    ``seed`` determines the contents of the objects.
    """

    bucket: str
    prefix: str
    access: Access
    seed: int
    patience_seconds: float
    scheme: str = "s3"


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """The store's answer to a request. As a truth value, it is false if the store refused the request.

    ``code`` is the error code of a refusal.
    """

    status: int
    where: str
    headers: Mapping[str, str] = field(default_factory=dict)
    data: bytes = b""
    code: str = ""

    def __bool__(self) -> bool:
        """Return whether the request succeeded."""
        return self.status < 300

    @property
    def etag(self) -> str:
        """The ETag: the store's name of this content."""
        return self.headers.get("etag", "").strip('"')

    @property
    def outcome(self) -> str:
        """The status and error code as text, such as "412 PreconditionFailed"."""
        return f"{self.status} {self.code}".strip()

    def needed(self, action: str) -> Reply:
        """Return this reply. Raises OSError if the store refused the request.

        The check calls this method if it cannot continue after a refusal. ``action`` is the name of the request in the
        error message.
        """
        if not self:
            raise OSError(errno.EIO, f"{action} was refused with {self.outcome}", self.where)
        return self


class Session:
    """A client of one bucket, safe for several threads. It remembers the objects and uploads that it created.

    The name of an object is its key without the check's prefix.
    """

    def __init__(self, spec: SessionSpec, report_call: Callable[[str, str], None] = lambda _call, _path: None) -> None:
        self.seed = spec.seed
        self._place = BucketPrefix(bucket=spec.bucket, prefix=spec.prefix, scheme=spec.scheme)
        patience = Patience(connect_seconds=_CONNECT_SECONDS, silent_seconds=spec.patience_seconds, attempts=_ATTEMPTS)
        self._wire = open_wire(self._place, spec.access, patience)
        self.digests, self.kept_digests = self._wire.digests, self._wire.kept
        self._report_call = report_call
        self._threads = ThreadPoolExecutor(AT_ONCE)
        self._crowd = ThreadPoolExecutor(CROWD)
        self._made: set[str] = set()
        self._begun: set[tuple[str, str]] = set()

    @property
    def maximum_name_bytes(self) -> int:
        """The maximum length of a name in bytes: S3's limit of 1,024 bytes for a key, minus the prefix."""
        return 1024 - len(self._place.below.encode())

    def url(self, name: str) -> str:
        """Return the URL of an object."""
        return self._place.url_of(f"{self._place.below}{name}")

    def request(
        self,
        action: str,
        method: str,
        name: str | None,
        *,
        query: Sequence[tuple[str, str]] = (),
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> Reply:
        """Send a request about an object, or about the bucket if ``name`` is None. Return the answer.

        ``action`` is the name of the request in reports. Raises OSError if the store does not answer.
        """
        where = self._place.url if name is None else self.url(name)
        key = "" if name is None else f"{self._place.below}{name}"
        self._report_call(action, where)
        view = memoryview(body) if body else b""
        try:
            answer = self._wire.request(action, method, where, key=key, query=query, headers=headers or {}, body=view)
        except StoreError as error:
            if not error.status:
                raise
            return Reply(status=error.status, where=where, code=error.code)
        return Reply(status=answer.status, where=where, headers=answer.headers, data=answer.data)

    # --- objects ------------------------------------------------------------------------------------------------------

    def put(self, name: str, data: bytes, headers: Mapping[str, str] | None = None) -> Reply:
        """Write an object."""
        self._made.add(name)
        return self.request("put", "PUT", name, headers=headers, body=data)

    def get(self, name: str, headers: Mapping[str, str] | None = None) -> Reply:
        """Read an object."""
        return self.request("get", "GET", name, headers=headers)

    def head(self, name: str) -> Reply:
        """Query the properties of an object, including its checksums."""
        return self.request("head", "HEAD", name, headers={"x-amz-checksum-mode": "ENABLED"})

    def delete(self, name: str) -> Reply:
        """Delete an object."""
        return self.request("delete", "DELETE", name)

    def pages(self, prefix: str = "", delimiter: str = "", size: int = 0) -> Iterator[ET.Element]:
        """Yield the pages of a listing, with at most ``size`` keys each (0: the store chooses)."""
        token = ""
        while True:
            query = [("list-type", "2"), ("prefix", f"{self._place.below}{prefix}")]
            found = (("delimiter", delimiter), ("continuation-token", token), ("max-keys", str(size) if size else ""))
            query += [(word, value) for word, value in found if value]
            page = _parsed(self.request("list", "GET", None, query=query).needed("a listing"))
            yield page
            seen = fields_in(page)
            token = seen.get("NextContinuationToken", "")
            if seen.get("IsTruncated") != "true" or not token:
                return

    def listed(self, prefix: str = "", *, size: int = 0) -> list[tuple[str, int, str]]:
        """Return (name, bytes, ETag) of all objects in a listing, in its order."""
        found = [fields for page in self.pages(prefix, size=size) for fields in _groups(page, "Contents")]
        below = len(self._place.below)
        return [(f["Key"][below:], int(f.get("Size", -1)), f.get("ETag", "").strip('"')) for f in found]

    def directories(self, prefix: str, *, size: int = 0) -> list[str]:
        """Return the directories below a prefix (names up to the next slash), in the order of the listing."""
        found = [fields for page in self.pages(prefix, "/", size) for fields in _groups(page, "CommonPrefixes")]
        return [fields["Prefix"][len(self._place.below) :] for fields in found]

    # --- objects of parts ---------------------------------------------------------------------------------------------

    def begin(self, name: str, headers: Mapping[str, str] | None = None) -> str:
        """Begin a multipart upload, and return its id."""
        answer = self.request("begin upload", "POST", name, query=[("uploads", "")], headers=headers)
        upload = fields_of(answer.needed("the begin of an upload").data).get("UploadId", "")
        self._made.add(name)
        self._begun.add((name, upload))
        return upload

    def part(self, name: str, upload: str, number: int, data: bytes, headers: Mapping[str, str] | None = None) -> Reply:
        """Send a part."""
        query = [("partNumber", str(number)), ("uploadId", upload)]
        return self.request("put part", "PUT", name, query=query, headers=headers, body=data)

    def copied(self, name: str, upload: str, number: int, source: str) -> str:
        """Let the store copy the object ``source`` as a part. Return the part's ETag; empty if the store refuses."""
        query = [("partNumber", str(number)), ("uploadId", upload)]
        of = urllib.parse.quote(f"/{self._place.bucket}/{self._place.below}{source}")
        answer = self.request("copy part", "PUT", name, query=query, headers={"x-amz-copy-source": of})
        return fields_of(answer.data).get("ETag", "").strip('"') if answer else ""

    def end(
        self, name: str, upload: str, parts: Iterable[tuple[int, str]], headers: Mapping[str, str] | None = None
    ) -> Reply:
        """Complete an upload. ``parts`` contains (number, ETag) of each part."""
        top = ET.Element("CompleteMultipartUpload", xmlns="http://s3.amazonaws.com/doc/2006-03-01/")
        for number, etag in parts:
            part = ET.SubElement(top, "Part")
            ET.SubElement(part, "PartNumber").text = str(number)
            ET.SubElement(part, "ETag").text = f'"{etag}"'
        query, body = [("uploadId", upload)], ET.tostring(top)
        return self.request("end upload", "POST", name, query=query, headers={**_XML, **(headers or {})}, body=body)

    def abort(self, name: str, upload: str) -> Reply:
        """Abort an upload."""
        return self.request("abort upload", "DELETE", name, query=[("uploadId", upload)])

    def uploads(self, prefix: str = "") -> list[tuple[str, str]]:
        """Return (name, upload id) of every upload that was neither completed nor aborted."""
        query = [("uploads", ""), ("prefix", f"{self._place.below}{prefix}")]
        page = _parsed(self.request("list uploads", "GET", None, query=query).needed("a listing of uploads"))
        below = self._place.below
        found = [(f["Key"], f["UploadId"]) for f in _groups(page, "Upload")]
        # Some stores list the uploads of the whole bucket.
        return [(key[len(below) :], upload) for key, upload in found if key.startswith(f"{below}{prefix}")]

    # --- concurrent requests, and the end -----------------------------------------------------------------------------

    def map_concurrently(self, act: Callable[[T], S], items: Iterable[T]) -> list[S]:
        """Call ``act`` with each item in several threads. Return all results in the order of the items."""
        return list(self._threads.map(act, items))

    def together(self, act: Callable[[int], S], *, as_crowd: bool = False) -> list[S]:
        """Call ``act`` in all threads of this client at the same moment. Return all results.

        Each call receives the number of its thread. If ``as_crowd`` is true, a larger number of threads is used.
        """
        threads, count = (self._crowd, CROWD) if as_crowd else (self._threads, AT_ONCE)
        line = threading.Barrier(count)

        def one(number: int) -> S:
            line.wait()
            return act(number)

        return list(threads.map(one, range(count)))

    def times_busy(self) -> int:
        """Return how often the store has answered 503 or 429 so far."""
        return sum(tally.busy for tally in self._wire.tallies().values())

    def remove_all(self) -> None:
        """Abort all uploads and remove all objects of the check. Errors are ignored.

        These are the uploads and objects that this client created, and all others below the prefix of the check.
        """
        with contextlib.suppress(OSError):
            self._begun |= set(self.uploads())
            self._made |= {name for name, _, _ in self.listed()}
        # Objects that cannot be removed remain until the end of the run, which lists them.
        with contextlib.suppress(OSError):
            self.map_concurrently(lambda pair: self.abort(*pair), sorted(self._begun))
            self.map_concurrently(self.delete, sorted(self._made))

    def close(self) -> None:
        """Close all connections."""
        self._threads.shutdown(cancel_futures=True)
        self._crowd.shutdown(cancel_futures=True)
        self._wire.close()


def _parsed(reply: Reply) -> ET.Element:
    try:
        return ET.fromstring(reply.data)
    except ET.ParseError:
        raise OSError(errno.EIO, "the store's answer to a listing is no XML", reply.where) from None


def _groups(page: ET.Element, name: str) -> list[dict[str, Any]]:
    return [fields_in(child) for child in page if local_name(child) == name]


@dataclass(frozen=True, kw_only=True, slots=True)
class ObjectContext(Effort):
    """The context of a check on an object store: two clients with separate connections.

    ``here`` is the client of this process, ``other`` a client in another process. ``third`` starts an additional client
    that a check may kill.
    """

    here: Session
    other: Client
    third: Callable[[], Client]


SIZE_OF_VERSION = 1000


def content(seed: int, name: str, version: int, size: int = 0) -> bytes:
    """Return the bytes of a version of an object. The default size is ``sized(version)``."""
    return random_bytes(size or sized(version), seed, name, version)


def sized(version: int) -> int:
    """Return the size of a version in bytes. Each version has a different size."""
    return SIZE_OF_VERSION + version


def described(data: bytes, seed: int, name: str, versions: range, size: int = 0) -> str:
    """Return a text with the version that these bytes belong to."""
    for version in versions:
        if data == content(seed, name, version, size):
            return f"version {version}"
    return f"{len(data):,} bytes that match no version of it"
