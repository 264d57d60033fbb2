"""The inputs that all launches of a run share."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
import shlex
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pytest_ckpt.facts.checks import CHECKS
from pytest_ckpt.facts.engines import BUILT_IN
from pytest_ckpt.facts.environment import Environment
from pytest_ckpt.facts.measurement import Measurement
from pytest_ckpt.facts.observation import Observation
from pytest_ckpt.facts.options import OPTIONS
from pytest_ckpt.facts.settings import SUITES
from pytest_ckpt.facts.strategies import STRATEGIES
from pytest_ckpt.facts.targets import Access, AreaRef, Names, TargetFacts, TargetSpec
from pytest_ckpt.facts.verdict import Verdict
from pytest_ckpt.launching.other_hosts import end_on_other_hosts, may_have_left_processes, sweep_seconds
from pytest_ckpt.support.processes import end_marked
from pytest_ckpt.support.redaction import Redactor
from pytest_ckpt.targets.posix.target import PosixTarget
from pytest_ckpt.targets.schemes import NO_ACCESS, create_target

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_ckpt.facts.settings import Settings
    from pytest_ckpt.launching.launcher import Launcher
    from pytest_ckpt.launching.second_client import SecondClient
    from pytest_ckpt.sizing.plan import Plan


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchContext:
    """The facts of a run that its launches need.

    - ``directory``: the run directory, for logs and reports.
    - ``spec``, ``target``, ``access``: the kind of target, the facts about the target, and the network access to it.
    - ``area``: the run's area (its own directory or prefix) on the target; None if it was not created.
    - ``small``: the run's area on a volume that may be filled; None if not created.
    - ``local``: the run's area in the local tier; None if not created.
    - ``start``: the number of this start of the run, from 1.
    - ``lacking``: the subjects that an earlier start measured without some patterns. This start adds these patterns.
    """

    run_id: str
    seed: int
    settings: Settings
    plan: Plan
    directory: Path
    spec: TargetSpec
    target: TargetFacts
    launcher: Launcher
    area: AreaRef | None = None
    second_client: SecondClient | None = None
    small: AreaRef | None = None
    local: AreaRef | None = None
    access: Access = NO_ACCESS
    start: int = 1
    lacking: tuple[str, ...] = ()

    @property
    def redactor(self) -> Redactor:
        """The redactor for every written file. The redactor masks secrets from options and from the environment."""
        return Redactor.of(os.environ, (o.value for o in self.settings.origins), self.file_vocabulary)

    @property
    def file_vocabulary(self) -> Iterator[str]:
        """The words that the run's own files may contain as values, such as outcomes, engine names and option flags.

        If a secret equals one of these words, the secret is not masked, because masking would destroy the files.
        """
        return itertools.chain(_vocabulary(), _strings(self.plan.to_plain()))

    @property
    def run_area(self) -> AreaRef:
        """The run's area on the target, which must have been created."""
        assert self.area is not None
        return self.area

    def end_remaining_processes(self) -> str:
        """End the remaining processes of the run on all its hosts.

        Return the reason why a process of the run may still write; an empty text if there is no such process.
        """
        if stuck := end_marked(self.run_id):
            pids = ", ".join(map(str, stuck))
            return f"processes {pids} are blocked in the kernel and may still write"
        if self.settings.has_several_hosts and may_have_left_processes(self.directory):
            others = list(dict.fromkeys(h.name for h in self.settings.hosts))
            return end_on_other_hosts(
                self.launcher, others, self.run_id, sweep_seconds(self.launcher, self.settings.io_timeout_seconds)
            )
        return ""

    def clean(self, names: Names, deadline_seconds: float, *, keep_area: bool = False) -> list[str]:
        """Remove the run's files from the target and the local tier. Return a sentence for each file that remains.

        If ``keep_area``, the area itself is not removed.
        """
        target = create_target(self.spec, self.settings.target or "", self.access)
        left = target.clean(self.run_area, names, deadline_seconds, keep_area=keep_area)
        return left + self.clean_local(names, deadline_seconds, keep_area=keep_area)

    def clean_local(self, names: Names, deadline_seconds: float, *, keep_area: bool = False) -> list[str]:
        """Remove the run's files from the local tier. Return a sentence for each file that remains.

        If ``keep_area``, the area itself is not removed.
        """
        if not self.local:
            return []
        tier = PosixTarget(self.settings.local_tier or "", "--ckpt-strategy=tiered:local-tier")
        left = tier.clean(self.local, names, deadline_seconds, keep_area=keep_area)
        if self.settings.has_several_hosts and not keep_area and may_have_left_processes(self.directory):
            others = ", ".join(dict.fromkeys(host.name for host in self.settings.hosts))
            left.append(
                f"a launch was cut off, and {self.local.location} may be left in the local tiers of {others}: if it "
                f"is, remove it there with rm -r {shlex.quote(self.local.location)}"
            )
        return left


@functools.cache
def _vocabulary() -> frozenset[str]:
    """Return the words in this package's tables that can occur as values in a run's files.

    The words of the run's plan are not included.
    """
    kinds = (Measurement, Observation, Verdict, Environment)
    words = {word for kind in kinds for word in _literals(kind, set())}
    words |= {engine.name for engine in BUILT_IN} | {strategy.name for strategy in STRATEGIES} | set(SUITES)
    words |= {check.name for check in CHECKS} | {option.flag for option in OPTIONS}
    words |= {str(option.default) for option in OPTIONS if option.default}
    return frozenset(words)


def _strings(plain: Any) -> Iterator[str]:
    if isinstance(plain, str):
        yield plain
    elif isinstance(plain, dict):
        for value in plain.values():
            yield from _strings(value)
    elif isinstance(plain, list | tuple):
        for value in plain:
            yield from _strings(value)


def _literals(hint: Any, seen: set[Any]) -> Iterator[str]:
    if typing.get_origin(hint) is Literal:
        yield from (word for word in typing.get_args(hint) if isinstance(word, str))
    elif dataclasses.is_dataclass(hint) and hint not in seen:
        seen.add(hint)
        for below in typing.get_type_hints(hint).values():
            yield from _literals(below, seen)
    else:
        for below in typing.get_args(hint):
            yield from _literals(below, seen)
