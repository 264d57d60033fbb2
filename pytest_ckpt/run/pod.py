"""What a container or a pod often lacks, for `doctor`: memory, shared memory, and a pod on another node."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ckpt.launching.launcher import find_launcher
from pytest_ckpt.launching.second_client import agent_on, is_elsewhere
from pytest_ckpt.run.findings import UNPLANNED, Finding
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.support.memory_limits import memory_limit_bytes
from pytest_ckpt.support.own_names import own_name
from pytest_ckpt.support.units import counted, format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_ckpt.facts.settings import Settings
    from pytest_ckpt.sizing.plan import Plan

_SHARED = Path("/dev/shm")
# Of Open MPI on one host 0.1 MiB a rank was seen; other MPIs take more.
_BYTES_OF_RANK = 1 << 20
_OF_POD = "KUBERNETES_SERVICE_HOST"
_APART = "Name pods of other nodes with --ckpt-hosts (podAntiAffinity), or another mount with --ckpt-second-mount."


def memory_limit(plan: Plan | None) -> Finding:
    """Look whether the own control group allows what the ranks of a plan need; None: nothing is planned."""
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
    """Say whether the second host, a pod perhaps, is on another kernel than this one; in a pod, also where none is."""
    names = list(dict.fromkeys(host.name for host in settings.hosts))
    if settings.second_mount or (len(names) < 2 and _OF_POD not in environment):
        return
    if len(names) < 2:
        description = "this is a pod, and no other is named: nothing can be asked of a second client"
        yield Finding(name="second node", can=False, needed=False, description=description, remedy=_APART)
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
        yield Finding(name="second node", can=False, needed=True, description=description, remedy=_APART)
