"""The report in the form of ``report.json``: the results of a judgement and the measurements. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_ckpt.facts.codec import from_plain, to_plain
from pytest_ckpt.facts.environment import PluginFacts
from pytest_ckpt.facts.measurement import Measurement
from pytest_ckpt.facts.observation import Observation
from pytest_ckpt.facts.options import with_role
from pytest_ckpt.facts.system import not_told
from pytest_ckpt.grading.catalogue import CATALOGUE_NAMES, REQUIREMENTS, row
from pytest_ckpt.grading.completeness import asked_requirements
from pytest_ckpt.grading.engines import engine_sentences, memory_sentences
from pytest_ckpt.grading.forecast import forecasts
from pytest_ckpt.grading.frameworks import framework_overheads
from pytest_ckpt.grading.goodput import cluster_sizes, training_rows
from pytest_ckpt.grading.grading import Judgement
from pytest_ckpt.grading.networks import client_limits, networks_of
from pytest_ckpt.grading.reservations import not_tested, relevance
from pytest_ckpt.grading.scope import scope_of
from pytest_ckpt.judging.client_proofs import disclosures as start_hooks
from pytest_ckpt.judging.clients import differences
from pytest_ckpt.judging.cold import uncounted
from pytest_ckpt.judging.requirement import Requirement

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_ckpt.facts.settings import Settings
    from pytest_ckpt.judging.gates import Gates
    from pytest_ckpt.judging.waivers import Waiver
    from pytest_ckpt.sizing.plan import Plan


SCHEMA = "pytest-ckpt/report/1"


def disclosures(settings: Settings, gates: Gates) -> list[str]:
    """Name every setting that is not the default of an acceptance run, its origin, and the relaxations of gates."""
    disclosed = {option.flag for option in with_role("disclosed")}
    return [
        f"{o.option} {o.value} (default {o.default or 'none'}; from {o.source})"
        for o in settings.origins
        if o.value != o.default and o.option in disclosed
    ] + [f"relaxed by the gates '{gates.name}': {sentence}" for sentence in gates.relaxed]


def plugin_sentences(plugins: Iterable[PluginFacts]) -> list[str]:
    """Name every plugin that took part, its version and its hooks."""
    return [
        f"plugin {p.label} takes part with {', '.join(hook.removeprefix('pytest_ckpt_') for hook in p.hooks)}"
        for p in plugins
    ]


def make_document(
    *,
    run: Mapping[str, Any],
    plan: Plan,
    settings: Settings,
    gates: Gates,
    waivers: Sequence[Waiver],
    judgement: Judgement,
    exit_code: int,
    measurements: Sequence[Measurement],
    observations: Sequence[Observation],
    environment: Mapping[str, Any],
    stages: Mapping[str, float],
    left_behind: Sequence[str],
    system: Mapping[str, Any] | None = None,
    catalogue: Mapping[str, Requirement] = REQUIREMENTS,
    catalogue_names: Sequence[str] = CATALOGUE_NAMES,
    foresees: bool = True,
) -> dict[str, Any]:
    """Return the report in the form of ``report.json``, in plain types; ``system`` is the vendor's description of it.

    ``catalogue_names`` are the requirements and checks of the version that made the run. Without ``foresees`` there is
    no forecast: values that others measured are not a basis for one.
    """
    plain_plan = plan.to_plain()
    scope = scope_of(plan, settings, gates, measurements)
    sizes = cluster_sizes(plan, measurements)
    target = to_plain(environment.get("target") or {})
    kind = str(target.get("kind", ""))
    has_files = "paths" in (target.get("capabilities") or ())
    plugins = [from_plain(PluginFacts, plugin) for plugin in environment.get("plugins") or ()]
    document = {
        "schema": SCHEMA,
        "run": run,
        "grade": judgement.grade,
        "grade_reasons": judgement.reasons,
        "exit_code": exit_code,
        "cluster": plain_plan["cluster"],
        "checkpoints": plain_plan["checkpoints"],
        "requirements": judgement.verdicts,
        "catalogue": [row(r) for r in asked_requirements(settings, gates, catalogue)],
        "catalogue_names": catalogue_names,
        "gate_table": gates,
        "waivers": waivers,
        "measurements": measurements,
        "observations": observations,
        "relevance": relevance(
            plan,
            measurements,
            _of_one_host(kind, has_files=has_files) if target.get("is_local") else "",
            environment.get("recorders") or (),
            (target.get("stack") or {}).get("files") or (),
        ),
        "not_tested": not_tested(settings, gates, catalogue, measurements, observations, has_files=has_files),
        "sufficient_up_to_accelerators": sizes,
        "scope": scope,
        "certified_for": scope if judgement.grade == "certified" else None,
        "training": training_rows(plan, measurements, sizes),
        "forecast": forecasts(plan, measurements) if foresees else [],
        "framework_overhead": framework_overheads(measurements),
        "system": system,
        "system_lacks": not_told(system),
        "environment": environment,
        "settings": settings.origins,
        "disclosures": [
            *disclosures(settings, gates),
            *plugin_sentences(plugins),
            *engine_sentences(settings),
            *memory_sentences(plan, measurements),
            *uncounted(kind, (m.cache for m in measurements)),
            *(f"acts before the ranks' program: {phrase}" for phrase in start_hooks(measurements)),
            *client_limits(measurements, networks_of(environment.get("hosts") or ())),
            *differences({host["host"]: host.get("client") or {} for host in environment.get("hosts") or ()}),
        ],
        "sections": [],
        "stages": stages,
        "left_behind": left_behind,
    }
    plain: dict[str, Any] = to_plain(document)
    return plain


def _of_one_host(kind: str, *, has_files: bool) -> str:
    return f"a file system of one host ({kind})" if has_files else "an object store of one host"
