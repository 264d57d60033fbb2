"""Open MPI 4 from Debian's packages, which are unpacked but not installed. Only hosts of the lab mount it in /usr."""

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


def directory_of_open_mpi_4() -> Path | None:
    """Return the directory that the environment variable names, or None if it is not set.

    ``dpkg -x`` must have unpacked the packages in it.
    """
    named = os.environ.get(_VARIABLE)
    return Path(named) if named else None


def need_open_mpi_4() -> None:
    """Skip the test if Open MPI 4 is not unpacked."""
    given = directory_of_open_mpi_4()
    if not given or not (given / "usr" / "bin" / "mpirun").exists():
        pytest.skip(f"{_VARIABLE} names no directory with Debian's openmpi-bin, unpacked, and usr/bin/mpirun")


def installed() -> str:
    """Return the shell line that mounts Open MPI 4 in /usr of a host."""
    return f"mount -t overlay -o {shlex.quote(f'lowerdir={directory_of_open_mpi_4()}/usr:/usr')} overlay /usr"


def python_without_mpi(home: Path) -> tuple[str, Mapping[str, str]]:
    """Create an environment without an MPI library; return the path of its Python.

    The Python imports the packages of the tests' environment. Also return the environment variables that it needs.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home / "env"], check=True)
    (home / "sitecustomize.py").write_text(f"import site\nsite.addsitedir({sysconfig.get_paths()['purelib']!r})\n")
    environment = {"PYTHONPATH": f"{home}", "LD_LIBRARY_PATH": ":".join(_LIBRARIES)}
    return str(home / "env" / "bin" / "python"), environment
