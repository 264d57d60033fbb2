"""OBJECT-LARGE, and OBJECT-LIMITS with many parts: objects beyond what 32 bits and one page count, read at their ends.

Most parts are copies that the store makes of one object (UploadPartCopy), so that little crosses the network; a store
that copies no parts is sent them all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ckpt.conformance.objects.content import content
from pytest_ckpt.conformance.posix.client import decoded, encoded
from pytest_ckpt.targets.objects.parts import MAXIMUM_PARTS, MINIMUM_PART_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_ckpt.conformance.context import Findings
    from pytest_ckpt.conformance.objects.context import ObjectContext
    from pytest_ckpt.conformance.objects.session import Session

_MIB, _GIB = 1 << 20, 1 << 30
_FILLER = "filler"
_WINDOW = 1000
# Bytes of their own stand at the start, across 4 GiB, and beyond 5 GiB: an offset that is folded back shows others.
_SIZES = (
    ("first", 30 * _MIB), *((_FILLER, 32 * _MIB),) * 127, ("across 4 GiB", MINIMUM_PART_BYTES),
    *((_FILLER, 32 * _MIB),) * 33, ("last", MINIMUM_PART_BYTES),
)  # fmt: skip
# One page of a listing of parts, and of many a table of a store, has 1,000.
_MINIMUM_PARTS = 1001


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """A part of an object: its number, which bytes it has, and where they begin."""

    number: int
    of: str
    offset: int
    size: int


def ranges(context: ObjectContext, findings: Findings) -> None:
    """Make an object above 5 GiB, and read it around 2 GiB, 4 GiB, 5 GiB and at its end."""
    name, parts = "object", _placed([(number, *part) for number, part in enumerate(_SIZES, 1)])
    size = parts[-1].offset + parts[-1].size
    offsets = (0, 2 * _GIB - _WINDOW // 2, 4 * _GIB - _WINDOW // 2, 4 * _GIB, 4 * _GIB + _MIB, 5 * _GIB,
               size - MINIMUM_PART_BYTES - 10, size - _WINDOW)  # fmt: skip
    data = _content(context.seed, parts)
    if _make(context, findings, name, parts, data):
        _look(context, findings, name, parts, data, offsets)


def many(context: ObjectContext, findings: Findings) -> None:
    """Make an object of as many parts as S3 allows, in a shorter run of more than 1,000; the last number is 10,000."""
    count = context.count(MAXIMUM_PARTS, minimum=_MINIMUM_PARTS)
    own = {1: "first", count // 2: "middle", MAXIMUM_PARTS: "last"}
    numbers = (*range(1, count), MAXIMUM_PARTS)
    parts = _placed([(number, own.get(number, _FILLER), MINIMUM_PART_BYTES) for number in numbers])
    offsets = [part.offset + into for part in parts if part.of != _FILLER for into in (0, MINIMUM_PART_BYTES - _WINDOW)]
    data = _content(context.seed, parts)
    if _make(context, findings, "object", parts, data):
        _look(context, findings, "object", parts, data, offsets)
    findings.facts["parts"] = f"{len(parts):,}"


def _placed(sizes: Sequence[tuple[int, str, int]]) -> tuple[Part, ...]:
    parts, offset = [], 0
    for number, of, size in sizes:
        parts.append(Part(number=number, of=of, offset=offset, size=size))
        offset += size
    return tuple(parts)


def _content(seed: int, parts: Sequence[Part]) -> dict[str, bytes]:
    return {of: content(seed, of, 1, size) for of, size in {part.of: part.size for part in parts}.items()}


def _make(
    context: ObjectContext, findings: Findings, name: str, parts: Sequence[Part], data: Mapping[str, bytes]
) -> bool:
    """Make an object of these parts; return whether the store took all of them."""
    here = context.here
    here.put(_FILLER, data[_FILLER]).needed("an object")
    upload = here.begin(name)
    # Not from what the first copy answers: some stores take the request for a part without bytes.
    copies = bool(here.copied(name, upload, next(p.number for p in parts if p.of == _FILLER), _FILLER))
    refused: list[tuple[int, str]] = []

    def send(part: Part) -> tuple[int, str]:
        if part.of == _FILLER and copies and (etag := here.copied(name, upload, part.number, _FILLER)):
            return part.number, etag
        answer = here.part(name, upload, part.number, data[part.of])
        if not answer:
            refused.append((part.number, answer.outcome))
        return part.number, answer.etag

    etags = here.at_once(send, parts)
    findings.trials += len(parts)
    findings.facts["most parts"] = "copied by the store" if copies else "sent: the store copies no parts"
    for number, found in refused:
        findings.wrong("part refused", where=f"part {number:,} of {here.url(name)}", seen=found, expected="success")
    if refused:
        return False
    size = parts[-1].offset + parts[-1].size
    if not (answer := here.end(name, upload, etags)):
        findings.wrong(
            "large object refused",
            where=f"the end of {here.url(name)}, {size:,} bytes in {len(parts):,} parts",
            seen=answer.outcome,
            expected="success",
        )
    return bool(answer)


def _look(
    context: ObjectContext,
    findings: Findings,
    name: str,
    parts: Sequence[Part],
    data: Mapping[str, bytes],
    offsets: Sequence[int],
) -> None:
    here, size = context.here, parts[-1].offset + parts[-1].size
    listed, head = {key: found for key, found, _ in here.listed(name)}, here.head(name)
    for how, seen in (("HEAD", head.headers.get("content-length", "no")), ("LIST", str(listed.get(name, "no")))):
        findings.trials += 1
        if seen != str(size):
            findings.wrong("wrong size of a large object", where=f"{how} of {here.url(name)}", seen=f"{seen} bytes",
                       expected=f"{size:,} bytes")  # fmt: skip
    for offset in offsets:
        expected = _expected(parts, data, offset)
        seen_by = {
            "this client": read(here, name, first=offset, count=_WINDOW),
            "the second client": context.other.ask("large:read", name, first=offset, count=_WINDOW),
        }
        for who, (noted, text) in seen_by.items():
            findings.trials += 1
            if decoded(text) != expected:
                findings.wrong(
                    "wrong bytes in a large object",
                    where=f"{_WINDOW:,} bytes from {offset:,} of {here.url(name)} by {who}, {size:,} bytes",
                    seen=f"{noted}, {_words(parts, data, decoded(text))}",
                    expected=f"those of part {_at(parts, offset).number:,}",
                )


def read(session: Session, name: str, *, first: int, count: int) -> tuple[str, str]:
    """Read a range; return what the store said, and the bytes in text."""
    answer = session.get(name, {"Range": f"bytes={first}-{first + count - 1}"})
    return answer.outcome, encoded(answer.data[: count + 1])


def _at(parts: Sequence[Part], offset: int) -> Part:
    return next(part for part in parts if offset < part.offset + part.size)


def _expected(parts: Sequence[Part], data: Mapping[str, bytes], offset: int) -> bytes:
    """Return the bytes of a window, which may cross into the next part."""
    found = b""
    while len(found) < _WINDOW:
        part = _at(parts, offset + len(found))
        into = offset + len(found) - part.offset
        found += data[part.of][into : into + _WINDOW - len(found)]
    return found


def _words(parts: Sequence[Part], data: Mapping[str, bytes], seen: bytes) -> str:
    """Return where bytes are from, in words."""
    for part in {part.of: part for part in reversed(parts)}.values():
        if seen and (at := data[part.of].find(seen)) >= 0:
            return f"those from {part.offset + at:,}"
    return f"{len(seen):,} other bytes"
