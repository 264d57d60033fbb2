"""The first lines of a run: target, cluster, plan, gates and the best possible grade."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ckpt.facts.checks import bytes_of_checks
from pytest_ckpt.facts.strategies import STRATEGIES
from pytest_ckpt.grading.catalogue import REQUIREMENTS
from pytest_ckpt.grading.completeness import chosen_suites
from pytest_ckpt.grading.document import plugin_sentences
from pytest_ckpt.grading.obstacles import not_given, obstacles, possible_grade, unmeasured
from pytest_ckpt.grading.scope import named
from pytest_ckpt.judging.requirement import Requirement
from pytest_ckpt.report.plan import in_all
from pytest_ckpt.support.units import counted, format_bytes, format_percent, format_rate, format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_ckpt.facts.environment import Environment
    from pytest_ckpt.facts.settings import Settings
    from pytest_ckpt.facts.targets import TargetFacts
    from pytest_ckpt.grading.obstacles import CacheSight
    from pytest_ckpt.judging.gates import Gates
    from pytest_ckpt.sizing.plan import Plan


def header_lines(
    plan: Plan,
    settings: Settings,
    gates: Gates,
    target: TargetFacts,
    environment: Environment,
    notices: Sequence[str],
    catalogue: Mapping[str, Requirement] = REQUIREMENTS,
    cache_sight: CacheSight = "untried",
) -> list[str]:
    """Return the lines for pytest's header."""
    limits = plan.limits
    hosts = environment.hosts
    saves = f"{format_bytes(plan.space_bytes)} needed" if settings.measures else "no checkpoint is written"
    checks = bytes_of_checks("posix" if "paths" in target.capabilities else "objects", settings.effort)
    is_more = "conformance" in chosen_suites(settings, gates, catalogue) and checks > plan.space_bytes
    needed = f"{saves}, {format_bytes(checks)} by its checks" if is_more else saves
    lines = [
        f"ckpt target: {target.location} ({', '.join((*_described(target), needed))})",
        *([f"ckpt storage: {target.stack.sentence}"] if target.stack else []),
        f"ckpt cluster: {counted(limits.accelerators, 'accelerator')}, "
        f"{limits.failures_per_day:.3g} failures a day ({limits.failures.spec}), save budget "
        f"{format_percent(limits.save_budget)}: a save within {format_seconds(limits.save_limit_seconds)}, "
        f"a load within {format_seconds(limits.load_limit_seconds)} at full size",
    ]
    for planned in plan.checkpoints if settings.measures else ():
        asks = planned.demand
        lines.append(
            f"ckpt {planned.subject}: "
            + (
                f"not run: {planned.not_run}"
                if planned.not_run
                else f"{counted(planned.layout.processes, 'rank')}, {format_bytes(planned.layout.bytes)} a checkpoint, "
                f"{counted(planned.operations, 'save and load', 'saves and loads')}, needs "
                f"{format_rate(asks.save_bytes_per_second)} to save, {format_rate(asks.load_bytes_per_second)} to load"
            )
        )
    if together := in_all(plan, settings, target):
        lines.append(f"ckpt in all: {together}")
    names = (
        ", ".join(f"{h.host} ({counted(len(h.ranks), 'rank')}, {counted(h.cores, 'core')})" for h in hosts) or "none"
    )
    if settings.where("--ckpt-engine").startswith(" (in default"):
        chosen = settings.engines[0].name
        lines.append(f"ckpt engine: {chosen}, since torch is not installed: pip install 'pytest-ckpt[torch]'")
    how = [named("engine", "engines", (engine.name for engine in settings.engines))]
    if settings.strategies != STRATEGIES[:1]:
        how.append(named("strategy", "strategies", (strategy.name for strategy in settings.strategies)))
    lines.append(f"ckpt ranks: {'; '.join(how)}; hosts: {names}; launcher: {environment.launcher}")
    extends = f" (extends {gates.extends})" if gates.extends else ""
    suites = ", ".join(chosen_suites(settings, gates, catalogue))
    lines.append(f"ckpt gate table: {gates.name}{extends}; suites: {suites}")
    lines += [f"ckpt gate table: relaxed: {sentence}" for sentence in gates.relaxed]
    lines += [f"ckpt {sentence}" for sentence in plugin_sentences(environment.plugins)]
    found = obstacles(plan, settings, gates, catalogue, cache_sight=cache_sight)
    lines.append(f"ckpt grade possible: {possible_grade(found)}")
    lines += [f"ckpt obstacle: {obstacle.line}" for obstacle in found]
    seen = (*not_given(settings, gates, catalogue), *unmeasured(plan, settings, gates, catalogue), *notices)
    return lines + [f"ckpt note: {notice}" for notice in seen]


def _described(target: TargetFacts) -> Iterator[str]:
    """Say what a target is, and its free space."""
    if target.mount_point:
        yield f"{target.kind} on {target.mount_point}"
    else:
        yield target.kind
        if target.source:
            yield target.source
    if target.plugin:
        yield f"brought by {target.plugin}"
    if target.capacity:
        yield f"{format_bytes(target.capacity.free_bytes)} free"
