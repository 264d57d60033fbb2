"""The sbatch script of slurm.md runs unchanged on one machine. Scripts replace Slurm's programs."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import socket
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_ckpt.config.options import resolve
from pytest_ckpt.facts.gate_tables import GATE_TABLES
from tests.support.doc_examples import Commands
from tests.support.doc_pages import DOCS

RECIPES = DOCS / "recipes"
# Options that need the real storage.
NOT_HERE = ("ckpt_small_volume", "ckpt_actions", "ckpt_system", "ckpt_sign")
SMALL = {
    "ckpt_cluster": 1,
    "ckpt_gate_table": "speed-only",
    "ckpt_model": "llama3-8b",
    "ckpt_mode": "open",
    "ckpt_profile": "smoke",
    "ckpt_scale": "1/10000",
    "ckpt_engine": "stream",
}
SRUN = """
if [ "$1" = --version ]; then echo "slurm 23.11.4"; exit; fi
echo "$@" >> "$CKPT_ASKED"
while [ "${1#-}" != "$1" ]; do
    if [ "$1" = -n ]; then ranks=$2; shift; fi
    shift
done
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
exec mpiexec -n "$ranks" --map-by :OVERSUBSCRIBE --bind-to none "$@"
"""
SCONTROL = '[ "$1 $2 $3" = "show hostnames node[1-1]" ] && hostname\n'


@pytest.fixture
def cluster(create_home: Callable[[str], Path]) -> Commands:
    """A directory from which a job is submitted, with scripts that replace srun and scontrol."""
    home = create_home("slurm")
    commands = Commands(home)
    commands.add("srun", SRUN)
    commands.add("scontrol", SCONTROL)
    shutil.copy(RECIPES / "slurm.sbatch", commands.home)
    table = tomllib.loads((RECIPES / "acceptance.toml").read_text())
    table = {name: value for name, value in table.items() if name not in NOT_HERE} | SMALL
    (commands.home / "target").mkdir()
    table["ckpt_target"] = "target"
    lines = "".join(f"{name} = {json.dumps(value)}\n" for name, value in table.items())
    (commands.home / "acceptance.toml").write_text(lines)
    return commands


def test_the_job_runs_the_ranks_with_srun_and_leaves_its_report(cluster):
    asked = cluster.home / "asked"
    code, found = cluster.run(
        "bash slurm.sbatch",
        CKPT_BIN=str(cluster.programs),
        CKPT_ASKED=str(asked),
        SLURM_JOB_ID="4711",
        SLURM_JOB_NODELIST="node[1-1]",
        SLURM_NTASKS_PER_NODE="2",
    )
    assert code == 0, found
    host = socket.gethostname()
    assert (cluster.home / "hosts-4711").read_text() == f"{host} slots=2\n"
    report = cluster.home / "ckpt-report-4711"
    document = json.loads((report / "report.json").read_text())
    assert document["grade"] == "rehearsal"
    (measured,) = document["measurements"]
    assert (measured["hosts"], measured["processes"]) == ([host], 2)
    started = shlex.split((report / "launches" / "1" / "command").read_text())
    expected = ["--mpi=pmix", "--kill-on-bad-exit=1", "--overlap", "--distribution=arbitrary"]
    expected += [f"--nodelist={host},{host}", "-n", "2"]
    assert started[:8] == ["srun", *expected]
    assert asked.read_text().splitlines()[0].startswith(" ".join(expected))
    assert not list((cluster.home / "target").iterdir())


@pytest.mark.parametrize(
    ("tasks", "slots"),
    [("8", "8 8 8"), ("8(x3)", "8 8 8"), ("8,4(x2)", "8 4 4"), ("8(x2),4", "8 8 4"), ("8,4", "8 4 unknown")],
)
def test_each_node_of_a_job_has_its_own_slots(cluster, tasks, slots):
    cluster.add("scontrol", "printf 'n1\\nn2\\nn3\\n'\n")
    cluster.add("pytest", "exit 0\n")
    bin_directory = str(cluster.programs)
    code, found = cluster.run(
        "bash slurm.sbatch",
        CKPT_BIN=bin_directory,
        SLURM_JOB_ID="1",
        SLURM_JOB_NODELIST="n[1-3]",
        SLURM_TASKS_PER_NODE=tasks,
    )
    assert code == 0, found
    lines = (cluster.home / "hosts-1").read_text().splitlines()
    assert lines == [f"n{number} slots={each}" for number, each in enumerate(slots.split(), start=1)]


def test_without_hosts_the_job_names_what_is_missing_and_writes_nothing(cluster):
    code, found = cluster.run(
        "bash slurm.sbatch", CKPT_BIN=str(cluster.programs), SLURM_JOB_ID="4711", SLURM_JOB_NODELIST="nobody",
        SLURM_NTASKS_PER_NODE="2",
    )  # fmt: skip
    assert code == 4
    assert "--ckpt-hosts @hosts-4711: at least one host:slots is expected" in found


def test_the_file_requests_complete_nodes_from_slurm():
    asked = dict(re.findall(r"^#SBATCH --([\w-]+)=?(\S*)$", (RECIPES / "slurm.sbatch").read_text(), re.MULTILINE))
    assert asked["nodes"] == asked["ntasks-per-node"] == "8"  # as many ranks as a full 70B checkpoint has
    assert {"exclusive", "mem", "time"} <= set(asked)


def test_the_terms_of_an_acceptance_are_options_that_can_certify(monkeypatch):
    monkeypatch.chdir(RECIPES)
    settings = resolve({"ckpt_config": str(RECIPES / "acceptance.toml")}, {})
    assert settings.gate_table in GATE_TABLES
    assert (settings.power_cut, settings.power_cuts) == ("/usr/local/sbin/pull-the-plug", 3)
    assert (settings.profile, settings.scale, settings.operations) == ("acceptance", 1.0, 10)
