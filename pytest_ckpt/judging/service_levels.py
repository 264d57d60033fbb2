"""Service levels by NVIDIA's requirements for AI clouds, reported in addition to the limits. Pure.

The service levels do not affect verdicts. A run is much shorter than a contract, and it may have fewer clients.

Source: NVIDIA, Requirements for AI Clouds, v2.4:

- A rate below 85 % of the contracted rate for 5 minutes is an incident.
- 99.9 % of operations have no stall over 60 s.
- Acknowledged data survive any single failure.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence

from pytest_ckpt.analysis.acceptance import CONFIDENCE, trials_for
from pytest_ckpt.support.units import counted, format_count, format_percent, format_rate, format_seconds

INCIDENT_SHARE, WINDOW_SECONDS = 0.85, 300.0
STALL_SECONDS, SHARE_WITHOUT_STALL = 60.0, 0.999
_NAME = "service level of NVIDIA"


def lowest_rate(seconds: Sequence[float], size: int) -> float | None:
    """Return the lowest mean rate in any 5 minutes of saving, in bytes/s.

    ``seconds`` are the times of consecutive saves of ``size`` bytes. The result is None if their sum is less than 5
    minutes. The time between saves is left out, because no data are written between saves. The rate within a save is
    assumed to be constant.
    """
    ends = [0.0, *itertools.accumulate(seconds)]
    if ends[-1] < WINDOW_SECONDS:
        return None

    def written(at: float) -> float:
        done = min(bisect.bisect_right(ends, at) - 1, len(seconds) - 1)
        return size * (done + (at - ends[done]) / seconds[done])

    # The written amount is linear between the ends of saves, so the window with the lowest rate begins or ends at one
    # of these.
    begins = {at for end in ends for at in (end, end - WINDOW_SECONDS) if 0 <= at <= ends[-1] - WINDOW_SECONDS}
    return min((written(begin + WINDOW_SECONDS) - written(begin)) / WINDOW_SECONDS for begin in begins)


def rate_level(seconds: Sequence[float], size: int, contracted: float) -> str:
    """Return a phrase that states whether consecutive saves were an incident by the service level.

    ``seconds`` are the times of the saves. ``size`` is the size of one save in bytes. ``contracted`` is the contracted
    rate in bytes/s, 0 if unknown.
    """
    head = f"{_NAME}, {format_percent(INCIDENT_SHARE)} of the contracted rate for {format_seconds(WINDOW_SECONDS)}"
    if not contracted:
        return f"{head}: no contracted rate is stated (--ckpt-suite=scaling:vendor-max-rate)"
    lowest = lowest_rate(seconds, size)
    if lowest is None:
        return f"{head}: not known, the saves took {format_seconds(sum(seconds))} in total"
    share = format_percent(lowest / contracted, digits=3)
    found = f"{head}: lowest mean {format_rate(lowest)}, {share} of {format_rate(contracted)}"
    if lowest >= INCIDENT_SHARE * contracted:
        return f"{found}: no incident"
    return f"{found}: an incident, if the clients of this run can write at the contracted rate"


def stall_level(without_stall: int, operations: int, what: str) -> str:
    """Return a phrase on how many operations had no stall over 60 s.

    In the phrase, ``what`` follows the count of operations, such as "with a fault".
    """
    enough = trials_for(SHARE_WITHOUT_STALL)
    share = format_percent(SHARE_WITHOUT_STALL, digits=3)
    text = (
        f"{_NAME}, {share} without a stall over {format_seconds(STALL_SECONDS)}: {without_stall:,} of "
        f"{counted(operations, 'operation')} {what}"
    )
    if without_stall == operations < enough:
        confidence = format_percent(CONFIDENCE)
        return f"{text}; {format_count(enough)} without one are needed to show that share with {confidence} confidence"
    return text


def survival_level(failures: str, not_shown: str) -> str:
    """Return a phrase on the single failures that acknowledged data survived, and on the untested single failures."""
    return f"{_NAME}, acknowledged data survive any single failure: shown for {failures}; not shown: {not_shown}"
