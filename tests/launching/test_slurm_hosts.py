"""Ranks that Slurm starts on other hosts. The controller runs inside or outside of a Slurm job."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.doc_pages import DOCS
from tests.support.front_door import TINY, Run
from tests.support.hosts.lab import Done, Step, need_hosts, on_hosts
from tests.support.hosts.mpich import directory_of_mpich, python_of_mpich
from tests.support.hosts.reached import (
    assert_that_a_large_job_came,
    assert_that_a_second_client_listed,
    assert_that_last_words_came,
    last_words_of,
)
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
def done(make_home: Callable[[str], Path]) -> dict[str, Done]:
    """Return {name of a step: its result}. The steps run on three hosts with Slurm.

    Some steps run only if MPICH is installed.
    """
    need_hosts()
    need_slurm()
    home = make_home("hosts")
    steps = {
        "placed": Step(options=(*TINY, "--ckpt-hosts=h2:1,h3:1", PLACED)),
        "crowded": Step(options=(*TINY, "--ckpt-ranks=4", "--ckpt-hosts=h2:2,h3:2", f"{SRUN} --nodelist={{nodes}}")),
        "uneven": Step(options=(*TINY, "--ckpt-ranks=4", "--ckpt-hosts=h2:3,h3:1", PLACED)),
        "large": Step(words=(sys.executable, *LARGE, PLACED.partition("=")[2])),
        "names": Step(options=(*TINY, "--ckpt-hosts=h2:1,h3:1", PLACED, *NAMES)),
        **last_words_of(sys.executable, PLACED.partition("=")[2]),
        "job": sent_off(home, "job", operations=2),
        "components": sent_off(home, "components", operations=2, nodes=TWO_COMPONENTS),
        "limit": sent_off(home, "limit", operations=400, then=NEAR_ITS_LIMIT),
    }
    if directory_of_mpich():
        python, environment = str(python_of_mpich(home)), {"PYTHONPATH": f"{home}"}
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


def run_of(step: Done) -> Run:
    """Return the results of the pytest-ckpt run in a submitted job."""
    (log,) = Path(step.home).glob("ckpt-acceptance-*.log")
    (report,) = Path(step.home).glob("ckpt-report-*")
    return Run(code=step.code, text=log.read_text(), home=report.parent, target=report / "gone", report=report)


@pytest.mark.thorough
def test_srun_places_rank_0_on_another_host_than_the_controller(done: dict[str, Done]) -> None:
    run = done["placed"].run
    assert run.code == 0, run.text
    assert run.measurement()["hosts"] == ["h2", "h3"]
    assert {name: run.outcomes()[name] for name in FACTS} == dict.fromkeys(FACTS, "met")
    assert "placed ranks differently" not in run.text
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
    # If hosts have different numbers of ranks, not every rank reads another host's files, which COLD needs here.
    assert run.measurement("llama3-8b-open-4")["failure"] is None, run.text
    ranks = [len(host["ranks"]) for host in run.document["environment"]["hosts"]]
    text = " ".join(run.text.split())
    assert ("placed ranks differently from --ckpt-hosts" in text) == (ranks != [2, 2]), (ranks, text)


@pytest.mark.thorough
def test_a_job_of_a_megabyte_reaches_ranks_that_srun_starts(done: dict[str, Done]) -> None:
    assert_that_a_large_job_came(done["large"])


@pytest.mark.thorough
def test_what_ranks_that_srun_starts_tell_right_before_they_end_arrives_or_fails_the_launch(
    done: dict[str, Done],
) -> None:
    assert_that_last_words_came(done)


@pytest.mark.thorough
def test_srun_starts_the_second_client_that_lists_a_thousand_names(done: dict[str, Done]) -> None:
    assert_that_a_second_client_listed(done["names"])


@pytest.mark.thorough
def test_hosts_may_have_different_numbers_of_ranks(done: dict[str, Done]) -> None:
    run = done["uneven"].run
    assert run.measurement("llama3-8b-open-4")["failure"] is None, run.text
    assert [host["ranks"] for host in run.document["environment"]["hosts"]] == [[0, 1, 2], [3]]
    assert "placed ranks differently" not in run.text
    assert done["uneven"].left == ()


@pytest.mark.thorough
def test_the_recipe_runs_as_a_job_with_its_controller_on_the_jobs_first_node(done: dict[str, Done]) -> None:
    run = run_of(done["job"])
    assert run.code == 0, done["job"].text + run.text
    assert run.measurement("llama3-8b-open-4")["hosts"] == ["h2", "h3"]
    assert [host["ranks"] for host in run.document["environment"]["hosts"]] == [[0, 1], [2, 3]]
    # The job left nothing on the target.
    assert done["job"].text == ""


@pytest.mark.thorough
def test_the_recipe_runs_as_a_heterogeneous_job_with_one_world_over_its_components(done: dict[str, Done]) -> None:
    run = run_of(done["components"])
    assert run.code == 0, done["components"].text + run.text
    assert [host["ranks"] for host in run.document["environment"]["hosts"]] == [[0, 1], [2]]
    assert run.measurement("llama3-8b-open-3")["hosts"] == ["h2", "h3"]
    assert run.document["environment"]["second_client"] == "host h3"
    assert "placed ranks differently" not in run.text
    assert done["components"].text == ""


@pytest.mark.thorough
def test_a_job_near_its_time_limit_is_cleaned_and_judged_as_incomplete(done: dict[str, Done]) -> None:
    run = run_of(done["limit"])
    assert run.code == 2, done["limit"].text + run.text
    measured = run.measurement("llama3-8b-open-4")
    assert measured["failure"]["kind"] == "interrupted"
    assert 0 < len(measured["operations"]) < 800
    assert run.verdict("SAVE", "llama3-8b-open-4")["outcome"] == "not run"
    assert done["limit"].text == ""


@pytest.mark.thorough
def test_slurm_starts_ranks_of_mpich_with_pmi2(done: dict[str, Done]) -> None:
    if "pmi2" not in done:
        pytest.skip("PYTEST_CKPT_MPICH names no environment with the wheel of mpich")
    assert done["library"].text.splitlines() == ["2 MPICH", "2 MPICH"]
    run = done["pmi2"].run
    assert run.code == 0, run.text
    assert run.measurement()["hosts"] == ["h2", "h3"]
    assert {name: run.outcomes()[name] for name in FACTS} == dict.fromkeys(FACTS, "met")
    assert (done["pmi2"].left, done["pmi2"].shown) == ((), ())
