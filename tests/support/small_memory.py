"""Simulates a host with little memory: a memory control group, and a matching /proc/meminfo.

The limit of the group applies to the memory of its processes plus the page cache of the files that these processes
access. As on a real host, the page cache cannot exceed the memory that /proc/meminfo reports.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from tests.support.machine import eventually

GROUPS, OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
_MEMINFO = Path("/proc/meminfo")
_TOTALS = ("MemTotal", "MemFree", "MemAvailable")


def cannot() -> str:
    """Return the reason why this process cannot create a memory control group; an empty text if it can."""
    try:
        with small_memory(64 << 20):
            return ""
    except OSError as error:
        return f"no control group for memory can be made: {error}"


@contextlib.contextmanager
def small_memory(limit_bytes: int) -> Iterator[Path]:
    """Create a control group with a memory limit, and yield its directory.

    At the end, processes in the group are killed. Raises OSError if the group cannot be created.
    """
    home, limits = _memory_groups()
    group = home / f"pytest-ckpt-{os.getpid()}-{limit_bytes}"
    group.mkdir()
    try:
        for name in limits:
            if (group / name).exists():
                (group / name).write_text(str(limit_bytes))
        if not (group / limits[0]).exists():
            raise OSError(f"{group} has no {limits[0]}")
        yield group
    finally:
        for pid in _members(group):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        # A killed process leaves the group when it is reaped.
        eventually(lambda: not _members(group), f"{group} is empty")
        group.rmdir()


def join(group: Path) -> None:
    """Move this process into a control group. Its future children are also in the group."""
    (group / "cgroup.procs").write_text(str(os.getpid()))


def meminfo(limit_bytes: int) -> str:
    """Return the content of /proc/meminfo on a host with at most ``limit_bytes`` of memory."""
    lines = []
    for line in _MEMINFO.read_text().splitlines():
        name, rest = line.split(":", 1)
        kibibytes = min(int(rest.split()[0]), limit_bytes >> 10) if name in _TOTALS else 0
        lines.append(f"{name}: {kibibytes} kB" if name in _TOTALS else line)
    return "\n".join(lines) + "\n"


def _memory_groups() -> tuple[Path, tuple[str, ...]]:
    """Return the directory of memory control groups, and the names of the files that limit a group.

    In version 1 of control groups, the second file limits memory plus swap.
    """
    if (GROUPS / "memory").is_dir():
        return GROUPS / "memory", ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes")
    with contextlib.suppress(OSError):
        (GROUPS / "cgroup.subtree_control").write_text("+memory")
    return GROUPS, ("memory.max",)


def _members(group: Path) -> list[int]:
    return [int(pid) for pid in (group / "cgroup.procs").read_text().split()]
