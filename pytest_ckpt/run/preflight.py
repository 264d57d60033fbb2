"""Checks all conditions of a run before the first write.

A check that refuses something raises UsageError with a remedy.
"""

from __future__ import annotations

import dataclasses
import math
import os
import resource
import shlex
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ckpt.config.engines import check_codec_installed, check_installed
from pytest_ckpt.config.gate_files import load_waivers, settle
from pytest_ckpt.config.system_description import check_described, read_system
from pytest_ckpt.facts.checks import FILES_OF_CHECKS
from pytest_ckpt.facts.engines import DEFAULT
from pytest_ckpt.facts.environment import HostFacts, HostNetwork
from pytest_ckpt.facts.failure import describe_failure
from pytest_ckpt.facts.options import OPTIONS
from pytest_ckpt.facts.targets import TARGETS, Access, Capability, TargetFacts, TargetSpec
from pytest_ckpt.grading.catalogue import REQUIREMENTS, known_subjects, offered
from pytest_ckpt.grading.obstacles import cache_visibility_before_writes
from pytest_ckpt.judging.requirement import Requirement
from pytest_ckpt.launching.launcher import Launcher, find_launcher
from pytest_ckpt.run.crash import CRASH_FILE
from pytest_ckpt.run.fitting import check_file_size, check_files, check_memory, check_space
from pytest_ckpt.run.hosts import HostProbe, probe_hosts, remedy_on_hosts
from pytest_ckpt.sizing.drains import LOCAL_CHECKPOINTS, PARTNER_CHECKPOINTS
from pytest_ckpt.sizing.near_full import Volume, unavailable_reason
from pytest_ckpt.sizing.plan import Plan, plan_run
from pytest_ckpt.sizing.record import check_record
from pytest_ckpt.support.errors import Problems, UsageError
from pytest_ckpt.support.redaction import Redactor
from pytest_ckpt.support.units import counted, format_bytes
from pytest_ckpt.support.user_files import answering, is_there, resolved_user_path
from pytest_ckpt.targets.posix.run_directory import place_on_this_host
from pytest_ckpt.targets.posix.second_mount import check_second_mount
from pytest_ckpt.targets.posix.store import TIER_OPENER
from pytest_ckpt.targets.posix.target import PosixTarget
from pytest_ckpt.targets.protocol import Target
from pytest_ckpt.targets.schemes import NO_ACCESS, create_target, spec_of
from pytest_ckpt.targets.timed_calls import NoAnswerError, RefusedError, call_in_time

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Mapping

    from pytest_ckpt.facts.settings import Settings
    from pytest_ckpt.grading.obstacles import CacheVisibility
    from pytest_ckpt.judging.gates import Gates
    from pytest_ckpt.judging.waivers import Waiver
    from pytest_ckpt.launching.launch import Launch

_FILES_OF_REPORTS = frozenset(("session.json", "report.json", CRASH_FILE))

_LOCAL = "--ckpt-strategy=tiered:local-tier"

ANSWER_SECONDS = 30.0
"""A target that takes longer for one small file counts as not answering."""

_TRY_CACHE_PROBE = "pytest_ckpt.targets.posix.page_cache:try_cache_probe"


@dataclass(frozen=True, kw_only=True, slots=True)
class Preflight:
    """The results of successful checks.

    ``settings`` contain the suites that the gates select. ``catalogue`` contains the requirements that apply to the
    target. ``notices`` are sentences for the user.

    The following fields are None if not used. ``small`` is the volume that checks may fill. ``local`` is the local
    tier. ``waiting`` is the launch whose ranks wait for their measurements.
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


def _check_space(plan: Plan, settings: Settings, facts: TargetFacts) -> None:
    """Refuse a plan that exceeds the target's free space, its free inodes, or this user's maximum file size."""
    # Ranks on other hosts have other limits.
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
    """Check settings, target, space, launcher, hosts and memory; return the results.

    Raises one UsageError with all independent errors. Errors of engines, target, gate table, plan and waivers are
    raised immediately, because later checks depend on them.

    ``probe`` is a directory for logs. If ``probe`` is given, the ranks are started once, without torch, to inspect
    their hosts. If ``then_wait`` is given, these ranks then wait for their measurements. Closing the stack
    ``then_wait`` ends the ranks. ``targets`` are the known kinds of targets by scheme. ``access`` is the network access
    to the run's target.
    """
    if not settings.target:
        raise UsageError(
            "--ckpt-target is missing: where is the storage mounted?", "Say --ckpt-target=/mnt/array, for example."
        )
    for engine in settings.engines:
        check_installed(engine)
    check_codec_installed(settings)
    spec = spec_of(settings.target, targets)
    target = create_target(spec, settings.target, access)
    facts = dataclasses.replace(target.check(), plugin=spec.plugin)
    check_capabilities(settings, facts)
    problems = Problems()
    with problems.noting():
        check_report_place(Path(settings.report), facts)
    with problems.noting():
        if settings.second_mount:
            check_second_mount(settings.second_mount, facts.location)
    small = PosixTarget(settings.small_volume, "--ckpt-small-volume") if settings.small_volume else None
    with problems.noting():
        if small:
            small.check_may_be_filled()
    catalogue = offered(catalogue, facts.capabilities)
    named = settings.suites
    settings, gates = settle(settings, facts.gate_kind, catalogue)
    if not settings.suites and named != ("auto",):
        raise UsageError(
            f"Suite {', '.join(named)} does not apply to --ckpt-target {facts.location}: it is {facts.description}.",
            "Choose another suite: --ckpt-suite=performance, for example.",
        )
    plan = plan_run(settings, facts, gates.table)
    waivers = load_waivers(settings.waivers, known_subjects(plan, settings, gates, catalogue))
    with problems.noting():
        check_shared_by_hosts(settings, facts)
    with problems.noting():
        check_endurance(settings, plan, facts)
    with problems.noting():
        check_commands(settings)
    with problems.noting():
        check_system(settings, gates)
    with problems.noting():
        check_record(plan, settings)
    local = None
    with problems.noting():
        local = check_local_tier(settings, plan, facts)
    # Ranks are started to read the memory of their hosts, so that too little memory and space are reported together.
    starts = bool(probe and plan.runnable and settings.measures and not problems.found)
    with problems.noting():
        _check_space(plan, settings, facts)
    launcher: Launcher | None = None
    probed = HostProbe(failure=None)
    with problems.noting():
        launcher = find_launcher(
            settings.launcher, settings.hosts, settings.source_of("--ckpt-launcher"), settings.ports
        )
        if probe and starts:
            probed = _probe_hosts(settings, plan, launcher, run_id, target, facts, probe, local, then_wait)
            check_memory(plan, probed.hosts)
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
        hosts=probed.hosts,
        waiting=probed.launch,
        notices=probed.notices,
    )


def check_capabilities(settings: Settings, facts: TargetFacts) -> None:
    """Refuse options and engines that need a capability which the target lacks."""
    needs: tuple[tuple[str, object, Capability], ...] = (
        ("--ckpt-second-mount", settings.second_mount, "second mount"),
        ("--ckpt-actions [power_cut] command", settings.power_cut, "paths"),
        ("--ckpt-small-volume", settings.small_volume, "paths"),
        ("--ckpt-actions [snapshot] take", settings.snapshot_command, "paths"),
        ("--ckpt-suite=endurance:near-full", settings.near_full, "volume"),
    )
    for option, value, capability in needs:
        if value and capability not in facts.capabilities:
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


def check_shared_by_hosts(settings: Settings, facts: TargetFacts) -> None:
    """Refuse several hosts for a target that only this host can see."""
    if facts.is_local and settings.has_several_hosts:
        raise UsageError(
            f"--ckpt-target {facts.location} is on {facts.kind}, which only this host can see, and several hosts are "
            "named.",
            "Name a directory on shared storage, or one host.",
        )


def check_endurance(settings: Settings, plan: Plan, facts: TargetFacts) -> None:
    """Refuse options of any suite that is not run, and a volume that the endurance suite may not fill.

    The endurance suite may fill a volume only if the volume is large enough and contains no data of users.
    """
    for option in OPTIONS:
        if option.suite and option.suite not in settings.suites and settings.is_set(option.flag):
            raise UsageError(
                f"{option.flag} belongs to the suite {option.suite}, which is not chosen.",
                f"Leave it out, or choose it: --ckpt-suite={','.join((*settings.suites, option.suite))}.",
            )
    if not settings.near_full or not facts.capacity:
        return
    volume = Volume(used_bytes=facts.capacity.used_bytes, free_bytes=facts.capacity.free_bytes)
    for planned in plan.runnable:
        if reason := unavailable_reason(volume, planned.checkpoint_bytes):
            raise UsageError(
                f"--ckpt-suite=endurance:near-full cannot be done on {settings.target} for {planned.subject}: "
                f"{reason}.",
                "Name a directory on an empty volume that is large enough, or choose a smaller --ckpt-scale.",
            )


def _probe_hosts(
    settings: Settings,
    plan: Plan,
    launcher: Launcher,
    run_id: str,
    target: Target,
    facts: TargetFacts,
    directory: Path,
    local: Target | None,
    then_wait: contextlib.ExitStack | None,
) -> HostProbe:
    processes = max(c.layout.processes for c in plan.runnable)
    probed = probe_hosts(
        launcher,
        run_id,
        directory,
        Redactor.of(os.environ, (o.value for o in settings.origins)),
        processes=processes,
        area=target.place(),
        facts=facts,
        deadline_seconds=settings.io_timeout_seconds,
        local=local.place() if local else None,
        libraries=tuple(dict.fromkeys(name for engine in settings.engines for name in engine.packages)),
        streams=settings.nic_rate is None and not launcher.stays_here,
        then_wait=then_wait,
    )
    if rate := settings.nic_rate:
        stated = HostNetwork(basis="stated", sends_bytes_per_second=rate, receives_bytes_per_second=rate)
        probed = dataclasses.replace(probed, hosts=tuple(dataclasses.replace(h, network=stated) for h in probed.hosts))
    if probed.failure or not probed.hosts:
        command = shlex.join(launcher.command(processes, calls_back=False))
        reason = describe_failure(probed.failure) if probed.failure else "no rank answered"
        raise UsageError(
            f"MPI cannot start {counted(processes, 'rank')}: {reason}",
            f"Try it by hand: {command} </dev/null (each rank that starts reports that it was started by hand), or "
            "name another launcher with --ckpt-launcher.",
        )
    if probed.lacks:
        raise UsageError(
            f"Libraries of --ckpt-engine are not installed on every host: {'; '.join(probed.lacks)}.",
            f"Make the environment {sys.prefix} the same on every host, or leave those hosts out.",
        )
    if probed.differences:
        raise UsageError(
            f"--ckpt-target {facts.location} is not the same on every host: {'; '.join(probed.differences)}.",
            remedy_on_hosts(facts),
        )
    check_tiers_of_hosts(settings, plan, probed)
    return probed


def check_report_place(report: Path, facts: TargetFacts) -> None:
    """Refuse a report directory that contains the target or is inside the target.

    The run would otherwise measure the files of its own report. Also refuse a directory with files that do not belong
    to an earlier run.
    """
    remedy = "Name a report directory elsewhere: --ckpt-report=/var/tmp/ckpt-report, for example."
    place = _place_apart("--ckpt-report", report, facts, remedy)
    with answering(f"--ckpt-report {report}"):
        names = _names_in(place, report)
    if names and not names & _FILES_OF_REPORTS:
        raise UsageError(
            f"--ckpt-report {report} contains files that are not of an earlier run.",
            "Name an empty or a new directory.",
        )


def _place_apart(option: str, given: Path | str, facts: TargetFacts, remedy: str) -> Path:
    """Return the directory ``given`` for ``option``, as a resolved path.

    Raises UsageError if the directory contains the target, or if the target contains the directory. ``remedy`` is the
    advice in this error.
    """
    place, target = resolved_user_path(given, option), place_on_this_host(facts)
    if target and (place == target or target in place.parents or place in target.parents):
        raise UsageError(f"{option} {given} and --ckpt-target {facts.location}: one contains the other.", remedy)
    return place


def _names_in(place: Path, report: Path) -> set[str]:
    """Return the names of the files in ``place``; empty if ``place`` does not exist yet.

    Raises UsageError, which names the option's value ``report``, if ``place`` is a file. Raises OSError for other
    errors.
    """
    if not is_there(place):
        return set()
    try:
        return {entry.name for entry in place.iterdir()}
    except NotADirectoryError:
        raise UsageError(f"--ckpt-report {report} is a file.", "Name a directory.") from None


def rename_earlier_report(report: Path) -> Path | None:
    """Rename the report directory of an earlier run; return the new name, or None if there is no earlier run."""
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


def check_local_tier(settings: Settings, plan: Plan, facts: TargetFacts) -> PosixTarget | None:
    """Return the local tier as a target; None if no strategy saves to a local tier.

    Raises UsageError if the local tier cannot be used.
    """
    if not settings.has_tiers or not settings.local_tier:
        return None
    tier = PosixTarget(settings.local_tier, _LOCAL, TIER_OPENER)
    capacity = tier.check().capacity
    _place_apart(_LOCAL, settings.local_tier, facts, "Name a directory on a disk or in memory of the host itself.")
    saved = [c for c in plan.runnable if c.strategy.tiers]
    if not saved or not capacity:
        return tier
    largest = max(saved, key=lambda c: c.checkpoint_bytes)
    if settings.has_several_hosts:
        return tier
    if (need := LOCAL_CHECKPOINTS * largest.checkpoint_bytes) > capacity.free_bytes:
        raise UsageError(
            f"Too little space in the local tier {settings.local_tier}: {counted(LOCAL_CHECKPOINTS, 'checkpoint')} of "
            f"{largest.subject} need {format_bytes(need)}, and {format_bytes(capacity.free_bytes)} are free.",
            f"Name a larger one with {_LOCAL}, choose a smaller --ckpt-model, or rehearse with --ckpt-profile=smoke.",
        )
    return tier


def check_tiers_of_hosts(settings: Settings, plan: Plan, seen: HostProbe) -> None:
    """Raise UsageError if a host has no local tier, shares the local tier, or has too little space in it."""
    place = f"{_LOCAL} {settings.local_tier}"
    own = "Make the directory on every host that ranks are on, each on a disk or in memory of the host itself."
    if unavailable := [f"{view.host}: {view.unavailable_reason}" for view in seen.tiers if view.unavailable_reason]:
        raise UsageError(
            f"{place} is not a local tier on every host: no file can be created there ({'; '.join(unavailable)}).", own
        )
    if shared := [
        f"{view.host} sees the directory of {', '.join(view.shared_with)}" for view in seen.tiers if view.shared_with
    ]:
        raise UsageError(
            f"{place} is not a local tier: hosts share the directory ({'; '.join(shared)}), so the loss of one host "
            "would not delete its files.",
            own,
        )
    largest = max((c for c in plan.runnable if c.strategy.tiers), key=lambda c: c.checkpoint_bytes, default=None)
    if not largest or not seen.tiers:
        return
    ranks = {host.host: len(host.ranks) for host in seen.hosts}
    of_rank = largest.checkpoint_bytes / largest.layout.processes
    for view in seen.tiers:
        # A host may store the copies of a host with more ranks.
        need = PARTNER_CHECKPOINTS * max(ranks.values()) * of_rank
        if need > view.free_bytes:
            raise UsageError(
                f"Too little space in the local tier {settings.local_tier} of {view.host}: {format_bytes(need)} are "
                f"needed for its ranks' files and for copies of its partner's, and "
                f"{format_bytes(view.free_bytes)} are free.",
                f"Name a larger one with {_LOCAL}, choose a smaller --ckpt-model, or rehearse with "
                "--ckpt-profile=smoke.",
            )


def check_system(settings: Settings, gates: Gates) -> None:
    """Refuse a run without a description of the system if the gate table requires one."""
    if gates.requires_system:
        check_described(read_system(Path(settings.system)) if settings.system else None, gates.name)


def check_commands(settings: Settings) -> None:
    """Refuse a fault or snapshot command without its undo command, and commands of suites that are not run."""
    _check_both(
        {
            "--ckpt-actions [failover] fault": settings.fault_command,
            "--ckpt-actions [failover] repair": settings.repair_command,
        },
        "an injected fault must be repaired, whatever happens",
    )
    _check_both(
        {
            "--ckpt-actions [snapshot] take": settings.snapshot_command,
            "--ckpt-actions [snapshot] remove": settings.remove_snapshot_command,
        },
        "a snapshot that was taken must be removed, whatever happens",
    )
    fields = {o.option: o.source for o in settings.origins}
    for option, command, suite in (
        ("--ckpt-actions [failover] fault", settings.fault_command, "failover"),
        ("--ckpt-actions [upgrade] command", settings.upgrade_command, "maintenance"),
        ("--ckpt-actions [snapshot] take", settings.snapshot_command, "maintenance"),
    ):
        # A plugin provides its commands to every run; if a user sets the option, they are intended for this run.
        if command and suite not in settings.suites and not fields[option].startswith("hook of "):
            raise UsageError(
                f"{option} belongs to the suite {suite}, which is not chosen or switched off by the gates.",
                f"Leave it out, or choose it: --ckpt-suite={','.join((*settings.suites, suite))}.",
            )


def _check_both(given: dict[str, str | None], why: str) -> None:
    if len(missing := [option for option, command in given.items() if not command]) == 1:
        (other,) = (option for option in given if option not in missing)
        raise UsageError(
            f"{other} is given and {missing[0]} is not: {why}.",
            f"Give both, or neither. For a command without effect use {missing[0]}=true.",
        )


def cache_probe_of(directory: str, seconds: float) -> str | None:
    """Return the system call that counts cached pages of files in a directory.

    Return None if no call counts correctly. The function creates and removes a 4 MiB file. Raises NoAnswerError and
    RefusedError.
    """
    probe: str | None = call_in_time(_TRY_CACHE_PROBE, directory, seconds)
    return probe


def cache_visibility(target: TargetFacts, directory: str, deadline_seconds: float) -> CacheVisibility:
    """Return whether the cached pages of a target can be counted.

    If the facts of the target do not decide this, a test with a file in ``directory`` decides. ``directory`` is on the
    target.
    """
    if (known := cache_visibility_before_writes(target)) != "not_tested":
        return known
    try:
        return "seen" if cache_probe_of(directory, min(ANSWER_SECONDS, deadline_seconds)) else "blind"
    except (NoAnswerError, RefusedError):
        # The run will have the same error and report it.
        return "not_tested"
