"""Ranks on several simulated hosts with their own network. The controller starts them over ssh."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_ckpt.facts.checks import CHECKS_OF_POSIX
from pytest_ckpt.facts.settings import SUITES as EVERY_SUITE
from tests.support.actions import actions
from tests.support.end_to_end import TINY
from tests.support.hosts.delivery import assert_final_messages_arrived, final_message_steps
from tests.support.hosts.lab import Step, StepResult, need_hosts, on_hosts
from tests.support.hosts.storage import HONEST_FUSE

REMOTE = "--ckpt-hosts=h2:1,h3:1"
# The suites that no other step runs, shortened.
SUITES = (
    "--ckpt-suite=performance,strategies,endurance:duration=2s,serving:readers=2,scaling,failover,metadata:files=1000",
    "--ckpt-strategy=sync,async:step=20ms",
    "--ckpt-engine=stream",
    actions(fault_command="true", repair_command="true"),
)
CONFORMANCE = "--ckpt-suite=conformance"
MAINTENANCE = "--ckpt-suite=performance,maintenance"
CONTENTION = "--ckpt-suite=performance,contention"
SHARED = ("--ckpt-hosts=h1:1,h2:1", "--ckpt-gate-table=posix-shared")
# These checks need commands and directories that this step does not have.
NOT_RUN = {"DURABLE.power-cut", "ERRORS.full", "FULL.mid-save", "COMMIT-FULL.each-phase"}
# MooseFS stores whole seconds.
NOT_MET = {"CAPABILITIES.mtime"}
FACTS = ("SAVE", "LOAD", "INTEGRITY", "DURABLE-CALLS")


@pytest.fixture(scope="module")
def first(create_home: Callable[[str], Path]) -> StepResult:
    """Return the result of a short run on three hosts, for the fast tests."""
    need_hosts()
    (result,) = on_hosts(create_home("hosts"), 3, Step(options=(*TINY, REMOTE)))
    return result


@pytest.fixture(scope="module")
def results(create_home: Callable[[str], Path]) -> dict[str, StepResult]:
    """Return {name of a step: its result} for all steps of the thorough tests. They run on three hosts."""
    need_hosts()
    home = create_home("hosts")
    asked = {**steps(home / "array"), **final_message_steps(sys.executable)}
    return dict(zip(asked, on_hosts(home, 3, *asked.values()), strict=True))


def steps(array: Path) -> dict[str, Step]:
    """Return {name of a step: step}, in the order in which the steps run."""
    return {
        "behaviour": Step(options=(*TINY, *SHARED, CONFORMANCE)),
        "contention": Step(options=(*TINY, *SHARED, CONTENTION)),
        "suites": Step(options=(*TINY, *SHARED, *SUITES)),
        "maintenance": Step(options=(*TINY, *SHARED, MAINTENANCE, *maintaining(array, step=4))),
    }


def maintaining(array: Path, step: int) -> tuple[str, ...]:
    """Return the options with maintenance commands for step number ``step``. Snapshots are taken with MooseFS."""
    clone = array / "clone"
    take = f"mfsmakesnapshot {array}/target-{step} {clone} >&2; echo {clone}"
    return (actions(upgrade_command="sleep 0.5", snapshot=f"sh -ec '{take}'", remove_snapshot="rm -r"),)


def test_there_is_a_step_for_every_suite() -> None:
    options = [option for step in steps(Path("/array")).values() for option in step.options]
    asked = [option.partition("=")[2] for option in options if option.startswith("--ckpt-suite=")]
    assert {item.partition(":")[0] for item in ",".join(asked).split(",")} == set(EVERY_SUITE)


@pytest.mark.thorough
def test_rank_0_may_be_on_another_host_than_the_controller(first: StepResult) -> None:
    run = first.run
    assert run.code == 0, run.text
    assert run.measurement()["hosts"] == ["h2", "h3"]
    assert {name: run.outcomes()[name] for name in FACTS} == dict.fromkeys(FACTS, "met")
    assert first.left == ()
    assert (first.secrets > 0, first.shown) == (True, ())


def test_a_job_of_a_megabyte_reaches_ranks_on_another_host(create_home: Callable[[str], Path]) -> None:
    need_hosts(HONEST_FUSE)
    words = (sys.executable, "-m", "tests.support.hosts.large_job", "h2:2", "1000000")
    (large,) = on_hosts(create_home("hosts"), 2, Step(words=words), storage=HONEST_FUSE)
    assert json.loads(large.text.splitlines()[-1]) == {"failure": None, "hosts": [["h2", [0, 1]]]}, large.text
    assert (large.secrets, large.shown) == (1, ())


@pytest.mark.thorough
def test_final_messages_of_ranks_on_other_hosts_arrive_or_the_launch_fails(
    results: dict[str, StepResult],
) -> None:
    assert_final_messages_arrived(results)


@pytest.mark.thorough
def test_every_check_of_behaviour_runs_with_another_host_as_second_client(results: dict[str, StepResult]) -> None:
    run = results["behaviour"].run
    found = {f"{o['requirement']}.{o['subject']}": o for o in run.document["observations"]}
    assert set(found) == {check.name for check in CHECKS_OF_POSIX} - NOT_RUN
    assert {name: of["not_run"] for name, of in found.items() if of["not_run"]} == {}, run.text
    assert {name for name, of in found.items() if of["anomalies"]} <= NOT_MET, run.text
    assert results["behaviour"].left == ()


@pytest.mark.thorough
def test_storage_is_maintained_while_ranks_of_two_hosts_save(results: dict[str, StepResult]) -> None:
    run = results["maintenance"].run
    measured = run.measurement()
    assert (measured["failure"], measured["hosts"]) == (None, ["h1", "h2"]), run.text
    upgrade, snapshots = measured["patterns"]["upgrade"], measured["patterns"]["snapshots"]
    assert upgrade["run"]["exit_code"] == 0
    assert snapshots["trials"]
    assert {trial["removed"]["exit_code"] for trial in snapshots["trials"]} == {0}
    for found in (upgrade["integrity"], snapshots["integrity"]):
        assert found["bytes_checked"] == found["bytes_expected"] > 0
    assert results["maintenance"].left == ()


@pytest.mark.thorough
def test_no_pattern_fails_if_a_host_sees_a_new_name_late(results: dict[str, StepResult]) -> None:
    """If a host sees a new name late, no pattern (such as loads by all ranks at once) fails for this reason."""
    measured = results["contention"].run.measurement()
    assert measured["failure"] is None
    assert measured["patterns"]["mixed"]["save_seconds"]
    assert measured["patterns"]["neighbour"]["concurrent_bytes"] > 0
    assert results["contention"].left == ()


@pytest.mark.thorough
def test_every_other_suite_is_measured_over_hosts(results: dict[str, StepResult]) -> None:
    """Each suite is measured on two hosts. The requirements of the suite may be met or not.

    The simulated hosts share one machine, so a suite may be too slow.
    """
    run = results["suites"].run
    for measured in run.document["measurements"]:
        assert (measured["failure"], measured["hosts"]) == (None, ["h1", "h2"])
        patterns = {name for name, found in measured["patterns"].items() if found}
        assert {"endurance", "serving", "failover"} <= patterns
        own = {"training", "crashes"} if measured["subject"].endswith("async") else {"scaling", "metadata"}
        assert own <= patterns
    assert len(run.document["measurements"]) == 2
    assert results["suites"].left == ()


@pytest.mark.thorough
def test_no_process_on_any_host_shows_the_secret_of_a_second_client(results: dict[str, StepResult]) -> None:
    assert results["behaviour"].secrets > 0
    assert results["behaviour"].shown == ()


@pytest.mark.thorough
def test_64_ranks_on_two_cores_come_to_their_end(create_home: Callable[[str], Path]) -> None:
    """A run of 64 ranks on few cores ends normally, because waiting ranks use no CPU time."""
    need_hosts()
    of_70b = ("--ckpt-model=llama3-70b", "--ckpt-mode=full", "--ckpt-ranks=64", "--ckpt-scale=1/10000")
    options = (*of_70b, "--ckpt-profile=smoke", "--ckpt-operations=2", "--cluster=1")
    (result,) = on_hosts(create_home("hosts"), 4, Step(options=(*options, "--ckpt-hosts=h1:16,h2:16,h3:16,h4:16")))
    run = result.run
    assert run.code == 0, run.text
    assert run.measurement("llama3-70b-full")["hosts"] == ["h1", "h2", "h3", "h4"]
    assert run.launches == ["1"]
