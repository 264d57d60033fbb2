"""Ranks that Debian's Open MPI 4 starts on this host and on other hosts.

The settings of Open MPI 4 differ from the settings of version 5.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_ckpt.facts.settings import HostSlots
from pytest_ckpt.launching.launcher import Launcher
from tests.support.end_to_end import TINY
from tests.support.hosts.lab import Step, StepResult, need_hosts, on_hosts
from tests.support.hosts.open_mpi_4 import installed, need_open_mpi_4, python_without_mpi
from tests.support.hosts.storage import HONEST_FUSE

OPTIONS = (*TINY, "--ckpt-engine=stream", "--ckpt-gate-table=speed-only", "--ckpt-launcher=mpirun")
FACTS = ("SAVE", "LOAD", "INTEGRITY", "DURABLE-CALLS")


@pytest.fixture(scope="module")
def results(create_home: Callable[[str], Path]) -> dict[str, StepResult]:
    """Return {name of a run: its result} of two runs: one run on the first host, and one run on other hosts."""
    need_hosts(HONEST_FUSE)
    need_open_mpi_4()
    home = create_home("hosts")
    python, environment = python_without_mpi(home)
    has_it = tuple((number, installed()) for number in (1, 2, 3))
    steps = {
        "here": Step(options=OPTIONS, python=python, environment=environment, before=has_it),
        "elsewhere": Step(options=(*OPTIONS, "--ckpt-hosts=h2:1,h3:1"), python=python, environment=environment),
    }
    return dict(zip(steps, on_hosts(home, 3, *steps.values(), storage=HONEST_FUSE), strict=True))


@pytest.mark.thorough
@pytest.mark.parametrize(("step", "hosts"), [("here", ["h1"]), ("elsewhere", ["h2", "h3"])])
def test_ranks_run_and_nothing_is_left(results: dict[str, StepResult], step: str, hosts: list[str]) -> None:
    run = results[step].run
    assert run.document["environment"]["launcher"].startswith("mpirun (Open MPI) 4.")
    assert run.measurement()["hosts"] == hosts
    assert {name: run.outcomes()[name] for name in FACTS} == dict.fromkeys(FACTS, "met"), run.text
    assert (results[step].left, results[step].litter, results[step].shown) == ((), (), ())


@pytest.mark.parametrize(
    ("version", "memory"),
    [
        ("mpirun (Open MPI) 4.1.4", "self,vader"),
        ("mpirun.openmpi (OpenRTE) 4.1.4", "self,vader"),
        ("mpiexec (Open MPI) 5.0.11", "self,sm"),
        ("prterun (PRRTE) 3.0.12", "self,sm"),
    ],
)
def test_ranks_of_one_host_share_memory_by_the_name_that_it_has_there(version: str, memory: str) -> None:
    launcher = Launcher(template=("mpirun",), version=version, hosts=())
    assert memory in launcher.command(2)
    kept = launcher.environment("run", "/dev/shm/ckpt-7-x", {})
    for name in ("sm", "vader"):
        assert kept[f"OMPI_MCA_btl_{name}_backing_directory"] == "/dev/shm/ckpt-7-x"


def test_the_session_of_open_mpi_4_stays_where_it_has_it() -> None:
    """For Open MPI 4, the launcher sets no session directory.

    Open MPI 4 would reject a session directory on the local host, and its ranks would end immediately.
    """
    hosts = (HostSlots(name="node1", slots=1),)
    launcher = Launcher(template=("mpirun",), version="mpirun (Open MPI) 4.1.4", hosts=hosts)
    assert not [name for name in launcher.environment("run", "/dev/shm/ckpt-7-x", {}) if "tmpdir_base" in name]
