"""What the server answers in XML: small documents of S3, and pages of listings."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from pytest_ckpt.targets.objects.server.bucket_store import Object

_MAXIMUM_KEYS = 1000
_NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"


def listing(bucket: str, objects: Iterable[tuple[str, Object]], query: Mapping[str, str]) -> ET.Element:
    """Return a page of keys: those after the token, and what they have in common up to the delimiter once."""
    prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
    after = query.get("continuation-token", "") or query.get("start-after", "")
    maximum = min(_MAXIMUM_KEYS, int(query.get("max-keys") or _MAXIMUM_KEYS))
    entries: dict[str, Object | None] = {}
    for key, held in objects:
        head, found, _ = key.removeprefix(prefix).partition(delimiter) if delimiter else (key, "", "")
        name = prefix + head + found if found else key
        if name.encode() > after.encode():
            entries[name] = None if found else held
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
            words = {"ETag": f'"{entry.etag}"', "Size": str(entry.bytes), "LastModified": moment(entry.modified)}
            add(top, "Contents", Key=name, StorageClass="STANDARD", **words)
    return top


def moment(seconds: float) -> str:
    """Return a time as S3 writes it in XML."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def answered(name: str, **words: str) -> ET.Element:
    """Return a document with these texts."""
    return _fields(ET.Element(name, {} if name == "Error" else {"xmlns": _NAMESPACE}), **words)


def add(top: ET.Element, name: str, **words: str) -> None:
    """Add a group of texts to a document."""
    _fields(ET.SubElement(top, name), **words)


def _fields(top: ET.Element, **words: str) -> ET.Element:
    for name, text in words.items():
        ET.SubElement(top, name).text = text
    return top
