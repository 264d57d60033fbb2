"""The facts that a requirement's function may use. The name of each parameter selects a fact. Pure.

A provider is the function that returns a fact. If the fact is missing, the provider returns a decision, and the
requirement's function is not called. Facts are not pytest fixtures, because any conftest could replace a fixture.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_ckpt.facts.measurement import (
    PATTERN_NAMES,
    DataEffect,
    Measurement,
    Operation,
    OperationKind,
    Patterns,
    Retention,
)
from pytest_ckpt.facts.observation import Observation
from pytest_ckpt.facts.proofs import Durability
from pytest_ckpt.facts.strategy_results import LOCAL_TIER
from pytest_ckpt.facts.subject import Pattern
from pytest_ckpt.judging.decision import (
    Decision,
    ended_before,
    failed_by,
    is_decided_by,
    is_decided_in,
    not_decided,
    undecided,
)
from pytest_ckpt.judging.save_costs import SaveCost, save_costs

if TYPE_CHECKING:
    from pytest_ckpt.sizing.limits import ClusterLimits
    from pytest_ckpt.sizing.plan import FilesOfHost


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgedFacts:
    """The input of one requirement: a measurement and the cluster's limits, or the observation of a check.

    ``maximum`` is the limit in the gate table; None without a limit. ``files_of_host`` is the planned number of files
    that each host creates in a save; None without a plan.
    """

    measurement: Measurement | None = None
    limits: ClusterLimits | None = None
    observation: Observation | None = None
    maximum: float | None = None
    files_of_host: FilesOfHost | None = None

    @property
    def measured(self) -> Measurement:
        """The measurement. Only requirements that are judged on a measurement may read it."""
        assert self.measurement is not None
        return self.measurement


@dataclass(frozen=True, kw_only=True, slots=True)
class Operations:
    """All planned saves, or all planned loads (``kind``), and the measurement that contains them (``of``)."""

    kind: OperationKind
    all: tuple[Operation, ...]
    of: Measurement


def _measurement(facts: JudgedFacts) -> Measurement:
    return facts.measured


def _limits(facts: JudgedFacts) -> ClusterLimits:
    assert facts.limits is not None
    return facts.limits


def _observation(facts: JudgedFacts) -> Observation:
    assert facts.observation is not None
    return facts.observation


def _saves(facts: JudgedFacts) -> Operations | Decision:
    return _operations(facts.measured, "save")


def _loads(facts: JudgedFacts) -> Operations | Decision:
    return _operations(facts.measured, "load")


def _operations(measurement: Measurement, kind: OperationKind) -> Operations | Decision:
    """Return all planned operations of a kind. If operations are missing, return "failed" or "not run"."""
    if measurement.failure and is_decided_by(measurement.failure, kind):
        return failed_by(measurement.failure)
    done = measurement.of_kind(kind)
    if len(done) < measurement.operations_planned:
        return undecided(measurement, kind)
    return Operations(kind=kind, all=tuple(done), of=measurement)


def _durability(facts: JudgedFacts) -> Durability | Decision:
    return facts.measured.durability or undecided(facts.measured, "save")


def _retention(facts: JudgedFacts) -> Retention | Decision:
    return facts.measured.retention or undecided(facts.measured, "load")


def _data(facts: JudgedFacts) -> DataEffect | Decision:
    return facts.measured.data or undecided(facts.measured, "load")


def _costs(facts: JudgedFacts) -> tuple[SaveCost, ...] | Decision:
    return not_saved(facts.measured) or tuple(save_costs(facts.measured))


def _pattern(name: Pattern, facts: JudgedFacts) -> object:
    found = facts.measured.patterns.result_of(name) if facts.measured.patterns else None
    return without_pattern(facts.measured, (name,)) if found is None else found


def without_pattern(measurement: Measurement, names: Sequence[Pattern]) -> Decision:
    """Return the decision "failed" or "not run" for patterns without a result.

    The first of these reasons that applies decides:

    - A failure in one of the patterns.
    - The recorded reason why a pattern was not run.
    - A failure elsewhere, which ended the run before the patterns.
    - The patterns were not measured.
    """
    failure = measurement.failure
    if failure and any(is_decided_in(failure, name) for name in names):
        return failed_by(failure)
    reasons = measurement.patterns.not_run if measurement.patterns else {}
    for name in names:
        if name in reasons:
            return not_decided("not possible", reasons[name])
    if failure:
        return ended_before(failure)
    return not_decided("not measured", "It was not measured.")


def not_saved(measurement: Measurement, *, lanes: tuple[str, ...] = ("", LOCAL_TIER)) -> Decision | None:
    """Return the decision if a save, or the training steps during a save, were not measured; otherwise None.

    A failure of a save counts against the storage only in one of the ``lanes`` (concurrent activities of a rank).
    """
    failure = measurement.failure
    if failure and is_decided_by(failure, "save"):
        # A background failure belongs to another requirement, because the job had continued.
        return failed_by(failure) if failure.lane in lanes else ended_before(failure)
    if len(measurement.of_kind("save")) < measurement.operations_planned:
        return undecided(measurement, "save")
    if not save_costs(measurement):
        if failure:
            return ended_before(failure)
        return not_decided("not measured", "The work during the saves was not measured.")
    return None


_PATTERNS = {
    f.name: str(f.type).removesuffix(" | None") for f in dataclasses.fields(Patterns) if f.name in PATTERN_NAMES
}

PROVIDERS: dict[str, tuple[Callable[[JudgedFacts], Any], str]] = {
    "measurement": (_measurement, "Measurement"),
    "limits": (_limits, "ClusterLimits"),
    # The limit of a requirement or check in the gate table.
    "maximum": (lambda facts: facts.maximum, "float"),
    "observation": (_observation, "Observation"),
    "files_of_host": (lambda facts: facts.files_of_host, "FilesOfHost"),
    "saves": (_saves, "Operations"),
    "loads": (_loads, "Operations"),
    "durability": (_durability, "Durability"),
    "retention": (_retention, "Retention"),
    "data": (_data, "DataEffect"),
    # The cost of each save for training.
    "costs": (_costs, "tuple[SaveCost, ...]"),
    **{name: (functools.partial(_pattern, name), of) for name, of in _PATTERNS.items()},
}
"""The providers by parameter name: the function that returns the fact, and the fact's type as text."""


def check_parameters(function: Callable[..., object]) -> tuple[str, ...]:
    """Return the names of the facts that a function uses as parameters.

    Raises TypeError for an unknown name or a wrong type. Types are compared as text, without imports. A parameter may
    have no type, the type of the fact, or this type with ``| None``.
    """
    names = tuple(inspect.signature(function).parameters)
    for name in names:
        where = f"{function.__module__}.{function.__qualname__}"
        if name not in PROVIDERS:
            raise TypeError(f"{where} requires '{name}'; the facts are {', '.join(PROVIDERS)}")
        known = PROVIDERS[name][1]
        written = function.__annotations__.get(name)
        written = written if isinstance(written, str | None) else getattr(written, "__name__", str(written))
        if written not in (None, known, f"{known} | None"):
            raise TypeError(f"{where} takes '{name}' for {written}; it is {known}")
    return names


def decide_by(function: Callable[..., Decision], facts: JudgedFacts) -> Decision:
    """Return the decision of a requirement's function. The function is called with the facts that it uses.

    If a fact is missing, return the decision of the fact's provider.
    """
    given = {}
    for name in inspect.signature(function).parameters:
        fact = PROVIDERS[name][0](facts)
        if isinstance(fact, Decision):
            return fact
        given[name] = fact
    return function(**given)
