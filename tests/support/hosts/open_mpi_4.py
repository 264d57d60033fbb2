"""Open MPI 4 from unpacked Debian packages. It is not installed; simulated hosts mount it in /usr."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

import pytest

_VARIABLE = "PYTEST_CKPT_OPEN_MPI_4"
_LIBRARIES = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu/openmpi/lib")


def open_mpi_4_directory() -> Path | None:
    """Return the directory that PYTEST_CKPT_OPEN_MPI_4 names, or None if the variable is not set.

    The directory must contain the packages, unpacked with ``dpkg -x``.
    """
    named = os.environ.get(_VARIABLE)
    return Path(named) if named else None


def need_open_mpi_4() -> None:
    given = open_mpi_4_directory()
    if not given or not (given / "usr" / "bin" / "mpirun").exists():
        pytest.skip(f"{_VARIABLE} names no directory with Debian's openmpi-bin, unpacked, and usr/bin/mpirun")


def installed() -> str:
    """Return the shell line that mounts Open MPI 4 in /usr of a host."""
    return f"mount -t overlay -o {shlex.quote(f'lowerdir={open_mpi_4_directory()}/usr:/usr')} overlay /usr"


def python_without_mpi(home: Path) -> tuple[str, Mapping[str, str]]:
    """Create a Python environment without an MPI library; return (path of its Python, environment variables).

    The Python imports the packages of the tests' environment, and needs the environment variables.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home / "env"], check=True)
    (home / "sitecustomize.py").write_text(f"import site\nsite.addsitedir({sysconfig.get_paths()['purelib']!r})\n")
    environment = {"PYTHONPATH": f"{home}", "LD_LIBRARY_PATH": ":".join(_LIBRARIES)}
    return str(home / "env" / "bin" / "python"), environment
