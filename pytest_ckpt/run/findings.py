"""The findings of `doctor`, one line each: their form, and those on this host: its clock, libraries and container."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ckpt.config.engines import OPTION, is_installed, missing_packages
from pytest_ckpt.facts.bounds import Text
from pytest_ckpt.facts.engines import BUILT_IN, TORCH
from pytest_ckpt.facts.targets import Access, TargetSpec
from pytest_ckpt.judging.remedies import known_of, remedy_of
from pytest_ckpt.launching.launcher import find_launcher
from pytest_ckpt.launching.second_client import agent_on, is_elsewhere
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.support.host_state import memory_limit_bytes
from pytest_ckpt.support.own_names import own_name
from pytest_ckpt.support.resources import PACKAGE_HOME
from pytest_ckpt.support.units import counted, format_bytes
from pytest_ckpt.targets.schemes import leftovers_in_time
from pytest_ckpt.targets.timed_calls import NoAnswerError, RefusedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_ckpt.facts.settings import Settings
    from pytest_ckpt.sizing.plan import Plan

UNPLANNED = " (what a run needs is known with --ckpt-target and --cluster)"
"""Suffix of an available amount if the required amount is unknown."""

LOOK_AT_IT = "Look at the storage and its mount: dmesg, the server, the network."

_CLOCK_SOURCE = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
_SLOW_CLOCKS = frozenset({"jiffies", "acpi_pm", "hpet"})
_FINEST_SECONDS = 1e-6

_IMPORT_SECONDS = 180

_SHARED = Path("/dev/shm")
# Of Open MPI on one host 0.1 MiB a rank was seen; other MPIs take more.
_BYTES_OF_RANK = 1 << 20
_OF_POD = "KUBERNETES_SERVICE_HOST"
_OTHER_NODE = "Name pods of other nodes with --ckpt-hosts (podAntiAffinity), or another mount with --ckpt-second-mount."


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One line: the inspected item, whether it is usable, and the action if it is not.

    Without the ``needed`` items no run is possible; the others limit the proofs of a run.
    """

    name: Text
    can: bool
    needed: bool
    description: Text
    remedy: str = ""


def known_failures(kind: str) -> Iterator[Finding]:
    """Return the known facts about a kind of file system: the checks that it fails with the default mount options."""
    for row in known_of(kind):
        description = f"{row.name} fails {', '.join(row.checks)}: {row.why}"
        yield Finding(name="file system", can=False, needed=False, description=description, remedy=remedy_of(row))


def left_over(spec: TargetSpec, text: str, seconds: float, access: Access) -> Iterator[Finding]:
    """Return the remains on the target of runs whose controller was killed, or is on another host."""
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
    """Return that something on the target did not answer."""
    return Finding(name=name, can=False, needed=True, description=description, remedy=LOOK_AT_IT)


def unknown(name: str, why: str) -> Finding:
    """Return that an item could not be inspected, for a reason that an earlier line reports."""
    return Finding(
        name=name, can=False, needed=False, description=f"not known: {why}", remedy="Fix the lines above first."
    )


def clock() -> Finding:
    """Check the resolution of the monotonic clock, and the kernel's clock source."""
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
    """Import a library in a separate process: a crash there does not affect this process."""
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
    """Return which engines can run here, and for stream whether its containers match the installed torch."""
    runs = [spec.name for spec in BUILT_IN if is_installed(spec)]
    runs += [spec.name for spec in settings.engines if spec.owner and is_installed(spec)]
    chosen = ", ".join(spec.name for spec in settings.engines)
    description = f"{', '.join(runs)} can run; chosen: {chosen}"
    missing = [spec for spec in settings.engines if not is_installed(spec)]
    if missing:
        remedy = f"Install {' and '.join(missing_packages(missing[0]))}, or choose another: {OPTION}={runs[0]}."
        return Finding(name="engines", can=False, needed=True, description=description, remedy=remedy)
    # This takes two seconds of a core, and matters to users whose torch reads files that stream writes.
    if not is_installed(TORCH) or all(spec.name != "stream" for spec in settings.engines):
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
    """Check whether this control group allows the needs of a plan's ranks; None: there is no plan."""
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


def shared_memory(processes: int, place: Path = _SHARED) -> Finding:
    """Look at the memory in which a launcher keeps its segments: containers have 64 MiB of it."""
    needed = processes * _BYTES_OF_RANK
    if not os.access(place, os.W_OK):
        description = f"{place} cannot be written: the launcher's segments go to {tempfile.gettempdir()}"
        remedy = f"Mount memory at {place} (Kubernetes: emptyDir with medium: Memory)."
        return Finding(name="shared memory", can=False, needed=False, description=description, remedy=remedy)
    found = os.statvfs(place)
    free = found.f_bavail * found.f_frsize
    description = f"{format_bytes(free)} free in {place}"
    if free >= needed:
        return Finding(name="shared memory", can=True, needed=False, description=description)
    description += f", and {counted(processes, 'rank')} may take {format_bytes(needed)}"
    remedy = "Give the container more: --shm-size=1g, or in Kubernetes an emptyDir with medium: Memory there."
    return Finding(name="shared memory", can=False, needed=False, description=description, remedy=remedy)


def second_node(settings: Settings, environment: Mapping[str, str] = os.environ) -> Iterator[Finding]:
    """Return whether the second host or pod has a different kernel; in a pod, also report a missing second host."""
    names = list(dict.fromkeys(host.name for host in settings.hosts))
    if settings.second_mount or (len(names) < 2 and _OF_POD not in environment):
        return
    if len(names) < 2:
        description = "this is a pod, and no other is named: nothing can be asked of a second client"
        yield Finding(name="second node", can=False, needed=False, description=description, remedy=_OTHER_NODE)
        return
    try:
        launcher = find_launcher(settings.launcher, settings.hosts, settings.where("--ckpt-launcher"), settings.ports)
    except UsageError:
        return  # the launch was told to fail
    elsewhere = is_elsewhere(agent_on(names[1], launcher, f"doctor-{own_name()}"), launcher.ports)
    if elsewhere is None:
        description, remedy = f"{names[1]} does not answer", "Look at the launcher, and at ssh to that host."
        yield Finding(name="second node", can=False, needed=False, description=description, remedy=remedy)
    elif elsewhere:
        description = f"{names[1]} has a kernel of its own: it can be the second client"
        yield Finding(name="second node", can=True, needed=False, description=description)
    else:
        description = f"{names[1]} has the kernel of this host, and may share its caches: it is no second client"
        yield Finding(name="second node", can=False, needed=True, description=description, remedy=_OTHER_NODE)
