"""What Google Cloud Storage answers, in JSON, as it is used here. Pure."""

from __future__ import annotations

import errno
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_ckpt.targets.objects.errors import StoreError
from pytest_ckpt.targets.objects.wire import Answer


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedObject:
    """What Google says of an object; an MD5 it has only of those that were not composed."""

    key: str
    bytes: int
    etag: str
    md5: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """A page of a listing; ``next`` names the next one, empty behind the last."""

    objects: Sequence[ListedObject]
    folders: Sequence[str]
    next: str
    headers: Mapping[str, str]


def object_of(said: Any) -> ListedObject:
    """Return an object as an answer describes it."""
    return ListedObject(
        key=str(said.get("name", "")),
        bytes=int(said.get("size", -1)),
        etag=f'"{said.get("generation", "")}"',
        md5=str(said.get("md5Hash", "")),
    )


def parsed(answer: Answer, place: str) -> Any:
    """Return an answer's JSON object. Raises StoreError."""
    try:
        found = json.loads(answer.data)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise StoreError(errno.EIO, "the store's answer is no JSON object", place)
    return found
