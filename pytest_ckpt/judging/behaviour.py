"""The judgement that all requirements on a target's behaviour share: it evaluates the result of one check. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

from pytest_ckpt.facts.observation import SECOND_MOUNT
from pytest_ckpt.judging.decision import Decision, measured_as, not_decided
from pytest_ckpt.judging.promises import promise_of
from pytest_ckpt.judging.wording import describe_blocked
from pytest_ckpt.support.units import compared, counted, format_count, format_general, format_seconds

if TYPE_CHECKING:
    from pytest_ckpt.facts.checks import Check
    from pytest_ckpt.facts.observation import Anomaly, Observation
    from pytest_ckpt.judging.promises import Memory
    from pytest_ckpt.sizing.plan import FilesOfHost

_NEEDS = {
    "second client": "No second client (--ckpt-second-mount, or a second host in --ckpt-hosts).",
    "power cut": "No power-cut command (--ckpt-actions [power_cut] command).",
    "small directory": "No directory to fill (--ckpt-small-volume: one on a small volume or quota).",
}


def without_anomaly(observation: Observation, limit: float | None) -> Decision:
    """A healthy target shows no anomaly, and its measured value is within the limit, if there is a limit."""
    if observation.blocked:
        because = describe_blocked(observation.blocked)
        stack = tuple(observation.blocked.stack.splitlines())
        detail = (*stack, *_reproduce(observation))
        return Decision(outcome="failed", reason="hung", because=because, detail=detail)
    if observation.not_run:
        because, _, more = observation.not_run.partition("\n")
        detail = (*more.splitlines(), *_reproduce(observation))
        return not_decided("run ended" if observation.errno else "check broke", _sentence(because), detail)
    measured, unit = observation.measured, observation.unit
    detail = (*(_line(a) for a in observation.anomalies), *_facts(observation), *_reproduce(observation))
    if observation.anomaly_count:
        first = observation.anomalies[0]
        count = f" ({format_count(observation.anomaly_count)} such findings)" if observation.anomaly_count > 1 else ""
        because = _sentence(f"{first.kind}: {first.where}: seen {first.seen}, expected {first.expected}{count}.")
        return Decision(
            outcome="failed", reason="anomaly", because=because, measured=measured, unit=unit, detail=detail
        )
    tried = counted(observation.trials, "trial")
    if measured is None:
        if not observation.trials:
            return not_decided("too few", "The check ended before its first trial.")
        return Decision(outcome="met", reason="met", because=f"No fault in {tried}.", detail=detail)
    if limit is None:
        return Decision(
            outcome="met",
            reason="met",
            because=f"No fault in {tried}.",
            measured=measured,
            unit=unit,
            detail=detail,
        )
    took, allowed = compared(measured, limit, format_seconds if unit == "s" else format_general)
    if measured > limit:
        because = f"Took {took}; limit {allowed}, in {tried}."
        return measured_as("over limit", measured, limit, unit, because, detail)
    because = f"Worst: {took}; limit {allowed}, in {tried}."
    return measured_as("met", measured, limit, unit, because, detail)


def creates_in_time(decision: Decision, observation: Observation, demand: FilesOfHost | None) -> Decision:
    """Compare the rate at which a check created files with a host's demand, if the check measures such a rate.

    The check creates more files than any host does, so its total time does not predict the time of a save.
    """
    if decision.outcome != "met" or not observation.measured:
        return decision
    rate = observation.trials / observation.measured
    created = f"One client created {format_count(observation.trials)} files, {rate:,.0f} a second."
    if demand is None:
        return replace(decision, because=f"{decision.because} {created}")
    seconds = demand.files / rate
    took, allowed = compared(seconds, demand.save_limit_seconds, format_seconds)
    because = (
        f"{created} At that rate a host ({counted(demand.hosts, 'host')}) creates its "
        f"{counted(demand.files, 'file')} of a checkpoint of {demand.model} in {took}; save limit {allowed}."
    )
    return measured_as(
        "met" if seconds <= demand.save_limit_seconds else "over limit",
        seconds,
        demand.save_limit_seconds,
        "s",
        because,
        decision.detail,
    )


def beside_promise(decision: Decision, observation: Observation) -> Decision:
    """Add the mount's promise to the reason of a decision about a client's cache, without a change of the outcome."""
    if decision.outcome == "not run" or SECOND_MOUNT not in observation.facts:
        return decision
    what = cast("Memory", observation.subject)
    promise = promise_of(observation.facts[SECOND_MOUNT], what)
    if promise is None:
        return decision
    return replace(decision, because=f"{decision.because} {promise.text(what, decision.measured)}")


def missing_need(check: Check) -> str:
    """Return the sentence that names the missing input of a check."""
    return _NEEDS[check.needs]


def _line(anomaly: Anomaly) -> str:
    return f"{anomaly.kind}: {anomaly.where}: seen {anomaly.seen}; expected {anomaly.expected}"


def _facts(observation: Observation) -> list[str]:
    return [f"{name}: {value}" for name, value in observation.facts.items()]


def _reproduce(observation: Observation) -> list[str]:
    return [f"to reproduce: {observation.reproduce}"] if observation.reproduce else []


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]
