"""Whether this host can see what it has cached of the target: tried with a file, before hours are spent on loads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ckpt.judging.obstacles import sight_untried
from pytest_ckpt.targets.timed_calls import NoAnswerError, RefusedError, call_in_time

if TYPE_CHECKING:
    from pytest_ckpt.facts.targets import TargetFacts
    from pytest_ckpt.judging.obstacles import CacheSight

ANSWER_SECONDS = 30.0
"""A target that takes longer for one small file does not answer."""

_RESIDENCY = "pytest_ckpt.targets.posix.page_cache:try_gauge"


def gauge_of(folder: str, seconds: float) -> str | None:
    """Return the call that counts cached pages in a folder, None where none does; a file of 4 MiB comes and goes.

    Raises NoAnswerError and RefusedError.
    """
    gauge: str | None = call_in_time(_RESIDENCY, folder, seconds)
    return gauge


def cache_sight(target: TargetFacts, folder: str, deadline_seconds: float) -> CacheSight:
    """Return what is seen of the cache of a target from a folder on it, where that has to be tried at all."""
    if (known := sight_untried(target)) != "untried":
        return known
    try:
        return "seen" if gauge_of(folder, min(ANSWER_SECONDS, deadline_seconds)) else "blind"
    except (NoAnswerError, RefusedError):
        # The run will meet what is wrong there, and name it.
        return "untried"
