"""Answers of S3, as a store with other words is made to give them."""

from __future__ import annotations

import errno
import xml.etree.ElementTree as ET
from collections.abc import Mapping

from pytest_ckpt.targets.objects.errors import StoreError
from pytest_ckpt.targets.objects.wire import Answer


def answer_of(top: ET.Element, headers: Mapping[str, str] | None = None) -> Answer:
    """Return an answer with a body."""
    return Answer(headers=headers or {}, data=ET.tostring(top))


def element(name: str, **words: str) -> ET.Element:
    """Return an element with a child for each word."""
    made = ET.Element(name)
    for field, text in words.items():
        ET.SubElement(made, field).text = text
    return made


def added(top: ET.Element, name: str, **words: str) -> None:
    """Append such an element to another one."""
    top.append(element(name, **words))


def not_implemented(message: str, place: str) -> StoreError:
    """Return that the store has no such request."""
    error = StoreError(errno.ENOSYS, f"NotImplemented: {message}", place)
    error.status, error.code = 501, "NotImplemented"
    return error
