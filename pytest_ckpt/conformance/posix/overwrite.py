"""POINTER and TRUNCATE: files that are rewritten in place while other processes use them.

POINTER: a small file is overwritten in place while another process reads it. An example is a file that contains the
name of the latest checkpoint. TRUNCATE: several processes concurrently open one file with O_TRUNC.
"""

from __future__ import annotations

import os
import re
import time
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_ckpt.conformance.actions import encoded
from pytest_ckpt.conformance.client import Client
from pytest_ckpt.conformance.content import compare, random_bytes, read_file
from pytest_ckpt.conformance.context import Findings, ObservedRace
from pytest_ckpt.conformance.posix import visible
from pytest_ckpt.conformance.posix.visible import ASKED_ANEW_SECONDS
from pytest_ckpt.conformance.workers import gather, working

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_ckpt.conformance.context import CheckContext
    from pytest_ckpt.conformance.workers import WorkerChannel

_OVERWRITES, _MINIMUM = 10_000, 200
_AT_ONCE = 250
_GROWING_FILES, _READ_LONG_BEFORE = 20, 2
# Each text is longer than the previous ones, and its start differs from the end of all others, so that a truncated text
# matches none.
_GROWING = (
    b"global_step9",
    b"global_step25",
    b"global_step137",
    b"global_step4096",
    b"global_step16384-after-a-restart-with-another-layout",
)


def in_place(context: CheckContext, findings: Findings) -> None:
    """Overwrite a small file in place while another process of this host reads it."""
    with closing(Client(name="the reader", report_call=context.report_call)) as reader:
        _overwrite(context, findings, reader, str(context.directory))
        _grow(context, findings, reader, str(context.directory), may_be_late=False)


def in_place_second(context: CheckContext, findings: Findings) -> None:
    """Overwrite a small file in place while the other client reads it.

    Then measure for how long after an overwrite the other client reads the old text.
    """
    other, directory = context.second()
    _overwrite(context, findings, other, directory)
    _grow(context, findings, other, directory, may_be_late=True)
    measure = visible.Change(
        description="a pointer was overwritten",
        stale="stale pointer",
        query="data",
        old=encoded(_text(1)),
        new=encoded(_text(2)),
        prepare=lambda path: path.write_bytes(_text(1)),
        make=lambda path: path.write_bytes(_text(2)),
    )
    visible.measure(context, findings, "POINTER.overwrite-second-client", (measure,))


def _overwrite(context: CheckContext, findings: Findings, reader: Client, directory: str) -> None:
    wanted = context.count(_OVERWRITES, minimum=_MINIMUM)
    race = ObservedRace(context=context, change="overwrite", query="read", wanted=wanted, minimum=_MINIMUM)
    path = context.directory / "latest"
    path.write_bytes(_text(0))
    if not reader.sees(f"{directory}/latest"):
        findings.wrong(
            "new name is not visible",
            where=f"{directory}/latest, looked for by {reader.name}",
            seen="no such name, for 10 s",
            expected="the name, before it is overwritten",
        )
        return
    empty = zeros = 0
    while race.may_continue(findings):
        reader.start("overwrite:watch", f"{directory}/latest")
        for step in race.some(_AT_ONCE, "open, write", str(path)):
            path.write_bytes(_text(step))
        seen = reader.stop()
        race.observations, empty, zeros = (
            race.observations + seen["reads"],
            empty + seen["empty"],
            zeros + seen["zeros"],
        )
        findings.trials = race.changes
        findings.add_plain(seen["wrong"])
        last = read_file(path)
        if last != _text(race.changes):
            findings.wrong(
                "overwritten text is not there",
                where=f"{path}, after overwrite {race.changes:,}, no change in progress",
                seen=repr(last),
                expected=repr(_text(race.changes)),
            )
    findings.facts |= {
        "overwrites": f"{race.changes:,}",
        "reads": f"{race.observations:,}",
        "reads that found the file empty": f"{empty:,}",
        "reads that found zeros": f"{zeros:,}",
    }


def _grow(context: CheckContext, findings: Findings, reader: Client, directory: str, *, may_be_late: bool) -> None:
    """Overwrite files in place several times with longer texts. After each close, the reader reads the file.

    Reads and overwrites do not overlap, so each read must return one complete text. The text must be the latest text;
    if ``may_be_late`` is true, it may also be an older text. The reader reads each text shortly before the next
    overwrite. If ``may_be_late`` is true, a few files are an exception. Their first text is read so long before the
    overwrite that the reader's kernel queries the file system again.
    """
    names = [f"growing-{number}" for number in range(context.count(_GROWING_FILES, minimum=3))]
    pointers = [
        _GrowingFile(context, findings, reader, context.directory / name, f"{directory}/{name}") for name in names
    ]
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
class _GrowingFile:
    """A file that is overwritten with longer texts. ``theirs`` is its path on the reader's client."""

    context: CheckContext
    findings: Findings
    reader: Client
    path: Path
    theirs: str

    def begins(self) -> bool:
        """Write the first text. Return whether the reader sees this text within 10 s."""
        self._write(0)
        wanted = encoded(_GROWING[0])
        answer = self.reader.request(
            "wait_until", self.theirs, query="data", wanted=wanted, seconds=10.0, patience=70.0
        )
        if not answer["agreed"]:
            self.findings.wrong(
                "new text is not visible",
                where=f"{self.theirs}, read by {self.reader.name} for 10 s",
                seen=str(answer["last"]),
                expected=repr(_GROWING[0]),
            )
        return bool(answer["agreed"])

    def grows(self, turn: int, *, may_be_late: bool) -> bool:
        """Overwrite the text with a longer text, and let the reader read the file.

        Return whether the reader received a permitted older text. If ``may_be_late`` is false, an older text is an
        anomaly.
        """
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
        self.context.report_call("open, write", str(self.path))
        self.path.write_bytes(_GROWING[turn])


def watch(path: str, *, stopped: Callable[[], bool]) -> dict[str, Any]:
    """Read the file until ``stopped`` returns true.

    Each read must return no bytes, or one text that is not older than the previous text. Return {reads: number of
    reads, empty: number of reads without bytes, zeros: number of reads with zeros only, wrong: anomalies}. A text of
    zeros only is not an anomaly. Some kernel clients, such as FUSE, truncate in two steps, and readers do not mistake
    zeros for a text.
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
                expected="the old text, the new text, or an empty file",
            )
        if stopped():
            return {"reads": reads, "empty": empty, "zeros": zeros, "wrong": findings.plain()}


def _text(step: int) -> bytes:
    # All texts have the same length: without a lock between read and write, a file system may return old bytes with the
    # new size.
    return b"global_step%012d\n" % step


_PROCESSES = 8
_TIMES = 500
_BYTES = 64 << 10
_SYNC_EVERY = 10
_Answer = TypeVar("_Answer")


def truncate_at_once(context: CheckContext, findings: Findings) -> None:
    """Let several processes repeatedly open one file with O_TRUNC and write it. Measure the longest call.

    If a call takes longer than ``patience_seconds``, its process is reported with its kernel stack, and killed.
    """
    path = context.directory / "truncated"
    times = context.count(_TIMES, minimum=30)
    context.report_call("open with O_TRUNC", str(path))
    with working([partial(_rewrite, path, times, context.seed, n) for n in range(_PROCESSES)]) as workers:
        ends = gather(workers, context.report_call, patience_seconds=context.patience_seconds)
    findings.trials = sum(end.result["times"] for end in ends if end.result)
    longest = max((end.result for end in ends if end.result), key=lambda result: result["seconds"], default=None)
    findings.measured = max(end.hung for end in ends) or (longest["seconds"] if longest else None)
    if longest:
        findings.facts["longest call"] = longest["call"]
    for end in ends:
        if end.hung:
            findings.wrong(
                "a call hangs",
                where=f"{end.call}: {end.where}, in one of {_PROCESSES} processes that open it with O_TRUNC at once",
                seen=f"it has not returned for {end.hung:.1f} s; {end.blocked}",
                expected=f"it returns within {context.patience_seconds:g} s",
            )
        elif end.error or end.signal:
            findings.wrong(
                "a call failed",
                where=end.where,
                seen=f"{end.error or end.signal} from: {end.call}",
                expected="no error",
            )
    if not any(end.hung for end in ends):
        context.report_call("open with O_TRUNC", str(path))
        content = random_bytes(_BYTES, context.seed, "last")
        path.write_bytes(content)
        compare(findings, read_file(path), content, path=path, when="written once more after all had closed it")


def _rewrite(path: Path, times: int, seed: int, number: int, talk: WorkerChannel) -> dict[str, object]:
    content = random_bytes(_BYTES, seed, number)
    slowest = {"open": 0.0, "write": 0.0, "fsync": 0.0, "close": 0.0}

    def timed(call: str, make: Callable[[], _Answer]) -> _Answer:
        talk.at("open with O_TRUNC" if call == "open" else call, path)
        began = time.monotonic()
        answer = make()
        slowest[call] = max(slowest[call], time.monotonic() - began)
        return answer

    for at in range(times):
        descriptor = timed("open", partial(os.open, path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644))
        timed("write", partial(os.write, descriptor, content[: _BYTES >> (at % 5)]))
        if at % _SYNC_EVERY == number:
            timed("fsync", partial(os.fsync, descriptor))
        timed("close", partial(os.close, descriptor))
    call = max(slowest, key=lambda name: slowest[name])
    return {"times": times, "call": call, "seconds": slowest[call]}
