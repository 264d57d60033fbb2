"""OBJECT-COMMIT, OBJECT-VISIBLE, OBJECT-LIST and OBJECT-CROWD: what two clients see.

OBJECT-COMMIT: if a client sees the marker of a checkpoint, all objects that the marker names exist and are complete.
OBJECT-VISIBLE: each put, overwrite and delete is immediately visible to another client with GET, HEAD and LIST.
OBJECT-LIST: a listing contains each object once and in order, including keys with special characters. OBJECT-CROWD: if
many clients look for a checkpoint concurrently, each client finds the checkpoint, and all requests are served.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

from pytest_ckpt.conformance.context import Findings
from pytest_ckpt.conformance.objects.session import CROWD, SIZE_OF_VERSION, content

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_ckpt.conformance.objects.session import ObjectContext, Session

_COMMITS = 100
_OBJECTS, _BYTES = 4, 20_000
_MARKER = "_COMMITTED"


def commit(context: ObjectContext, findings: Findings) -> None:
    """Commit checkpoints by a marker. Both clients wait for the marker, and read the objects that it names."""
    with ThreadPoolExecutor(1) as thread:
        for number in range(context.count(_COMMITS, minimum=10)):
            directory, done = f"checkpoint-{number:04d}", threading.Event()
            context.other.start("visible:reader", directory, client_name="the second client")
            here = thread.submit(reader, context.here, directory, client_name="this client", stopped=done.is_set)
            try:
                _commit(context, findings, directory)
            finally:
                # Each client looks once more after this: by then the marker must be visible.
                done.set()
                findings.add_plain(here.result())
                findings.add_plain(context.other.stop())
            findings.trials += 2


def _commit(context: ObjectContext, findings: Findings, directory: str) -> None:
    names = [f"{directory}/shard-{number}" for number in range(_OBJECTS)]
    for name in names:
        context.here.put(name, content(context.seed, name, 1, _BYTES)).needed("an object")
    text = json.dumps(names).encode()
    # The error is not raised here: the readers report the fault.
    answer = context.here.put(f"{directory}/{_MARKER}", text, {"If-None-Match": "*"})
    if not answer:
        findings.wrong(
            "marker refused", where=answer.where, seen=answer.outcome, expected="the marker of a new checkpoint"
        )


def reader(session: Session, directory: str, *, client_name: str, stopped: Callable[[], bool]) -> dict[str, Any]:
    """Wait for the marker of a checkpoint, read the objects that the marker names, and return the faults.

    When ``stopped`` returns true, the writer has finished. The reader then looks once more; if the marker is still
    missing, this is a fault.
    """
    findings, name = Findings(), f"{directory}/{_MARKER}"
    while not (answer := session.get(name)):
        if stopped():
            answer = session.get(name)
            break
    if not answer:
        findings.wrong(
            "marker not seen",
            where=f"{session.url(name)} by {client_name}, after it was put",
            seen=answer.outcome,
            expected="it",
        )
        return findings.plain()
    try:
        names = json.loads(answer.data)
    except ValueError:
        findings.wrong("part of a marker", where=f"{session.url(name)} by {client_name}",
                   seen=f"{len(answer.data):,} bytes", expected="all of it")  # fmt: skip
        return findings.plain()
    for each in names:
        got = session.get(each)
        if got.data != content(session.seed, each, 1, _BYTES):
            findings.wrong(
                "object of a committed checkpoint missing"
                if not got
                else "object of a committed checkpoint not intact",
                where=f"{session.url(each)} by {client_name}, which has seen {_MARKER}",
                seen=f"{got.outcome}, {len(got.data):,} bytes",
                expected=f"the {_BYTES:,} bytes that were acknowledged before the marker was put",
            )
    return findings.plain()


_NAMES = 100
_NONE, _OTHER = 0, -1
_CHANGES = (
    (1, "put, after requests for the missing object", "new object not seen"),
    (2, "overwritten", "old object after an overwrite"),
    (3, "overwritten again", "old object after an overwrite"),
    (_NONE, "deleted", "deleted object still seen"),
    (4, "put again after its deletion", "new object not seen"),
)


def get(context: ObjectContext, findings: Findings) -> None:
    """Change objects on one client, and check on both clients that GET shows each change."""
    _check_visibility(context, findings, "GET")


def head(context: ObjectContext, findings: Findings) -> None:
    """Change objects on one client, and check on both clients that HEAD shows each change."""
    _check_visibility(context, findings, "HEAD")


def listing(context: ObjectContext, findings: Findings) -> None:
    """Change objects on one client, and check on both clients that LIST shows each change."""
    _check_visibility(context, findings, "LIST")


def _check_visibility(context: ObjectContext, findings: Findings, how: str) -> None:
    """Change objects on one client, and check each change on both clients with the request ``how``.

    The clients swap roles after every object.
    """
    for number in range(context.count(_NAMES, minimum=4)):
        name = f"object-{number:04d}"
        lookers = {
            "this client": partial(state, context.here, name, how=how),
            "the second client": partial(context.other.request, "visible:state", name, how=how),
        }
        writer = list(lookers)[number % 2]
        # A client that has looked for a missing name may cache that answer.
        for look in lookers.values():
            look()
        for version, change, kind in _CHANGES:
            if writer == "this client":
                change_to(context.here, name, version=version)
            else:
                context.other.request("visible:change_to", name, version=version)
            for looker, look in lookers.items():
                seen = look()
                findings.trials += 1
                if seen != version:
                    findings.wrong(
                        kind if seen in (_NONE, *(v for v, _, _ in _CHANGES)) else "bytes that no client put",
                        where=f"{how} of {context.here.url(name)} by {looker}, {change} by {writer}",
                        seen=_version_text(seen),
                        expected=_version_text(version),
                    )


def change_to(session: Session, name: str, *, version: int) -> None:
    """Write a version of an object. Version 0 deletes the object."""
    if version == _NONE:
        session.delete(name).needed("a deletion")
    else:
        session.put(name, content(session.seed, name, version)).needed("an object")


def state(session: Session, name: str, *, how: str) -> int:
    """Return the visible version of an object: 0 without an object, -1 if its bytes or size belong to no version."""
    versions = [version for version, _, _ in _CHANGES if version]
    if how == "GET":
        reply = session.get(name)
        if reply.status == 404:
            return _NONE
        data = reply.needed("an object").data
        return next((v for v in versions if data == content(session.seed, name, v)), _OTHER)
    if how == "HEAD":
        reply = session.head(name)
        if reply.status == 404:
            return _NONE
        size = int(reply.needed("an object").headers.get("content-length", 0))
    else:
        sizes = [size for found, size, _ in session.listed(name) if found == name]
        if not sizes:
            return _NONE
        size = sizes[0]
    return size - SIZE_OF_VERSION if size - SIZE_OF_VERSION in versions else _OTHER


def _version_text(version: int) -> str:
    return {_NONE: "no object", _OTHER: "something else"}.get(version, f"version {version}")


_KEYS, _MORE_THAN_A_PAGE = 5_000, 1_050
_DIRECTORIES = 70
_SMALL_PAGE = 97
_ODD = (
    "with space", "plus+and%20percent", "a&b<c>d'e\"f", "ümlaut-日本語-🐘", "UPPER-and-lower", "upper-AND-LOWER",
    "two//slashes", "../dots", "./dot", "a/../b", "ends-with-slash/", "~tilde!(x)*;:@=,?#[]", "-", "a", "a/", "a/b",
)  # fmt: skip


def list_pages(context: ObjectContext, findings: Findings) -> None:
    """List more objects than one page contains, with several page sizes, while other objects are written."""
    here, count = context.here, context.count(_KEYS, minimum=_MORE_THAN_A_PAGE)
    names = [f"keys/{number % _DIRECTORIES:02d}/{number:06d}" for number in range(count)]
    shuffled = random.Random(context.seed).sample(names, count)
    half = count // 2
    context.other.start("visible:put_all", "", names=shuffled[half:])
    put_all(here, "", names=shuffled[:half])
    context.other.finish(patience=600.0)
    wanted = sorted(names)
    # Writes of other objects must not move existing objects between pages.
    context.other.start("visible:keep_writing", "keys/50-meanwhile")
    try:
        for size, of in ((0, "the store's own size"), (_SMALL_PAGE, f"at most {_SMALL_PAGE} keys")):
            found = [name for name, _, _ in here.listed("keys/", size=size) if "meanwhile" not in name]
            _compare(findings, f"listing of {here.url('keys/')} in pages of {of}", found, wanted)
    finally:
        written = context.other.stop()
    directories = [f"keys/{number:02d}/" for number in range(_DIRECTORIES)]
    found = [directory for directory in here.directories("keys/", size=13) if "meanwhile" not in directory]
    _compare(findings, f"listing of {here.url('keys/')} up to the next slash", found, directories)
    _compare(findings, f"listing of {here.url('keys/05/')}", [name for name, _, _ in here.listed("keys/05/")],
             [name for name in wanted if name.startswith("keys/05/")])  # fmt: skip
    findings.facts |= {"objects": f"{count:,}", "written meanwhile": f"{written:,}"}


def put_all(session: Session, _name: str, *, names: list[str]) -> None:
    """Write small objects in several threads."""
    for answer in session.map_concurrently(lambda name: session.put(name, name.encode()), names):
        answer.needed("an object")


def keep_writing(session: Session, name: str, *, stopped: Callable[[], bool]) -> int:
    """Write new objects until ``stopped`` returns true; return their number. Their names begin with ``name``."""
    done = 0
    while not stopped():
        session.put(f"{name}-{done:06d}", b"x").needed("an object")
        done += 1
    return done


def list_names(context: ObjectContext, findings: Findings) -> None:
    """Write objects whose keys have special characters or the maximum length. Read and list them."""
    here = context.here
    longest = "long/" + "n" * (here.maximum_name_bytes - len("odd/long/"))
    wanted = sorted((f"odd/{name}" for name in (*_ODD, longest)), key=lambda name: name.encode())
    put = []
    for name in wanted:
        findings.trials += 1
        answer = here.put(name, content(context.seed, name, 1))
        if answer:
            put.append(name)
        else:
            findings.wrong("key refused", where=answer.where, seen=answer.outcome, expected="an object of that key")
    for name in put:
        got = {"this client": right(here, name), "the second client": context.other.request("visible:right", name)}
        for client_name, is_right in got.items():
            if not is_right:
                findings.wrong(
                    "object not found by its key",
                    where=f"{here.url(name)} by {client_name}",
                    seen="none, or another",
                    expected="the object that was put",
                )
    _compare(findings, f"listing of {here.url('odd/')}", [name for name, _, _ in here.listed("odd/")], put)
    prefix = "odd/plus+and%"
    _compare(findings, f"listing of {here.url(prefix)}", [name for name, _, _ in here.listed(prefix)],
             [name for name in put if name.startswith(prefix)])  # fmt: skip


def right(session: Session, name: str) -> bool:
    """Return whether a read of the object returns the bytes that were written."""
    return session.get(name).data == content(session.seed, name, 1)


def _compare(findings: Findings, where: str, found: list[str], wanted: list[str]) -> None:
    findings.trials += 1
    counts = Counter(found)
    missing = [name for name in wanted if name not in counts]
    doubled = [name for name, count in counts.items() if count > 1]
    strange = sorted(set(counts) - set(wanted))
    for kind, names_of, expected in (
        ("key missing in a listing", missing, "every object"),
        ("key listed twice", doubled, "every object once"),
        ("key of no object in a listing", strange, "only keys that were put"),
    ):
        if names_of:
            more = f" and {len(names_of) - 1:,} more" if len(names_of) > 1 else ""
            findings.wrong(kind, where=where, seen=f"{names_of[0]!r}{more}", expected=expected)
    if not (missing or doubled or strange) and found != wanted:
        place = next(i for i, (a, b) in enumerate(zip(found, wanted, strict=True)) if a != b)
        findings.wrong("keys in wrong order", where=where, seen=f"{found[place]!r} as number {place + 1:,}",
                   expected=f"{wanted[place]!r}: the order of the keys' bytes")  # fmt: skip


_CROWDS = 10
_SHARDS = 4
_DIRECTORY = "checkpoint"


def crowd(context: ObjectContext, findings: Findings) -> None:
    """Let many threads of two clients concurrently LIST a checkpoint, and HEAD and GET its marker."""
    here = context.here
    for number in range(_SHARDS):
        name = f"{_DIRECTORY}/shard-{number}"
        here.put(name, content(context.seed, name, 1)).needed("an object")
    here.put(f"{_DIRECTORY}/{_MARKER}", _names_of_shards()).needed("a marker")
    slowest, busy = 0.0, 0
    for _ in range(context.count(_CROWDS, minimum=2)):
        context.other.start("visible:search", _DIRECTORY)
        try:
            looks = {"this client": search(here, _DIRECTORY)}
        finally:
            theirs = context.other.finish()
        looks["the second client"] = theirs
        for client_name, (faults, requests, seconds, again) in looks.items():
            for how, fault in faults:
                findings.wrong(
                    "client of a crowd turned away" if "refused" in fault else "client of a crowd sees less",
                    where=f"{how} of {here.url(_DIRECTORY)} by one of {CROWD} threads of {client_name}",
                    seen=fault,
                    expected="the checkpoint as it was before the crowd",
                )
            findings.trials += requests
            slowest, busy = max(slowest, seconds), busy + again
    findings.measured = slowest
    findings.facts["at once"] = f"{2 * CROWD} connections"
    findings.facts["503 and 429, repeated"] = f"{busy:,}"


def search(session: Session, name: str) -> tuple[list[tuple[str, str]], int, float, int]:
    """Look for a checkpoint with all threads of a client concurrently.

    Return (faults, requests, seconds, busy). Each fault is (request, text) for LIST, HEAD or GET. The other values are
    the number of requests, the seconds of the slowest request, and the number of "busy" answers (503 or 429).
    """
    before = session.times_busy()
    expected = sorted([f"{name}/{_MARKER}", *(f"{name}/shard-{number}" for number in range(_SHARDS))])

    def one(_number: int) -> list[tuple[str, str, float]]:
        seen = []
        for how in ("LIST", "HEAD", "GET"):
            began = time.monotonic()
            seen.append((how, _fault(session, name, how, expected), time.monotonic() - began))
        return seen

    looks = [each for seen in session.together(one, as_crowd=True) for each in seen]
    faults = [(how, fault) for how, fault, _ in looks if fault]
    return faults, len(looks), max(seconds for _, _, seconds in looks), session.times_busy() - before


def _fault(session: Session, name: str, how: str, expected: list[str]) -> str:
    """Return the first difference between the expected checkpoint and the answer to a request; empty if equal.

    ``how`` is the request: LIST, HEAD or GET. ``expected`` are the names that LIST must return.
    """
    marker, text = f"{name}/{_MARKER}", _names_of_shards()
    if how == "LIST":
        try:
            found = sorted(found for found, _, _ in session.listed(f"{name}/"))
        except OSError as error:
            return f"refused: {error.strerror}"
        return "" if found == expected else f"{len(found)} of {len(expected)} names"
    answer = session.head(marker) if how == "HEAD" else session.get(marker)
    if answer.status == 404:
        return "no object"
    if not answer:
        return f"refused with {answer.outcome}"
    if how == "HEAD":
        size = answer.headers.get("content-length", "no")
        return "" if size == str(len(text)) else f"{size} bytes"
    return "" if answer.data == text else f"{len(answer.data):,} bytes, others than were put"


def _names_of_shards() -> bytes:
    return json.dumps([f"shard-{number}" for number in range(_SHARDS)]).encode()
