"""What a requirement is, and its text: the docstring of its test. Pure, but for reading the suites."""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass

from pytest_ckpt.facts.settings import Settings
from pytest_ckpt.facts.strategies import StrategySpec
from pytest_ckpt.facts.subject import OwnPattern
from pytest_ckpt.facts.targets import Capability
from pytest_ckpt.facts.verdict import Severity
from pytest_ckpt.judging.decision import Decision
from pytest_ckpt.judging.next_steps import NEXT_STEPS
from pytest_ckpt.judging.other_lists import ALSO_KNOWN_AS
from pytest_ckpt.support import resources

# What a requirement of speed judges; with a limit of its own as the keyword ``most``, where a table may set it.
Judge = Callable[..., Decision]


@dataclass(frozen=True, kw_only=True, slots=True)
class Requirement:
    """One requirement. ``source`` says where its limit comes from; its text is the docstring of its test.

    ``judge`` takes (measurement, limits); those on a target's behaviour have none and are judged by observations.
    ``units`` are those that it reports, ``figure`` says what it measures and ``limit`` what bounds that, for the
    documentation; ``{maximum}`` in it is the row's own. ``maximum`` is a limit that a gate table may set.
    ``asked_by`` says whether the options of a run ask for what it needs, ``needs`` is what a target must be able to
    for it; others are no part of the run. ``not_given`` says what is missing where it is not asked and a table of
    gates requires it "where given": then it is "not run". ``own_launch`` is the pattern of the launch that measures it
    alone. ``of_strategy`` says whether saves by a strategy are asked for it: a run may have several.
    ``plugin`` names the plugin that asks for it, and ``words`` is then its text; ours have neither.
    """

    id: str
    title: str
    severity: Severity
    source: str
    judge: Judge | None = None
    units: tuple[str, ...] = ()
    figure: str = ""
    limit: str = ""
    suite: str = "performance"
    maximum: float | None = None
    asked_by: Callable[[Settings], bool] = lambda _settings: True
    not_given: str = ""
    needs: frozenset[Capability] = frozenset()
    own_launch: OwnPattern | None = None
    of_strategy: Callable[[StrategySpec], bool] = lambda _strategy: True
    plugin: str = ""
    words: str = ""

    def is_asked(self, settings: Settings) -> bool:
        """Whether a run with these settings measures what it needs: by its options, and by one of its strategies."""
        return self.asked_by(settings) and any(map(self.of_strategy, settings.strategies))

    @property
    def text(self) -> str:
        """The requirement as the certificate prints it, for the buyer."""
        return self.words or _texts()[self.id]

    @property
    def also_known_as(self) -> tuple[str, ...]:
        """The lines of other lists that ask for the same; none for a plugin's."""
        return () if self.plugin else ALSO_KNOWN_AS.get(self.id, ())

    @property
    def next_step(self) -> str:
        """What to do first where it failed; empty for a plugin's."""
        return "" if self.plugin else NEXT_STEPS.get(self.id, "")


@functools.cache
def _texts() -> dict[str, str]:
    """Read the docstrings of the tests that carry ``@pytest.mark.requirement(id)``, without importing them."""
    texts = {}
    for path in sorted(resources.folder("suites").glob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                for mark in node.decorator_list:
                    if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.requirement":
                        texts[ast.literal_eval(mark.args[0])] = inspect.cleandoc(ast.get_docstring(node) or "")
    return texts
