"""TRUNCATE: processes that open one file with O_TRUNC at once."""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pytest_ckpt.conformance.content import compare, random_bytes
from pytest_ckpt.conformance.reading import read_file
from pytest_ckpt.conformance.workers import gather, working

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_ckpt.conformance.context import CheckContext, Findings
    from pytest_ckpt.conformance.workers import Talk

_PROCESSES = 8
_TIMES = 500
_BYTES = 64 << 10
_SYNC_EVERY = 10
_Answer = TypeVar("_Answer")


def concurrent(context: CheckContext, findings: Findings) -> None:
    """Open one file with O_TRUNC and write it from several processes again and again; measure the longest call.

    A process in one call for longer than ``patience_seconds`` is reported, with its kernel stack, and killed.
    """
    path = context.folder / "truncated"
    times = context.count(_TIMES, minimum=30)
    context.tell("open with O_TRUNC", str(path))
    with working([partial(_rewrite, path, times, context.seed, n) for n in range(_PROCESSES)]) as workers:
        ends = gather(workers, context.tell, patience_seconds=context.patience_seconds)
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
        context.tell("open with O_TRUNC", str(path))
        content = random_bytes(_BYTES, context.seed, "last")
        path.write_bytes(content)
        compare(findings, read_file(path), content, path=path, when="written once more after all had closed it")


def _rewrite(path: Path, times: int, seed: int, number: int, talk: Talk) -> dict[str, object]:
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
