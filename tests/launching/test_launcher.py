"""How ranks are started: what a launcher cannot do is said before it is asked."""

from __future__ import annotations

import socket

import pytest

from pytest_ckpt.facts.settings import HostSlots
from pytest_ckpt.launching.launcher import Launcher, refuse_spaces
from pytest_ckpt.support.errors import UsageError

PROGRAM = "/srv/a folder/.venv/bin/mpiexec"


def launcher(*hosts: str, version: str = "mpiexec (Open MPI) 5.0.11") -> Launcher:
    slots = tuple(HostSlots(name=host, slots=2) for host in hosts)
    return Launcher(template=("mpiexec",), version=version, hosts=slots)


def test_open_mpi_is_not_asked_to_start_ranks_elsewhere_from_a_path_with_a_space() -> None:
    with pytest.raises(UsageError) as refused:
        refuse_spaces(launcher("localhost", "node2"), PROGRAM)
    assert "ranks on node2" in refused.value.what
    assert PROGRAM in refused.value.what
    assert "--ckpt-launcher" in refused.value.remedy


@pytest.mark.parametrize(
    ("asked", "program"),
    [
        (launcher("node2"), PROGRAM.replace(" ", "-")),
        (launcher(), PROGRAM),
        (launcher("localhost", socket.gethostname()), PROGRAM),
        (launcher("node2", version="HYDRA build details: Version: 4.0"), PROGRAM),
    ],
    ids=["no space", "no hosts", "this host alone", "another launcher"],
)
def test_others_are(asked: Launcher, program: str) -> None:
    refuse_spaces(asked, program)
