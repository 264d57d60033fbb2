"""The inputs that all launches of a run share."""

from __future__ import annotations

import itertools
import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ckpt.facts.targets import Access, AreaRef, Names, TargetFacts, TargetSpec
from pytest_ckpt.facts.vocabulary import strings, vocabulary
from pytest_ckpt.launching.other_hosts import end_on_other_hosts, ended_badly, sweep_seconds
from pytest_ckpt.support.processes import end_marked
from pytest_ckpt.support.redaction import Redactor
from pytest_ckpt.targets.posix.target import PosixTarget
from pytest_ckpt.targets.schemes import NO_ACCESS, make_target

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_ckpt.facts.settings import Settings
    from pytest_ckpt.launching.launcher import Launcher
    from pytest_ckpt.launching.second_client import SecondClient
    from pytest_ckpt.sizing.plan import Plan


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchContext:
    """The run as its launches see it.

    ``folder`` keeps the evidence. ``spec`` is the kind of the target, ``target`` what its check found and ``access``
    how it is reached; ``area`` is the run's own on it, ``small`` the one on a volume that it may fill, and ``local``
    the one in the local tier. None: it was not made.
    """

    run_id: str
    seed: int
    settings: Settings
    plan: Plan
    folder: Path
    spec: TargetSpec
    target: TargetFacts
    launcher: Launcher
    area: AreaRef | None = None
    second_client: SecondClient | None = None
    small: AreaRef | None = None
    local: AreaRef | None = None
    access: Access = NO_ACCESS

    @property
    def redactor(self) -> Redactor:
        """What hides the secrets of options and environment in everything that is written."""
        return Redactor.of(os.environ, (o.value for o in self.settings.origins), self.own_words)

    @property
    def own_words(self) -> Iterator[str]:
        """The words that the files of this run are read by: a secret that is one of them would destroy these files."""
        return itertools.chain(vocabulary(), strings(self.plan.to_plain()))

    @property
    def own_area(self) -> AreaRef:
        """The run's area; only a run that is opened has one."""
        assert self.area is not None
        return self.area

    def end_left_over(self) -> str:
        """End what is left of the run, on all its hosts; return why something of it may still write, empty: nothing."""
        if stuck := end_marked(self.run_id):
            pids = ", ".join(map(str, stuck))
            return f"processes {pids} are blocked in the kernel and may still write"
        if self.settings.has_several_hosts and ended_badly(self.folder):
            others = list(dict.fromkeys(h.name for h in self.settings.hosts))
            return end_on_other_hosts(
                self.launcher, others, self.run_id, sweep_seconds(self.launcher, self.settings.deadline_seconds)
            )
        return ""

    def clean(self, names: Names, deadline_seconds: float, *, keep_area: bool = False) -> list[str]:
        """Remove from the target and the local tier what the run made; return what was left, one sentence each."""
        target = make_target(self.spec, self.settings.target or "", self.access)
        left = target.clean(self.own_area, names, deadline_seconds, keep_area=keep_area)
        return left + self.clean_local(names, deadline_seconds, keep_area=keep_area)

    def clean_local(self, names: Names, deadline_seconds: float, *, keep_area: bool = False) -> list[str]:
        """Remove from the local tier what the run made; return what was left, one sentence each."""
        if not self.local:
            return []
        tier = PosixTarget(self.settings.local or "", "--ckpt-local")
        left = tier.clean(self.local, names, deadline_seconds, keep_area=keep_area)
        if self.settings.has_several_hosts and not keep_area and ended_badly(self.folder):
            others = ", ".join(dict.fromkeys(host.name for host in self.settings.hosts))
            left.append(
                f"a launch was cut off, and {self.local.location} may be left in the local tiers of {others}: where it "
                f"is, remove it there with rm -r {shlex.quote(self.local.location)}"
            )
        return left
