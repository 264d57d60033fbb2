"""OBJECT-CREATE, OBJECT-UPDATE and OBJECT-OVERWRITE: several writers of one object.

OBJECT-CREATE and OBJECT-UPDATE: if several clients write an object under the same condition, exactly one succeeds.
OBJECT-OVERWRITE: while many clients overwrite an object, each reader gets one complete version.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Literal

from pytest_ckpt.conformance.objects.session import AT_ONCE, content, described

if TYPE_CHECKING:
    from pytest_ckpt.conformance.context import Findings
    from pytest_ckpt.conformance.objects.session import ObjectContext, Reply, Session

    How = Literal["put", "multipart"]

_RACES = 100
_ABSENT = {"If-None-Match": "*"}
# A store may ask the loser to retry if it cannot decide immediately.
_LOST = (409, 412)
_HERE, _THERE = "this client", "the second client"


def create(context: ObjectContext, findings: Findings) -> None:
    """Create objects by PutObject with If-None-Match. Several clients race for one name."""
    _create(context, findings, "put")


def create_of_parts(context: ObjectContext, findings: Findings) -> None:
    """Create objects by multipart uploads, completed with If-None-Match. Several clients race for one name."""
    _create(context, findings, "multipart")


def update(context: ObjectContext, findings: Findings) -> None:
    """Overwrite objects with If-Match. Several clients race for one object."""
    here, name = context.here, "one-after-another"
    first = here.put(name, b"first").needed("an object").etag
    findings.trials += 1
    second = here.put(name, b"second", {"If-Match": first})
    if not second:
        findings.wrong("update refused", where=f"If-Match with the current ETag, {second.where}", seen=second.outcome,
                   expected="it overwrites the object")  # fmt: skip
    _must_lose(findings, here.put(name, b"third", {"If-Match": first}), "If-Match with an ETag of before")
    _require_content(context, findings, name, b"second" if second else b"first")
    _must_lose(findings, here.put("none", b"x", {"If-Match": first}), "If-Match for a missing object", (404,))
    if here.get("none"):
        findings.wrong("condition ignored", where=here.url("none"), seen="an object", expected="none")
    for number in range(context.count(_RACES, minimum=10)):
        name = f"race-{number:04d}"
        etag = here.put(name, b"before the race").needed("an object").etag
        _race(context, findings, name, "put", {"If-Match": etag})


def _create(context: ObjectContext, findings: Findings, how: How) -> None:
    here, name = context.here, "one-after-another"
    findings.trials += 1
    first = write(here, name, b"first", how, _ABSENT)
    if not first:
        findings.wrong(
            "creation refused", where=f"If-None-Match, {first.where}", seen=first.outcome, expected="a new object"
        )
    _must_lose(findings, write(here, name, b"second", how, _ABSENT), "If-None-Match for an existing object")
    _require_content(context, findings, name, b"first")
    for number in range(context.count(_RACES, minimum=10)):
        _race(context, findings, f"race-{number:04d}", how, _ABSENT)


def _race(context: ObjectContext, findings: Findings, name: str, how: How, condition: dict[str, str]) -> None:
    context.other.start("writers:racers", name, client_name=_THERE, how=how, condition=condition)
    results = racers(context.here, name, client_name=_HERE, how=how, condition=condition)
    results |= context.other.finish()
    findings.trials += 1
    where = f"{next(iter(condition))} by {2 * AT_ONCE} at once, {how}, {context.here.url(name)}"
    winners = [client_name for client_name, (status, _) in results.items() if status < 300]
    for client_name, (status, found) in results.items():
        if status >= 300 and status not in _LOST:
            findings.wrong(
                "error in a race", where=f"{where}, {client_name}", seen=found, expected="success, 412 or 409"
            )
    if len(winners) > 1:
        findings.wrong(
            "several winners",
            where=where,
            seen=f"{len(winners)} received a success: {', '.join(winners)}",
            expected="one, and 412 or 409 for the others",
        )
    elif not winners:
        findings.wrong("no winner", where=where, seen="all were refused", expected="one winner")
    else:
        _require_content(context, findings, name, winners[0].encode())


def racers(
    session: Session, name: str, *, client_name: str, how: How, condition: dict[str, str]
) -> dict[str, tuple[int, str]]:
    """Let all threads of a client write the same object concurrently. Return {thread: (status, answer as text)}."""
    names = [f"{client_name}, thread {number}" for number in range(AT_ONCE)]

    def one(number: int) -> Reply:
        return write(session, name, names[number].encode(), how, condition)

    return {name: (reply.status, reply.outcome) for name, reply in zip(names, session.together(one), strict=True)}


def write(session: Session, name: str, data: bytes, how: How, condition: dict[str, str]) -> Reply:
    """Write an object under a condition, by one put or in parts. Return the store's answer.

    If the store refuses to complete a multipart upload, the upload is aborted.
    """
    if how == "put":
        return session.put(name, data, condition)
    upload = session.begin(name)
    etag = session.part(name, upload, 1, data).needed("a part").etag
    answer = session.end(name, upload, [(1, etag)], condition)
    if not answer:
        session.abort(name, upload)
    return answer


def _must_lose(findings: Findings, answer: Reply, where: str, also: tuple[int, ...] = ()) -> None:
    if answer.status not in (*_LOST, *also):
        findings.wrong("condition ignored" if answer else "wrong refusal", where=f"{where}, {answer.where}",
                   seen=answer.outcome, expected="412 PreconditionFailed")  # fmt: skip


def _require_content(context: ObjectContext, findings: Findings, name: str, expected: bytes) -> None:
    """Record an anomaly if a client reads anything but ``expected`` from the object.

    ``expected`` is the text of the last write that succeeded.
    """
    seen: dict[str, Any] = {
        _HERE: text_of(context.here, name),
        _THERE: context.other.request("writers:text_of", name),
    }
    for client_name, text in seen.items():
        if text != expected.decode():
            findings.wrong("object of the winner replaced", where=f"{context.here.url(name)} by {client_name}",
                       seen=f"'{text}'", expected=f"'{expected.decode()}'")  # fmt: skip


def text_of(session: Session, name: str) -> str:
    """Return the text of a small object."""
    return session.get(name).data.decode(errors="replace")


_OBJECTS = 50
_BYTES = 200_000
_VERSIONS = range(1, 2 * AT_ONCE + 1)


def overwrite(context: ObjectContext, findings: Findings) -> None:
    """Overwrite objects with all threads of two clients concurrently. Read them during the writes and afterwards."""
    reads = 0
    with ThreadPoolExecutor(1) as thread:
        for number in range(context.count(_OBJECTS, minimum=5)):
            name, done = f"object-{number}", threading.Event()
            whole = {content(context.seed, name, version, _BYTES) for version in _VERSIONS}
            put_versions(context.here, name, first=1)
            reader = thread.submit(_read_until, context.here, name, done)
            try:
                context.other.start("writers:put_versions", name, first=AT_ONCE + 1)
                put_versions(context.here, name, first=1)
                context.other.finish()
            finally:
                done.set()
            answers = [*reader.result(), context.here.get(name)]
            findings.trials += 1
            reads += len(answers)
            for answer in answers:
                if answer.data not in whole:
                    findings.wrong(
                        "object of several writers",
                        where=f"{answer.where}, while {2 * AT_ONCE} overwrite it",
                        seen=f"{answer.outcome}: {described(answer.data, context.seed, name, _VERSIONS, _BYTES)}",
                        expected=f"the {_BYTES:,} bytes of one of them",
                    )
    findings.facts["reads meanwhile"] = f"{reads:,}"


def put_versions(session: Session, name: str, *, first: int) -> None:
    """Write an object with all threads concurrently. Each thread writes a different version, from ``first`` on."""
    data = [content(session.seed, name, first + number, _BYTES) for number in range(AT_ONCE)]
    for answer in session.together(lambda number: session.put(name, data[number])):
        answer.needed("an object")


def _read_until(session: Session, name: str, done: threading.Event) -> list[Reply]:
    found = []
    while not done.is_set():
        found.append(session.get(name))
    return found
