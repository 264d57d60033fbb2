"""Preemption notices: the time from a notice until the job has committed a last checkpoint."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pytest_ckpt.facts.events import PatternMeasured
from pytest_ckpt.facts.strategy_results import Preempted
from pytest_ckpt.sizing.patterns import NOTICES, PATTERNS

if TYPE_CHECKING:
    from pytest_ckpt.ranks.operations import Operations
    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.ranks.process.job import Task
    from pytest_ckpt.ranks.scenarios.context import ScenarioContext
    from pytest_ckpt.ranks.strategies.protocol import Strategy


def measure_notice(
    group: Group, activity: Activity, do: Operations, strategy: Strategy, task: Task, *, whole_bytes: int
) -> None:
    """Begin a save. When the job may continue, send a notice to all ranks, which then save their current state.

    This is the worst moment for a notice, because the save after the notice may have to wait for the first save. The
    measurement is repeated with the same two checkpoint numbers. ``whole_bytes`` is the size of a checkpoint in bytes.
    """
    first = task.operations + PATTERNS["preempt"].first
    seconds = []
    for index in range(1, NOTICES + 1):
        at = do.one("preempt", "save", index)
        with do.stage("content", at.at("content")):
            strategy.engine.fill(first)
        activity.begin(at)
        group.start_together()
        running_save = strategy.save(do.new_ref(first, "preempt"))
        # The notice: rank 0 receives it and forwards it to the other ranks.
        group.share(index)
        start = time.perf_counter()
        last = strategy.save(do.new_ref(first + 1, "preempt"))
        with activity.wait():
            last.wait()
            running_save.wait()
        group.wait()
        seconds.append(time.perf_counter() - start)
        with do.stage("remove", at.at("remove")):
            for number in (first, first + 1):
                do.delete_files_of_rank(number)
            do.finish_delete((first, first + 1))
        do.step("preempt", index, seconds[-1])
    strategy.release()
    strategy.engine.release()
    found = Preempted(bytes=whole_bytes, committed_seconds=tuple(seconds))
    do.send(PatternMeasured(subject=task.subject, name="preempt", found=found))


def measure(at: ScenarioContext) -> None:
    """Run this scenario for a subject."""
    strategy = at.strategy(aside="notice")
    measure_notice(at.group, at.activity, at.do, strategy, at.task, whole_bytes=at.layout.bytes)
