"""Reads which kernel this is, and its state of processes that are blocked in a call."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


# Stopped by a signal, and by a tracer.
_STOPPED = frozenset("Tt")
_CGROUPS = Path("/sys/fs/cgroup")
FROZEN = "in a frozen cgroup"
"""What is said of a task whose cgroup is frozen, as by ``docker pause``: its state may be that of a call on storage."""

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
"""One for each boot of each kernel; containers of one kernel have the same."""


def boot_id() -> str:
    """Return by what this kernel is known from others."""
    return BOOT_ID.read_text().strip()


def blocked_in(pid: int) -> str:
    """Return what the kernel says of a blocked process: its state, the function it waits in, its stack if readable."""
    return _says_of(Path("/proc") / str(pid))


def tasks_blocked_in(pids: Iterable[int]) -> str:
    """Return what the kernel says of every task of these processes, a paragraph each."""
    listed = []
    for pid in pids:
        with contextlib.suppress(OSError):
            for task in sorted((Path("/proc") / str(pid) / "task").iterdir(), key=lambda t: int(t.name)):
                name = "a task that has ended"
                with contextlib.suppress(OSError):
                    name = (task / "comm").read_text().strip()
                listed.append(f"process {pid}, task {task.name} ({name}): {_says_of(task)}")
    return "\n".join(listed)


def stopped_among(pids: Iterable[int]) -> int | None:
    """Return a process that does not run because it was stopped: by a signal, a debugger or a frozen cgroup.

    Every task of it is stopped; None if there is no such process.
    """
    return next((pid for pid in pids if _is_stopped(Path("/proc") / str(pid))), None)


def _is_stopped(process: Path) -> bool:
    try:
        return all(map(_is_task_stopped, [*(process / "task").iterdir()]))
    except OSError:
        return False


def _is_task_stopped(task: Path) -> bool:
    state = (task / "stat").read_text().rpartition(")")[2].split()[0]
    return state in _STOPPED or _is_frozen(task)


def _is_frozen(task: Path) -> bool:
    """Whether a cgroup of a task is frozen: by the freezer of version 1, or by version 2."""
    for line in (task / "cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        with contextlib.suppress(OSError):
            if "freezer" in controllers.split(","):
                if (_CGROUPS / "freezer" / path[1:] / "freezer.state").read_text().strip() != "THAWED":
                    return True
            elif not controllers and "frozen 1" in (_CGROUPS / path[1:] / "cgroup.events").read_text():
                return True
    return False


def _says_of(task: Path) -> str:
    listed = []
    with contextlib.suppress(OSError):
        state = (task / "stat").read_text().rpartition(")")[2].split()[0]
        listed.append(f"state {state}")
    with contextlib.suppress(OSError):
        listed += [FROZEN] if _is_frozen(task) else []
    with contextlib.suppress(OSError):
        listed.append(f"in {(task / 'wchan').read_text().strip() or '?'}")
    with contextlib.suppress(OSError):
        # The number of the call and its arguments; "running" of a task that is in none.
        listed.append(f"system call {(task / 'syscall').read_text().split()[0]}")
    with contextlib.suppress(OSError):
        listed.append((task / "stack").read_text().strip())
    return "\n".join(filter(None, listed))
