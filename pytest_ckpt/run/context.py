"""The facts that every process of a run shares, created once when the run is opened."""

from __future__ import annotations

import dataclasses
import os
import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_ckpt.facts.codec import to_plain
from pytest_ckpt.facts.environment import Environment
from pytest_ckpt.grading.catalogue import (
    CATALOGUE_NAMES,
    REQUIREMENTS,
    CatalogueRow,
    checkpoints_of_requirement,
    checks_of_run,
    extended,
    offered,
    recorded,
    requirements_of_run,
    row,
)
from pytest_ckpt.judging.requirement import Requirement
from pytest_ckpt.judging.waivers import Waiver, waive
from pytest_ckpt.launching.launch_context import LaunchContext
from pytest_ckpt.support.redaction import Redactor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_ckpt.facts.subject import Subject
    from pytest_ckpt.facts.verdict import Verdict
    from pytest_ckpt.judging.gates import Gates


@dataclass(frozen=True, kw_only=True, slots=True)
class RunContext(LaunchContext):
    """The facts that are fixed for a run.

    ``settings`` contain the suites that the gate table selects. ``started`` is a time in ISO 8601. ``environment``
    describes hosts, target and versions. ``system`` is the vendor's description of the storage. ``catalogue`` contains
    all requirements, including the plugins' requirements.

    A start is one pytest invocation of a run. ``own_suites`` and ``own_hosts`` belong to this start. A resumed run has
    two contexts. In the context of this start, ``settings`` contain only the suites of this start. In the context for
    the report (`OpenRun.combined`), ``settings`` contain the suites of all starts.
    """

    started: str
    command: tuple[str, ...]
    gates: Gates
    waivers: tuple[Waiver, ...]
    environment: Environment
    system: dict[str, Any] | None = None
    own_suites: tuple[str, ...] = ()
    own_hosts: tuple[str, ...] = ()
    catalogue: Mapping[str, Requirement] = dataclasses.field(default_factory=lambda: REQUIREMENTS)

    @property
    def redactor(self) -> Redactor:
        """The redactor that masks secrets of options, command line and environment in all output."""
        texts = [*(o.value for o in self.settings.origins), *self.command]
        return Redactor.of(os.environ, texts, self.file_vocabulary)

    @property
    def extras(self) -> list[CatalogueRow]:
        """The catalogue rows of the requirements that plugins provide."""
        return [row(r) for r in self.catalogue.values() if r.plugin]

    def runs(self, requirement: str) -> bool:
        """Return whether a requirement is part of this run.

        Three conditions apply. The requirement's suite must be chosen, the gates must select the requirement, and
        `subjects` must not be empty.
        """
        every = requirements_of_run(self.settings, self.gates, self.catalogue)
        requirement_ids = {r.id for r in every if r.suite in self.settings.suites}
        return requirement in requirement_ids and bool(self.subjects(requirement))

    def subjects(self, requirement: str) -> list[str]:
        """Return the names of a requirement's subjects: planned checkpoints, or checks of the target."""
        requirement_ids = self.catalogue[requirement]
        if requirement_ids.suite == "conformance":
            return [c.subject for c in checks_of_run(requirement_ids, self.settings, self.gates)]
        return [str(c.subject) for c in checkpoints_of_requirement(requirement_ids, self.plan)]

    def is_open(self, subject: Subject) -> bool:
        """Return whether measurements of a subject are missing after all starts (pytest invocations) so far."""
        return str(subject) in self.lacking or not (self.directory / "measurements" / f"{subject.slug}.json").exists()

    def observed(self, check: str) -> bool:
        """Return whether any start (pytest invocation) of the run has performed a check."""
        return (self.directory / "observations" / f"{check}.json").exists()

    def waived(self, verdict: Verdict) -> Verdict:
        """Return ``verdict`` with the outcome waived if a waiver of the run covers the verdict.

        Otherwise return ``verdict`` unchanged.
        """
        return waive([verdict], self.waivers, self.started)[0]

    def to_plain(self) -> dict[str, Any]:
        """Return the context in the format of ``session.json``, including its secrets."""
        plain: dict[str, Any] = to_plain(
            {
                "run_id": self.run_id,
                "started": self.started,
                "seed": self.seed,
                "command": self.command,
                "area": self.area,
                "small": self.small,
                "local": self.local,
                "spec": self.spec,
                "launcher": self.launcher,
                "environment": self.environment,
                "gate_table": self.gates,
                "waivers": self.waivers,
                "second_client": self.second_client,
                "extras": self.extras,
                "catalogue_names": CATALOGUE_NAMES,
                "settings": self.settings.origins,
                "suites": self.own_suites,
                "all_suites": self.settings.suites,
                "hosts": self.own_hosts,
                "system": self.system,
            }
        )
        return plain

    def pack(self) -> bytes:
        """Return the context as bytes, for a worker of the same run.

        Requirements contain functions, so they are not packed. For each requirement of a plugin, its catalogue row is
        packed.
        """
        return pickle.dumps(({f.name: getattr(self, f.name) for f in _PACKED}, self.extras))


_PACKED = tuple(f for f in dataclasses.fields(RunContext) if f.name != "catalogue")


def unpack(packed: bytes, extras: Sequence[Requirement] | None = None) -> RunContext:
    """Return the context from the output of `RunContext.pack`.

    ``extras`` are the plugins' requirements in this process. If ``extras`` is None, the plugins' requirements have no
    function.
    """
    known, rows = pickle.loads(packed)
    if extras is None:
        extras = recorded(dataclasses.asdict(r) for r in rows)
    context = RunContext(**known)
    return dataclasses.replace(context, catalogue=offered(extended(extras), context.target.capabilities))
