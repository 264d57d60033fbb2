"""OBJECT-MULTIPART, OBJECT-LIMITS and OBJECT-LARGE: multipart uploads.

OBJECT-MULTIPART and OBJECT-LIMITS: a completed multipart upload becomes one complete object. Until an upload is
completed, its bytes are invisible. OBJECT-LARGE, and OBJECT-LIMITS with many parts: objects that exceed 4 GiB, or have
more parts than a listing page, are read at critical offsets. To reduce network traffic, the store creates most parts as
copies of one object (UploadPartCopy). If the store does not support this, all parts are sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_ckpt.conformance.actions import decoded, encoded
from pytest_ckpt.conformance.objects.session import content
from pytest_ckpt.sizing.object_parts import MAXIMUM_PARTS, MINIMUM_PART_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_ckpt.conformance.context import Findings
    from pytest_ckpt.conformance.objects.session import ObjectContext, Reply, Session

_ROUNDS, _LARGE_ROUNDS = 50, 5
_SMALL = 5000


def hidden(context: ObjectContext, findings: Findings) -> None:
    """Begin uploads, and complete, abort or abandon each upload. After each step, both clients look for the object.

    Until an upload is completed, the clients must see the previous object of this name, or no object.
    """
    for number in range(context.count(_ROUNDS, minimum=3)):
        findings.trials += 1
        _until_its_end(context, findings, f"ended-{number}")
        _aborted(context, findings, f"aborted-{number}")
    findings.trials += 1
    _killed(context, findings, "of-a-killed-client")


def _until_its_end(context: ObjectContext, findings: Findings, name: str) -> None:
    here = context.here
    before, after = content(context.seed, name, 1), content(context.seed, name, 2)
    for there in (False, True):
        # In the second round an object of that name already exists; it must stay until the upload is completed.
        if there:
            here.put(name, before).needed("an object")
        upload = here.begin(name)
        etag = here.part(name, upload, 1, after).needed("a part").etag
        _require_size(
            context, findings, name, len(before) if there else None, "before the end of an upload", "upload seen"
        )
        if (name, upload) not in here.uploads(name):
            findings.wrong("unfinished upload not listed", where=here.url(name), seen="no such upload in the listing",
                       expected="its name, so that it can be aborted")  # fmt: skip
        here.end(name, upload, [(1, etag)]).needed("the end of an upload")
        _require_size(context, findings, name, len(after), "after the end of an upload", "ended upload not seen")
        if (name, upload) in here.uploads(name):
            findings.wrong("ended upload still listed", where=here.url(name), seen="the upload", expected="none")
        here.delete(name).needed("a deletion")


def _aborted(context: ObjectContext, findings: Findings, name: str) -> None:
    here, upload = context.here, context.here.begin(name)
    etag = here.part(name, upload, 1, content(context.seed, name, 1)).needed("a part").etag
    here.abort(name, upload).needed("to abort an upload")
    _require_size(context, findings, name, None, "after an upload was aborted", "aborted upload seen")
    if (name, upload) in here.uploads(name):
        findings.wrong("aborted upload still listed", where=here.url(name), seen="the upload", expected="none")
    if here.end(name, upload, [(1, etag)]):
        findings.wrong("aborted upload ended", where=here.url(name), seen="success", expected="404 NoSuchUpload")


def _killed(context: ObjectContext, findings: Findings, name: str) -> None:
    """Let a third client begin an upload and close its connection before the upload is completed.

    The object must not exist. A listing of uploads must contain the upload, so that it can be aborted.
    """
    third = context.third()
    try:
        upload = third.request("parts:begun", name)
    finally:
        third.close()
    here = context.here
    _require_size(context, findings, name, None, "after its client closed the connection", "upload seen")
    if (name, upload) not in here.uploads(name):
        findings.wrong("unfinished upload not listed", where=here.url(name), seen="no such upload in the listing",
                   expected="the upload of the killed client, so that it can be aborted")  # fmt: skip
    here.abort(name, upload).needed("to abort the upload of a killed client")


def begun(session: Session, name: str) -> str:
    """Begin an upload, send one part, and return the id of the upload."""
    upload = session.begin(name)
    session.part(name, upload, 1, content(session.seed, name, 1)).needed("a part")
    return upload


def _require_size(
    context: ObjectContext, findings: Findings, name: str, size: int | None, when: str, kind: str
) -> None:
    sizes: dict[str, Any] = {
        "this client": parts_seen(context.here, name),
        "the second": context.other.request("parts:parts_seen", name),
    }
    for client_name, found in sizes.items():
        for how, bytes_seen in found.items():
            if bytes_seen != size:
                findings.wrong(
                    kind if bytes_seen is not None else "object not seen",
                    where=f"{how} of {context.here.url(name)} by {client_name}, {when}",
                    seen="no object" if bytes_seen is None else f"{bytes_seen:,} bytes",
                    expected="no object" if size is None else f"{size:,} bytes",
                )


def parts_seen(session: Session, name: str) -> dict[str, int | None]:
    """Return {request: size of the object in bytes} for GET, HEAD and LIST.

    If a request does not find the object, its size is None.
    """
    got, head = session.get(name), session.head(name)
    sizes = [size for found, size, _ in session.listed(name) if found == name]
    return {
        "GET": len(got.data) if got else None,
        "HEAD": int(head.headers.get("content-length", -1)) if head else None,
        "LIST": sizes[0] if sizes else None,
    }


def parts(context: ObjectContext, findings: Findings) -> None:
    """Upload objects in parts of different sizes, from two clients and out of order. One part is sent twice.

    Each upload is completed with some of its parts. Then both clients read and compare the object.
    """
    for number in range(context.count(_LARGE_ROUNDS)):
        here, name = context.here, f"object-{number}"
        sizes = {2: MINIMUM_PART_BYTES, 5: MINIMUM_PART_BYTES + 12_345 + number, 9: _SMALL}
        upload = here.begin(name)
        etags = {9: _sent(here, name, upload, 9, sizes[9], 1)}
        _sent(here, name, upload, 2, _SMALL, 1)
        etags[5] = context.other.request("parts:send", name, upload=upload, number=5, size=sizes[5], version=1)
        # A part that is sent again replaces its first version.
        etags[2] = _sent(here, name, upload, 2, sizes[2], 2)
        _sent(here, name, upload, 11, _SMALL, 1)
        here.end(name, upload, sorted(etags.items())).needed("the end of an upload")
        expected = b"".join(_part(context.seed, name, n, sizes[n], 2 if n == 2 else 1) for n in sorted(sizes))
        findings.trials += 1
        for client_name, (size, fault) in {
            "this client": read(here, name, len(expected)),
            "the second client": context.other.request("parts:read", name, size=len(expected)),
        }.items():
            if size != len(expected) or fault:
                findings.wrong(
                    "object is not its parts",
                    where=f"{here.url(name)} by {client_name}, parts 2, 5 and 9, sent as 9, 2, 5, 2, 11",
                    seen=f"{size:,} bytes, {fault or 'right as far as they go'}",
                    expected=f"{len(expected):,} bytes: the last of each part that was named",
                )


def send(session: Session, name: str, *, upload: str, number: int, size: int, version: int) -> str:
    """Send a part, and return its ETag."""
    return _sent(session, name, upload, number, size, version)


def _sent(session: Session, name: str, upload: str, number: int, size: int, version: int) -> str:
    return session.part(name, upload, number, _part(session.seed, name, number, size, version)).needed("a part").etag


def _part(seed: int, name: str, number: int, size: int, version: int) -> bytes:
    return content(seed, f"{name}/{number}", version, size)


def read(session: Session, name: str, size: int) -> tuple[int, str]:
    """Read an object that `parts` has uploaded with ``size`` bytes.

    Return the number of bytes, and a description of the first fault (empty without a fault).
    """
    data = session.get(name).needed("an object of parts").data
    at = 0
    for number, version, count in (
        (2, 2, MINIMUM_PART_BYTES),
        (5, 1, size - MINIMUM_PART_BYTES - _SMALL),
        (9, 1, _SMALL),
    ):
        if data[at : at + count] != _part(session.seed, name, number, count, version):
            return len(data), f"wrong ones where part {number} is to be"
        at += count
    return len(data), ""


def limits(context: ObjectContext, findings: Findings) -> None:
    """Send parts with valid and invalid numbers and sizes, and complete uploads with invalid lists of parts."""
    here, name = context.here, "numbers"
    first, last = content(context.seed, name, 1, MINIMUM_PART_BYTES), content(context.seed, name, 2, _SMALL)
    upload = here.begin(name)
    etags = [(number, here.part(name, upload, number, data)) for number, data in ((1, first), (MAXIMUM_PARTS, last))]
    for number, answer in etags:
        findings.trials += 1
        if not answer:
            findings.wrong(
                "part refused", where=f"part {number:,} of {answer.where}", seen=answer.outcome, expected="success"
            )
    beyond = MAXIMUM_PARTS + 1
    _must_refuse(findings, here.part(name, upload, beyond, last), f"part {beyond:,}", "InvalidArgument")
    named = [(number, answer.etag) for number, answer in etags if answer]
    backwards = here.end(name, upload, named[::-1])
    _must_refuse(findings, backwards, "an end with parts in descending order", "InvalidPartOrder", "EntityTooSmall")
    _must_refuse(
        findings, here.end(name, upload, [*named[:1], (7, "0" * 32)]), "an end with no such part", "InvalidPart"
    )
    here.end(name, upload, named).needed("the end of an upload")
    if here.get(name).data != first + last:
        findings.wrong("object is not its parts", where=here.url(name), seen="other bytes",
                   expected=f"the bytes of part 1 and of part {MAXIMUM_PARTS:,}")  # fmt: skip
    small, name = content(context.seed, name, 3, _SMALL), "too-small"
    upload = here.begin(name)
    named = [(n, here.part(name, upload, n, small).needed("a part").etag) for n in (1, 2)]
    _must_refuse(
        findings, here.end(name, upload, named), f"a part of {_SMALL:,} bytes before the last", "EntityTooSmall"
    )


def _must_refuse(findings: Findings, answer: Reply, what: str, code: str, also: str = "") -> None:
    findings.trials += 1
    if answer.status != 400 or answer.code not in (code, also):
        how = "not refused" if answer else "wrong refusal"
        findings.wrong(how, where=f"{what}, {answer.where}", seen=answer.outcome, expected=f"400 {code}")


_MIB, _GIB = 1 << 20, 1 << 30
_FILLER = "filler"
_WINDOW = 1000
# Unique bytes are at the start, across 4 GiB and beyond 5 GiB: if an offset is truncated, other bytes are returned.
_SIZES = (
    ("first", 30 * _MIB), *((_FILLER, 32 * _MIB),) * 127, ("across 4 GiB", MINIMUM_PART_BYTES),
    *((_FILLER, 32 * _MIB),) * 33, ("last", MINIMUM_PART_BYTES),
)  # fmt: skip
# A listing page of parts has 1,000 entries, and so have many internal tables of stores.
_MINIMUM_PARTS = 1001


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """A part of an object: its number, its offset and size in bytes. ``of`` is the name of its content."""

    number: int
    of: str
    offset: int
    size: int


def large_object(context: ObjectContext, findings: Findings) -> None:
    """Create an object above 5 GiB, and read it at its start, around 2 GiB, 4 GiB and 5 GiB, and at its end."""
    name, parts = "object", _placed([(number, *part) for number, part in enumerate(_SIZES, 1)])
    size = parts[-1].offset + parts[-1].size
    offsets = (0, 2 * _GIB - _WINDOW // 2, 4 * _GIB - _WINDOW // 2, 4 * _GIB, 4 * _GIB + _MIB, 5 * _GIB,
               size - MINIMUM_PART_BYTES - 10, size - _WINDOW)  # fmt: skip
    data = _content_of_parts(context.seed, parts)
    if _create_large(context, findings, name, parts, data):
        _compare_ends(context, findings, name, parts, data, offsets)


def many_parts(context: ObjectContext, findings: Findings) -> None:
    """Create an object of 10,000 parts, and read some of the parts.

    A check with less than full effort uses fewer parts, but at least 1,001. The last part always has the number 10,000.
    """
    count = context.count(MAXIMUM_PARTS, minimum=_MINIMUM_PARTS)
    own = {1: "first", count // 2: "middle", MAXIMUM_PARTS: "last"}
    numbers = (*range(1, count), MAXIMUM_PARTS)
    parts = _placed([(number, own.get(number, _FILLER), MINIMUM_PART_BYTES) for number in numbers])
    offsets = [part.offset + into for part in parts if part.of != _FILLER for into in (0, MINIMUM_PART_BYTES - _WINDOW)]
    data = _content_of_parts(context.seed, parts)
    if _create_large(context, findings, "object", parts, data):
        _compare_ends(context, findings, "object", parts, data, offsets)
    findings.facts["parts"] = f"{len(parts):,}"


def _placed(sizes: Sequence[tuple[int, str, int]]) -> tuple[Part, ...]:
    parts, offset = [], 0
    for number, of, size in sizes:
        parts.append(Part(number=number, of=of, offset=offset, size=size))
        offset += size
    return tuple(parts)


def _content_of_parts(seed: int, parts: Sequence[Part]) -> dict[str, bytes]:
    return {of: content(seed, of, 1, size) for of, size in {part.of: part.size for part in parts}.items()}


def _create_large(
    context: ObjectContext, findings: Findings, name: str, parts: Sequence[Part], data: Mapping[str, bytes]
) -> bool:
    """Create an object of these parts. Return whether the store accepted all parts and completed the upload.

    ``data`` maps the name of a content to its bytes.
    """
    here = context.here
    here.put(_FILLER, data[_FILLER]).needed("an object")
    upload = here.begin(name)
    # Copies are tested with an additional request: some stores accept the request for a copy as a part without bytes.
    copies = bool(here.copied(name, upload, next(p.number for p in parts if p.of == _FILLER), _FILLER))
    refused: list[tuple[int, str]] = []

    def send(part: Part) -> tuple[int, str]:
        if part.of == _FILLER and copies and (etag := here.copied(name, upload, part.number, _FILLER)):
            return part.number, etag
        answer = here.part(name, upload, part.number, data[part.of])
        if not answer:
            refused.append((part.number, answer.outcome))
        return part.number, answer.etag

    etags = here.map_concurrently(send, parts)
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


def _compare_ends(
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
            "this client": read_window(here, name, first=offset, count=_WINDOW),
            "the second client": context.other.request("parts:read_window", name, first=offset, count=_WINDOW),
        }
        for client_name, (noted, text) in seen_by.items():
            findings.trials += 1
            if decoded(text) != expected:
                findings.wrong(
                    "wrong bytes in a large object",
                    where=f"{_WINDOW:,} bytes from {offset:,} of {here.url(name)} by {client_name}, {size:,} bytes",
                    seen=f"{noted}, {_description(parts, data, decoded(text))}",
                    expected=f"the bytes of part {_at(parts, offset).number:,}",
                )


def read_window(session: Session, name: str, *, first: int, count: int) -> tuple[str, str]:
    """Read ``count`` bytes of an object from the offset ``first`` on.

    Return (the store's answer as text, the encoded bytes).
    """
    answer = session.get(name, {"Range": f"bytes={first}-{first + count - 1}"})
    return answer.outcome, encoded(answer.data[: count + 1])


def _at(parts: Sequence[Part], offset: int) -> Part:
    return next(part for part in parts if offset < part.offset + part.size)


def _expected(parts: Sequence[Part], data: Mapping[str, bytes], offset: int) -> bytes:
    """Return the expected bytes of a read at ``offset``. The bytes may belong to two parts."""
    found = b""
    while len(found) < _WINDOW:
        part = _at(parts, offset + len(found))
        into = offset + len(found) - part.offset
        found += data[part.of][into : into + _WINDOW - len(found)]
    return found


def _description(parts: Sequence[Part], data: Mapping[str, bytes], seen: bytes) -> str:
    """Return a description of wrong bytes: the offset in the object at which these bytes were written.

    If this offset is unknown, the description contains the number of wrong bytes.
    """
    for part in {part.of: part for part in reversed(parts)}.values():
        if seen and (at := data[part.of].find(seen)) >= 0:
            return f"those from {part.offset + at:,}"
    return f"{len(seen):,} other bytes"
