"""The report as ``report.json`` holds it: what follows from a judgement and the measurements. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_ckpt.facts.codec import from_plain, to_plain
from pytest_ckpt.facts.environment import PluginFacts
from pytest_ckpt.facts.measurement import Measurement
from pytest_ckpt.facts.observation import Observation
from pytest_ckpt.facts.options import with_role
from pytest_ckpt.judging.catalogue import REQUIREMENTS, row
from pytest_ckpt.judging.completeness import (
    asked_requirements,
)
from pytest_ckpt.judging.engines import engine_sentences, memory_sentences
from pytest_ckpt.judging.grading import Judgement
from pytest_ckpt.judging.requirement import Requirement
from pytest_ckpt.judging.save_costs import SaveCost, at_full_size, save_costs
from pytest_ckpt.judging.scope import scope_of
from pytest_ckpt.sizing.limits import largest_cluster_for_load, largest_cluster_for_save
from pytest_ckpt.sizing.reliability import daly_interval_seconds, effective_training_time_ratio, young_interval_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_ckpt.facts.settings import Settings
    from pytest_ckpt.judging.gates import Gates
    from pytest_ckpt.judging.waivers import Waiver
    from pytest_ckpt.sizing.plan import Plan


SCHEMA = "pytest-ckpt/report/2"


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterSize:
    """The largest cluster, in accelerators, whose limits a subject met; None where nothing was measured."""

    subject: str
    save: int | None
    load: int | None
    overall: int | None
    projected: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """A way to choose the interval between checkpoints, and the effective training time ratio that it gives."""

    name: str
    interval_seconds: float
    effective_training_time_ratio: float


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingRow:
    """What the measured times of a subject, at full size, mean for training.

    ``save_seconds`` is what the costliest save takes from training, ``at_risk_seconds`` how long it goes on while a
    failure would still cost the work since the save before: 0 where the job stands still.
    """

    subject: str
    save_seconds: float
    at_risk_seconds: float
    load_seconds: float
    projected: bool
    intervals: tuple[Interval, ...]


def cluster_sizes(plan: Plan, measurements: Sequence[Measurement]) -> list[ClusterSize]:
    """Return the largest cluster that each measurement would serve; projected where it was not at full size."""
    rows = []
    for m in measurements:
        costs, load = _full_size_costs(m), _full_size_seconds(m, "load")
        by_save = (
            largest_cluster_for_save(max(cost.as_blocking_seconds(plan.limits) for cost in costs), plan.limits)
            if costs
            else None
        )
        by_load = largest_cluster_for_load(load, plan.limits) if load else None
        overall = min(by_save, by_load) if by_save is not None and by_load is not None else None
        rows.append(
            ClusterSize(
                subject=str(m.subject),
                save=by_save,
                load=by_load,
                overall=overall,
                projected=m.bytes != m.full_bytes,
            )
        )
    return rows


def training_rows(plan: Plan, measurements: Sequence[Measurement]) -> list[TrainingRow]:
    """Return what the measured times mean for training: the intervals of the rule, of Young and of Daly.

    Each comes with the effective training time ratio that it gives (restart of the job itself counted as zero).
    """
    rows = []
    for m in measurements:
        costs, load = _full_size_costs(m), _full_size_seconds(m, "load")
        if not costs or not load:
            continue
        mttf = plan.limits.mttf_seconds
        save, at_risk = max(cost.lost_seconds for cost in costs), max(cost.at_risk_seconds for cost in costs)
        # A save cannot begin before the one before it is committed.
        least = max(cost.committed_seconds for cost in costs) if at_risk else 0.0
        intervals = {
            "rule": plan.limits.interval_seconds,
            "Young": max(least, young_interval_seconds(save, mttf)),
            "Daly": max(least, daly_interval_seconds(save, mttf)),
        }
        rows.append(
            TrainingRow(
                subject=str(m.subject),
                save_seconds=save,
                at_risk_seconds=at_risk,
                load_seconds=load,
                projected=m.bytes != m.full_bytes,
                intervals=tuple(
                    Interval(
                        name=name,
                        interval_seconds=seconds,
                        effective_training_time_ratio=effective_training_time_ratio(
                            save_seconds=save,
                            load_seconds=load,
                            interval_seconds=seconds,
                            mttf_seconds=mttf,
                            at_risk_seconds=at_risk,
                        ),
                    )
                    for name, seconds in intervals.items()
                ),
            )
        )
    return rows


def disclosures(settings: Settings, gates: Gates) -> list[str]:
    """Name every setting that is not the default of an acceptance run, where it came from, and what gates relax."""
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
) -> dict[str, Any]:
    """Return the report as ``report.json`` holds it, in plain types; ``system`` is what its vendor says of it."""
    plain_plan = plan.to_plain()
    scope = scope_of(plan, settings, gates, measurements)
    sizes = cluster_sizes(plan, measurements)
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
        "gates": gates,
        "waivers": waivers,
        "measurements": measurements,
        "observations": observations,
        "certified_cluster": sizes,
        "scope": scope,
        "certified_for": scope if judgement.grade == "certified" else None,
        "training": training_rows(plan, measurements),
        "system": system,
        "environment": environment,
        "settings": settings.origins,
        "disclosures": [
            *disclosures(settings, gates),
            *plugin_sentences(plugins),
            *engine_sentences(settings),
            *memory_sentences(plan, measurements),
        ],
        "sections": [],
        "stages": stages,
        "left_behind": left_behind,
    }
    plain: dict[str, Any] = to_plain(document)
    return plain


def _full_size_costs(measurement: Measurement) -> list[SaveCost]:
    """Return what each save costs at full size: as measured, or projected at the same bandwidths."""
    if len(measurement.of_kind("save")) < measurement.operations_planned:
        return []
    return at_full_size(save_costs(measurement), measurement)


def _full_size_seconds(measurement: Measurement, kind: str) -> float | None:
    """Return the slowest operation's seconds at full size: as measured, or projected at the same bandwidth."""
    operations = [o for o in measurement.operations if o.kind == kind]
    if len(operations) < measurement.operations_planned or not operations:
        return None
    return max(o.seconds for o in operations) * measurement.full_bytes / measurement.bytes
