"""Checks everything that can be wrong before the first write; each problem has a remedy."""

from __future__ import annotations

import dataclasses
import os
import shlex
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ckpt.config.engines import check_installed
from pytest_ckpt.config.gate_files import load_waivers, settle
from pytest_ckpt.facts.engines import DEFAULT
from pytest_ckpt.facts.environment import HostFacts
from pytest_ckpt.facts.events import Event, HostsSeen
from pytest_ckpt.facts.options import OPTIONS
from pytest_ckpt.facts.settings import PROFILES
from pytest_ckpt.facts.targets import TARGETS, Access, Capability, TargetFacts, TargetSpec
from pytest_ckpt.judging.catalogue import REQUIREMENTS, offered
from pytest_ckpt.judging.completeness import known_subjects
from pytest_ckpt.judging.requirement import Requirement
from pytest_ckpt.judging.wording import describe_failure
from pytest_ckpt.launching.launch import Launch
from pytest_ckpt.launching.launcher import Launcher, find_launcher
from pytest_ckpt.ranks.process.job import Job
from pytest_ckpt.run.commands import check_commands
from pytest_ckpt.run.crash import CRASH_FILE
from pytest_ckpt.run.local_tier import check_local_tier
from pytest_ckpt.sizing.near_full import Volume, why_not
from pytest_ckpt.sizing.plan import Plan, plan_run
from pytest_ckpt.sizing.record import check_record
from pytest_ckpt.sizing.space import checkpoints_at_once
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.support.redaction import Redactor
from pytest_ckpt.support.units import counted, format_bytes
from pytest_ckpt.support.user_files import resolved_user_path
from pytest_ckpt.targets.posix.run_folder import place_on_this_host
from pytest_ckpt.targets.posix.second_mount import check_second_mount
from pytest_ckpt.targets.posix.target import PosixTarget
from pytest_ckpt.targets.protocol import Target
from pytest_ckpt.targets.schemes import NO_ACCESS, make_target, spec_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_ckpt.facts.settings import Settings
    from pytest_ckpt.judging.gates import Gates
    from pytest_ckpt.judging.waivers import Waiver

# Rounding must not make a proposed scale too large.
_SLACK = 0.99
_SMALLEST_SCALE = 1e-6
_OURS = ("session.json", "report.json", CRASH_FILE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Preflight:
    """What was found to be in order.

    ``settings`` are the run's, with the suites that the gates choose; ``catalogue`` is what can be asked of the target;
    ``small`` is the target that checks may fill, ``local`` the local tier; None where there is none.
    """

    settings: Settings
    gates: Gates
    waivers: tuple[Waiver, ...]
    catalogue: Mapping[str, Requirement]
    spec: TargetSpec
    target: Target
    small: Target | None
    local: Target | None
    facts: TargetFacts
    plan: Plan
    launcher: Launcher
    hosts: tuple[HostFacts, ...]


def check(
    settings: Settings,
    run_id: str,
    *,
    probe: Path | None = None,
    catalogue: Mapping[str, Requirement] = REQUIREMENTS,
    targets: Mapping[str, TargetSpec] = TARGETS,
    access: Access = NO_ACCESS,
) -> Preflight:
    """Check settings, target, space, launcher, hosts and memory; raise UsageError at the first that is wrong.

    With ``probe`` the ranks are started once, without torch, to see their hosts; the evidence of that launch is put
    into the folder that it names. ``targets`` are the known kinds of targets by scheme, ``access`` is how the run's own
    is reached.
    """
    if not settings.target:
        raise UsageError(
            "--ckpt-target is missing: where is the storage mounted?", "Say --ckpt-target=/mnt/array, for example."
        )
    for engine in settings.engines:
        check_installed(engine)
    spec = spec_of(settings.target, targets)
    target = make_target(spec, settings.target, access)
    facts = dataclasses.replace(target.check(), plugin=spec.plugin)
    check_capabilities(settings, facts)
    check_report_place(Path(settings.report), facts)
    if settings.second_mount:
        check_second_mount(settings.second_mount, facts.location)
    small = None
    if settings.full_target:
        small = PosixTarget(settings.full_target, "--ckpt-full-target")
        small.check_may_be_filled()
    catalogue = offered(catalogue, facts.capabilities)
    named = settings.suites
    settings, gates = settle(settings, facts.gate_kind, catalogue)
    if not settings.suites and named != ("auto",):
        raise UsageError(
            f"Nothing of the suite {', '.join(named)} can be asked of --ckpt-target {facts.location}: it is "
            f"{facts.description}.",
            "Choose another suite: --ckpt-suite=performance, for example.",
        )
    plan = plan_run(settings, facts, gates.table)
    waivers = load_waivers(settings.waive, known_subjects(plan, settings, gates, catalogue))
    if facts.is_local and settings.has_several_hosts:
        raise UsageError(
            f"--ckpt-target {facts.location} is on {facts.kind}, which only this host can see, and several hosts are "
            "named.",
            "Name a folder on shared storage, or one host.",
        )
    check_endurance(settings, plan, facts)
    check_commands(settings)
    if settings.measures and facts.capacity:
        check_space(plan, settings, facts.capacity.free_bytes)
    check_record(plan, settings)
    launcher = find_launcher(settings.launcher, settings.hosts, settings.where("--ckpt-launcher"))
    hosts: tuple[HostFacts, ...] = ()
    if probe and plan.runnable and settings.measures:
        hosts = _see_hosts(settings, plan, launcher, run_id, target, facts, probe)
        check_memory(plan, hosts)
    return Preflight(
        settings=settings,
        gates=gates,
        waivers=waivers,
        catalogue=catalogue,
        spec=spec,
        target=target,
        small=small,
        local=check_local_tier(settings, plan, facts),
        facts=facts,
        plan=plan,
        launcher=launcher,
        hosts=hosts,
    )


def check_capabilities(settings: Settings, facts: TargetFacts) -> None:
    """Refuse options, and an engine, for what the target cannot do."""
    needs: tuple[tuple[str, object, Capability], ...] = (
        ("--ckpt-second-mount", settings.second_mount, "second mount"),
        ("--ckpt-power-cut", settings.power_cut, "paths"),
        ("--ckpt-full-target", settings.full_target, "paths"),
        ("--ckpt-snapshot", settings.snapshot_command, "paths"),
        ("--ckpt-near-full", settings.near_full, "volume"),
    )
    for option, said, capability in needs:
        if said and capability not in facts.capabilities:
            raise UsageError(
                f"{option} is for file systems, and --ckpt-target {facts.location} is {facts.description}.",
                f"Leave out {option}.",
            )
    for engine in settings.engines:
        if missing := sorted(engine.needs - facts.capabilities):
            raise UsageError(
                f"--ckpt-engine {engine.name} needs {', '.join(missing)}, and --ckpt-target {facts.location} is "
                f"{facts.description}.",
                f"Choose another engine, such as --ckpt-engine={DEFAULT.name}, or another target.",
            )


def check_endurance(settings: Settings, plan: Plan, facts: TargetFacts) -> None:
    """Refuse options of a suite that is not run, and to fill a volume that others use or that is too small for it."""
    for option in OPTIONS:
        if option.suite and option.suite not in settings.suites and settings.is_said(option.flag):
            raise UsageError(
                f"{option.flag} belongs to the suite {option.suite}, which is not chosen.",
                f"Leave it out, or choose it: --ckpt-suite={','.join((*settings.suites, option.suite))}.",
            )
    if not settings.near_full or not facts.capacity:
        return
    volume = Volume(used_bytes=facts.capacity.used_bytes, free_bytes=facts.capacity.free_bytes)
    for planned in plan.runnable:
        if reason := why_not(volume, planned.checkpoint_bytes):
            raise UsageError(
                f"--ckpt-near-full cannot be done on {settings.target} for {planned.subject}: {reason}.",
                "Name a folder on an empty volume that is large enough, choose a smaller --ckpt-scale, or do without.",
            )


def check_report_place(report: Path, facts: TargetFacts) -> None:
    """Refuse a report folder on the target, where it would be measured, or around it."""
    place = resolved_user_path(report, "--ckpt-report")
    folder = place_on_this_host(facts)
    if folder and (place == folder or folder in place.parents or place in folder.parents):
        raise UsageError(
            f"--ckpt-report {report} and --ckpt-target {facts.location} lie in each other.",
            "Name a report folder elsewhere: --ckpt-report=/var/tmp/ckpt-report, for example.",
        )
    if place.exists() and not place.is_dir():
        raise UsageError(f"--ckpt-report {report} is a file.", "Name a folder.")
    if place.is_dir() and any(place.iterdir()) and not any((place / name).exists() for name in _OURS):
        raise UsageError(
            f"--ckpt-report {report} holds files that are not of an earlier run.", "Name an empty or a new folder."
        )


def set_aside(report: Path) -> Path | None:
    """Give the report folder of an earlier run another name; return that name, or None where there was none."""
    if not report.is_dir() or not any(report.iterdir()):
        return None
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(report.stat().st_mtime))
    aside = report.with_name(f"{report.name}-{stamp}")
    number = 1
    while aside.exists():
        number += 1
        aside = report.with_name(f"{report.name}-{stamp}-{number}")
    report.rename(aside)
    return aside


def check_space(plan: Plan, settings: Settings, free: int) -> None:
    """Refuse a plan whose checkpoints do not fit the free space of the target."""
    tight = [c for c in plan.runnable if c.space_bytes > free]
    if not tight:
        return
    largest = max(tight, key=lambda c: c.space_bytes)
    count = checkpoints_at_once(settings)
    scale = min(_scale_that_fits(settings.scale, c.space_bytes, c.layout.bytes * count, free) for c in plan.runnable)
    models = ",".join(c.layout.model.word for c in plan.runnable if c.space_bytes <= free)
    ways = (f"choose --ckpt-model={models}" if models else "", _rehearse(scale))
    raise UsageError(
        f"Too little space on the target: {counted(count, 'checkpoint')} of {largest.subject} need "
        f"{format_bytes(largest.space_bytes)}, and {format_bytes(free)} are free.",
        ", or ".join(filter(None, ("Give the target more space", *ways))) + ".",
    )


def check_memory(plan: Plan, hosts: tuple[HostFacts, ...]) -> None:
    """Refuse a plan whose ranks do not fit the memory of their hosts."""
    for planned in plan.runnable:
        ranks = planned.rank_memory_bytes
        for host in hosts:
            need = sum(ranks[r] for r in host.ranks if r < len(ranks))
            there = host.memory_available_bytes
            if need > there:
                state = sum(planned.state_bytes[r] for r in host.ranks if r < len(ranks))
                rehearse = _rehearse(_scale_that_fits(planned.layout.scale, need, state, there))
                ways = ("Spread the ranks over more hosts (--ckpt-hosts)", "choose a smaller --ckpt-model", rehearse)
                raise UsageError(
                    f"Too little memory on {host.host}: {counted(planned.layout.processes, 'rank')} for "
                    f"{planned.subject} need {format_bytes(need)} there, and {format_bytes(there)} are available.",
                    ", or ".join(filter(None, ways)) + ".",
                )


def _see_hosts(
    settings: Settings, plan: Plan, launcher: Launcher, run_id: str, target: Target, facts: TargetFacts, folder: Path
) -> tuple[HostFacts, ...]:
    processes = max(c.layout.processes for c in plan.runnable)
    hosts: list[HostFacts] = []

    def on_event(event: Event) -> None:
        if isinstance(event, HostsSeen):
            hosts.extend(event.hosts)

    job = Job(processes=processes, area=target.place(), deadline_seconds=settings.deadline_seconds, tasks=())
    redactor = Redactor.of(os.environ, (o.value for o in settings.origins))
    failure = Launch(launcher, run_id, folder, redactor).run(job, on_event)
    if failure or not hosts:
        command = shlex.join(launcher.command(processes, calls_back=False))
        says = describe_failure(failure) if failure else "no rank answered"
        raise UsageError(
            f"MPI cannot start {counted(processes, 'rank')}: {says}",
            f"Try it by hand: {command} </dev/null (each rank that starts says that it was started by hand), or name "
            "another launcher with --ckpt-launcher.",
        )
    if problem := unreached(hosts, facts):
        alike = "Mount the storage" if "paths" in facts.capabilities else "Give access to it (credentials, routes)"
        raise UsageError(f"--ckpt-target {problem}.", f"{alike} on every host alike.")
    return tuple(hosts)


def unreached(hosts: Iterable[HostFacts], facts: TargetFacts) -> str:
    """Say on which hosts the target cannot be reached; empty when it can on all."""
    blind = ", ".join(h.host for h in hosts if not h.target_is_reached)
    problem = "is no folder" if "paths" in facts.capabilities else "cannot be reached"
    return f"{facts.location} {problem} on {blind}" if blind else ""


def _scale_that_fits(scale: float, need: int, scaled: int, there: int) -> float:
    """Return the largest scale at which a need fits, of which only the part ``scaled`` shrinks; 0 if there is none."""
    return max(0.0, scale * (there - (need - scaled)) / scaled * _SLACK)


def _rehearse(scale: float) -> str:
    """Say how to run at a scale or below it, as a person would write it: rounded down."""
    if scale < _SMALLEST_SCALE:
        return ""
    profiles = [name for name, profile in PROFILES.items() if profile.scale <= scale]
    ways = [f"--ckpt-scale=1/{int(1 / scale) + 1}", *(f"--ckpt-profile={name}" for name in profiles)]
    return f"rehearse with {' or '.join(ways)}"
