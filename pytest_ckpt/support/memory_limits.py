"""The memory of this host, and what control groups allow of it: Slurm and systemd limit there."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

_ROOT, _OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
# Version 1 writes a number near 2^63 where there is no limit; version 2 the word "max".
_UNLIMITED = 1 << 60
_FILES = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def memory_of_host() -> dict[str, int]:
    """Return what the kernel says of this host's memory, by its own words (MemTotal, Cached), in bytes."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return {key: int(rest.split()[0]) * 1024 for key, rest in (line.split(":", 1) for line in lines)}


def memory_available_bytes() -> int:
    """Return what this host has, or less where a control group of this process allows less."""
    there, allowed = memory_of_host().get("MemAvailable", 0), memory_left_bytes()
    return there if allowed is None else min(there, allowed)


def memory_limit_bytes(root: Path = _ROOT, of: Path = _OWN) -> int | None:
    """Return the smallest memory limit of the control groups (version 2 or 1) that this process is in, or None."""
    return min((limit for limit, _ in _limits(root, of)), default=None)


def memory_left_bytes(root: Path = _ROOT, of: Path = _OWN) -> int | None:
    """Return how much more the tightest of those control groups allows; None: no limit.

    Page cache that nobody used lately does not count as used: the kernel gives it up first.
    """
    return min((max(0, limit - used) for limit, used in _limits(root, of)), default=None)


def _limits(root: Path, of: Path) -> Iterator[tuple[int, int]]:
    """Yield (limit, used) of every control group with a limit, from the own one up."""
    with contextlib.suppress(OSError):
        for line in of.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            home = root if not controllers else root / "memory" if "memory" in controllers.split(",") else None
            if home is None:
                continue
            inside = home / path.lstrip("/")
            for place in (inside, *(p for p in inside.parents if p == home or home in p.parents)):
                yield from _limit_of(place)


def _limit_of(place: Path) -> Iterator[tuple[int, int]]:
    for maximum, now, reclaimable in _FILES:
        with contextlib.suppress(OSError, ValueError):
            limit = int((place / maximum).read_text())
            if limit < _UNLIMITED:
                yield limit, _used(place, now, reclaimable)


def _used(place: Path, now: str, reclaimable: str) -> int:
    used = 0
    with contextlib.suppress(OSError, ValueError):
        used = int((place / now).read_text())
        facts = dict(line.split() for line in (place / "memory.stat").read_text().splitlines())
        used -= int(facts.get(reclaimable, 0))
    return used
