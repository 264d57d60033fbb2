"""OBJECT-MULTIPART and OBJECT-LIMITS: an upload in parts becomes one whole object at its end, and nothing before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_ckpt.conformance.objects.content import content
from pytest_ckpt.targets.objects.parts import MAXIMUM_PARTS, MINIMUM_PART_BYTES

if TYPE_CHECKING:
    from pytest_ckpt.conformance.context import Findings
    from pytest_ckpt.conformance.objects.context import ObjectContext
    from pytest_ckpt.conformance.objects.session import Reply, Session

_ROUNDS, _LARGE_ROUNDS = 50, 5
_SMALL = 5000


def hidden(context: ObjectContext, findings: Findings) -> None:
    """Begin, abort and leave uploads; both clients look for their objects."""
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
        # The second time, there is an object of that name already: it stays until the upload ends.
        if there:
            here.put(name, before).needed("an object")
        upload = here.begin(name)
        etag = here.part(name, upload, 1, after).needed("a part").etag
        _must_see(context, findings, name, len(before) if there else None, "before the end of an upload", "upload seen")
        if (name, upload) not in here.uploads(name):
            findings.wrong("unfinished upload not listed", where=here.url(name), seen="no such upload in the listing",
                       expected="its name, so that it can be aborted")  # fmt: skip
        here.end(name, upload, [(1, etag)]).needed("the end of an upload")
        _must_see(context, findings, name, len(after), "after the end of an upload", "ended upload not seen")
        if (name, upload) in here.uploads(name):
            findings.wrong("ended upload still listed", where=here.url(name), seen="the upload", expected="none")
        here.delete(name).needed("a deletion")


def _aborted(context: ObjectContext, findings: Findings, name: str) -> None:
    here, upload = context.here, context.here.begin(name)
    etag = here.part(name, upload, 1, content(context.seed, name, 1)).needed("a part").etag
    here.abort(name, upload).needed("to abort an upload")
    _must_see(context, findings, name, None, "after an upload was aborted", "aborted upload seen")
    if (name, upload) in here.uploads(name):
        findings.wrong("aborted upload still listed", where=here.url(name), seen="the upload", expected="none")
    if here.end(name, upload, [(1, etag)]):
        findings.wrong("aborted upload ended", where=here.url(name), seen="success", expected="404 NoSuchUpload")


def _killed(context: ObjectContext, findings: Findings, name: str) -> None:
    """Have a client of its own begin an upload, and end that client."""
    third = context.third()
    try:
        upload = third.ask("multipart:begun", name)
    finally:
        third.close()
    here = context.here
    _must_see(context, findings, name, None, "after its client was killed", "upload seen")
    if (name, upload) not in here.uploads(name):
        findings.wrong("unfinished upload not listed", where=here.url(name), seen="no such upload in the listing",
                   expected="that of the killed client, so that it can be aborted")  # fmt: skip
    here.abort(name, upload).needed("to abort the upload of a killed client")


def begun(session: Session, name: str) -> str:
    """Begin an upload and send a part."""
    upload = session.begin(name)
    session.part(name, upload, 1, content(session.seed, name, 1)).needed("a part")
    return upload


def _must_see(context: ObjectContext, findings: Findings, name: str, size: int | None, when: str, kind: str) -> None:
    looks: dict[str, Any] = {
        "this client": seen(context.here, name),
        "the second": context.other.ask("multipart:seen", name),
    }
    for who, found in looks.items():
        for how, bytes_seen in found.items():
            if bytes_seen != size:
                findings.wrong(
                    kind if bytes_seen is not None else "object not seen",
                    where=f"{how} of {context.here.url(name)} by {who}, {when}",
                    seen="no object" if bytes_seen is None else f"{bytes_seen:,} bytes",
                    expected="no object" if size is None else f"{size:,} bytes",
                )


def seen(session: Session, name: str) -> dict[str, int | None]:
    """Return the bytes that an object has by GET, HEAD and LIST, None where there is none."""
    got, head = session.get(name), session.head(name)
    sizes = [size for found, size, _ in session.listed(name) if found == name]
    return {
        "GET": len(got.data) if got else None,
        "HEAD": int(head.headers.get("content-length", -1)) if head else None,
        "LIST": sizes[0] if sizes else None,
    }


def parts(context: ObjectContext, findings: Findings) -> None:
    """Send parts out of order, again, with different sizes and by two clients; name some of them at the end."""
    for number in range(context.count(_LARGE_ROUNDS)):
        here, name = context.here, f"object-{number}"
        sizes = {2: MINIMUM_PART_BYTES, 5: MINIMUM_PART_BYTES + 12_345 + number, 9: _SMALL}
        upload = here.begin(name)
        etags = {9: _sent(here, name, upload, 9, sizes[9], 1)}
        _sent(here, name, upload, 2, _SMALL, 1)
        etags[5] = context.other.ask("multipart:send", name, upload=upload, number=5, size=sizes[5], version=1)
        # What is sent again takes the place of what was there.
        etags[2] = _sent(here, name, upload, 2, sizes[2], 2)
        _sent(here, name, upload, 11, _SMALL, 1)
        here.end(name, upload, sorted(etags.items())).needed("the end of an upload")
        expected = b"".join(_part(context.seed, name, n, sizes[n], 2 if n == 2 else 1) for n in sorted(sizes))
        findings.trials += 1
        for who, (size, fault) in {
            "this client": read(here, name, len(expected)),
            "the second client": context.other.ask("multipart:read", name, size=len(expected)),
        }.items():
            if size != len(expected) or fault:
                findings.wrong(
                    "object is not its parts",
                    where=f"{here.url(name)} by {who}, parts 2, 5 and 9, sent as 9, 2, 5, 2, 11",
                    seen=f"{size:,} bytes, {fault or 'right as far as they go'}",
                    expected=f"{len(expected):,} bytes: the last of each part that was named",
                )


def send(session: Session, name: str, *, upload: str, number: int, size: int, version: int) -> str:
    """Send a part; return its ETag."""
    return _sent(session, name, upload, number, size, version)


def _sent(session: Session, name: str, upload: str, number: int, size: int, version: int) -> str:
    return session.part(name, upload, number, _part(session.seed, name, number, size, version)).needed("a part").etag


def _part(seed: int, name: str, number: int, size: int, version: int) -> bytes:
    return content(seed, f"{name}/{number}", version, size)


def read(session: Session, name: str, size: int) -> tuple[int, str]:
    """Read such an object; return its bytes and what is wrong with them."""
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
    """Try the numbers and sizes that parts may have, and an end that names what is not there."""
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
                   expected=f"those of part 1 and of part {MAXIMUM_PARTS:,}")  # fmt: skip
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
