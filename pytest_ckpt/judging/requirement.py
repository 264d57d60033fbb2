"""A requirement is one decorated function: what is known of it, its text for the buyer, and its judgement. Pure."""

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

# The attribute of a function that is a requirement. Importing a module registers nothing: a file of a vendor may be
# imported twice, under two names.
_ATTRIBUTE = "__ckpt_requirement__"


@dataclass(frozen=True, kw_only=True, slots=True)
class Requirement:
    """One requirement. ``source`` says where its limit comes from; ``text`` is what the certificate prints of it.

    ``function`` decides; its parameters name the facts that it needs (`judging.given`). Those of conformance are judged
    on what a check observed, all others on a measurement. ``units`` are those that it reports, ``figure`` says what it
    measures and ``limit`` what bounds that, for the documentation; ``{maximum}`` in it is the requirement's own.
    ``maximum`` is a limit that a gate table may set.
    ``asked_by`` says whether the options of a run ask for what it needs, ``needs`` is what a target must be able to
    for it; others are no part of the run. ``not_given`` says what is missing where it is not asked and a table of
    gates requires it "where given": then it is "not run". ``own_launch`` is the pattern of the launch that measures it
    alone. ``of_strategy`` says whether saves by a strategy are asked for it: a run may have several.
    ``next_step`` is what to do first where it failed, ``help`` the part of docs/faq.md that a failure leads to, and
    ``also_known_as`` the lines of other lists of requirements that ask for the same.
    ``plugin`` names the plugin that asks for it. One that was read from a report has no function.
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
    of_strategy: Callable[[StrategySpec], bool] = lambda _strategy: True
    next_step: str = ""
    help: str = ""
    also_known_as: tuple[str, ...] = ()
    plugin: str = ""

    @property
    def is_measured(self) -> bool:
        """Whether it is judged on a measurement, here; others are judged on observations, or where their plugin is."""
        return self.function is not None and self.suite != "conformance"

    def is_asked(self, settings: Settings) -> bool:
        """Whether a run with these settings measures what it needs: by its options, and by one of its strategies."""
        return self.asked_by(settings) and any(map(self.of_strategy, settings.strategies))

    def decide(self, facts: JudgedFacts) -> Decision:
        """Call the function with the facts that it names; a fact that is not there decides in its place."""
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
    help: str = "",  # noqa: A002 - as above
    also_known_as: Sequence[str] = (),
    asked_by: Callable[[Settings], bool] = lambda _settings: True,
    of_strategy: Callable[[StrategySpec], bool] = lambda _strategy: True,
    not_given: str = "",
    needs: Iterable[Capability] = (),
    own_launch: Pattern | None = None,
) -> Callable[[_Function], _Function]:
    """Make a requirement of a function: its parameters name facts, its docstring is the text, its body decides.

    The suite follows from the name of the module: ``test_strategies_of_tiers`` is of the suite "strategies". The
    parameters are fields of `Requirement`. Raises TypeError where a parameter names no fact or gives it another type.
    """

    def state(function: _Function) -> _Function:
        names = check_parameters(function)
        if maximum is None and "maximum" in names and "observation" not in names:
            raise TypeError(f"{id} asks for its maximum, and the decorator states none")
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
            of_strategy=of_strategy,
            next_step=next_step,
            help=help,
            also_known_as=tuple(also_known_as),
        )
        setattr(function, _ATTRIBUTE, row)
        return function

    return state


def requirement_of(function: object) -> Requirement | None:
    """Return the requirement that a function is; None for anything else."""
    found = getattr(function, "__dict__", {}).get(_ATTRIBUTE)
    return found if isinstance(found, Requirement) else None


def requirements_of(module: ModuleType) -> dict[str, Requirement]:
    """Return the requirements that a module states, by id, in its order. Raises ValueError for an id stated twice."""
    rows: dict[str, Requirement] = {}
    for function in vars(module).values():
        # What a module imports from another is stated there.
        if (row := requirement_of(function)) and function.__module__ == module.__name__:
            if row.id in rows:
                raise ValueError(f"{module.__name__} states {row.id} twice")
            rows[row.id] = row
    return rows


def _suite_of(module: str) -> str:
    """Return the suite that a module of ours is; what plugins ask for is asked of saves and loads."""
    package, _, name = module.rpartition(".test_")
    return name.partition("_of_")[0] if package == "pytest_ckpt.suites" else "performance"
