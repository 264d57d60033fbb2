"""Requests of S3 in the words of Google Cloud Storage's JSON API.

Why not its XML API, which knows the uploads of S3: Google takes no conditions there, so that the end of an upload could
not be made to lose against an object that is there already; and it has keys of its own (HMAC), which few jobs have.

An upload in parts is what Google calls a parallel composite upload: each part is an object (`google_names`), and the
end composes them, 32 at a time, and deletes them. The ETag of an object is its generation here, by which Google knows
conditions.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import urllib.parse
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from pytest_ckpt.facts.targets import Access
from pytest_ckpt.targets.objects.checksums import MD5
from pytest_ckpt.targets.objects.errors import fields_in
from pytest_ckpt.targets.objects.google_account import DialectOfGoogle
from pytest_ckpt.targets.objects.google_answers import Page, object_of, parsed
from pytest_ckpt.targets.objects.google_names import below_upload, joined_key, part_key, piece_of
from pytest_ckpt.targets.objects.keys import BucketPrefix
from pytest_ckpt.targets.objects.s3_adapter import S3Adapter, md5_of
from pytest_ckpt.targets.objects.wire import Answer, Patience, Wire
from pytest_ckpt.targets.objects.xml_answers import added, answer_of, element, not_implemented

_COMPOSED = 32
"""So many objects at most become one in one request."""

_AT_ONCE = 8
_JSON = {"Content-Type": "application/json"}
_PROJECT = "GOOGLE_CLOUD_PROJECT"


class AskingGoogle(S3Adapter):
    """A bucket of Google."""

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

    def _make_bucket(self, what: str, place: str) -> Answer:
        made = json.dumps({"name": self._bucket}).encode()
        project = [("project", os.environ.get(_PROJECT, "none"))]
        return self._wire.ask(what, "POST", place, key="storage/v1/b", query=project, headers=_JSON, body=made)

    def _uploads(self, what: str, place: str, prefix: str) -> list[tuple[str, str]]:
        found = (piece_of(key) for key in self._keys(what, place, prefix))
        return sorted({(piece.key, piece.upload) for piece in found if piece})

    def _list(self, what: str, place: str, words: Mapping[str, str]) -> Answer:
        page = self._page(
            what,
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
        for folder in page.folders:
            if not piece_of(folder):
                added(top, "CommonPrefixes", Prefix=folder)
        return answer_of(top, page.headers)

    def _page(self, what: str, place: str, **words: str) -> Page:
        query = [(name, value) for name, value in words.items() if value]
        answer = self._wire.ask(what, "GET", place, key=f"storage/v1/b/{self._bucket}/o", query=query)
        said = parsed(answer, place)
        return Page(
            objects=[object_of(item) for item in said.get("items", ())],
            folders=said.get("prefixes", ()),
            next=str(said.get("nextPageToken", "")),
            headers=answer.headers,
        )

    def _keys(self, what: str, place: str, prefix: str) -> Iterator[str]:
        """Yield all keys, those of parts among them."""
        token = ""
        while True:
            page = self._page(what, place, prefix=prefix, pageToken=token)
            yield from (item.key for item in page.objects)
            token = page.next
            if not token:
                return

    def _keeps_what_is_deleted(self, what: str, place: str) -> bool:
        """Say of versions, and of soft deletion, what S3 says of versions."""
        query = [("fields", "versioning,softDeletePolicy")]
        page = parsed(self._wire.ask(what, "GET", place, key=f"storage/v1/b/{self._bucket}", query=query), place)
        soft = int((page.get("softDeletePolicy") or {}).get("retentionDurationSeconds", 0))
        return bool((page.get("versioning") or {}).get("enabled")) or soft > 0

    # --- objects ------------------------------------------------------------------------------------------------------

    def _put(self, what: str, place: str, key: str, stated: Mapping[str, str], body: memoryview | bytes) -> Answer:
        """Write an object in one request: what is said of it, and it."""
        border = secrets.token_hex(16)
        facts = json.dumps({"name": key, "md5Hash": md5_of(stated, body), "contentType": "application/octet-stream"})
        head = (
            f"--{border}\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n{facts}\r\n"
            f"--{border}\r\nContent-Type: application/octet-stream\r\n\r\n"
        )
        answer = self._wire.ask(
            what,
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
        what: str,
        place: str,
        key: str,
        upload: str,
        number: int,
        stated: Mapping[str, str],
        body: memoryview | bytes,
    ) -> Answer:
        return self._put(what, place, part_key(key, upload, number), {MD5: stated.get(MD5, "")}, body)

    def _end(self, what: str, place: str, key: str, upload: str, stated: Mapping[str, str], body: bytes) -> Answer:
        """Make one object of parts; what they were is deleted, or listed as unfinished."""
        listed = [fields_in(part) for part in ET.fromstring(body)]
        sources = [(part_key(key, upload, int(t["PartNumber"])), t["ETag"].strip('"')) for t in listed]
        level = 0
        while len(sources) > _COMPOSED:
            groups = [sources[start : start + _COMPOSED] for start in range(0, len(sources), _COMPOSED)]
            level += 1
            sources = [
                (name, self._compose(what, place, name, group, ()).strip('"'))
                for name, group in ((joined_key(key, upload, level, n), group) for n, group in enumerate(groups))
            ]
        etag = self._compose(what, place, key, sources, _conditions(stated, place))
        with contextlib.suppress(OSError):
            self._remove(what, place, self._keys(what, place, below_upload(key, upload)))
        return answer_of(element("CompleteMultipartUploadResult", ETag=etag), {"etag": etag})

    def _compose(
        self, what: str, place: str, key: str, sources: Sequence[tuple[str, str]], query: Sequence[tuple[str, str]]
    ) -> str:
        """Make one object of others, each (key, generation); return its ETag."""
        asked = {
            "sourceObjects": [{"name": name, "generation": generation} for name, generation in sources],
            "destination": {"contentType": "application/octet-stream"},
        }
        answer = self._wire.ask(
            what,
            "POST",
            place,
            key=f"{self._of(key)}/compose",
            query=query,
            headers=_JSON,
            body=json.dumps(asked).encode(),
        )
        return object_of(parsed(answer, place)).etag

    def _abort(self, what: str, place: str, key: str, upload: str) -> None:
        self._remove(what, place, self._keys(what, place, below_upload(key, upload)))

    def _delete(self, what: str, place: str, key: str) -> None:
        self._remove(what, place, [key])

    def _read(
        self,
        what: str,
        method: str,
        place: str,
        key: str,
        stated: Mapping[str, str],
        into: memoryview | None,
        moved: Callable[[int], None],
    ) -> Answer:
        if method == "HEAD":
            return self._head(what, place, key, stated)
        asked = [("alt", "media"), *_conditions(stated, place)]
        sent = {"Range": stated["range"]} if "range" in stated else {}
        answer = self._wire.ask(
            what, method, place, key=self._of(key), query=asked, headers=sent, into=into, moved=moved
        )
        etag = {"etag": f'"{g}"'} if (g := answer.headers.get("x-goog-generation")) else {}
        return Answer(headers={**answer.headers, **etag}, data=answer.data, read=answer.read, status=answer.status)

    def _head(self, what: str, place: str, key: str, stated: Mapping[str, str]) -> Answer:
        answer = self._wire.ask(what, "GET", place, key=self._of(key), query=_conditions(stated, place))
        found = object_of(parsed(answer, place))
        md5 = {MD5: found.md5} if found.md5 else {}
        headers = {**answer.headers, "content-length": str(found.bytes), "etag": found.etag, **md5}
        return Answer(headers=headers, data=b"")

    def _remove(self, what: str, place: str, keys: Iterable[str]) -> None:
        """Delete objects, several at a time; one that is not there is no error to S3."""

        def remove(key: str) -> None:
            with contextlib.suppress(FileNotFoundError):
                self._wire.ask(what, "DELETE", place, key=self._of(key))

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
    """Return conditions on ETags as Google knows them, on generations."""
    none, same = stated.get("if-none-match"), stated.get("if-match")
    if none == "*":
        return [("ifGenerationMatch", "0")]
    if none is not None:
        raise not_implemented("of If-None-Match only * is known here", place)
    return [("ifGenerationMatch", _generation(same))] if same else []


def _generation(etag: str) -> str:
    """Return the generation of an ETag; of one that is none, a generation that no object has."""
    text = etag.strip('"')
    return text if text.isdigit() else "1"
