"""Adapter: serves S3 requests on Google Cloud Storage's JSON API, with a Google account.

Google's XML API supports S3's multipart uploads, but has two disadvantages. It accepts no condition when an upload is
completed, so an upload could overwrite an existing object. It needs separate keys (HMAC), which few jobs have.

In the JSON API, a multipart upload is a parallel composite upload: each part is an object. To complete the upload, the
adapter composes the parts, 32 at a time, and deletes them. The key of a part begins with the key of the uploaded
object, so the clean-up of a run's prefix also removes the parts. The ETag of an object is its generation, which Google
uses in conditions.

The library google-auth (extra ``gcs``) provides the account: the file in GOOGLE_APPLICATION_CREDENTIALS, the login of
gcloud, or the service account of a machine. If STORAGE_EMULATOR_HOST is set, requests are not signed.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import json
import os
import re
import secrets
import threading
import urllib.parse
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from pytest_ckpt.facts.targets import Access
from pytest_ckpt.targets.objects.authentication import NoCredentialsError, endpoint_of
from pytest_ckpt.targets.objects.checksums import MD5
from pytest_ckpt.targets.objects.errors import StoreError, fields_in, of_credentials
from pytest_ckpt.targets.objects.keys import BucketPrefix
from pytest_ckpt.targets.objects.s3_adapter import S3Adapter, added, answer_of, element, md5_of, not_implemented
from pytest_ckpt.targets.objects.wire import Answer, Patience, Wire

EMULATOR = "STORAGE_EMULATOR_HOST"
_OWN = "https://storage.googleapis.com"
_SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"


class DialectOfGoogle:
    """Requests with an OAuth 2.0 token. Raises StoreError if there is no token."""

    region = ""

    def __init__(self, place: BucketPrefix, access: Access) -> None:
        emulator = os.environ.get(EMULATOR, "").rstrip("/")
        if emulator and "://" not in emulator:
            emulator = f"http://{emulator}"
        self._token = ""
        try:
            self._sign: Callable[[str], dict[str, str]] = (lambda _url: {}) if emulator else _signer()
        except NoCredentialsError as error:
            raise of_credentials(str(error), place.url, "NoGoogleCredentials") from None
        urls = access.endpoints or (emulator or _OWN,)
        self.endpoints = tuple(endpoint_of(url, "") for url in urls)

    def path(self, root: str, key: str) -> str:
        """Return the path of a request. ``key`` is an API path in which names of objects are already encoded."""
        return f"{root}/{key}"

    def signed(
        self, method: str, path: str, query: str, headers: Mapping[str, str], body: memoryview | bytes
    ) -> tuple[str, dict[str, str]]:
        """Return (query, headers) of a request; the headers contain the current token."""
        del method, body
        added = self._sign(f"https://{headers.get('host', '')}{path}")
        self._token = added.get("authorization", "").removeprefix("Bearer ")
        return query, {**headers, **added}

    def hidden(self) -> tuple[str, ...]:
        """Return the token of the last request."""
        return (self._token,)


def _signer() -> Callable[[str], dict[str, str]]:
    """Return a function that receives the URL of a request and returns the headers that authenticate this request.

    `_signer` and the returned function raise NoCredentialsError.
    """
    if importlib.util.find_spec("google") is None or importlib.util.find_spec("google.auth") is None:
        raise NoCredentialsError("google-auth is not installed")
    import google.auth  # noqa: PLC0415 - only for this store
    import google.auth.exceptions  # noqa: PLC0415
    import google.auth.transport.requests  # noqa: PLC0415

    try:
        credentials, _ = google.auth.default(scopes=[_SCOPE])
    except google.auth.exceptions.GoogleAuthError as error:
        raise NoCredentialsError(_first_sentence(error)) from None
    request, lock = google.auth.transport.requests.Request(), threading.Lock()

    def sign(url: str) -> dict[str, str]:
        headers: dict[str, str] = {}
        try:
            with lock:
                credentials.before_request(request, "GET", url, headers)  # type: ignore[no-untyped-call]
        except google.auth.exceptions.GoogleAuthError as error:
            raise NoCredentialsError(_first_sentence(error)) from None
        return headers

    return sign


def _first_sentence(error: Exception) -> str:
    return str(error.args[0] if error.args else error).partition(". ")[0].rstrip(".")


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedObject:
    """Google's facts about an object. ``md5`` is empty for composed objects."""

    key: str
    bytes: int
    etag: str
    md5: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """A page of a listing; ``next`` is the token of the next page, empty on the last page."""

    objects: Sequence[ListedObject]
    directories: Sequence[str]
    next: str
    headers: Mapping[str, str]


def object_of(fields: Any) -> ListedObject:
    """Return Google's description of an object in a JSON answer as a `ListedObject`."""
    return ListedObject(
        key=str(fields.get("name", "")),
        bytes=int(fields.get("size", -1)),
        etag=f'"{fields.get("generation", "")}"',
        md5=str(fields.get("md5Hash", "")),
    )


def parsed(answer: Answer, place: str) -> Any:
    """Return an answer's JSON object. Raises StoreError if the answer is not a JSON object."""
    try:
        document = json.loads(answer.data)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise StoreError(errno.EIO, "the store's answer is no JSON object", place)
    return document


_PIECE = re.compile(r"(?P<key>.+)\.upload-(?P<upload>[0-9a-f]{16})/(?:(?P<name>[0-9a-z-]+))?", re.DOTALL)


@dataclass(frozen=True, kw_only=True, slots=True)
class ComposedPart:
    """A temporary object of an upload: a part, or several parts composed into one.

    ``key`` is the key of the uploaded object, ``upload`` the id of the upload. ``name`` is the temporary object's name
    within the upload. An empty name refers to the prefix of the upload.
    """

    key: str
    upload: str
    name: str


def below_upload(key: str, upload: str) -> str:
    """Return the prefix of the keys of an upload's temporary objects."""
    return f"{key}.upload-{upload}/"


def part_key(key: str, upload: str, number: int) -> str:
    """Return the key of a part, numbered from 1."""
    return f"{below_upload(key, upload)}{number:05d}"


def joined_key(key: str, upload: str, level: int, number: int) -> str:
    """Return the key of a temporary object that consists of several parts.

    ``number`` counts such objects from 0 in each ``level`` of composition.
    """
    return f"{below_upload(key, upload)}joined-{level}-{number:05d}"


def piece_of(key: str) -> ComposedPart | None:
    """Return the temporary object of an upload whose key is ``key``. For the key of a normal object, return None."""
    match = _PIECE.fullmatch(key)
    return ComposedPart(key=match["key"], upload=match["upload"], name=match["name"] or "") if match else None


_COMPOSED = 32
"""The maximum number of objects that one request composes."""

_AT_ONCE = 8
_JSON = {"Content-Type": "application/json"}
_PROJECT = "GOOGLE_CLOUD_PROJECT"


class GoogleAdapter(S3Adapter):
    """A bucket of Google Cloud Storage with the interface of an S3 bucket."""

    not_copied = "a part is not copied from another object here"

    def __init__(self, place: BucketPrefix, access: Access, patience: Patience) -> None:
        super().__init__(Wire(DialectOfGoogle(place, access), access, patience))
        self._bucket = place.bucket
        self._threads: ThreadPoolExecutor | None = None

    def close(self) -> None:
        """End the threads, and close all connections."""
        if self._threads:
            self._threads.shutdown()
            self._threads = None
        super().close()

    # --- the bucket ---------------------------------------------------------------------------------------------------

    def _make_bucket(self, action: str, place: str) -> Answer:
        made = json.dumps({"name": self._bucket}).encode()
        project = [("project", os.environ.get(_PROJECT, "none"))]
        return self._wire.request(action, "POST", place, key="storage/v1/b", query=project, headers=_JSON, body=made)

    def _uploads(self, action: str, place: str, prefix: str) -> list[tuple[str, str]]:
        pieces = (piece_of(key) for key in self._keys(action, place, prefix))
        return sorted({(piece.key, piece.upload) for piece in pieces if piece})

    def _list(self, action: str, place: str, words: Mapping[str, str]) -> Answer:
        page = self._page(
            action,
            place,
            prefix=words.get("prefix", ""),
            delimiter=words.get("delimiter", ""),
            maxResults=words.get("max-keys", ""),
            pageToken=words.get("continuation-token", ""),
        )
        top = element("ListBucketResult", IsTruncated="true" if page.next else "false", NextContinuationToken=page.next)
        for item in page.objects:
            if not piece_of(item.key):
                added(top, "Contents", Key=item.key, ETag=item.etag, Size=str(item.bytes))
        for directory in page.directories:
            if not piece_of(directory):
                added(top, "CommonPrefixes", Prefix=directory)
        return answer_of(top, page.headers)

    def _page(self, action: str, place: str, **words: str) -> Page:
        query = [(name, value) for name, value in words.items() if value]
        answer = self._wire.request(action, "GET", place, key=f"storage/v1/b/{self._bucket}/o", query=query)
        fields = parsed(answer, place)
        return Page(
            objects=[object_of(item) for item in fields.get("items", ())],
            directories=fields.get("prefixes", ()),
            next=str(fields.get("nextPageToken", "")),
            headers=answer.headers,
        )

    def _keys(self, action: str, place: str, prefix: str) -> Iterator[str]:
        """Yield all keys with a prefix, including the keys of temporary objects."""
        token = ""
        while True:
            page = self._page(action, place, prefix=prefix, pageToken=token)
            yield from (item.key for item in page.objects)
            token = page.next
            if not token:
                return

    def _keeps_deleted_objects(self, action: str, place: str) -> bool:
        """Return whether the bucket has versions or soft deletion.

        `request` reports versions and soft deletion as S3's versioning.
        """
        query = [("fields", "versioning,softDeletePolicy")]
        page = parsed(self._wire.request(action, "GET", place, key=f"storage/v1/b/{self._bucket}", query=query), place)
        soft = int((page.get("softDeletePolicy") or {}).get("retentionDurationSeconds", 0))
        return bool((page.get("versioning") or {}).get("enabled")) or soft > 0

    # --- objects ------------------------------------------------------------------------------------------------------

    def _put(self, action: str, place: str, key: str, stated: Mapping[str, str], body: memoryview | bytes) -> Answer:
        """Write an object by one request that contains its metadata and its bytes."""
        border = secrets.token_hex(16)
        facts = json.dumps({"name": key, "md5Hash": md5_of(stated, body), "contentType": "application/octet-stream"})
        head = (
            f"--{border}\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n{facts}\r\n"
            f"--{border}\r\nContent-Type: application/octet-stream\r\n\r\n"
        )
        answer = self._wire.request(
            action,
            "POST",
            place,
            key=f"upload/storage/v1/b/{self._bucket}/o",
            query=[("uploadType", "multipart"), *_conditions(stated, place)],
            headers={"Content-Type": f"multipart/related; boundary={border}"},
            body=body,
            around=(head.encode(), f"\r\n--{border}--\r\n".encode()),
        )
        return Answer(headers={**answer.headers, "etag": object_of(parsed(answer, place)).etag}, data=b"")

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
        return self._put(action, place, part_key(key, upload, number), {MD5: stated.get(MD5, "")}, body)

    def _end(self, action: str, place: str, key: str, upload: str, stated: Mapping[str, str], body: bytes) -> Answer:
        """Compose the parts of an upload into one object, then delete the parts.

        Parts that cannot be deleted are listed as an unfinished upload.
        """
        listed = [fields_in(part) for part in ET.fromstring(body)]
        sources = [(part_key(key, upload, int(t["PartNumber"])), t["ETag"].strip('"')) for t in listed]
        level = 0
        while len(sources) > _COMPOSED:
            groups = [sources[start : start + _COMPOSED] for start in range(0, len(sources), _COMPOSED)]
            level += 1
            sources = [
                (name, self._compose(action, place, name, group, ()).strip('"'))
                for name, group in ((joined_key(key, upload, level, n), group) for n, group in enumerate(groups))
            ]
        etag = self._compose(action, place, key, sources, _conditions(stated, place))
        with contextlib.suppress(OSError):
            self._remove(action, place, self._keys(action, place, below_upload(key, upload)))
        return answer_of(element("CompleteMultipartUploadResult", ETag=etag), {"etag": etag})

    def _compose(
        self, action: str, place: str, key: str, sources: Sequence[tuple[str, str]], query: Sequence[tuple[str, str]]
    ) -> str:
        """Compose the object ``key`` from the objects ``sources``; return the ETag of the composed object.

        ``sources`` lists (key, generation) of each object.
        """
        arguments = {
            "sourceObjects": [{"name": name, "generation": generation} for name, generation in sources],
            "destination": {"contentType": "application/octet-stream"},
        }
        answer = self._wire.request(
            action,
            "POST",
            place,
            key=f"{self._of(key)}/compose",
            query=query,
            headers=_JSON,
            body=json.dumps(arguments).encode(),
        )
        return object_of(parsed(answer, place)).etag

    def _abort(self, action: str, place: str, key: str, upload: str) -> None:
        self._remove(action, place, self._keys(action, place, below_upload(key, upload)))

    def _delete(self, action: str, place: str, key: str) -> None:
        self._remove(action, place, [key])

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
        if method == "HEAD":
            return self._head(action, place, key, stated)
        arguments = [("alt", "media"), *_conditions(stated, place)]
        sent = {"Range": stated["range"]} if "range" in stated else {}
        answer = self._wire.request(
            action, method, place, key=self._of(key), query=arguments, headers=sent, into=into, moved=moved
        )
        etag = {"etag": f'"{g}"'} if (g := answer.headers.get("x-goog-generation")) else {}
        return Answer(headers={**answer.headers, **etag}, data=answer.data, read=answer.read, status=answer.status)

    def _head(self, action: str, place: str, key: str, stated: Mapping[str, str]) -> Answer:
        answer = self._wire.request(action, "GET", place, key=self._of(key), query=_conditions(stated, place))
        stored_object = object_of(parsed(answer, place))
        md5 = {MD5: stored_object.md5} if stored_object.md5 else {}
        headers = {**answer.headers, "content-length": str(stored_object.bytes), "etag": stored_object.etag, **md5}
        return Answer(headers=headers, data=b"")

    def _remove(self, action: str, place: str, keys: Iterable[str]) -> None:
        """Delete objects, several at a time. As in S3, a missing object is not an error."""

        def remove(key: str) -> None:
            with contextlib.suppress(FileNotFoundError):
                self._wire.request(action, "DELETE", place, key=self._of(key))

        named = list(keys)
        if len(named) == 1:
            remove(named[0])
            return
        self._threads = self._threads or ThreadPoolExecutor(_AT_ONCE)
        for done in [self._threads.submit(remove, key) for key in named]:
            done.result()

    def _of(self, key: str) -> str:
        return f"storage/v1/b/{self._bucket}/o/{urllib.parse.quote(key, safe='')}"


def _conditions(stated: Mapping[str, str], place: str) -> list[tuple[str, str]]:
    """Convert conditions on ETags to Google's conditions on generations."""
    none, same = stated.get("if-none-match"), stated.get("if-match")
    if none == "*":
        return [("ifGenerationMatch", "0")]
    if none is not None:
        raise not_implemented("of If-None-Match only * is known here", place)
    return [("ifGenerationMatch", _generation(same))] if same else []


def _generation(etag: str) -> str:
    """Return the generation in an ETag. For an invalid ETag, return a generation that no object has."""
    text = etag.strip('"')
    return text if text.isdigit() else "1"
