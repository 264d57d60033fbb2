"""Ranks that Slurm starts on other hosts, from a controller outside of a job and inside of one."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.doc_pages import DOCS
from tests.support.front_door import TINY, Run
from tests.support.hosts.lab import Done, Step, need_hosts, on_hosts
from tests.support.hosts.slurm import need_slurm

SRUN = "--ckpt-launcher=srun --mpi=pmix --kill-on-bad-exit=1"
PLACED = f"{SRUN} --distribution=arbitrary --nodelist={{ranks}}"
FACTS = ("SAVE", "LOAD", "INTEGRITY", "DURABLE-CALLS")
TERMS = """
ckpt_target = "TARGET"
ckpt_cluster = 1
ckpt_gates = "speed-only"
ckpt_model = "llama3-8b"
ckpt_mode = "open"
ckpt_profile = "smoke"
ckpt_operations = 2
ckpt_scale = "1/10000"
ckpt_engine = "stream"
"""


@pytest.fixture(scope="module")
def done(make_home: Callable[[str], Path]) -> dict[str, Done]:
    """What came of each step on three hosts with Slurm."""
    need_hosts()
    need_slurm()
    home = make_home("hosts")
    terms = home / "acceptance.toml"
    target = home / "array" / "of-job"
    terms.write_text(TERMS.replace("TARGET", str(target)))
    job = (
        f"mkdir {target}; cp {terms} acceptance.toml; "
        f"CKPT_BIN={shlex.quote(str(Path(sys.executable).parent))} sbatch --wait --nodes=2 --nodelist=h2,h3 "
        f"--ntasks-per-node=2 {shlex.quote(str(DOCS / 'recipes' / 'slurm.sbatch'))}; "
        f"find {target} -mindepth 1"
    )
    steps = {
        "placed": Step(options=(*TINY, "--ckpt-hosts=h2:1,h3:1", PLACED)),
        "crowded": Step(
            options=(*TINY, "--ckpt-processes=4", "--ckpt-hosts=h2:2,h3:2", f"{SRUN} --nodelist={{nodes}}")
        ),
        "job": Step(words=("bash", "-c", job)),
    }
    return dict(zip(steps, on_hosts(home, 3, *steps.values(), slurm=True), strict=True))


@pytest.mark.thorough
def test_srun_places_rank_0_on_another_host_than_the_controller(done: dict[str, Done]) -> None:
    run = done["placed"].run
    assert run.code == 0, run.text
    assert run.measurement()["hosts"] == ["h2", "h3"]
    assert {name: run.outcomes()[name] for name in FACTS} == dict.fromkeys(FACTS, "met")
    assert "placed ranks otherwise" not in run.text
    assert done["placed"].left == ()
    assert (done["placed"].secrets > 0, done["placed"].shown) == (True, ())


@pytest.mark.thorough
def test_ranks_of_srun_say_nothing_of_pmix(done: dict[str, Done]) -> None:
    output = (done["placed"].run.report / "launches" / "1" / "launcher.log").read_text()
    assert "not-valid" not in output
    assert "PMIX" not in output.upper()


@pytest.mark.thorough
def test_ranks_that_slurm_places_by_its_own_rules_are_told(done: dict[str, Done]) -> None:
    run = done["crowded"].run
    # Where hosts do not have the same ranks, not every one reads what another wrote, which COLD needs here.
    assert run.measurement("llama3-8b-open-4")["failure"] is None, run.text
    ranks = [len(host["ranks"]) for host in run.document["environment"]["hosts"]]
    text = " ".join(run.text.split())
    assert ("placed ranks otherwise than --ckpt-hosts says" in text) == (ranks != [2, 2]), (ranks, text)


@pytest.mark.thorough
def test_the_recipe_runs_as_a_job_with_its_controller_on_the_jobs_first_node(done: dict[str, Done]) -> None:
    step = done["job"]
    (log,) = Path(step.home).glob("ckpt-acceptance-*.log")
    assert step.code == 0, step.text + log.read_text()
    (report,) = Path(step.home).glob("ckpt-report-*")
    run = Run(code=step.code, text=log.read_text(), home=report.parent, target=report / "gone", report=report)
    assert run.measurement("llama3-8b-open-4")["hosts"] == ["h2", "h3"]
    assert [host["ranks"] for host in run.document["environment"]["hosts"]] == [[0, 1], [2, 3]]
    # Nothing that the job made is found on the target.
    assert re.fullmatch(r"Submitted batch job \d+\n", step.text)
