"""The ballast files that fill a volume to a level, and whether a run may fill the volume.

All functions are pure. Sizes are in bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from pytest_ckpt.support.units import format_bytes, format_percent

LEVELS = (0.8, 0.9)
# A volume with more used space contains user data; a new file system needs less for itself.
_MAXIMUM_USED, _OWN_BYTES = 0.05, 64 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Volume:
    """A file system with the values of df: the used space, and the space that an ordinary user may still write."""

    used_bytes: int
    free_bytes: int

    @property
    def capacity_bytes(self) -> int:
        """The capacity that ordinary users can use."""
        return self.used_bytes + self.free_bytes

    @property
    def used(self) -> float:
        """The used share of the capacity, from 0 to 1."""
        return self.used_bytes / self.capacity_bytes

    def ballast_bytes(self, level: float) -> int:
        """Return the bytes to write until the share ``level`` of the capacity is used; 0 if it is already used."""
        return max(0, int(level * self.capacity_bytes) - self.used_bytes)


def unavailable_reason(volume: Volume, one_checkpoint_bytes: int) -> str:
    """Return the reason why a run may not fill a volume; empty if the run may fill it."""
    if volume.used_bytes > _MAXIMUM_USED * volume.capacity_bytes + _OWN_BYTES:
        return (
            f"{format_bytes(volume.used_bytes)} ({format_percent(volume.used)}) of the volume are in use: a volume is "
            "filled only if it contains no data of users"
        )
    space = volume.capacity_bytes - int(LEVELS[-1] * volume.capacity_bytes)
    if space < one_checkpoint_bytes:
        return (
            f"at {LEVELS[-1]:.0%} the volume has {format_bytes(space)} left, and a checkpoint needs "
            f"{format_bytes(one_checkpoint_bytes)}"
        )
    return ""


def ballast_name(level: float, rank: int) -> str:
    """Return the name of the ballast file that a rank writes to fill the volume to ``level``."""
    return f"ballast-{level * 100:.0f}-{rank:05d}"
