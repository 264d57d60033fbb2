"""Requirements. A requirement is a decorated function with metadata, a text for the buyer, and a decision. Pure."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from pytest_ckpt.facts.settings import Settings
from pytest_ckpt.facts.strategies import StrategySpec
from pytest_ckpt.facts.subject import Pattern
from pytest_ckpt.facts.targets import Capability
from pytest_ckpt.facts.verdict import Severity
from pytest_ckpt.judging.decision import Decision
from pytest_ckpt.judging.given import JudgedFacts, check_parameters, decide_by

if TYPE_CHECKING:
    from types import ModuleType

_Function = TypeVar("_Function", bound=Callable[..., Decision])

# The attribute that marks a function as a requirement. Importing a module does not register it, because a vendor's file
# may be imported twice under two names.
_ATTRIBUTE = "__ckpt_requirement__"


@dataclass(frozen=True, kw_only=True, slots=True)
class Requirement:
    """One requirement.

    How it decides:

    - ``function``: returns the decision. The names of its parameters select the facts that it uses (`judging.given`). A
      requirement of the suite conformance is judged on the observation of a check, any other requirement on a
      measurement. None if the requirement was read from a report.
    - ``maximum``: a limit that a gate table may set.
    - ``spans``: the judged parts of a measurement (`judging.host_load`). If empty, these parts are the patterns among
      the parameters.
    - ``ratios``: the units of values that are ratios of times. On a busy host, such a value does not fail the
      requirement.
    - ``hidden_by_load``: other work can hide a difference. On a busy host, a ratio then does not meet the requirement.

    When it applies:

    - ``requested_by``: returns whether the options of a run provide the prerequisite of the requirement.
    - ``not_given``: the sentence on the missing prerequisite, for the verdict "not run" of a requirement "where given".
    - ``needs``: the capabilities that the target must have.
    - ``of_strategy``: returns whether the requirement applies to saves by a strategy.
    - ``own_launch``: the pattern that a separate launch measures for the requirement.

    Its texts:

    - ``text``: the text in the certificate. ``source`` is the source of the limit.
    - ``units``: the units of its values, for the documentation.
    - ``figure``, ``limit``: descriptions of the measured value and of its bound, for the documentation. In ``limit``,
      ``{maximum}`` is replaced.
    - ``next_step``: the first action after a failure. ``help`` is the part of docs/faq.md on the failure.
    - ``also_known_as``: the equivalent lines of other lists of requirements.
    - ``plugin``: the plugin that adds the requirement; empty if built in.
    """

    id: str
    title: str
    severity: Severity
    source: str
    text: str
    function: Callable[..., Decision] | None = None
    units: tuple[str, ...] = ()
    figure: str = ""
    limit: str = ""
    suite: str = "performance"
    maximum: float | None = None
    requested_by: Callable[[Settings], bool] = lambda _settings: True
    not_given: str = ""
    needs: frozenset[Capability] = frozenset()
    own_launch: Pattern | None = None
    spans: tuple[str, ...] = ()
    ratios: tuple[str, ...] = ()
    hidden_by_load: bool = False
    of_strategy: Callable[[StrategySpec], bool] = lambda _strategy: True
    next_step: str = ""
    help: str = ""
    also_known_as: tuple[str, ...] = ()
    plugin: str = ""

    @property
    def is_measured(self) -> bool:
        """Whether pytest-ckpt judges the requirement on a measurement.

        The result is False for a requirement of the suite conformance, which is judged on an observation. It is also
        False for a requirement that was read from a report.
        """
        return self.function is not None and self.suite != "conformance"

    def is_requested(self, settings: Settings) -> bool:
        """Whether a run with these settings measures the requirement.

        The run must provide the requirement's prerequisite and have a strategy to which the requirement applies.
        """
        return self.requested_by(settings) and any(map(self.of_strategy, settings.strategies))

    def decide(self, facts: JudgedFacts) -> Decision:
        """Return the decision of the requirement's function, or the decision on a missing fact."""
        assert self.function is not None
        return decide_by(self.function, facts)


def requirement(
    id: str,  # noqa: A002 - the word that users know
    *,
    title: str,
    source: str,
    severity: Severity = "required",
    units: Sequence[str] = (),
    figure: str = "",
    limit: str = "",
    maximum: float | None = None,
    next_step: str = "",
    help: str = "",  # noqa: A002 - the word that users know
    also_known_as: Sequence[str] = (),
    requested_by: Callable[[Settings], bool] = lambda _settings: True,
    of_strategy: Callable[[StrategySpec], bool] = lambda _strategy: True,
    not_given: str = "",
    needs: Iterable[Capability] = (),
    own_launch: Pattern | None = None,
    spans: Sequence[str] = (),
    ratios: Sequence[str] = (),
    hidden_by_load: bool = False,
) -> Callable[[_Function], _Function]:
    """Return a decorator that makes a function a requirement. The decorator's arguments are fields of `Requirement`.

    The names of the function's parameters select facts, its docstring is the text for the buyer, and its body decides.
    The suite follows from the module's name: ``test_strategies_of_tiers`` belongs to the suite "strategies".

    Raises TypeError if a parameter of the function does not name a fact, or has the wrong type.
    """

    def state(function: _Function) -> _Function:
        names = check_parameters(function)
        if maximum is None and "maximum" in names and "observation" not in names:
            raise TypeError(f"{id} requires its maximum, and the decorator does not state it")
        row = Requirement(
            id=id,
            title=title,
            severity=severity,
            source=source,
            text=inspect.cleandoc(function.__doc__ or ""),
            function=function,
            units=tuple(units),
            figure=figure,
            limit=limit,
            suite=_suite_of(function.__module__),
            maximum=maximum,
            requested_by=requested_by,
            not_given=not_given,
            needs=frozenset(needs),
            own_launch=own_launch,
            spans=tuple(spans),
            ratios=tuple(ratios),
            hidden_by_load=hidden_by_load,
            of_strategy=of_strategy,
            next_step=next_step,
            help=help,
            also_known_as=tuple(also_known_as),
        )
        setattr(function, _ATTRIBUTE, row)
        return function

    return state


def requirement_of(function: object) -> Requirement | None:
    """Return the requirement of a decorated function; None for any other object."""
    found = getattr(function, "__dict__", {}).get(_ATTRIBUTE)
    return found if isinstance(found, Requirement) else None


def requirements_of(module: ModuleType) -> dict[str, Requirement]:
    """Return {id: requirement} for the requirements that a module defines, in order of definition.

    Raises ValueError if two requirements have the same id.
    """
    rows: dict[str, Requirement] = {}
    for function in vars(module).values():
        # Imported definitions belong to the module that defines them.
        if (row := requirement_of(function)) and function.__module__ == module.__name__:
            if row.id in rows:
                raise ValueError(f"{module.__name__} states {row.id} twice")
            rows[row.id] = row
    return rows


def _suite_of(module: str) -> str:
    """Return the suite of a module by its name. A plugin's module belongs to the suite "performance"."""
    package, _, name = module.rpartition(".test_")
    return name.partition("_of_")[0] if package == "pytest_ckpt.suites" else "performance"
