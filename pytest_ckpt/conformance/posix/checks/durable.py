"""DURABLE: an acknowledged save survives the death of the process that made it."""

from __future__ import annotations

import os
import random
import shutil
import statistics
import time
from typing import TYPE_CHECKING

from pytest_ckpt.conformance.posix.checkpoints import Calls, Checkpoint, names_in, saved_right
from pytest_ckpt.conformance.workers import all_said, gather, working

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_ckpt.conformance.context import CheckContext, Findings
    from pytest_ckpt.conformance.workers import Talk

_KILLS = 60
_TIMED_SAVES = 5
# A kill comes somewhere in the first two saves of a process.
_SAVES_UNTIL_KILLED = 2.0


def rank_killed(context: CheckContext, findings: Findings) -> None:
    """Kill a process while it saves, again and again, and look at what it leaves."""
    calls = Calls(context.tell)
    chance = random.Random(context.seed)
    kept, seconds = _first_checkpoints(context, calls)
    # What goes wrong without anybody's death is not to be blamed on one.
    if not saved_right(findings, kept, context.folder, calls, "before any process was killed"):
        return
    findings.facts["moments"] = f"0 to {_SAVES_UNTIL_KILLED:g} saves of {seconds * 1000:.3g} ms after the start of one"
    number, whole = kept.number + 1, 0
    for _ in range(context.count(_KILLS, minimum=5)):
        calls("kill in mid-save", context.folder)
        begun, acknowledged = _save_until_killed(
            context, findings, number, chance.uniform(0, _SAVES_UNTIL_KILLED * seconds)
        )
        if begun is None:
            return
        findings.trials += 1
        for checkpoint in [kept, *acknowledged]:
            for wrong in checkpoint.wrongs(context.folder, calls):
                findings.wrong(
                    "an acknowledged checkpoint is damaged by the death of a process",
                    where=f"{wrong.where}, after the process that saved {begun.name} was killed",
                    seen=wrong.seen,
                    expected=wrong.expected,
                )
        kept = [kept, *acknowledged][-1]
        # The last thing that a save does before it is acknowledged is to give the name: then all must be there.
        if os.path.lexists(context.folder / begun.name):
            wrongs = begun.wrongs(context.folder, calls)
            for wrong in wrongs:
                findings.wrong(
                    "a broken checkpoint has its final name",
                    where=f"{wrong.where}, after the process that saved it was killed",
                    seen=wrong.seen,
                    expected=f"no {begun.name}, or all of it: {wrong.expected}",
                )
            whole += not wrongs
        _remove_others(context.folder, kept)
        number = begun.number + 1
    findings.facts["interrupted saves"] = (
        f"{findings.trials}, of which {whole} already had the final name and were whole"
    )


def _first_checkpoints(context: CheckContext, calls: Calls) -> tuple[Checkpoint, float]:
    """Save a few checkpoints; return the last one, which alone stays, and the median of their seconds."""
    seconds = []
    for number in range(1, _TIMED_SAVES + 1):
        checkpoint = Checkpoint(number=number, seed=context.seed)
        began = time.monotonic()
        checkpoint.save(context.folder, calls)
        seconds.append(time.monotonic() - began)
    _remove_others(context.folder, checkpoint)
    return checkpoint, statistics.median(seconds)


def _save_until_killed(
    context: CheckContext, findings: Findings, first: int, seconds: float
) -> tuple[Checkpoint | None, list[Checkpoint]]:
    """Have a process save from checkpoint ``first`` on and kill it some seconds after it has begun.

    Return the checkpoint that it was saving, None when a call of it failed, and those that it had acknowledged.
    """

    def saves(talk: Talk) -> None:
        number = first
        while True:
            talk.say(f"begins {number}")
            Checkpoint(number=number, seed=context.seed).save(context.folder, talk.at)
            talk.say(f"has saved {number}")
            number += 1

    with working([saves]) as workers:
        worker = workers[0]
        if all_said(workers, f"begins {first}", context.tell):
            time.sleep(seconds)
        worker.kill()
        # One that the kernel does not let go of holds this check, whose last words then name the call.
        (end,) = gather(workers, context.tell)
    if end.error:
        findings.wrong("a call failed", where=end.where, seen=f"{end.error} in {end.call}", expected="no error")
        return None, []
    number = first
    while worker.has_sent(f"has saved {number}"):
        number += 1
    saved = [Checkpoint(number=n, seed=context.seed) for n in range(first, number)]
    return Checkpoint(number=number, seed=context.seed), saved


def _remove_others(folder: Path, kept: Checkpoint) -> None:
    for name in names_in(folder):
        if name != kept.name:
            shutil.rmtree(folder / name, ignore_errors=True)
