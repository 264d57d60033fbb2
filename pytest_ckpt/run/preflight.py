"""Checks everything that can be wrong before the first write; each problem has a remedy."""

from __future__ import annotations

import dataclasses
import math
import os
import resource
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ckpt.config.engines import check_codec_installed, check_installed
from pytest_ckpt.config.gate_files import load_waivers, settle
from pytest_ckpt.facts.checks import FILES_OF_CHECKS
from pytest_ckpt.facts.engines import DEFAULT
from pytest_ckpt.facts.environment import HostFacts, HostNetwork
from pytest_ckpt.facts.options import OPTIONS
from pytest_ckpt.facts.targets import TARGETS, Access, Capability, TargetFacts, TargetSpec
from pytest_ckpt.grading.catalogue import REQUIREMENTS, offered
from pytest_ckpt.grading.completeness import known_subjects
from pytest_ckpt.judging.requirement import Requirement
from pytest_ckpt.judging.wording import describe_failure
from pytest_ckpt.launching.launcher import Launcher, find_launcher
from pytest_ckpt.run.commands import check_commands
from pytest_ckpt.run.fitting import check_file_size, check_files, check_memory, check_space
from pytest_ckpt.run.hosts import Seen, alike, see_hosts
from pytest_ckpt.run.local_tier import check_local_tier, check_tiers_of_hosts
from pytest_ckpt.run.report_place import check_report_place
from pytest_ckpt.sizing.near_full import Volume, why_not
from pytest_ckpt.sizing.plan import Plan, plan_run
from pytest_ckpt.sizing.record import check_record
from pytest_ckpt.support.errors import Problems, UsageError
from pytest_ckpt.support.redaction import Redactor
from pytest_ckpt.support.units import counted
from pytest_ckpt.targets.posix.second_mount import check_second_mount
from pytest_ckpt.targets.posix.target import PosixTarget
from pytest_ckpt.targets.protocol import Target
from pytest_ckpt.targets.schemes import NO_ACCESS, make_target, spec_of

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Mapping

    from pytest_ckpt.facts.settings import Settings
    from pytest_ckpt.judging.gates import Gates
    from pytest_ckpt.judging.waivers import Waiver
    from pytest_ckpt.launching.launch import Launch


@dataclass(frozen=True, kw_only=True, slots=True)
class Preflight:
    """What was found to be in order.

    ``settings`` are the run's, with the suites that the gates choose; ``catalogue`` is what can be asked of the target;
    ``small`` is the target that checks may fill, ``local`` the local tier, ``waiting`` the launch whose ranks wait for
    what they are to measure; None where there is none. ``notices`` are sentences for who started the run.
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
    waiting: Launch | None = None
    notices: tuple[str, ...] = ()


def _check_room(plan: Plan, settings: Settings, facts: TargetFacts) -> None:
    """Refuse a plan that does not fit the space of the target, its files or the limits of the user."""
    # Ranks on other hosts have limits of their own.
    if settings.measures and not settings.hosts and "paths" in facts.capabilities:
        check_file_size(plan, resource.getrlimit(resource.RLIMIT_FSIZE)[0])
    if not facts.capacity:
        return
    if settings.measures:
        check_space(plan, settings, facts.capacity.free_bytes)
    checked = math.ceil(FILES_OF_CHECKS * settings.effort) if "conformance" in settings.suites else 0
    check_files(plan, settings, facts.capacity.free_files, checked)


def check(
    settings: Settings,
    run_id: str,
    *,
    probe: Path | None = None,
    catalogue: Mapping[str, Requirement] = REQUIREMENTS,
    targets: Mapping[str, TargetSpec] = TARGETS,
    access: Access = NO_ACCESS,
    then_wait: contextlib.ExitStack | None = None,
) -> Preflight:
    """Check settings, target, space, launcher, hosts and memory; raise one UsageError that names all that is wrong.

    Without a target that answers and without gates nothing else can be checked: those are raised at once.

    With ``probe`` the ranks are started once, without torch, to see their hosts; the evidence of that launch is put
    into the folder that it names. With ``then_wait``, which ends them, they go on waiting. ``targets`` are the known
    kinds of targets by scheme, ``access`` is how the run's own is reached.
    """
    if not settings.target:
        raise UsageError(
            "--ckpt-target is missing: where is the storage mounted?", "Say --ckpt-target=/mnt/array, for example."
        )
    for engine in settings.engines:
        check_installed(engine)
    check_codec_installed(settings)
    spec = spec_of(settings.target, targets)
    target = make_target(spec, settings.target, access)
    facts = dataclasses.replace(target.check(), plugin=spec.plugin)
    check_capabilities(settings, facts)
    problems = Problems()
    with problems.noting():
        check_report_place(Path(settings.report), facts)
    with problems.noting():
        if settings.second_mount:
            check_second_mount(settings.second_mount, facts.location)
    small = PosixTarget(settings.full_target, "--ckpt-full-target") if settings.full_target else None
    with problems.noting():
        if small:
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
    with problems.noting():
        check_hosts_see(settings, facts)
    with problems.noting():
        check_endurance(settings, plan, facts)
    with problems.noting():
        check_commands(settings)
    with problems.noting():
        check_record(plan, settings)
    local = None
    with problems.noting():
        local = check_local_tier(settings, plan, facts)
    # Ranks are started to see the memory of their hosts, which is told beside too little space.
    starts = bool(probe and plan.runnable and settings.measures and not problems.found)
    with problems.noting():
        _check_room(plan, settings, facts)
    launcher: Launcher | None = None
    seen = Seen(failure=None)
    with problems.noting():
        launcher = find_launcher(settings.launcher, settings.hosts, settings.where("--ckpt-launcher"), settings.ports)
        if probe and starts:
            seen = _see_hosts(settings, plan, launcher, run_id, target, facts, probe, local, then_wait)
            check_memory(plan, seen.hosts)
    problems.refuse()
    return Preflight(
        settings=settings,
        gates=gates,
        waivers=waivers,
        catalogue=catalogue,
        spec=spec,
        target=target,
        small=small,
        local=local,
        facts=facts,
        plan=plan,
        launcher=launcher,
        hosts=seen.hosts,
        waiting=seen.launch,
        notices=seen.notices,
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
    for option, found, capability in needs:
        if found and capability not in facts.capabilities:
            raise UsageError(
                f"{option} is for file systems, and --ckpt-target {facts.location} is {facts.description}.",
                f"Leave out {option}.",
            )
    for engine in settings.engines:
        if missing := sorted(engine.needs - facts.capabilities):
            wanted, other = ", ".join(missing), "another target"
            if "parts of S3" in missing:
                wanted, other = "a bucket of S3", "a bucket: --ckpt-target=s3://bucket/prefix"
            raise UsageError(
                f"--ckpt-engine {engine.name} needs {wanted}, and --ckpt-target {facts.location} is "
                f"{facts.description}.",
                f"Choose another engine, such as --ckpt-engine={DEFAULT.name}, or {other}.",
            )


def check_hosts_see(settings: Settings, facts: TargetFacts) -> None:
    """Refuse several hosts for a target that only this one can see."""
    if facts.is_local and settings.has_several_hosts:
        raise UsageError(
            f"--ckpt-target {facts.location} is on {facts.kind}, which only this host can see, and several hosts are "
            "named.",
            "Name a folder on shared storage, or one host.",
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


def _see_hosts(
    settings: Settings,
    plan: Plan,
    launcher: Launcher,
    run_id: str,
    target: Target,
    facts: TargetFacts,
    folder: Path,
    local: Target | None,
    then_wait: contextlib.ExitStack | None,
) -> Seen:
    processes = max(c.layout.processes for c in plan.runnable)
    seen = see_hosts(
        launcher,
        run_id,
        folder,
        Redactor.of(os.environ, (o.value for o in settings.origins)),
        processes=processes,
        area=target.place(),
        facts=facts,
        deadline_seconds=settings.deadline_seconds,
        local=local.place() if local else None,
        libraries=tuple(dict.fromkeys(name for engine in settings.engines for name in engine.packages)),
        streams=settings.nic_rate is None and not launcher.stays_here,
        then_wait=then_wait,
    )
    if rate := settings.nic_rate:
        stated = HostNetwork(basis="stated", sends_bytes_per_second=rate, receives_bytes_per_second=rate)
        seen = dataclasses.replace(seen, hosts=tuple(dataclasses.replace(h, network=stated) for h in seen.hosts))
    if seen.failure or not seen.hosts:
        command = shlex.join(launcher.command(processes, calls_back=False))
        says = describe_failure(seen.failure) if seen.failure else "no rank answered"
        raise UsageError(
            f"MPI cannot start {counted(processes, 'rank')}: {says}",
            f"Try it by hand: {command} </dev/null (each rank that starts says that it was started by hand), or name "
            "another launcher with --ckpt-launcher.",
        )
    if seen.lacks:
        raise UsageError(
            f"Libraries of --ckpt-engine are not installed on every host: {'; '.join(seen.lacks)}.",
            f"Make the environment {sys.prefix} the same on every host, or leave those hosts out.",
        )
    if seen.differences:
        raise UsageError(
            f"--ckpt-target {facts.location} is not the same on every host: {'; '.join(seen.differences)}.",
            alike(facts),
        )
    check_tiers_of_hosts(settings, plan, seen)
    return seen
