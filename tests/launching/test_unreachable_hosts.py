"""If ssh cannot reach a host, the run names the host before it starts a launcher."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_ckpt.facts.settings import HostSlots
from pytest_ckpt.launching.launcher import Launcher
from pytest_ckpt.launching.other_hosts import unreached_by_ssh
from tests.support.machine import need

ANSWERS = "case $* in *bad*) echo 'Warning: a banner' >&2; echo 'ssh: no route.' >&2; exit 255;; *odd*) exit 1;; esac"


def launcher(*hosts: str, version: str = "Open MPI 5.0.11", words: tuple[str, ...] = ()) -> Launcher:
    slots = tuple(HostSlots(name=host, slots=1) for host in hosts)
    return Launcher(template=("mpiexec", *words), version=version, hosts=slots)


@pytest.fixture
def a_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a fake ssh on PATH; return the file in which the fake records its calls.

    The fake fails for hosts with "bad" in their names.
    """
    program = tmp_path / "ssh"
    program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\n{ANSWERS}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    for name in ("PRTE_MCA_plm_ssh_agent", "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "calls"


@pytest.mark.parametrize("version", ["Open MPI 5.0.11", "HYDRA build details: Version: 5.0.2"])
def test_all_hosts_are_named_that_are_not_reached_and_no_other(a_shell: Path, version: str) -> None:
    said = unreached_by_ssh(launcher("good", "bad1", "odd", "bad2", version=version), "a-run")
    assert said == {"bad1": "no route", "bad2": "no route"}
    # A host that refuses once may be busy, so only the refusing hosts are tried again.
    calls = a_shell.read_text()
    assert [calls.count(f"{host} true") for host in ("good", "odd", "bad1", "bad2")] == [1, 1, 3, 3]


def test_a_name_of_this_host_needs_no_ssh(a_shell: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_shell.with_name("ssh").write_text("#!/bin/sh\nexit 255\n")
    assert unreached_by_ssh(launcher("localhost", "127.0.0.1", "bad"), "a-run") == {"bad": "ssh gives no reason"}


@pytest.mark.parametrize(
    ("words", "version", "variable", "value"),
    [
        ((), "slurm 24.11", "", ""),
        (("--mca", "plm_ssh_agent", "kubexec"), "Open MPI 5.0.11", "", ""),
        (("-launcher", "fork"), "HYDRA build details: Version: 5.0.2", "", ""),
        ((), "Open MPI 5.0.11", "PRTE_MCA_plm_ssh_agent", "/etc/mpi/kubexec.sh"),
        ((), "Open MPI 5.0.11", "PBS_JOBID", "17"),
    ],
)
def test_ssh_is_not_tried_if_the_launcher_does_not_use_it(
    a_shell: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], version: str, variable: str, value: str
) -> None:
    if variable:
        monkeypatch.setenv(variable, value)
    assert unreached_by_ssh(launcher("bad", version=version, words=words), "a-run") == {}
    assert not a_shell.exists()


@pytest.fixture
def listening() -> Iterator[int]:
    """Return a port of this host that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_host_that_accepts_connections_and_stays_silent_is_named(
    listening: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need(shutil.which("ssh"), "needs ssh")
    config = tmp_path / "config"
    config.write_text(f"Host silent.invalid\n  HostName 127.0.0.1\n  Port {listening}\n")
    monkeypatch.setenv("PRTE_MCA_plm_ssh_agent", f"ssh -F {config}")
    said = unreached_by_ssh(launcher("silent.invalid"), "a-run", seconds=2.0)
    assert "timed out" in said["silent.invalid"]
