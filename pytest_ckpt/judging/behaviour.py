"""The judgement that all requirements on a target's behaviour share: what one check observed. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ckpt.judging.decision import Decision, measured_as, not_decided
from pytest_ckpt.judging.wording import describe_blocked
from pytest_ckpt.support.units import compared, counted, format_count, format_general, format_seconds

if TYPE_CHECKING:
    from pytest_ckpt.facts.checks import Check
    from pytest_ckpt.facts.observation import Anomaly, Observation

_NEEDS = {
    "second client": "No second client (--ckpt-second-mount, or a second host in --ckpt-hosts).",
    "power cut": "No power-cut command (--ckpt-actions [power_cut] command).",
    "small directory": "No directory to fill (--ckpt-small-volume: one on a small volume or quota).",
}


def without_anomaly(observation: Observation, limit: float | None) -> Decision:
    """A healthy target shows no anomaly, and its figure stays within the limit where there is one."""
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


def missing_need(check: Check) -> str:
    """Return the sentence that says what a check would have needed."""
    return _NEEDS[check.needs]


def _line(anomaly: Anomaly) -> str:
    return f"{anomaly.kind}: {anomaly.where}: seen {anomaly.seen}; expected {anomaly.expected}"


def _facts(observation: Observation) -> list[str]:
    return [f"{name}: {value}" for name, value in observation.facts.items()]


def _reproduce(observation: Observation) -> list[str]:
    return [f"to reproduce: {observation.reproduce}"] if observation.reproduce else []


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]
