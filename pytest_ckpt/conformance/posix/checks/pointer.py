"""POINTER: a small file that is overwritten in place, as trackers of the latest checkpoint are (semantics 15)."""

from __future__ import annotations

import re
import time
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_ckpt.conformance.context import Findings
from pytest_ckpt.conformance.posix.checks import stale
from pytest_ckpt.conformance.posix.checks.visible import ASKED_ANEW_SECONDS
from pytest_ckpt.conformance.posix.client import Client, encoded
from pytest_ckpt.conformance.reading import read_file
from pytest_ckpt.conformance.watched import Watched

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_ckpt.conformance.context import CheckContext

_OVERWRITES, _MINIMUM = 10_000, 200
_AT_ONCE = 250
_GROWING_FILES, _READ_LONG_BEFORE = 20, 2
# Each is longer than those before; none begins as another one ends, so that a cut text is none of them.
_GROWING = (
    b"global_step9",
    b"global_step25",
    b"global_step137",
    b"global_step4096",
    b"global_step16384-after-a-restart-with-another-layout",
)


def overwrite(context: CheckContext, findings: Findings) -> None:
    """Overwrite the file while a process of this host reads it."""
    with closing(Client(name="the reader", tell=context.tell)) as reader:
        _overwrite(context, findings, reader, str(context.folder))
        _grow(context, findings, reader, str(context.folder), may_be_late=False)


def overwrite_second(context: CheckContext, findings: Findings) -> None:
    """Overwrite the file while the other client reads it, then measure how long the other reads the old text."""
    other, folder = context.second()
    _overwrite(context, findings, other, folder)
    _grow(context, findings, other, folder, may_be_late=True)
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
        last = read_file(path)
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


def _grow(context: CheckContext, findings: Findings, reader: Client, folder: str, *, may_be_late: bool) -> None:
    """Overwrite files in place with longer and longer texts; after each close, the reader opens the file once.

    Nothing else is under way, so each read returns one complete text: the new one or, if it ``may_be_late``, an older
    one. A reader on another client has read the text before: just before, and long enough before that its kernel asks
    its file system again.
    """
    names = [f"growing-{number}" for number in range(context.count(_GROWING_FILES, minimum=3))]
    pointers = [_Growing(context, findings, reader, context.folder / name, f"{folder}/{name}") for name in names]
    long_before = pointers[:_READ_LONG_BEFORE] if may_be_late else []
    for pointer in long_before:
        if not pointer.begins():
            return
    if long_before:
        time.sleep(ASKED_ANEW_SECONDS)
    late = 0
    for pointer in pointers:
        if pointer not in long_before and not pointer.begins():
            return
        late += sum(pointer.grows(turn, may_be_late=may_be_late) for turn in range(1, len(_GROWING)))
        pointer.path.unlink()
    overwrites = len(pointers) * (len(_GROWING) - 1)
    findings.trials += overwrites
    findings.facts["overwrites by a longer text"] = f"{overwrites:,}"
    if may_be_late:
        findings.facts["reads of an older text after one"] = f"{late:,}"


@dataclass(frozen=True, slots=True)
class _Growing:
    """A file that is overwritten by longer texts; ``theirs`` is its path on the reader's client."""

    context: CheckContext
    findings: Findings
    reader: Client
    path: Path
    theirs: str

    def begins(self) -> bool:
        """Write the first text; return whether the reader reads it within 10 s."""
        self._write(0)
        wanted = encoded(_GROWING[0])
        answer = self.reader.ask("wait_until", self.theirs, look="data", wanted=wanted, seconds=10.0, patience=70.0)
        if not answer["agreed"]:
            self.findings.wrong(
                "new text is not visible",
                where=f"{self.theirs}, read by {self.reader.name} for 10 s",
                seen=str(answer["last"]),
                expected=repr(_GROWING[0]),
            )
        return bool(answer["agreed"])

    def grows(self, turn: int, *, may_be_late: bool) -> bool:
        """Overwrite the text by the next one and have it read; return whether an older text was read."""
        self._write(turn)
        seen, text = self.reader.read(self.theirs), _GROWING[turn]
        is_late = may_be_late and seen in _GROWING[:turn]
        if seen != text and not is_late:
            self.findings.wrong(
                "longer text is cut" if text.startswith(seen) else "neither the old text nor the new one",
                where=f"{self.theirs}, read by {self.reader.name} after it was overwritten by a longer text and closed",
                seen=f"{seen!r}, {len(seen):,} bytes",
                expected=f"{text!r}, {len(text):,} bytes; the text before had {len(_GROWING[turn - 1]):,}",
            )
        return is_late

    def _write(self, turn: int) -> None:
        self.context.tell("open, write", str(self.path))
        self.path.write_bytes(_GROWING[turn])


def watch(path: str, *, stopped: Callable[[], bool]) -> dict[str, Any]:
    """Read the file until told to end: every time, one whole text that is no older than the last, or nothing.

    Nothing may also be zeros in the length of the text: a kernel client (FUSE's, for one) that learns of a truncation
    in two steps shows the old size without the old bytes. No reader takes them for a text; they are counted.
    """
    findings, reads, empty, zeros, newest = Findings(), 0, 0, 0, -1
    while True:
        data = read_file(path)
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
