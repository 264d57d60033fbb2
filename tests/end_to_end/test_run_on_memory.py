"""End-to-end runs on a target in memory, without directories. Requirements that need a directory do not apply."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support import CHECKOUT
from tests.support.end_to_end import SUBJECT, TINY, Run, Runner, temporary_runner
from tests.support.targets.memory import memory_server
from tests.support.targets.memory_store import MemoryTarget, Wire

BRINGS = ("-p", "tests.support.targets.memory_plugin")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with memory_server() as name:
        yield name


@pytest.fixture(scope="module", params=[pytest.param("torch", marks=pytest.mark.thorough), "stream"])
def run(request: pytest.FixtureRequest, server: str, create_home: Callable[[str], Path]) -> Run:
    with temporary_runner(create_home(f"memory-{request.param}")) as runner:
        # Requirements of the full table that need a directory are named and left out.
        return start(runner, server, f"--ckpt-engine={request.param}", "--ckpt-gate-table=posix-local").finish()


def start(runner: Runner, server: str, *options: str):
    return runner.start(*TINY, *BRINGS, *options, target=f"memory://{server}")


def subject(run: Run) -> str:
    (found,) = {c["subject"] for c in run.document["checkpoints"]}
    return found


def test_checkpoints_are_saved_loaded_compared_and_pass(run: Run) -> None:
    assert run.code == 0, run.text
    assert set(run.outcomes(subject(run)).values()) == {"met"}
    measured = run.measurement(subject(run))
    assert measured["integrity"]["bytes_checked"] == 2 * measured["bytes"]
    assert measured["integrity"]["fault_count"] == 0


def test_loads_are_cold_because_the_target_declares_it(run: Run) -> None:
    cache = run.measurement(subject(run))["cache"]
    assert (cache["is_declared_cold"], cache["method"], cache["probe"]) == (True, "none", "")
    assert all(o["resident_bytes"] is None for o in run.operations("load", subject(run)))
    assert run.verdict("COLD", subject(run))["outcome"] == "met"


def test_saves_are_durable_because_the_store_acknowledged_them(run: Run) -> None:
    durability = run.measurement(subject(run))["durability"]
    assert (durability["observed"], durability["commit_methods"]) == ("store", ["marker"])
    assert durability["files_synced"] == durability["files"] > 0
    assert durability["directories"] == 0
    assert durability["commits"] == durability["saves"] == 2


def test_checks_of_missing_capabilities_are_not_in_the_run(run: Run) -> None:
    suites = {r["suite"] for r in run.document["catalogue"]}
    assert suites <= {"performance", "contention", "endurance"}
    assert not run.document["observations"]
    assert "NEARFULL" not in {v["id"] for v in run.document["requirements"]}


def test_it_certifies_nothing_and_names_who_brought_the_target(run: Run) -> None:
    assert run.document["grade"] == "rehearsal"
    assert any("memory_plugin" in reason for reason in run.document["grade_reasons"])
    assert any("memory_plugin 1 takes part with targets" in found for found in run.document["disclosures"])
    target = run.document["environment"]["target"]
    assert (target["kind"], target["capabilities"], target["capacity"]) == ("memory", [], None)
    assert "memory_plugin" in target["plugin"]
    assert target["location"] in (run.report / "certificate.html").read_text()


def test_the_target_is_clean_afterwards(run: Run, server: str) -> None:
    assert run.document["left_behind"] == []
    assert run.run_id not in Wire(server).ask("areas")
    assert MemoryTarget(server).leftovers() == []


def test_its_directory_is_judged_again_without_the_target(run: Run) -> None:
    command = [sys.executable, "-m", "pytest_ckpt.cli.main", "judge", str(run.report), "--json"]
    output = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert output.returncode == 0, output.stderr
    again = json.loads(output.stdout)
    verdicts = [(v["id"], v["subject"], v["outcome"]) for v in run.document["requirements"]]
    assert [(v["id"], v["subject"], v["outcome"]) for v in again["requirements"]] == verdicts


def test_a_killed_rank_s_draft_is_removed(server: str, create_home: Callable[[str], Path]) -> None:
    wire = Wire(server)
    before = len(wire.ask("journal"))
    wire.ask("kill_writer_of", 2)
    with temporary_runner(create_home("memory-killed")) as runner:
        run = start(runner, server).finish()
    assert run.code != 0
    assert run.measurement(SUBJECT)["failure"]["kind"] != "hook"
    removed = wire.ask("journal")[before:]
    assert ("draft", f"{SUBJECT}+stream", "2") in {entry[:3] for entry in removed}
    assert run.document["left_behind"] == []
    assert run.run_id not in wire.ask("areas")


@pytest.mark.thorough
def test_the_area_of_a_killed_controller_is_told_to_the_next_run(
    server: str, create_home: Callable[[str], Path]
) -> None:
    target = MemoryTarget(server)
    code = f"from tests.support.targets.memory_store import *; MemoryTarget({server!r}).create_area('dead')"
    subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, check=True)
    with temporary_runner(create_home("memory-told")) as runner:
        run = start(runner, server, "--collect-only", "-q").finish()
        assert run.code == 0, run.text
        started = start(runner, server, "-k", "no_such_test")
        found = started.finish()
    assert "left on the target by run dead of" in found.text
    (leftover,) = target.leftovers()
    assert leftover.what.startswith("dead")


def test_a_suite_of_which_nothing_can_be_requested_is_refused(server: str, create_home: Callable[[str], Path]) -> None:
    with temporary_runner(create_home("memory-refused")) as runner:
        run = start(runner, server, "--ckpt-suite=conformance").finish()
        other = start(runner, server, "--ckpt-suite=endurance", "--ckpt-suite=near-full=on").finish()
    assert (run.code, other.code) == (4, 4)
    assert "--ckpt-suite" in run.text
    assert "--ckpt-suite=endurance:near-full" in other.text


@pytest.mark.parametrize("word", ["ftp://bucket/path", pytest.param("memry://x", marks=pytest.mark.thorough)])
def test_an_unknown_scheme_is_refused_with_the_known_ones(word: str, create_home: Callable[[str], Path]) -> None:
    with temporary_runner(create_home("unknown-scheme")) as runner:
        run = runner.start(*TINY, *BRINGS, target=word).finish()
    assert run.code == 4
    assert "memory://" in run.text
    assert "a directory on a mounted file system" in run.text
    assert "Mount the storage" not in run.text
    assert "Traceback" not in run.text
