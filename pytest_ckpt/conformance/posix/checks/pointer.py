"""POINTER: a small file that is overwritten in place, as trackers of the latest checkpoint are (semantics 15)."""

from __future__ import annotations

import os
import re
from contextlib import closing
from typing import TYPE_CHECKING, Any

from pytest_ckpt.conformance.context import Findings
from pytest_ckpt.conformance.posix.checks import stale
from pytest_ckpt.conformance.posix.client import Client, encoded
from pytest_ckpt.conformance.watched import Watched

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_ckpt.conformance.context import CheckContext

_OVERWRITES, _MINIMUM = 10_000, 200
_AT_ONCE = 250


def overwrite(context: CheckContext, findings: Findings) -> None:
    """Overwrite the file while a process of this host reads it."""
    with closing(Client(name="the reader", tell=context.tell)) as reader:
        _overwrite(context, findings, reader, str(context.folder))


def overwrite_second(context: CheckContext, findings: Findings) -> None:
    """Overwrite the file while the other client reads it, then measure how long the other reads the old text."""
    other, folder = context.second()
    _overwrite(context, findings, other, folder)
    measure = stale.Change(
        what="a pointer was overwritten",
        stale="stale pointer",
        look="data",
        old=encoded(_text(1)),
        new=encoded(_text(2)),
        prepare=lambda path: path.write_bytes(_text(1)),
        make=lambda path: path.write_bytes(_text(2)),
    )
    stale.measure(context, findings, "POINTER.overwrite-second-client", (measure,))


def _overwrite(context: CheckContext, findings: Findings, reader: Client, folder: str) -> None:
    wanted = context.count(_OVERWRITES, minimum=_MINIMUM)
    race = Watched(context=context, change="overwrite", look="read", wanted=wanted, minimum=_MINIMUM)
    path = context.folder / "latest"
    path.write_bytes(_text(0))
    if not reader.sees(f"{folder}/latest"):
        findings.wrong(
            "new name is not visible",
            where=f"{folder}/latest, looked for by {reader.name}",
            seen="no such name, for 10 s",
            expected="the name, before it is overwritten",
        )
        return
    empty = zeros = 0
    while race.goes_on(findings):
        reader.start("pointer:watch", f"{folder}/latest")
        for step in race.some(_AT_ONCE, "open, write", str(path)):
            path.write_bytes(_text(step))
        seen = reader.stop()
        race.looks, empty, zeros = race.looks + seen["reads"], empty + seen["empty"], zeros + seen["zeros"]
        findings.trials = race.changes
        findings.take(seen["wrong"])
        last = path.read_bytes()
        if last != _text(race.changes):
            findings.wrong(
                "overwritten text is not there",
                where=f"{path}, after overwrite {race.changes:,}, nothing under way",
                seen=repr(last),
                expected=repr(_text(race.changes)),
            )
    findings.facts |= {
        "overwrites": f"{race.changes:,}",
        "reads": f"{race.looks:,}",
        "reads that found the file empty": f"{empty:,}",
        "reads that found zeros": f"{zeros:,}",
    }


def watch(path: str, *, stopped: Callable[[], bool]) -> dict[str, Any]:
    """Read the file until told to end: every time, one whole text that is no older than the last, or nothing.

    Nothing may also be zeros in the length of the text: a kernel client (FUSE's, for one) that learns of a truncation
    in two steps shows the old size without the old bytes. No reader takes them for a text; they are counted.
    """
    findings, reads, empty, zeros, newest = Findings(), 0, 0, 0, -1
    while True:
        data = _read(path)
        reads += 1
        found = re.fullmatch(rb"global_step(\d{12})\n", data)
        if found and int(found[1]) >= newest:
            newest = int(found[1])
        elif found:
            findings.wrong(
                "older text after a newer one",
                where=f"{path}, read {reads:,}",
                seen=repr(data),
                expected=f"step {newest:,}, which had been read before, or a newer one",
            )
        elif not data:
            empty += 1
        elif data == bytes(len(_text(0))):
            zeros += 1
        else:
            findings.wrong(
                "neither the old text nor the new one",
                where=f"{path}, read {reads:,}",
                seen=repr(data),
                expected="the old text, the new one, or nothing",
            )
        if stopped():
            return {"reads": reads, "empty": empty, "zeros": zeros, "wrong": findings.plain()}


def _text(step: int) -> bytes:
    # All of one length: a file system that has no lock between a read and a write may give old bytes with the new size.
    return b"global_step%012d\n" % step


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, 4096)
    finally:
        os.close(descriptor)
