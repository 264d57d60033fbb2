"""Decisions on measurements on busy hosts. Pure.

Other work on a host delays its ranks by an unknown time. Therefore a ratio of two times does not measure the storage
and cannot decide. A limit in seconds applies to client and storage together. It still decides, and the load is
reported.
"""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_ckpt.facts.host_load import (
    DATA_PAIRS,
    MAXIMUM_OTHERS,
    MAXIMUM_STEAL,
    MINIMUM_IDLE,
    OWN_OPERATIONS,
)
from pytest_ckpt.facts.measurement import PATTERN_NAMES
from pytest_ckpt.judging.decision import Decision, not_decided
from pytest_ckpt.support.units import counted, format_percent, format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_ckpt.facts.host_load import HostLoad
    from pytest_ckpt.facts.measurement import Measurement
    from pytest_ckpt.facts.verdict import Reason
    from pytest_ckpt.judging.requirement import Requirement

_SPANS = frozenset((DATA_PAIRS, *PATTERN_NAMES))
# The failure reasons of a ratio. Wrong bytes and errors fail on any host.
_OF_RATIOS: frozenset[Reason] = frozenset(("over limit", "uneven", "not steady", "cached"))

BOUNDS = (
    f"a host is busy if other virtual machines take {format_percent(MAXIMUM_STEAL)}, or others "
    f"{format_percent(MAXIMUM_OTHERS)} with less than {format_percent(MINIMUM_IDLE)} idle (chosen by this program)"
)


def spans_of(requirement: Requirement) -> tuple[str, ...]:
    """Return the spans (parts of a measurement) that a requirement judges.

    The spans are the requirement's ``spans`` if given, else the patterns that its function uses. If its function uses
    no pattern, they are the subject's own saves and loads.
    """
    if requirement.spans:
        return requirement.spans
    names = inspect.signature(requirement.function).parameters if requirement.function else ()
    return tuple(name for name in names if name in _SPANS) or (OWN_OPERATIONS,)


def busy_host(requirement: Requirement, measurement: Measurement) -> HostLoad | None:
    """Return the load of the busiest host in a requirement's spans; None if no host was busy with other work."""
    spans = spans_of(requirement)
    busy = [load for load in _loads(measurement) if load.span in spans and load.is_busy]
    return max(busy, key=lambda load: load.taken_share, default=None)


def _loads(measurement: Measurement) -> Iterator[HostLoad]:
    """Yield the host loads of all launches.

    The results of a launch that runs user commands contain their own host loads.
    """
    yield from measurement.host_loads
    if patterns := measurement.patterns:
        for found in (patterns.failover, patterns.upgrade, patterns.snapshots):
            yield from found.host_loads if found else ()


def on_busy_host(requirement: Requirement, decision: Decision, load: HostLoad) -> Decision:
    """Return a requirement's decision, adapted to the load of a busy host.

    If a failed decision is based on a ratio of times, it becomes "not run". If a met decision is based on a ratio and
    the load can hide a difference, it also becomes "not run". Other decisions keep their outcome and report the load.
    """
    described = describe_load(load)
    detail = (*decision.detail, f"busy host: {described}", BOUNDS)
    if decision.outcome == "not run" or decision.unit not in requirement.ratios:
        return replace(decision, detail=detail)
    is_failed = decision.outcome == "failed" and decision.reason in _OF_RATIOS
    if is_failed or (decision.outcome == "met" and requirement.hidden_by_load):
        because = f"The host was busy ({described}): a ratio of times does not decide. {decision.because}"
        return not_decided("host busy", because, (*decision.detail, BOUNDS))
    return replace(decision, detail=detail)


def describe_load(load: HostLoad) -> str:
    """Return a phrase on the use of a busy host's processors."""
    during = load.of if load.span == OWN_OPERATIONS else f"{load.of} of {load.span}"
    return (
        f"{load.host} during {during}, {format_seconds(load.seconds)}: other processes used "
        f"{format_percent(load.others_share)} of {counted(load.cores, 'processor')}, other virtual machines "
        f"{format_percent(load.steal_share)}, {format_percent(load.idle_share)} was idle; load average "
        f"{load.load_average:.1f}"
    )
