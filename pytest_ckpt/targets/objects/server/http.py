"""The HTTP interface of the server: S3 requests for objects, ranges, multipart uploads, listings and conditions."""

from __future__ import annotations

import contextlib
import errno
import functools
import re
import urllib.parse
import xml.etree.ElementTree as ET
import zlib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from pytest_ckpt.sizing.object_parts import MAXIMUM_PARTS
from pytest_ckpt.targets.objects import checksums, parts
from pytest_ckpt.targets.objects.errors import local_name
from pytest_ckpt.targets.objects.server.bucket_store import (
    BucketStore,
    Condition,
    Object,
    RequestRefused,
    StoredPart,
    ranges,
)

_MAXIMUM_KEYS = 1000
_NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"


def listing(bucket: str, objects: Iterable[tuple[str, Object]], query: Mapping[str, str]) -> ET.Element:
    """Return one page of a bucket's keys, after the continuation token in the query.

    If the query has a delimiter, keys are grouped. The keys of a group have the same text up to the first delimiter
    after the prefix. The page lists this text once for each group.
    """
    prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
    after = query.get("continuation-token", "") or query.get("start-after", "")
    maximum = min(_MAXIMUM_KEYS, int(query.get("max-keys") or _MAXIMUM_KEYS))
    entries: dict[str, Object | None] = {}
    for key, item in objects:
        head, found, _ = key.removeprefix(prefix).partition(delimiter) if delimiter else (key, "", "")
        name = prefix + head + found if found else key
        if name.encode() > after.encode():
            entries[name] = None if found else item
    page = list(entries.items())[:maximum]
    is_cut = len(page) < len(entries)
    top = answered("ListBucketResult", Name=bucket, Prefix=prefix, IsTruncated=str(is_cut).lower())
    _fields(top, KeyCount=str(len(page)), MaxKeys=str(maximum))
    if is_cut and page:
        _fields(top, NextContinuationToken=page[-1][0])
    for name, entry in page:
        if entry is None:
            add(top, "CommonPrefixes", Prefix=name)
        else:
            words = {"ETag": f'"{entry.etag}"', "Size": str(entry.bytes), "LastModified": xml_time(entry.modified)}
            add(top, "Contents", Key=name, StorageClass="STANDARD", **words)
    return top


def xml_time(seconds: float) -> str:
    """Return a time (seconds since 1970) in S3's XML form."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def answered(name: str, **words: str) -> ET.Element:
    """Return an XML document named ``name`` with a child element for each keyword."""
    return _fields(ET.Element(name, {} if name == "Error" else {"xmlns": _NAMESPACE}), **words)


def add(top: ET.Element, name: str, **words: str) -> None:
    """Append an element to an XML document, with a child element for each keyword."""
    _fields(ET.SubElement(top, name), **words)


def _fields(top: ET.Element, **words: str) -> ET.Element:
    for name, text in words.items():
        ET.SubElement(top, name).text = text
    return top


_READ_BYTES = 1 << 20
_MAXIMUM_TEXT_BYTES = 4 << 20
_CRC32 = "x-amz-checksum-crc32"
_FULL = {errno.ENOSPC, errno.EDQUOT}


def serve(store: BucketStore) -> ThreadingHTTPServer:
    """Return a server for the buckets of a store, on a free port of the loopback interface.

    The caller runs the server by its method ``serve_forever``.
    """
    return Server(("127.0.0.1", 0), functools.partial(Handler, store))


class Server(ThreadingHTTPServer):
    """An HTTP server that listens on the loopback interface."""

    daemon_threads = True
    # All ranks may connect concurrently.
    request_queue_size = 1024


class Handler(BaseHTTPRequestHandler):
    """Performs the requests that arrive on one connection."""

    protocol_version = "HTTP/1.1"
    server_version = "pytest-ckpt"
    # An answer is sent in two pieces, and the second must not wait for the acknowledgement of the first.
    disable_nagle_algorithm = True

    def __init__(self, store: BucketStore, *words: Any) -> None:
        self._store = store
        super().__init__(*words)

    def log_message(self, *_words: Any) -> None:
        """Do nothing: requests are not logged."""

    def answer(self) -> None:
        """Perform a request. If the request is refused, answer with the reason."""
        url = urllib.parse.urlsplit(self.path)
        self._bucket, _, self._key = urllib.parse.unquote(url.path).lstrip("/").partition("/")
        self._query = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        self._unread = int(self.headers.get("Content-Length") or 0)
        try:
            self._done()
        except RequestRefused as refused:
            self._refuse(refused)
        except OSError as error:
            if error.errno not in _FULL:
                self.close_connection = True
                raise
            self._refuse(RequestRefused(507, "InsufficientStorage", "The disk of this server is full"))

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = answer  # noqa: N815

    def _done(self) -> None:
        has_key, query = bool(self._key), self._query
        match self.command:
            case "PUT" if not has_key:
                self._store.make_bucket(self._bucket)
                self._respond(200)
            case "PUT" if "x-amz-copy-source" in self.headers:
                self._copy(query.get("uploadId", ""), query.get("partNumber", ""))
            case "PUT":
                self._put(query.get("uploadId", ""), query.get("partNumber", ""))
            case "POST" if "uploads" in query:
                name = self._store.begin_upload(self._bucket, self._key)
                self._respond(
                    200, answered("InitiateMultipartUploadResult", Bucket=self._bucket, Key=self._key, UploadId=name)
                )
            case "POST" if "uploadId" in query:
                self._end_upload(query["uploadId"])
            case "POST" if "delete" in query and not has_key:
                self._delete_many()
            case "DELETE" if "uploadId" in query:
                self._store.abort_upload(self._bucket, query["uploadId"])
                self._respond(204)
            case "DELETE" if has_key:
                self._store.delete(self._bucket, self._key)
                self._respond(204)
            case "GET" | "HEAD" if has_key:
                self._get(self._store.get(self._bucket, self._key))
            case "GET" | "HEAD":
                self._about_bucket()
            case _:
                raise RequestRefused(501, "NotImplemented", "This server does not do that")

    # --- objects ------------------------------------------------------------------------------------------------------

    def _put(self, upload: str, number: str) -> None:
        piece = self._received()
        if upload:
            self._store.put_part(self._bucket, upload, _part_number(number), piece)
            etag = piece.etag
        else:
            etag = self._store.put(self._bucket, self._key, piece, self._condition()).etag
        self._respond(200, etag=etag, crc32=parts.encoded(piece.crc32))

    def _copy(self, upload: str, number: str) -> None:
        """Copy an object to a new object or to a part of an upload. The copy shares the pieces of the source."""
        bucket, _, key = urllib.parse.unquote(self.headers["x-amz-copy-source"]).lstrip("/").partition("/")
        if any(name.lower().startswith("x-amz-copy-source-") for name in self.headers):
            raise RequestRefused(501, "NotImplemented", "This server copies whole objects, without separate conditions")
        source = self._store.get(bucket, key)
        if not upload:
            if (bucket, key) == (self._bucket, self._key):
                raise RequestRefused(
                    400, "InvalidRequest", "It is illegal to copy an object to itself without a change"
                )
            made = self._store.copy(source, self._bucket, self._key, self._condition())
            self._respond(
                200, answered("CopyObjectResult", ETag=f'"{made.etag}"', LastModified=xml_time(made.modified))
            )
            return
        if len(source.pieces) > 1:
            raise RequestRefused(501, "NotImplemented", "This server copies objects of one piece, as parts")
        self._store.put_part(self._bucket, upload, _part_number(number), source.pieces[0])
        self._respond(200, answered("CopyPartResult", ETag=f'"{source.pieces[0].etag}"'))

    def _delete_many(self) -> None:
        """Delete the objects that the request's body lists."""
        top = self._read_xml(is_digested=True)
        result = answered("DeleteResult")
        is_quiet = any(local_name(field) == "Quiet" and field.text == "true" for field in top)
        for one in top:
            if local_name(one) == "Object":
                key = next((field.text or "" for field in one if local_name(field) == "Key"), "")
                self._store.delete(self._bucket, key)
                if not is_quiet:
                    add(result, "Deleted", Key=key)
        self._respond(200, result)

    def _received(self) -> StoredPart:
        """Read the body of a request into a new piece. Raises RequestRefused if a checksum does not match."""
        for name in self.headers:
            if name.lower() == "content-encoding" and "aws-chunked" in self.headers[name]:
                raise RequestRefused(501, "NotImplemented", "This server takes no bodies in signed chunks")
        piece, done = self._store.new_piece(self._unread), 0
        fields = {name: value for name in checksums.ALGORITHMS if (value := self.headers.get(name))}
        # The CRC-32 of every body is computed.
        others = {name: checksums.ALGORITHMS[name]() for name in fields if name != _CRC32}
        while self._unread:
            data = self._read(_READ_BYTES)
            piece.crc32 = zlib.crc32(data, piece.crc32)
            for running in others.values():
                running.update(data)
            piece.space.write(piece.offset + done, data)
            done += len(data)
        computed = {name: checksums.encoded(running) for name, running in others.items()}
        self._check_digests(fields, {**computed, _CRC32: parts.encoded(piece.crc32)})
        piece.checksums = {name: value for name, value in fields.items() if name not in (_CRC32, checksums.MD5)}
        return piece

    def _check_digests(self, stated: Mapping[str, str], computed: Mapping[str, str]) -> None:
        for name, value in stated.items():
            if value != computed[name]:
                raise RequestRefused(400, "BadDigest", f"The {name} you specified did not match what was received.")

    def _get(self, stored_object: Object) -> None:
        Condition(etag=self.headers.get("If-Match", "").strip('"')).check(stored_object)
        byte_range = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        size = stored_object.bytes
        first, stop = 0, size
        if byte_range and any(byte_range.groups()):
            first = int(byte_range[1]) if byte_range[1] else max(0, size - int(byte_range[2]))
            stop = min(size, int(byte_range[2]) + 1) if byte_range[1] and byte_range[2] else size
            if first >= stop:
                raise RequestRefused(416, "InvalidRange", "The requested range is not satisfiable")
        self.send_response(206 if byte_range else 200)
        if byte_range:
            self.send_header("Content-Range", f"bytes {first}-{stop - 1}/{size}")
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Last-Modified", formatdate(stored_object.modified, usegmt=True))
        with_checksums = self.headers.get("x-amz-checksum-mode") == "ENABLED" and not byte_range
        self._send_identity(stored_object.etag, stored_object.crc32 if with_checksums else "")
        for name, value in stored_object.checksums.items() if with_checksums else ():
            self.send_header(name, value)
        self.send_header("Content-Length", str(stop - first))
        self.end_headers()
        if self.command == "GET":
            for piece, offset, count in ranges(stored_object, first, stop):
                for data in piece.space.read(piece.offset + offset, count):
                    self.wfile.write(data)

    def _end_upload(self, upload: str) -> None:
        top = self._read_xml()
        listed = [{local_name(field): field.text or "" for field in part} for part in top if local_name(part) == "Part"]
        wanted = [(int(t["PartNumber"]), t["ETag"].strip('"'), t.get("ChecksumCRC32", "")) for t in listed]
        made = self._store.end_upload(self._bucket, upload, wanted, self._condition())
        words = {"Bucket": self._bucket, "Key": self._key, "ETag": f'"{made.etag}"', "ChecksumCRC32": made.crc32}
        self._respond(200, answered("CompleteMultipartUploadResult", **words))

    def _condition(self) -> Condition:
        return Condition(
            absent=self.headers.get("If-None-Match") == "*", etag=self.headers.get("If-Match", "").strip('"')
        )

    # --- buckets ------------------------------------------------------------------------------------------------------

    def _about_bucket(self) -> None:
        prefix = self._query.get("prefix", "")
        if "uploads" in self._query:
            top = answered("ListMultipartUploadsResult", Bucket=self._bucket, Prefix=prefix, IsTruncated="false")
            for key, name in self._store.uploads(self._bucket, prefix):
                add(top, "Upload", Key=key, UploadId=name)
            self._respond(200, top)
        elif "versioning" in self._query:
            self._store.keys(self._bucket, "")
            self._respond(200, answered("VersioningConfiguration"))
        else:
            self._respond(200, self._listing(prefix))

    def _listing(self, prefix: str) -> ET.Element:
        return listing(self._bucket, self._store.keys(self._bucket, prefix), self._query)

    # --- data on the connection ---------------------------------------------------------------------------------------

    def _read(self, maximum: int) -> bytes:
        data = self.rfile.read1(min(maximum, self._unread))
        if not data:
            self.close_connection = True
            raise RequestRefused(400, "IncompleteBody", "You did not provide the number of bytes specified")
        self._unread -= len(data)
        return bytes(data)

    def _read_text(self) -> bytes:
        if self._unread > _MAXIMUM_TEXT_BYTES:
            raise RequestRefused(400, "MaxMessageLengthExceeded", "Your request was too large.")
        return b"".join(iter(lambda: self._read(_READ_BYTES) if self._unread else b"", b""))

    def _read_xml(self, *, is_digested: bool = False) -> ET.Element:
        """Read an XML body. Raises RequestRefused if the body is invalid.

        With ``is_digested``, also compare the body with the checksums in the headers.
        """
        text = self._read_text()
        stated = {name: value for name in checksums.ALGORITHMS if (value := self.headers.get(name))}
        if is_digested:
            self._check_digests(stated, {name: checksums.checksum(name, text) for name in stated})
        try:
            return ET.fromstring(text)
        except ET.ParseError:
            raise RequestRefused(400, "MalformedXML", "The XML you provided was not well-formed") from None

    def _refuse(self, refused: RequestRefused) -> None:
        self._respond(refused.status, answered("Error", Code=refused.code, Message=str(refused)))

    def _respond(self, status: int, body: ET.Element | None = None, *, etag: str = "", crc32: str = "") -> None:
        while self._unread and not self.close_connection:
            # Unread bytes would be mistaken for the next request.
            with contextlib.suppress(RequestRefused):
                self._read(_READ_BYTES)
        data = b"" if body is None else ET.tostring(body, encoding="utf-8", xml_declaration=True)
        self.send_response(status)
        if etag:
            self._send_identity(etag, crc32)
        if data:
            self.send_header("Content-Type", "application/xml")
        if status != 204:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _send_identity(self, etag: str, crc32: str) -> None:
        self.send_header("ETag", f'"{etag}"')
        if crc32:
            self.send_header(_CRC32, crc32)
            self.send_header("x-amz-checksum-type", "COMPOSITE" if "-" in crc32 else "FULL_OBJECT")


def _part_number(stated: str) -> int:
    if not stated.isdecimal() or not 1 <= int(stated) <= MAXIMUM_PARTS:
        raise RequestRefused(400, "InvalidArgument", "Part number must be an integer between 1 and 10000")
    return int(stated)
