"""Describes the ranks' hosts before a run, so that problems are found before the first write."""

from __future__ import annotations

import os
import platform
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ckpt.facts.environment import HostFacts
from pytest_ckpt.facts.events import HostsSeen
from pytest_ckpt.facts.targets import AreaRef
from pytest_ckpt.support.memory_limits import memory_available_bytes, memory_of_host
from pytest_ckpt.support.references import load

if TYPE_CHECKING:
    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.ranks.process.group import Group


def probe(group: Group, activity: Activity, area: AreaRef) -> None:
    """Tell the controller, from rank 0, the facts of every host and which ranks are on it."""
    answers = group.gather(host_facts(group.host, group.rank, area))
    if group.rank != 0:
        return
    hosts: dict[str, HostFacts] = {}
    for facts in answers:
        first = hosts.setdefault(facts.host, facts)
        if first is not facts:
            hosts[facts.host] = replace(first, ranks=(*first.ranks, *facts.ranks))
    activity.tell(HostsSeen(hosts=tuple(hosts.values())))


def host_facts(host: str, rank: int, area: AreaRef) -> HostFacts:
    """Return what this host is, by one of its ranks; memory in bytes."""
    return HostFacts(
        host=host,
        ranks=(rank,),
        cpu=_cpu(),
        cores=os.cpu_count() or 0,
        memory_bytes=memory_of_host().get("MemTotal", 0),
        memory_available_bytes=memory_available_bytes(),
        kernel=f"{platform.system()} {platform.release()}",
        os=_os_name(),
        python=platform.python_version(),
        target_is_reached=load(area.opener)(area).is_reachable(),
    )


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith(("model name", "Model")):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
    except OSError:
        return "Linux"
