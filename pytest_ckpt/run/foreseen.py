"""What would keep a run of a command from starting on this host, as far as it shows without starting ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ckpt.run.fitting import check_memory_of, check_space
from pytest_ckpt.support.errors import Problems, UsageError
from pytest_ckpt.support.memory_limits import memory_available_bytes
from pytest_ckpt.targets.schemes import check_in_time
from pytest_ckpt.targets.timed_calls import NoAnswerError, RefusedError

if TYPE_CHECKING:
    from pytest_ckpt.facts.settings import Settings
    from pytest_ckpt.facts.targets import TargetFacts, TargetSpec
    from pytest_ckpt.sizing.plan import Plan

# One stat, one statvfs and one readdir of a folder.
_ANSWER_SECONDS = 10.0


def foreseen(settings: Settings, plan: Plan, spec: TargetSpec) -> Problems:
    """Return what a run would be refused for: a target that cannot be used, too little space, too little memory.

    The target is asked by a process of its own, which writes nothing; one that is reached over a network is not asked.
    Memory is that of this host, and not asked where the ranks may be on others: with hosts or a launcher of one's own.
    """
    problems = Problems()
    with problems.noting():
        facts = None if spec.is_remote else _asked(settings, spec)
        if facts and facts.capacity and settings.measures:
            check_space(plan, settings, facts.capacity.free_bytes)
    with problems.noting():
        if settings.measures and not settings.hosts and not settings.is_said("--ckpt-launcher"):
            ranks = range(max((c.layout.processes for c in plan.runnable), default=0))
            check_memory_of(plan, [("this host", ranks, memory_available_bytes())])
    return problems


def _asked(settings: Settings, spec: TargetSpec) -> TargetFacts:
    text = settings.target or ""
    try:
        return check_in_time(spec, text, _ANSWER_SECONDS)
    except NoAnswerError as silence:
        raise UsageError(
            f"--ckpt-target {text}: {silence}.",
            "Unmount it (umount -l PATH) and mount it again, or ask its administrator.",
        ) from None
    except RefusedError as error:
        raise UsageError(str(error), error.remedy or "Try it by hand: stat PATH; df PATH; ls PATH.") from None
