"""Adapter: serves S3 requests on Azure Blob Storage, with an Azure account and Azure's signature.

Objects are block blobs, and parts are blocks. Azure has no ids of uploads. So the adapter creates an id for each
upload, and the name of each block contains this id. To complete an upload, the adapter commits the list of its blocks.
To abort the upload of a new blob, the adapter commits an empty list, which discards the blocks. Then it deletes the
empty blob. The adapter finds unfinished uploads by the names of the uncommitted blocks of all blobs.

The key of the account remains in this process. Source of the signature: Microsoft, "Authorize with Shared Key", for
version 2009-09-19 and later.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import hashlib
import hmac
import ipaddress
import os
import re
import time
import urllib.parse
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pytest_ckpt.facts.targets import Access
from pytest_ckpt.targets.objects.authentication import Endpoint, NoCredentialsError, PathOfKey, endpoint_of
from pytest_ckpt.targets.objects.checksums import MD5
from pytest_ckpt.targets.objects.errors import StoreError, fields_in, local_name, of_credentials
from pytest_ckpt.targets.objects.keys import BucketPrefix
from pytest_ckpt.targets.objects.s3_adapter import S3Adapter, added, answer_of, element, md5_of
from pytest_ckpt.targets.objects.wire import Answer, Patience, Wire

_NAMED = (
    "content-encoding", "content-language", "content-length", "content-md5", "content-type", "date",
    "if-modified-since", "if-match", "if-none-match", "if-unmodified-since", "range",
)  # fmt: skip


def authorization(
    method: str, path: str, query: str, headers: Mapping[str, str], body_bytes: int, *, account: str, key: str
) -> str:
    """Return the value of the authorization header of a request. Raises ValueError for an invalid key.

    ``path`` and ``query`` are encoded, and ``key`` is in base64.
    """
    sent = {name.lower(): " ".join(value.split()) for name, value in headers.items()}
    sent["content-length"] = str(body_bytes) if body_bytes else ""
    lines = [method, *(sent.get(name, "") for name in _NAMED)]
    lines += [f"{name}:{sent[name]}" for name in sorted(sent) if name.startswith("x-ms-")]
    requested = sorted((name.lower(), value) for name, value in urllib.parse.parse_qsl(query, keep_blank_values=True))
    resource = "\n".join([f"/{account}{path}", *(f"{name}:{value}" for name, value in requested)])
    text = "\n".join([*lines, resource])
    signature = base64.b64encode(hmac.digest(base64.b64decode(key, validate=True), text.encode(), "sha256")).decode()
    return f"SharedKey {account}:{signature}"


_VERSION = "2021-12-02"
_LACKS = (
    "neither AZURE_STORAGE_CONNECTION_STRING nor AZURE_STORAGE_ACCOUNT with AZURE_STORAGE_KEY or "
    "AZURE_STORAGE_SAS_TOKEN is set"
)


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Account:
    """An account with a base64 key, or with a token (SAS). An empty ``endpoint`` means Azure's own endpoint."""

    name: str
    key: str = ""
    token: str = ""
    endpoint: str = ""


def find_account(environment: Mapping[str, str]) -> Account:
    """Return the account that environment variables describe. Raises NoCredentialsError."""
    pairs = (part.partition("=") for part in environment.get("AZURE_STORAGE_CONNECTION_STRING", "").split(";"))
    words = {name.strip(): value.strip() for name, _, value in pairs}
    variable = environment.get
    name = variable("AZURE_STORAGE_ACCOUNT") or variable("AZURE_STORAGE_ACCOUNT_NAME") or words.get("AccountName", "")
    key = variable("AZURE_STORAGE_KEY") or variable("AZURE_STORAGE_ACCOUNT_KEY") or words.get("AccountKey", "")
    token = variable("AZURE_STORAGE_SAS_TOKEN") or words.get("SharedAccessSignature", "")
    if not name or not (key or token):
        raise NoCredentialsError(_LACKS)
    url = urllib.parse.urlsplit(words.get("BlobEndpoint", ""))
    endpoint = f"{url.scheme}://{url.netloc}" if url.netloc else ""
    return Account(name=name, key=key, token=token.lstrip("?"), endpoint=endpoint)


class DialectOfAzure(PathOfKey):
    """Requests of one account, signed with its key or sent with its token.

    Raises StoreError if the account has neither a key nor a token.
    """

    region = ""

    def __init__(self, place: BucketPrefix, access: Access) -> None:
        try:
            self._account = find_account(os.environ)
        except NoCredentialsError as error:
            raise of_credentials(str(error), place.url, "NoAccount") from None
        default_url = f"https://{self._account.name}.blob.core.windows.net"
        urls = access.endpoints or (self._account.endpoint or default_url,)
        self.endpoints = tuple(self._endpoint(url) for url in urls)

    def signed(
        self, method: str, path: str, query: str, headers: Mapping[str, str], body: memoryview | bytes
    ) -> tuple[str, dict[str, str]]:
        """Return (query, headers) of a request with a signature or a token. The signature does not cover the body."""
        sent = {
            **headers,
            "x-ms-version": _VERSION,
            "x-ms-date": time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime()),
        }
        if not self._account.key:
            return "&".join(filter(None, (query, self._account.token))), sent
        try:
            sent["Authorization"] = authorization(
                method, path, query, sent, len(body), account=self._account.name, key=self._account.key
            )
        except ValueError:
            raise NoCredentialsError("AZURE_STORAGE_KEY is not a key: it is not base64") from None
        return query, sent

    def hidden(self) -> tuple[str, ...]:
        """Return the key, the token and the signature in the token."""
        signature = dict(urllib.parse.parse_qsl(self._account.token)).get("sig", "")
        return self._account.key, self._account.token, signature

    def _endpoint(self, url: str) -> Endpoint:
        """Return the endpoint for requests to the account.

        If the host of the URL is an IP address or localhost, several accounts may share this host. The path then
        contains the account.
        """
        return endpoint_of(url, f"/{self._account.name}" if _is_of_many(url) else "")


def _is_of_many(url: str) -> bool:
    host = urllib.parse.urlsplit(url).hostname or ""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    return True


_CONDITIONS = ("if-match", "if-none-match")
_BLOCK = re.compile(r"([0-9a-f]{16})-(\d{5})-([0-9a-f]{32})")
_BLOCK_LIST = [("comp", "blocklist")]
_BLOB = {"x-ms-blob-type": "BlockBlob"}


class AzureAdapter(S3Adapter):
    """A container of Azure Blob Storage with the interface of an S3 bucket."""

    not_copied = "a block is not copied from another blob here"

    def __init__(self, place: BucketPrefix, access: Access, patience: Patience) -> None:
        super().__init__(Wire(DialectOfAzure(place, access), access, patience))
        self._container = place.bucket

    # --- the container ------------------------------------------------------------------------------------------------

    def _make_bucket(self, action: str, place: str) -> Answer:
        return self._wire.request(action, "PUT", place, key=self._container, query=[("restype", "container")])

    def _list(self, action: str, place: str, words: Mapping[str, str]) -> Answer:
        page, headers = self._page(
            action,
            place,
            prefix=words.get("prefix", ""),
            delimiter=words.get("delimiter", ""),
            maxresults=words.get("max-keys", ""),
            marker=words.get("continuation-token", ""),
        )
        marker = fields_in(page).get("NextMarker", "")
        top = element("ListBucketResult", IsTruncated="true" if marker else "false", NextContinuationToken=marker)
        for blob in _children(page, "Blobs"):
            if local_name(blob) == "BlobPrefix":
                added(top, "CommonPrefixes", Prefix=_name(blob))
            else:
                facts = {k: v for part in blob if local_name(part) == "Properties" for k, v in fields_in(part).items()}
                added(
                    top, "Contents", Key=_name(blob), ETag=facts.get("Etag", ""), Size=facts.get("Content-Length", "")
                )
        return answer_of(top, headers)

    def _page(self, action: str, place: str, **words: str) -> tuple[ET.Element, Mapping[str, str]]:
        """Return a page of the blobs in the container, and the headers of the answer.

        ``words`` are parameters of the query.
        """
        query = [("restype", "container"), ("comp", "list"), *((name, value) for name, value in words.items() if value)]
        answer = self._wire.request(action, "GET", place, key=self._container, query=query)
        return _parsed(answer, place), answer.headers

    def _keeps_deleted_objects(self, action: str, place: str) -> bool:
        """Return whether the account keeps deleted blobs for some time.

        `request` reports such an account as a bucket with S3 versioning. Azure's answer does not state whether blobs
        have versions.
        """
        query = [("restype", "service"), ("comp", "properties")]
        page = _parsed(self._wire.request(action, "GET", place, query=query), place)
        kept = [fields_in(part).get("Enabled") for part in page if local_name(part) == "DeleteRetentionPolicy"]
        return "true" in kept

    def _uploads(self, action: str, place: str, prefix: str) -> Iterator[tuple[str, str]]:
        """Yield (key, upload id) of each unfinished upload below a prefix.

        An unfinished upload has uncommitted blocks in its blob.
        """
        marker = ""
        while True:
            page, _ = self._page(action, place, prefix=prefix, include="uncommittedblobs", marker=marker)
            for key in [_name(blob) for blob in _children(page, "Blobs")]:
                yield from ((key, upload) for upload in sorted(self._begun(action, place, key)))
            marker = fields_in(page).get("NextMarker", "")
            if not marker:
                return

    def _begun(self, action: str, place: str, key: str) -> set[str]:
        """Return the ids of a blob's unfinished uploads. The names of the uncommitted blocks contain these ids."""
        query = [("comp", "blocklist"), ("blocklisttype", "uncommitted")]
        try:
            page = _parsed(self._wire.request(action, "GET", place, key=self._of(key), query=query), place)
        except FileNotFoundError:
            return set()
        names = [fields_in(block).get("Name", "") for block in _children(page, "UncommittedBlocks")]
        matches = [_BLOCK.fullmatch(base64.b64decode(name).decode(errors="replace")) for name in names]
        return {match[1] for match in matches if match}

    # --- blobs --------------------------------------------------------------------------------------------------------

    def _put(self, action: str, place: str, key: str, stated: Mapping[str, str], body: memoryview | bytes) -> Answer:
        sent = _BLOB | _conditions(stated) | {MD5: md5_of(stated, body)}
        return self._wire.request(action, "PUT", place, key=self._of(key), headers=sent, body=body)

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
        md5 = hashlib.md5(body, usedforsecurity=False)
        query = [("comp", "block"), ("blockid", _encoded(_name_of_block(upload, number, md5.hexdigest())))]
        guard = {MD5: stated.get(MD5) or base64.b64encode(md5.digest()).decode()}
        self._wire.request(action, "PUT", place, key=self._of(key), query=query, headers=guard, body=body)
        # The upload is identified by this token when it is completed.
        return Answer(headers={"etag": f'"{md5.hexdigest()}"'}, data=b"")

    def _end(self, action: str, place: str, key: str, upload: str, stated: Mapping[str, str], body: bytes) -> Answer:
        listed = [fields_in(part) for part in ET.fromstring(body)]
        data = _list_of_blocks([_name_of_block(upload, int(t["PartNumber"]), t["ETag"]) for t in listed])
        sent = _conditions(stated) | {MD5: md5_of({}, data)}
        answer = self._wire.request(action, "PUT", place, key=self._of(key), query=_BLOCK_LIST, headers=sent, body=data)
        return answer_of(element("CompleteMultipartUploadResult", ETag=answer.headers.get("etag", "")), answer.headers)

    def _abort(self, action: str, place: str, key: str, upload: str) -> None:
        """Discard the uncommitted blocks of a blob that does not exist yet.

        If the blob exists, do nothing; Azure discards the blocks at the next change of the blob.
        """
        del upload  # all blocks of a blob are committed together
        none = _list_of_blocks(())
        sent = {"if-none-match": "*", MD5: md5_of({}, none)}
        with contextlib.suppress(FileExistsError):
            self._wire.request(action, "PUT", place, key=self._of(key), query=_BLOCK_LIST, headers=sent, body=none)
            self._wire.request(action, "DELETE", place, key=self._of(key))

    def _delete(self, action: str, place: str, key: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._wire.request(action, "DELETE", place, key=self._of(key))

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
        sent = _conditions(stated)
        if requested := stated.get("range"):
            sent["Range"] = self._range(action, place, key, requested)
        return self._wire.request(action, method, place, key=self._of(key), headers=sent, into=into, moved=moved)

    def _range(self, action: str, place: str, key: str, requested: str) -> str:
        """Return the requested range (``requested``) in a form that Azure supports.

        A suffix range (the last n bytes) is converted to a range from an offset.
        """
        if not (last := re.fullmatch(r"bytes=-(\d+)", requested)):
            return requested
        size = int(self._wire.request(action, "HEAD", place, key=self._of(key)).headers.get("content-length", 0))
        return f"bytes={max(0, size - int(last[1]))}-"

    def _of(self, key: str) -> str:
        return f"{self._container}/{key}"


def _name_of_block(upload: str, number: int, etag: str) -> str:
    """Return the name of a block: upload id, part number and ETag.

    All block names of a blob must have the same length.
    """
    return f"{upload}-{number:05d}-{etag.strip(chr(34))}"


def _list_of_blocks(names: Sequence[str]) -> bytes:
    top = ET.Element("BlockList")
    for name in names:
        ET.SubElement(top, "Latest").text = _encoded(name)
    text: bytes = ET.tostring(top, encoding="utf-8", xml_declaration=True)
    return text


def _encoded(name: str) -> str:
    return base64.b64encode(name.encode()).decode()


def _conditions(stated: Mapping[str, str]) -> dict[str, str]:
    return {name: stated[name] for name in _CONDITIONS if name in stated}


def _parsed(answer: Answer, place: str) -> ET.Element:
    try:
        # The text may begin with a byte order mark.
        return ET.fromstring(answer.data.decode("utf-8-sig"))
    except (ET.ParseError, UnicodeDecodeError):
        raise StoreError(errno.EIO, "the store's answer is no XML", place) from None


def _children(page: ET.Element, name: str) -> list[ET.Element]:
    return [child for group in page if local_name(group) == name for child in group]


def _name(blob: ET.Element) -> str:
    """Return the name of a blob.

    A name that XML cannot represent remains URL-encoded. Runs do not create such names.
    """
    return fields_in(blob).get("Name", "")
