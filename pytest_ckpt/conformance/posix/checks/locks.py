"""CAPABILITIES flock: an exclusive lock has one holder, here and on two clients, and dies with its holder."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ckpt.conformance.reading import read_file
from pytest_ckpt.conformance.workers import all_said, gather, working

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pytest_ckpt.conformance.context import CheckContext, Findings
    from pytest_ckpt.conformance.workers import Ended, Talk

_ROUNDS = 20
_PROCESSES = 4
_ADDITIONS = 250
_POLL_SECONDS = 0.01
_MODES = ((fcntl.LOCK_EX, fcntl.LOCK_EX), (fcntl.LOCK_EX, fcntl.LOCK_SH), (fcntl.LOCK_SH, fcntl.LOCK_EX))
_NAMES = {fcntl.LOCK_EX: "an exclusive", fcntl.LOCK_SH: "a shared"}


def flock(context: CheckContext, findings: Findings) -> None:
    """Try every mixture of two locks from two processes, kill a holder, and count up a file under the lock."""
    path = context.folder / "locked"
    path.write_bytes(b"")
    context.tell("flock", str(path))
    for _ in range(context.count(_ROUNDS)):
        for held, wanted in _MODES:
            with working([partial(_hold, path, held)]) as (holder,):
                if not all_said([holder], "held", context.tell):
                    _not_held(findings, holder.ended())
                    return
                if _got(path, wanted):
                    _both(findings, path, f"{_NAMES[wanted]} lock while another process held {_NAMES[held]} one")
                findings.trials += 1
            # The block's end has killed the holder.
            _released(context, findings, path, partial(_got, path, fcntl.LOCK_EX))
        with working([partial(_hold, path, fcntl.LOCK_SH)]) as (holder,):
            if not all_said([holder], "held", context.tell):
                _not_held(findings, holder.ended())
                return
            if not _got(path, fcntl.LOCK_SH):
                findings.wrong(
                    "shared lock refused",
                    where=str(path),
                    seen="a shared lock was refused while another process held a shared one",
                    expected="both processes hold it",
                )
            findings.trials += 1
    _count_up(context, findings)


def flock_second(context: CheckContext, findings: Findings) -> None:
    """Hold an exclusive lock on either client and try to get it on the other; kill a holder on the other."""
    other = context.other
    assert other
    path = context.folder / "locked"
    there = f"{context.other_folder}/locked"
    path.write_bytes(b"")
    for _ in range(context.count(_ROUNDS, minimum=2)):
        held = other.ask("hold_lock", there)
        if not held["held"]:
            findings.wrong(
                "free lock refused", where=there, seen="the other client did not get a free lock", expected="it does"
            )
            return
        context.tell("flock", str(path))
        if _got(path, fcntl.LOCK_EX):
            _both(findings, path, "an exclusive lock while a process on the other client held one")
        other.ask("kill", there, process=held["process"])
        _released(context, findings, path, partial(_got, path, fcntl.LOCK_EX))
        descriptor = other.ask("open_file", there, flags=os.O_RDWR)
        with working([partial(_hold, path, fcntl.LOCK_EX)]) as (holder,):
            if not all_said([holder], "held", context.tell):
                _not_held(findings, holder.ended())
                return
            if other.ask("lock", there, descriptor=descriptor):
                _both(findings, path, "on the other client an exclusive lock while a process here held one")
                other.ask("unlock", there, descriptor=descriptor)
        _released(context, findings, path, partial(other.ask, "lock", there, descriptor=descriptor))
        other.ask("close_file", there, descriptor=descriptor)
        findings.trials += 2


def _hold(path: Path, mode: int, talk: Talk) -> None:
    talk.at("open", path)
    descriptor = os.open(path, os.O_RDWR)
    talk.at("flock", path)
    fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
    talk.say("held")
    talk.hear()


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _got(path: Path, mode: int) -> bool:
    """Return whether this process gets a lock at once; it is released again."""
    with _opened(path) as descriptor:
        try:
            fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        return True


def _released(context: CheckContext, findings: Findings, path: Path, got: Callable[[], bool]) -> None:
    """Wait until a killed holder's lock can be had."""
    began = time.monotonic()
    while not got():
        if time.monotonic() - began > context.patience_seconds:
            findings.wrong(
                "lock of a killed process stays",
                where=str(path),
                seen=f"the lock is still taken {context.patience_seconds:g} s after its holder was killed",
                expected="it is free when the holder is gone",
            )
            return
        time.sleep(_POLL_SECONDS)
    findings.trials += 1


def _count_up(context: CheckContext, findings: Findings) -> None:
    path = context.folder / "counter"
    path.write_text("0")
    additions = context.count(_ADDITIONS, minimum=25)
    with working([partial(_add, path, additions) for _ in range(_PROCESSES)]) as workers:
        ends: Iterable[Ended] = gather(workers, context.tell)
    for end in ends:
        if end.error or end.signal:
            _not_held(findings, end)
            return
    seen, expected = int(read_file(path)), additions * _PROCESSES
    findings.trials += expected
    if seen != expected:
        findings.wrong(
            "exclusive lock given twice",
            where=f"{path}, which {_PROCESSES} processes read, count up and write under an exclusive lock",
            seen=f"{seen} after {expected} additions: {expected - seen} were lost",
            expected=f"{expected}",
        )


def _add(path: Path, additions: int, talk: Talk) -> None:
    with _opened(path) as descriptor:
        for _ in range(additions):
            talk.at("flock", path)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            number = int(os.pread(descriptor, 20, 0)) + 1
            os.pwrite(descriptor, str(number).encode(), 0)
            fcntl.flock(descriptor, fcntl.LOCK_UN)


def _both(findings: Findings, path: Path, what: str) -> None:
    findings.wrong("exclusive lock given twice", where=str(path), seen=f"flock gave {what}", expected="it is refused")


def _not_held(findings: Findings, end: Ended | None) -> None:
    assert end
    findings.wrong("flock refused", where=end.where, seen=end.error or end.signal, expected="a lock on a free file")
