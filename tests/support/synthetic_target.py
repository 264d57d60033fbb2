"""Facts about targets, for tests."""

from __future__ import annotations

from pytest_ckpt.facts.targets import MOUNTED, Capacity, TargetFacts
from pytest_ckpt.targets.posix.storage_stack import Mount

_HALF_USED = Capacity(total_bytes=1 << 50, used_bytes=1 << 49, free_bytes=1 << 49)


def mounted(
    kind: str = "ext4",
    location: str = "/mnt/array",
    *,
    source: str = "/dev/nvme0n1",
    options: str = "rw,relatime",
    capacity: Capacity = _HALF_USED,
) -> TargetFacts:
    """Return the facts of a target on a mounted file system of type ``kind``."""
    mount = Mount(mount_point=location, file_system=kind, source=source, options=options)
    return TargetFacts(
        location=location,
        kind=kind,
        gate_kind=mount.gate_kind,
        is_local=mount.is_local,
        capacity=capacity,
        capabilities=MOUNTED,
        source=source,
        mount_point=location,
        options=options,
    )
