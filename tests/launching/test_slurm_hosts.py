"""Ranks that Slurm starts on other hosts. The controller runs inside or outside of a Slurm job."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.doc_pages import DOCS
from tests.support.end_to_end import TINY, Run
from tests.support.hosts.delivery import (
    assert_final_messages_arrived,
    assert_large_job_arrived,
    assert_second_client_listed,
    final_message_steps,
)
from tests.support.hosts.lab import Step, StepResult, need_hosts, on_hosts
from tests.support.hosts.mpich import mpich_directory, mpich_python
from tests.support.hosts.slurm import need_slurm

SRUN = "--ckpt-launcher=srun --mpi=pmix --kill-on-bad-exit=1"
PLACED = f"{SRUN} --distribution=arbitrary --nodelist={{ranks}}"
PMI2 = PLACED.replace("pmix", "pmi2")
LIBRARY = "from mpi4py import MPI; print(MPI.COMM_WORLD.size, MPI.Get_library_version().split()[0])"
ENDS = """
ended() { scontrol show job "$job" | grep -Eq 'JobState=(COMPLETED|FAILED|CANCELLED|TIMEOUT)'; }
"""
# Slurm's shortest time limit is a minute. Slurm's earlier signal, which only pytest gets, is sent here after a save.
NEAR_ITS_LIMIT = """
until grep -qs '"event": "operation"' "ckpt-report-$job/events.jsonl" || ended; do sleep 0.1; done
scancel --batch --signal=TERM "$job"
"""
WAITED = """
until ended; do sleep 0.1; done
code=$(scontrol show job "$job" | sed -n 's/.* ExitCode=\\([0-9]*\\):.*/\\1/p' | head -n 1)
"""
TWO_NODES = "--nodes=2 --nodelist=h2,h3 --ntasks-per-node=2"
TWO_COMPONENTS = "--nodes=1 --nodelist=h2 --ntasks-per-node=2 : --nodes=1 --nodelist=h3 --ntasks-per-node=1"
# A job of 1 MB for two ranks on another host than the controller's.
LARGE = ("-m", "tests.support.hosts.large_job", "h2:2", "1000000")
NAMES = ("--ckpt-gate-table=posix-shared", "--ckpt-suite=conformance", "-k", "second-client")
FACTS = ("SAVE", "LOAD", "INTEGRITY", "DURABLE-CALLS")
TERMS = """
ckpt_target = "TARGET"
ckpt_cluster = 1
ckpt_gate_table = "speed-only"
ckpt_model = "llama3-8b"
ckpt_mode = "open"
ckpt_profile = "smoke"
ckpt_operations = OPERATIONS
ckpt_scale = "1/10000"
ckpt_keep_last = 2
ckpt_engine = "stream"
"""


@pytest.fixture(scope="module")
def results(create_home: Callable[[str], Path]) -> dict[str, StepResult]:
    """Return {name of a step: its result}. The steps run on three hosts with Slurm.

    Some steps run only if MPICH is installed.
    """
    need_hosts()
    need_slurm()
    home = create_home("hosts")
    steps = {
        "placed": Step(options=(*TINY, "--ckpt-hosts=h2:1,h3:1", PLACED)),
        "crowded": Step(options=(*TINY, "--ckpt-ranks=4", "--ckpt-hosts=h2:2,h3:2", f"{SRUN} --nodelist={{nodes}}")),
        "uneven": Step(options=(*TINY, "--ckpt-ranks=4", "--ckpt-hosts=h2:3,h3:1", PLACED)),
        "large": Step(words=(sys.executable, *LARGE, PLACED.partition("=")[2])),
        "names": Step(options=(*TINY, "--ckpt-hosts=h2:1,h3:1", PLACED, *NAMES)),
        **final_message_steps(sys.executable, PLACED.partition("=")[2]),
        "job": sent_off(home, "job", operations=2),
        "components": sent_off(home, "components", operations=2, nodes=TWO_COMPONENTS),
        "limit": sent_off(home, "limit", operations=400, then=NEAR_ITS_LIMIT),
    }
    if mpich_directory():
        python, environment = str(mpich_python(home)), {"PYTHONPATH": f"{home}"}
        ask = ("srun", "--mpi=pmi2", "-n2", "--nodelist=h2,h3", python, "-c", LIBRARY)
        options = (*TINY, "--ckpt-hosts=h2:1,h3:1", "--ckpt-engine=stream", PMI2)
        steps |= {
            "library": Step(words=ask, environment=environment),
            "pmi2": Step(options=options, python=python, environment=environment),
        }
    return dict(zip(steps, on_hosts(home, 3, *steps.values(), slurm=True), strict=True))


def sent_off(home: Path, name: str, *, operations: int, then: str = "", nodes: str = TWO_NODES) -> Step:
    """Return a step that submits the recipe docs/recipes/slurm.sbatch as a job, runs ``then``, and waits for the job.

    The step prints the files that are left on the target, and ends with the exit code of the job.
    """
    terms, target = home / f"{name}.toml", home / "array" / f"of-{name}"
    terms.write_text(TERMS.replace("TARGET", str(target)).replace("OPERATIONS", str(operations)))
    job = (
        f"mkdir {target}; cp {terms} acceptance.toml; export CKPT_BIN={shlex.quote(str(Path(sys.executable).parent))}\n"
        f"job=$(sbatch --parsable {nodes} "
        f"{shlex.quote(str(DOCS / 'recipes' / 'slurm.sbatch'))})\n"
        f"{ENDS}{then}{WAITED}find {target} -mindepth 1; exit $code"
    )
    return Step(words=("bash", "-uc", job))


def run_of(step: StepResult) -> Run:
    """Return the pytest-ckpt run of a submitted job: its exit code, output and report."""
    (log,) = Path(step.home).glob("ckpt-acceptance-*.log")
    (report,) = Path(step.home).glob("ckpt-report-*")
    return Run(code=step.code, text=log.read_text(), home=report.parent, target=report / "gone", report=report)


@pytest.mark.thorough
def test_srun_places_rank_0_on_another_host_than_the_controller(results: dict[str, StepResult]) -> None:
    run = results["placed"].run
    assert run.code == 0, run.text
    assert run.measurement()["hosts"] == ["h2", "h3"]
    assert {name: run.outcomes()[name] for name in FACTS} == dict.fromkeys(FACTS, "met")
    assert "placed ranks differently" not in run.text
    assert results["placed"].left == ()
    assert (results["placed"].secrets > 0, results["placed"].shown) == (True, ())


@pytest.mark.thorough
def test_ranks_of_srun_print_nothing_about_pmix(results: dict[str, StepResult]) -> None:
    output = (results["placed"].run.report / "launches" / "1" / "launcher.log").read_text()
    assert "not-valid" not in output
    assert "PMIX" not in output.upper()


@pytest.mark.thorough
def test_ranks_that_slurm_places_by_its_own_rules_are_reported(results: dict[str, StepResult]) -> None:
    run = results["crowded"].run
    # If hosts have different numbers of ranks, not every rank reads another host's files, which COLD needs here.
    assert run.measurement("llama3-8b-open-4")["failure"] is None, run.text
    ranks = [len(host["ranks"]) for host in run.document["environment"]["hosts"]]
    text = " ".join(run.text.split())
    assert ("placed ranks differently from --ckpt-hosts" in text) == (ranks != [2, 2]), (ranks, text)


@pytest.mark.thorough
def test_a_job_of_a_megabyte_reaches_ranks_that_srun_starts(results: dict[str, StepResult]) -> None:
    assert_large_job_arrived(results["large"])


@pytest.mark.thorough
def test_final_messages_of_ranks_of_srun_arrive_or_the_launch_fails(
    results: dict[str, StepResult],
) -> None:
    assert_final_messages_arrived(results)


@pytest.mark.thorough
def test_srun_starts_the_second_client_that_lists_a_thousand_names(results: dict[str, StepResult]) -> None:
    assert_second_client_listed(results["names"])


@pytest.mark.thorough
def test_hosts_may_have_different_numbers_of_ranks(results: dict[str, StepResult]) -> None:
    run = results["uneven"].run
    assert run.measurement("llama3-8b-open-4")["failure"] is None, run.text
    assert [host["ranks"] for host in run.document["environment"]["hosts"]] == [[0, 1, 2], [3]]
    assert "placed ranks differently" not in run.text
    assert results["uneven"].left == ()


@pytest.mark.thorough
def test_the_recipe_runs_as_a_job_with_its_controller_on_the_jobs_first_node(results: dict[str, StepResult]) -> None:
    run = run_of(results["job"])
    assert run.code == 0, results["job"].text + run.text
    assert run.measurement("llama3-8b-open-4")["hosts"] == ["h2", "h3"]
    assert [host["ranks"] for host in run.document["environment"]["hosts"]] == [[0, 1], [2, 3]]
    # The job left nothing on the target.
    assert results["job"].text == ""


@pytest.mark.thorough
def test_the_recipe_runs_as_a_heterogeneous_job_with_one_world_over_its_components(
    results: dict[str, StepResult],
) -> None:
    run = run_of(results["components"])
    assert run.code == 0, results["components"].text + run.text
    assert [host["ranks"] for host in run.document["environment"]["hosts"]] == [[0, 1], [2]]
    assert run.measurement("llama3-8b-open-3")["hosts"] == ["h2", "h3"]
    assert run.document["environment"]["second_client"] == "host h3"
    assert "placed ranks differently" not in run.text
    assert results["components"].text == ""


@pytest.mark.thorough
def test_a_job_near_its_time_limit_is_cleaned_and_judged_as_incomplete(results: dict[str, StepResult]) -> None:
    run = run_of(results["limit"])
    assert run.code == 2, results["limit"].text + run.text
    measured = run.measurement("llama3-8b-open-4")
    assert measured["failure"]["kind"] == "interrupted"
    assert 0 < len(measured["operations"]) < 800
    assert run.verdict("SAVE", "llama3-8b-open-4")["outcome"] == "not run"
    assert results["limit"].text == ""


@pytest.mark.thorough
def test_slurm_starts_ranks_of_mpich_with_pmi2(results: dict[str, StepResult]) -> None:
    if "pmi2" not in results:
        pytest.skip("PYTEST_CKPT_MPICH names no environment with the wheel of mpich")
    assert results["library"].text.splitlines() == ["2 MPICH", "2 MPICH"]
    run = results["pmi2"].run
    assert run.code == 0, run.text
    assert run.measurement()["hosts"] == ["h2", "h3"]
    assert {name: run.outcomes()[name] for name in FACTS} == dict.fromkeys(FACTS, "met")
    assert (results["pmi2"].left, results["pmi2"].shown) == ((), ())
