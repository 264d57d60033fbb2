"""What ZFS tells by its own commands: the kernel names neither the devices of a pool nor how it takes fsync."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence

_SECONDS = 10.0

Asked = Callable[[Sequence[str]], str]
"""Makes a command, and returns what it prints; empty where there is no such command, or it fails."""


def printed(command: Sequence[str]) -> str:
    """Return what a command prints; empty where there is no such command, it fails, or takes long."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def devices_of(pool: str, asked: Asked = printed) -> list[str]:
    """Return the paths of a pool's devices and files, the caches among them; empty where ZFS does not tell."""
    lines = asked(("zpool", "list", "-v", "-H", "-P", "-L", pool)).splitlines()
    names = (line.strip("\t").partition("\t")[0] for line in lines)
    return [name for name in names if name.startswith("/")]


def ignores_fsync(dataset: str, asked: Asked = printed) -> bool:
    """Whether a dataset was told to answer fsync without waiting (``sync=disabled``)."""
    return asked(("zfs", "get", "-H", "-o", "value", "sync", dataset)).strip() == "disabled"
