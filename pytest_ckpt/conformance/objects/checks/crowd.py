"""OBJECT-CROWD: many clients that look for a checkpoint at the same moment all find it, and none is turned away."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from pytest_ckpt.conformance.objects.content import content
from pytest_ckpt.conformance.objects.session import CROWD

if TYPE_CHECKING:
    from pytest_ckpt.conformance.context import Findings
    from pytest_ckpt.conformance.objects.context import ObjectContext
    from pytest_ckpt.conformance.objects.session import Session

_ROUNDS = 10
_SHARDS = 4
_FOLDER, _MARKER = "checkpoint", "_COMMITTED"


def marker(context: ObjectContext, findings: Findings) -> None:
    """Have many clients LIST a checkpoint, and HEAD and GET its marker, at once."""
    here = context.here
    for number in range(_SHARDS):
        name = f"{_FOLDER}/shard-{number}"
        here.put(name, content(context.seed, name, 1)).needed("an object")
    here.put(f"{_FOLDER}/{_MARKER}", _text()).needed("a marker")
    slowest, busy = 0.0, 0
    for _ in range(context.count(_ROUNDS, minimum=2)):
        context.other.start("crowd:look", _FOLDER)
        try:
            looks = {"this client": look(here, _FOLDER)}
        finally:
            theirs = context.other.finish()
        looks["the second client"] = theirs
        for who, (faults, asked, seconds, again) in looks.items():
            for how, fault in faults:
                findings.wrong(
                    "client of a crowd turned away" if "refused" in fault else "client of a crowd sees less",
                    where=f"{how} of {here.url(_FOLDER)} by one of {CROWD} threads of {who}",
                    seen=fault,
                    expected="what was there before they came",
                )
            findings.trials += asked
            slowest, busy = max(slowest, seconds), busy + again
    findings.measured = slowest
    findings.facts["at once"] = f"{2 * CROWD} connections"
    findings.facts["503 and 429, asked again"] = f"{busy:,}"


def look(session: Session, name: str) -> tuple[list[tuple[str, str]], int, float, int]:
    """Look for a checkpoint by as many threads as a client has, at once.

    Return what was wrong by LIST, HEAD or GET, how many looks there were, the slowest one's seconds, and how often the
    store said that it is busy.
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
    """Return in words what is wrong with what is seen of a checkpoint, empty where nothing is."""
    marker, text = f"{name}/{_MARKER}", _text()
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


def _text() -> bytes:
    return json.dumps([f"shard-{number}" for number in range(_SHARDS)]).encode()
