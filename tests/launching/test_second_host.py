"""How each launcher receives the names of hosts, and the proof that a second client runs on another host."""

from __future__ import annotations

import dataclasses
import os
import sys

import pytest

from pytest_ckpt.config.options import resolve
from pytest_ckpt.facts.settings import HostSlots
from pytest_ckpt.facts.targets import AreaRef
from pytest_ckpt.launching import second_client
from pytest_ckpt.launching.launcher import Launcher, components_of, find_launcher
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.targets.posix.target import target

HOSTS = (HostSlots(name="node1", slots=8), HostSlots(name="node2", slots=8))
RANKS = [sys.executable, "-P", "-m", "pytest_ckpt.ranks"]
SRUN = Launcher(template=("srun", "--mpi=pmix", "--nodelist={nodes}"), version="slurm 23.11.4", hosts=HOSTS)


def test_open_mpi_receives_the_hosts_with_their_slots_and_the_environment_to_forward():
    command = Launcher(template=("mpiexec",), version="mpiexec (Open MPI) 5.0.11", hosts=HOSTS).command(16)
    assert command[:3] == ["mpiexec", "-n", "16"]
    assert command[command.index("--host") + 1] == "node1:8,node2:8"
    assert command[-4:] == RANKS
    assert command[command.index("-x") : command.index("-x") + 2] == ["-x", "PYTHONPATH"]


@pytest.mark.parametrize(("word", "other"), [("--map-by", "--bind-to"), ("--bind-to", "--map-by")])
def test_placement_options_of_the_user_are_not_passed_to_open_mpi_twice(word, other):
    launcher = Launcher(template=("mpiexec", word, "core"), version="mpiexec (Open MPI) 5.0.11", hosts=HOSTS)
    command = launcher.command(16)
    assert (command.count(word), command.count(other)) == (1, 1)
    assert command[command.index(word) + 1] == "core"


def test_another_launcher_receives_only_the_values_in_its_template():
    assert SRUN.command(16) == ["srun", "--mpi=pmix", "--nodelist=node1,node2", "-n", "16", *RANKS]
    counted = dataclasses.replace(SRUN, template=("aprun", "-n{processes}", "{hosts}"))
    assert counted.command(16) == ["aprun", "-n16", "node1:8,node2:8", *RANKS]
    placed = dataclasses.replace(SRUN, template=("srun", "--nodelist={ranks}"))
    assert placed.command(10)[1] == "--nodelist=" + ",".join(["node1"] * 8 + ["node2"] * 2)
    assert dataclasses.replace(SRUN, template=("srun",)).command(16) == ["srun", "-n", "16", *RANKS]


COMPONENTS = dataclasses.replace(
    SRUN, template=("srun", "--mpi=pmix", "--nodelist={ranks}"), components=(("node2", "node3"), ("node1",), ("node4",))
)


def test_a_heterogeneous_job_of_slurm_has_a_part_for_each_component_with_ranks():
    assert COMPONENTS.command(10) == [
        "srun", "--mpi=pmix", "--nodelist=node2,node2", "--het-group=0", "-n", "2", *RANKS, ":",
        "--mpi=pmix", f"--nodelist={','.join(['node1'] * 8)}", "--het-group=1", "-n", "8", *RANKS,
    ]  # fmt: skip
    alone = dataclasses.replace(COMPONENTS, hosts=HOSTS[:1])
    assert alone.command(1) == ["srun", "--mpi=pmix", "--nodelist=node1", "--het-group=1", "-n", "1", *RANKS]


def test_hosts_that_no_component_has_are_refused():
    with pytest.raises(UsageError, match="No component of this job of Slurm has a host of --ckpt-hosts"):
        dataclasses.replace(COMPONENTS, components=(("node7",),)).command(2)


@pytest.mark.parametrize(("answers", "found"), [("echo n1; echo n2", (("n1", "n2"), ("n1", "n2"))), ("exit 1", None)])
def test_hosts_of_components_are_those_that_slurm_names(answers, found, tmp_path, monkeypatch):
    program = tmp_path / "scontrol"
    program.write_text(f"#!/bin/sh\n{answers}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    job = {
        "SLURM_HET_SIZE": "2",
        "SLURM_JOB_NODELIST_HET_GROUP_0": "n[1-2]",
        "SLURM_JOB_NODELIST_HET_GROUP_1": "n[1-2]",
    }
    if found:
        assert components_of(job) == found
    else:
        with pytest.raises(UsageError, match="scontrol show hostnames"):
            components_of(job)
    assert components_of({}) == ()


def test_open_mpi_is_asked_to_yield_unless_the_user_has_said_otherwise():
    launcher = Launcher(template=("mpiexec",), version="mpiexec (Open MPI) 5.0.11", hosts=HOSTS)
    name = "OMPI_MCA_mpi_yield_when_idle"
    assert launcher.environment("run", "", {})[name] == "1"
    assert launcher.environment("run", "", {name: "0"})[name] == "0"
    assert name not in SRUN.environment("run", "", {})


def test_open_mpi_keeps_its_temporary_files_in_the_directory_of_the_launch():
    launcher = Launcher(template=("mpiexec",), version="mpiexec (Open MPI) 5.0.11", hosts=HOSTS)
    here, there = "PRTE_MCA_prte_local_tmpdir_base", "PRTE_MCA_prte_remote_tmpdir_base"
    made = launcher.environment("run", "/dev/shm/ckpt-7-x", {})
    assert (made[here], made[there]) == ("/dev/shm/ckpt-7-x", "/dev/shm")
    asked = launcher.environment("run", "/dev/shm/ckpt-7-x", {here: "/a", there: "/b"})
    assert (asked[here], asked[there]) == ("/a", "/b")
    # If the directory is not in memory here, the memory directories of other hosts are unknown.
    assert there not in launcher.environment("run", "/tmp/ckpt-7-x", {})


def test_ranks_of_srun_do_not_print_missing_pmix_components():
    name = "PMIX_MCA_gds"
    assert SRUN.environment("run", "", {})[name] == "hash"
    assert SRUN.environment("run", "", {name: "ds21"})[name] == "ds21"


def facts(directory):
    return target(str(directory)).check()


def area(directory):
    return AreaRef(
        scheme="",
        location=str(directory / "pytest-ckpt-run"),
        run_id="run",
        opener="pytest_ckpt.targets.posix.store:open",
    )


@pytest.fixture
def settings():
    return resolve({"ckpt_hosts": "node1:1,localhost:1"}, {})


@pytest.fixture
def launcher(tmp_path):
    """Return a launcher that starts every program on this host, whichever host is requested."""
    program = tmp_path / "start-here"
    program.write_text('#!/bin/sh\necho "$2" >> "$(dirname "$0")/asked"\nshift 4\nexec "$@"\n')
    program.chmod(0o755)
    return Launcher(template=(str(program), "--on", "{nodes}"), version="some launcher 1.0", hosts=HOSTS)


def test_a_second_host_that_is_this_one_is_refused(settings, launcher, tmp_path):
    with pytest.raises(UsageError) as caught:
        second_client.find_second_client(settings, facts(tmp_path), area(tmp_path), launcher)
    assert "localhost of --ckpt-hosts, was started on this host, whose caches it would share" in caught.value.what
    assert "--nodelist={ranks}" in caught.value.remedy
    assert (tmp_path / "asked").read_text() == "localhost\n"


def test_a_second_host_that_is_another_one_is_the_second_client(settings, launcher, tmp_path, monkeypatch):
    other = tmp_path / "boot_id"
    other.write_text("of another kernel\n")
    # The other client reads this file; this process reads its real one.
    monkeypatch.setattr(second_client, "BOOT_ID", other)
    found = second_client.find_second_client(settings, facts(tmp_path), area(tmp_path), launcher)
    assert found.description == "host localhost"
    assert found.command[0] == "env"
    assert "PYTEST_CKPT_RUN=run" in found.command
    assert found.command[-1] == "pytest_ckpt.conformance.agent"


def test_a_second_client_that_does_not_answer_is_left_to_its_checks(settings, launcher, tmp_path):
    gone = dataclasses.replace(launcher, template=("/bin/false",))
    assert second_client.find_second_client(settings, facts(tmp_path), area(tmp_path), gone) is not None


def test_mpiexec_starts_the_second_client_also_for_root(settings, tmp_path, monkeypatch):
    """If the user is root, mpiexec starts the second client, although Open MPI refuses root by default.

    The test expects an error: the second client was started and reports that it runs on this host.
    """
    for name in [name for name in os.environ if name.startswith("OMPI_ALLOW")]:
        monkeypatch.delenv(name)
    with pytest.raises(UsageError, match="localhost of --ckpt-hosts, was started on this host"):
        second_client.find_second_client(settings, facts(tmp_path), area(tmp_path), find_launcher(None, settings.hosts))
