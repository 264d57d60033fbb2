"""A requirement is one decorated function: its metadata, its text for the buyer, and its judgement. Pure."""

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
    """One requirement. ``source`` is the source of its limit; ``text`` is its text in the certificate.

    ``function`` decides; its parameters name the facts that it needs (`judging.given`). Requirements of conformance are
    judged on a check's observation, all others on a measurement. For the documentation, ``units`` are the units of its
    values, ``figure`` describes the measured value and ``limit`` its bound, in which ``{maximum}`` is replaced.
    ``maximum`` is a limit that a gate table may set. ``asked_by`` returns whether the options of a run provide the
    requirement's prerequisite; ``needs`` are the target capabilities that it uses. If the prerequisite or a capability
    is missing, the requirement is not part of the run. ``not_given`` describes the missing prerequisite of a
    requirement that is "not run" because a gate table requires it "where given". ``own_launch`` is a pattern that is
    measured in a separate launch for this requirement. ``ratios`` are the units of its values that are ratios of times:
    on a busy host, such a value does not fail the requirement. With ``hidden_by_load``, other work can also hide a
    difference, so on a busy host such a value does not meet the requirement either. ``spans`` are the parts of a
    measurement that the requirement judges, if they are not the patterns among its parameters (`judging.host_load`).

    A run may have several strategies; ``of_strategy`` returns whether the requirement applies to saves by a strategy.
    ``next_step`` is the first action after a failure, ``help`` the part of docs/faq.md about the failure, and
    ``also_known_as`` the equivalent lines of other lists of requirements. ``plugin`` names the plugin that adds the
    requirement. A requirement that was read from a report has no function.
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
    asked_by: Callable[[Settings], bool] = lambda _settings: True
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

        Requirements of conformance need observations instead, and requirements from a report need their plugin.
        """
        return self.function is not None and self.suite != "conformance"

    def is_asked(self, settings: Settings) -> bool:
        """Whether a run with these settings measures the requirement: its prerequisite is given, and it applies to a
        strategy.
        """
        return self.asked_by(settings) and any(map(self.of_strategy, settings.strategies))

    def decide(self, facts: JudgedFacts) -> Decision:
        """Call the requirement's function with the facts that its parameters name.

        If a fact is missing, the decision about the missing fact is returned.
        """
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
    asked_by: Callable[[Settings], bool] = lambda _settings: True,
    of_strategy: Callable[[StrategySpec], bool] = lambda _strategy: True,
    not_given: str = "",
    needs: Iterable[Capability] = (),
    own_launch: Pattern | None = None,
    spans: Sequence[str] = (),
    ratios: Sequence[str] = (),
    hidden_by_load: bool = False,
) -> Callable[[_Function], _Function]:
    """Return a decorator that makes a function a requirement.

    The parameters of the function name facts, its docstring is the text for the buyer, and its body decides. The suite
    follows from the name of the module: ``test_strategies_of_tiers`` belongs to the suite "strategies". The parameters
    of the decorator are fields of `Requirement`. Raises TypeError if a parameter of the function does not name a fact
    or has another type.
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
            asked_by=asked_by,
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
    """Return the requirements defined in a module, by id, in order of definition. Raises ValueError for a
    duplicate id.
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
    """Return the suite of a built-in module by its name.

    A module of a plugin belongs to the suite "performance", because its requirements apply to saves and loads.
    """
    package, _, name = module.rpartition(".test_")
    return name.partition("_of_")[0] if package == "pytest_ckpt.suites" else "performance"
