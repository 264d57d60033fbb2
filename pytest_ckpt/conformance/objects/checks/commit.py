"""OBJECT-COMMIT: who sees the marker of a checkpoint finds all that it names, whole."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from pytest_ckpt.conformance.context import Findings
from pytest_ckpt.conformance.objects.content import content

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_ckpt.conformance.objects.context import ObjectContext
    from pytest_ckpt.conformance.objects.session import Session

_ROUNDS = 100
_OBJECTS, _BYTES = 4, 20_000
_MARKER = "_COMMITTED"


def marker(context: ObjectContext, findings: Findings) -> None:
    """Commit checkpoints by a marker, while both clients wait for it and then read what it names."""
    with ThreadPoolExecutor(1) as thread:
        for number in range(context.count(_ROUNDS, minimum=10)):
            folder, done = f"checkpoint-{number:04d}", threading.Event()
            context.other.start("commit:reader", folder, who="the second client")
            here = thread.submit(reader, context.here, folder, who="this client", stopped=done.is_set)
            try:
                _commit(context, findings, folder)
            finally:
                # Each looks once more then: by now the marker must be there.
                done.set()
                findings.take(here.result())
                findings.take(context.other.stop())
            findings.trials += 2


def _commit(context: ObjectContext, findings: Findings, folder: str) -> None:
    names = [f"{folder}/shard-{number}" for number in range(_OBJECTS)]
    for name in names:
        context.here.put(name, content(context.seed, name, 1, _BYTES)).needed("an object")
    text = json.dumps(names).encode()
    # Not raised: its readers say what they see.
    answer = context.here.put(f"{folder}/{_MARKER}", text, {"If-None-Match": "*"})
    if not answer:
        findings.wrong(
            "marker refused", where=answer.where, seen=answer.outcome, expected="the marker of a new checkpoint"
        )


def reader(session: Session, folder: str, *, who: str, stopped: Callable[[], bool]) -> dict[str, Any]:
    """Wait for the marker of a checkpoint, and read what it names."""
    findings, name = Findings(), f"{folder}/{_MARKER}"
    while not (answer := session.get(name)):
        if stopped():
            answer = session.get(name)
            break
    if not answer:
        findings.wrong(
            "marker not seen",
            where=f"{session.url(name)} by {who}, after it was put",
            seen=answer.outcome,
            expected="it",
        )
        return findings.plain()
    try:
        names = json.loads(answer.data)
    except ValueError:
        findings.wrong("part of a marker", where=f"{session.url(name)} by {who}", seen=f"{len(answer.data):,} bytes",
                   expected="all of it")  # fmt: skip
        return findings.plain()
    for each in names:
        got = session.get(each)
        if got.data != content(session.seed, each, 1, _BYTES):
            findings.wrong(
                "object of a committed checkpoint missing" if not got else "object of a committed checkpoint not whole",
                where=f"{session.url(each)} by {who}, who has seen {_MARKER}",
                seen=f"{got.outcome}, {len(got.data):,} bytes",
                expected=f"the {_BYTES:,} bytes that were acknowledged before the marker was put",
            )
    return findings.plain()
