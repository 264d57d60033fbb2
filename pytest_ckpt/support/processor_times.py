"""The CPU times that the kernel counts for this host, and for a process with its children."""

from __future__ import annotations

import contextlib
import os
import resource
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_TICKS_OF_A_SECOND = os.sysconf("SC_CLK_TCK")
# user, nice, system, idle, iowait, irq, softirq, steal (proc(5)). user and nice include the time of guests.
_FIELDS = 8
_IDLE, _IOWAIT, _STEAL = 3, 4, 7
# utime, stime, cutime, cstime, counted from the field after the name of the program.
_TIMES_OF_A_PROCESS = slice(11, 15)


@dataclass(frozen=True, kw_only=True, slots=True)
class HostTimes:
    """CPU seconds since boot, summed over all ``cores``. ``idle`` includes waits for storage."""

    cores: int
    total: float
    idle: float
    steal: float


def host_times(root: Path = _PROC) -> HostTimes | None:
    """Return the CPU times of this host; None if the kernel does not count them."""
    try:
        lines = (root / "stat").read_text("ascii").splitlines()
        first, *numbers = lines[0].split()
        ticks = [int(number) for number in numbers[:_FIELDS]]
    except (OSError, ValueError, IndexError):
        return None
    cores = sum(line.startswith("cpu") for line in lines) - 1
    if first != "cpu" or len(ticks) < _FIELDS or not cores:
        return None
    seconds = [number / _TICKS_OF_A_SECOND for number in ticks]
    return HostTimes(cores=cores, total=sum(seconds), idle=seconds[_IDLE] + seconds[_IOWAIT], steal=seconds[_STEAL])


def load_average(root: Path = _PROC) -> float:
    """Return the one-minute load average; 0 if the kernel does not report it."""
    try:
        return float((root / "loadavg").read_text("ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return 0.0


def seconds_of_this_process(root: Path = _PROC) -> float:
    """Return the CPU time of this process and its children, including running children."""
    ended = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    used = sum(usage.ru_utime + usage.ru_stime for usage in ended)
    return used + sum(_seconds_of(process, root) for process in _children_of("self", root))


def _seconds_of(process: str, root: Path) -> float:
    own = 0.0
    with contextlib.suppress(OSError, ValueError):
        fields = (root / process / "stat").read_text(errors="replace").rpartition(")")[2].split()
        own = sum(map(int, fields[_TIMES_OF_A_PROCESS])) / _TICKS_OF_A_SECOND
    return own + sum(_seconds_of(child, root) for child in _children_of(process, root))


def _children_of(process: str, root: Path) -> list[str]:
    found: list[str] = []
    with contextlib.suppress(OSError):
        for task in (root / process / "task").iterdir():
            with contextlib.suppress(OSError):
                found += (task / "children").read_text("ascii").split()
    return found
