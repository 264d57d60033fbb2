"""The MPI library MPICH in a separate Python environment.

The environment must be separate, because mpi4py loads the MPI library of the environment in which mpi4py runs.
"""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path

import pytest

_VARIABLE = "PYTEST_CKPT_MPICH"


def mpich_directory() -> Path | None:
    """Return the directory that PYTEST_CKPT_MPICH names, or None if the variable is not set.

    The directory must be a virtual environment in which only the wheel of mpich is installed.
    """
    named = os.environ.get(_VARIABLE)
    return Path(named) if named else None


def mpich_python(home: Path) -> Path:
    """Return the path of a Python with MPICH and the packages of the tests. Skip the test if there is no MPICH.

    The Python is created in ``home``, so that the environment with MPICH stays unchanged.
    """
    given = mpich_directory()
    if not given or not (given / "bin" / "mpiexec").exists():
        pytest.skip(f"{_VARIABLE} names no environment with the wheel of mpich")
    python = home / "mpich" / "bin" / "python"
    python.parent.mkdir(parents=True)
    (home / "mpich" / "pyvenv.cfg").write_text((given / "pyvenv.cfg").read_text())
    (home / "mpich" / "lib").symlink_to(given / "lib")
    for program in (given / "bin").iterdir():
        (python.parent / program.name).symlink_to(program.resolve() if program.name == "python" else program)
    # After the environment's own packages, so that its MPI library comes first.
    (home / "sitecustomize.py").write_text(f"import site\nsite.addsitedir({sysconfig.get_paths()['purelib']!r})\n")
    return python
