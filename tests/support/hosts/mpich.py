"""MPICH in an environment of its own: mpi4py takes the MPI of the environment it is started in."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path

import pytest

_VARIABLE = "PYTEST_CKPT_MPICH"


def directory_of_mpich() -> Path | None:
    """Return the directory of an environment that the variable names: made by venv, with the wheel of mpich alone."""
    named = os.environ.get(_VARIABLE)
    return Path(named) if named else None


def python_of_mpich(home: Path) -> Path:
    """Return a Python that has MPICH for MPI, and all else from the environment of the tests; skip without one.

    It lies in ``home``: an environment that somebody else made is not changed.
    """
    given = directory_of_mpich()
    if not given or not (given / "bin" / "mpiexec").exists():
        pytest.skip(f"{_VARIABLE} names no environment with the wheel of mpich")
    python = home / "mpich" / "bin" / "python"
    python.parent.mkdir(parents=True)
    (home / "mpich" / "pyvenv.cfg").write_text((given / "pyvenv.cfg").read_text())
    (home / "mpich" / "lib").symlink_to(given / "lib")
    for program in (given / "bin").iterdir():
        (python.parent / program.name).symlink_to(program.resolve() if program.name == "python" else program)
    # Behind those of the environment's own: its library of MPI comes first.
    (home / "sitecustomize.py").write_text(f"import site\nsite.addsitedir({sysconfig.get_paths()['purelib']!r})\n")
    return python
