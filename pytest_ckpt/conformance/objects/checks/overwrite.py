"""OBJECT-OVERWRITE: while many overwrite one object, every reader gets one of their objects, whole."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from pytest_ckpt.conformance.objects.content import content, described
from pytest_ckpt.conformance.objects.session import AT_ONCE

if TYPE_CHECKING:
    from pytest_ckpt.conformance.context import Findings
    from pytest_ckpt.conformance.objects.context import ObjectContext
    from pytest_ckpt.conformance.objects.session import Reply, Session

_ROUNDS = 50
_BYTES = 200_000
_VERSIONS = range(1, 2 * AT_ONCE + 1)


def writers(context: ObjectContext, findings: Findings) -> None:
    """Overwrite objects by all threads of two clients at once, and read them meanwhile and afterwards."""
    reads = 0
    with ThreadPoolExecutor(1) as thread:
        for number in range(context.count(_ROUNDS, minimum=5)):
            name, done = f"object-{number}", threading.Event()
            whole = {content(context.seed, name, version, _BYTES) for version in _VERSIONS}
            write(context.here, name, first=1)
            reader = thread.submit(_read, context.here, name, done)
            try:
                context.other.start("overwrite:write", name, first=AT_ONCE + 1)
                write(context.here, name, first=1)
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


def write(session: Session, name: str, *, first: int) -> None:
    """Have all threads put an object at once, each a version of its own."""
    data = [content(session.seed, name, first + number, _BYTES) for number in range(AT_ONCE)]
    for answer in session.together(lambda number: session.put(name, data[number])):
        answer.needed("an object")


def _read(session: Session, name: str, done: threading.Event) -> list[Reply]:
    found = []
    while not done.is_set():
        found.append(session.get(name))
    return found
