"""End-to-end runs of FAILOVER: a component of the storage fails during saves and loads, and is repaired.

The user supplies a fault command and a repair command. Here, they switch a fault of the target on and off.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from pytest_ckpt.evidence.verification import verify_directory
from pytest_ckpt.support.units import format_seconds
from tests.support import CHECKOUT, jsonschema_validation
from tests.support.actions import actions
from tests.support.end_to_end import STREAM, TINY, TORCH, Run, Runner, processes_of, temporary_runner
from tests.support.machine import eventually, need, need_fuse, patience
from tests.support.replicated_volume import ALONE, BREAK, MEND, PROGRAMS
from tests.support.targets.misbehaving import Target, misbehaving

OPTIONS = (*TINY, "--ckpt-suite=performance,failover", "--ckpt-seed=7")
SAFETENSORS = "--ckpt-engine=safetensors"
# The fault must not affect these verdicts. COLD is left out, because other work on the machine drops caches, too.
UNTOUCHED = dict.fromkeys(("SAVE", "LOAD", "INTEGRITY", "DURABLE-CALLS"), "met")


@pytest.fixture
def target(create_home: Callable[[str], Path]) -> Iterator[Target]:
    need_fuse()
    with misbehaving(create_home("broken"), keep_cache=True) as mounted:
        yield mounted


def options(runner: Runner, breaks: list[str], repairs: list[str], limit: float = 60.0) -> tuple[str, ...]:
    """Return options of a run that requires speed and FAILOVER.

    ``breaks`` is the fault command and ``repairs`` the repair command, each as a list of arguments. ``limit`` is the
    longest permitted stall in seconds.
    """
    table = runner.home / "gates.toml"
    row = f'FAILOVER = {{ gate = "required", limit = {limit} }}'
    table.write_text(f'name = "failover"\nextends = "speed-only"\n[requirements]\n{row}\n')
    commands = (actions(fault_command=shlex.join(breaks), repair_command=shlex.join(repairs)),)
    return (*OPTIONS, f"--ckpt-gate-table={table}", *commands)


def untouched(run: Run) -> dict[str, str]:
    return {name: run.verdict(name)["outcome"] for name in UNTOUCHED}


def found_in(run: Run) -> dict[str, Any]:
    found: dict[str, Any] = run.measurement()["patterns"]["failover"]
    return found


@pytest.mark.covers(requirements=("FAILOVER",))
@pytest.mark.parametrize(
    "engine", [STREAM, *(pytest.param(word, marks=pytest.mark.thorough) for word in (TORCH, SAFETENSORS))]
)
def test_saves_that_fail_cleanly_and_complete_loads_are_met(runner: Runner, target: Target, engine: str) -> None:
    """FAILOVER is met if saves during the fault fail with an error and commit nothing.

    Earlier checkpoints stay complete and can be loaded.
    """
    words = options(runner, target.fault_command("EIO in write"), target.clear_command)
    run = runner.run(*words, engine, target=target.path)
    verdict, found = run.verdict("FAILOVER"), found_in(run)
    assert (verdict["outcome"], verdict["unit"], verdict["limit"]) == ("met", "s", 60.0), verdict
    assert (verdict["severity"], run.code) == ("required", 0)
    assert untouched(run) == UNTOUCHED
    saves, loads = found["trials"][:3], found["trials"][3:]
    assert [t["kind"] for t in saves + loads] == ["save"] * 3 + ["load"] * 3
    for trial in found["trials"]:
        assert trial["fault"]["exit_code"] == trial["repaired"]["exit_code"] == 0
        assert not trial["after"]["error"]
    # A save may have written everything when the command returns, and then succeeds. No other save can succeed.
    errors = [o["error"] for t in saves for o in t["operations"] if o["error"]]
    assert errors
    assert all("write of" in error and "EIO" in error for error in errors)
    assert not any(o["error"] for t in loads for o in t["operations"])
    assert found["integrity"]["bytes_checked"] == found["integrity"]["bytes_expected"] > 0
    # These saves are not the subject's own: it has as many as requested, and all of them succeeded.
    assert [len(run.operations(kind)) for kind in ("save", "load")] == [2, 2]
    assert run.left_on_target == []

    assert jsonschema_validation.violations(run.document, "report") == []
    certificate = (run.report / "certificate.html").read_text()
    assert "Component failure" in certificate
    assert f"into a {loads[0]['kind']}" in certificate
    cases = [case.get("name") or "" for case in ET.parse(run.report / "junit.xml").iter("testcase")]
    assert any("FAILOVER" in name for name in cases), cases
    commands = [
        json.loads(line) for line in (run.report / "launches" / "2" / "commands.jsonl").read_text().splitlines()
    ]
    assert [c["command"] for c in commands] == ["fault", "repair"] * 6
    assert {
        c.name: c.outcome for c in verify_directory(run.report, None) if c.outcome != "not checked"
    } == dict.fromkeys(("digests", "verdicts", "pages"), "holds")


TRUE = ["true"]


@pytest.mark.thorough
@pytest.mark.parametrize("fault", ["flipped bit at rest", "torn write", "misplaced write"])
def test_a_wrong_byte_in_a_save_that_succeeded_fails(runner: Runner, target: Target, fault: str) -> None:
    run = runner.run(*options(runner, target.fault_command(fault), target.clear_command), target=target.path)
    verdict = run.verdict("FAILOVER")
    assert (verdict["outcome"], verdict["reason"], verdict["unit"]) == ("failed", "wrong bytes", "faults"), verdict
    assert run.code == 1
    # The fault must not affect the verdicts on undisturbed saves and loads.
    assert untouched(run) == UNTOUCHED


@pytest.mark.thorough
def test_a_committed_checkpoint_that_cannot_be_read_again_is_lost(runner: Runner, target: Target) -> None:
    """FAILOVER fails if a committed checkpoint cannot be loaded after the repair command.

    The repair command of this test does nothing.
    """
    run = runner.run(*options(runner, target.fault_command("EIO in read"), TRUE), target=target.path)
    verdict = run.verdict("FAILOVER")
    assert (verdict["outcome"], verdict["reason"]) == ("failed", "missing bytes"), verdict
    assert "After fault 1 was repaired, a committed checkpoint could not be loaded: rank" in verdict["because"]
    assert "EIO" in verdict["because"]


@pytest.mark.parametrize("torn", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_a_commit_whose_answer_is_lost_is_one_if_the_checkpoint_is_complete(
    runner: Runner, target: Target, torn: bool
) -> None:
    """A save commits by a rename. In this test, the rename succeeds, but the client receives an error.

    If the checkpoint is complete, the save counts as committed. If the checkpoint is incomplete (``torn``), FAILOVER
    fails.
    """
    breaks = target.fault_command("the answer of rename is lost", torn=torn)
    run = runner.run(*options(runner, breaks, target.clear_command), target=target.path)
    verdict, found = run.verdict("FAILOVER"), found_in(run)
    lost = [trial for trial in found["trials"] if trial["commit_answer_lost"]]
    assert lost
    assert all("commit of checkpoint-" in trial["operations"][-1]["error"] for trial in lost)
    assert not any(trial["committed_in_error"] for trial in found["trials"])
    assert untouched(run) == UNTOUCHED
    assert run.left_on_target == []
    if torn:
        assert (verdict["outcome"], verdict["unit"]) == ("failed", "faults"), verdict
        return
    assert verdict["outcome"] == "met", verdict
    assert "ended with an error and had succeeded" in verdict["because"]
    assert any("counts as committed" in line for line in verdict["detail"].splitlines())
    assert "committed, and the answer was lost" in (run.report / "certificate.html").read_text()
    # Each such checkpoint was loaded after the repair, in addition to the checks that follow every fault.
    assert found["integrity"]["bytes_checked"] == found["integrity"]["bytes_expected"] > 0


@pytest.mark.thorough
def test_a_stall_beyond_the_limit_of_the_gates_fails(runner: Runner, target: Target) -> None:
    words = options(runner, target.fault_command("slow file", seconds=2), target.clear_command, 1.5)
    run = runner.run(*words, target=target.path)
    verdict = run.verdict("FAILOVER")
    assert (verdict["outcome"], verdict["reason"], verdict["limit"]) == ("failed", "over limit", 1.5), verdict
    assert verdict["measured"] > 1.5
    assert "Longest stall: " in verdict["because"]


@pytest.mark.thorough
def test_a_save_that_is_late_while_the_storage_rebuilds_fails(runner: Runner, target: Target) -> None:
    """FAILOVER fails if a save that starts after the repair command takes more than 1.5 times the save limit.

    The target is slow from the repair command until the next fault.
    """
    words = options(runner, target.clear_command, target.fault_command("slow file", seconds=1))
    run = runner.run(*words, target=target.path, cluster=64)
    verdict = run.verdict("FAILOVER")
    assert (verdict["outcome"], verdict["reason"], verdict["unit"]) == ("failed", "over limit", "s"), verdict
    assert "1.5 x the save limit" in verdict["because"]


@pytest.mark.thorough
def test_a_break_command_that_fails_breaks_nothing_that_counts(runner: Runner, target: Target) -> None:
    words = options(runner, ["sh", "-c", "echo no such drive >&2; exit 3"], target.clear_command)
    run = runner.run(*words, target=target.path)
    verdict = run.verdict("FAILOVER")
    assert (verdict["outcome"], verdict["reason"]) == ("not run", "command failed"), verdict
    assert verdict["because"] == "The fault command ended with exit code 3: no such drive."
    # A command that fails may still have broken something.
    assert [t["repaired"]["exit_code"] for t in found_in(run)["trials"]] == [0]
    assert run.code == 8


@pytest.mark.thorough
def test_a_repair_command_that_fails_is_reported(runner: Runner, target: Target) -> None:
    words = options(runner, target.fault_command("slow file"), ["sh", "-c", "echo no spare >&2; exit 4"])
    run = runner.run(*words, target=target.path)
    verdict = run.verdict("FAILOVER")
    assert (verdict["outcome"], verdict["reason"]) == ("not run", "command failed"), verdict
    assert "The repair command ended with exit code 4: no spare." in verdict["because"]
    assert "repair it by hand" in verdict["detail"]


@pytest.mark.thorough
def test_a_command_that_does_not_end_is_killed(runner: Runner, target: Target) -> None:
    seconds = round(max(15, patience(5)))
    words = (*options(runner, ["sleep", "86400"], target.clear_command), f"--ckpt-io-timeout={seconds}s")
    run = runner.run(*words, target=target.path)
    verdict = run.verdict("FAILOVER")
    assert (verdict["outcome"], verdict["reason"]) == ("not run", "command failed"), verdict
    assert (
        f"it was killed when it had not ended after {format_seconds(seconds)} (--ckpt-io-timeout)" in verdict["because"]
    )


@pytest.mark.thorough
def test_storage_that_hangs_fails_at_the_deadline_and_is_repaired(runner: Runner, target: Target) -> None:
    words = options(runner, target.fault_command("hang", operation="write"), target.clear_command)
    run = runner.run(*words, f"--ckpt-io-timeout={max(15, patience(5)):.0f}s", target=target.path)
    verdict, found = run.verdict("FAILOVER"), found_in(run)
    assert (verdict["outcome"], verdict["reason"]) == ("failed", "hung"), verdict
    assert found["repaired_after"]["exit_code"] == 0
    assert untouched(run) == UNTOUCHED
    assert run.code == 1
    assert run.left_on_target == []


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_injected_faults_are_repaired_when_the_run_ends(runner: Runner, target: Target, number: signal.Signals) -> None:
    """If a run is ended during a fault, the repair command still runs.

    The test ends the run by Ctrl-C, or by SIGKILL, which the controller cannot handle.
    """
    broken, repaired = runner.home / "broken", runner.home / "repaired"
    words = options(runner, ["sh", "-c", f"touch {broken}; exec sleep 8"], ["touch", str(repaired)])
    started = runner.start(*words, target=target.path)
    started.until(broken.exists, "something is broken")
    assert not repaired.exists()
    os.kill(started.process.pid, number)
    started.process.wait()
    eventually(repaired.exists, "it is repaired")
    eventually(lambda: not processes_of(started.run_id), "no rank is left")


@pytest.mark.thorough
def test_a_replica_whose_server_is_killed_costs_nothing(create_home: Callable[[str], Path]) -> None:
    """If GlusterFS keeps three copies and the server of one copy is killed, FAILOVER is met without any error."""
    missing = [name for name in PROGRAMS if not shutil.which(name)]
    need(os.geteuid() == 0 and not missing, f"a volume of GlusterFS needs root and {', '.join(missing) or 'no more'}")
    home = create_home("gluster")
    with temporary_runner(home) as runner:
        volume = [*ALONE, sys.executable, "-m", "tests.support.replicated_volume", str(home)]
        # The saves are long enough to kill a server during one of them.
        words = (*options(runner, [*BREAK], [*MEND]), "--ckpt-scale=1/1000")
        run = runner.run(*words, target=home / "volume" / "target", around=volume)
    verdict, found = run.verdict("FAILOVER"), found_in(run)
    assert verdict["outcome"] == "met", verdict
    assert not any(o["error"] for t in found["trials"] for o in t["operations"])
    assert found["integrity"]["bytes_checked"] == found["integrity"]["bytes_expected"] > 0
    assert run.code == 0


@pytest.mark.thorough
def test_kept_checkpoints_stay_and_can_be_verified(runner: Runner) -> None:
    run = runner.run(*options(runner, TRUE, TRUE), "--ckpt-keep-files")
    assert run.verdict("FAILOVER")["outcome"] == "met"
    kept = sorted(directory.name for directory in run.target.glob("*/*/checkpoint-*"))
    assert kept == ["checkpoint-0001", "checkpoint-0002"]
    verified = [sys.executable, "-m", "pytest_ckpt.cli.main", "verify", str(run.report)]
    done = subprocess.run(verified, capture_output=True, text=True, check=False, cwd=CHECKOUT)
    assert done.returncode == 0, done.stdout
    assert "UNCHANGED" in done.stdout
