"""End-to-end runs of save strategies such as async, in which the job continues during the save.

The tests check measurements, one injected fault for each requirement, and refused options.
"""

from __future__ import annotations

import errno
import re
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_ckpt.cli.main import main
from pytest_ckpt.facts.codec import from_plain
from pytest_ckpt.facts.strategies import STRATEGIES
from pytest_ckpt.facts.strategy_results import BACKGROUND, StepsOfSave
from pytest_ckpt.ranks.engines.whole_state import FACT
from pytest_ckpt.ranks.training import STEPS_ALONE
from tests.support.end_to_end import (
    MEASURED,
    SMALLEST,
    STREAM,
    SUBJECT,
    TINY,
    TORCH,
    Run,
    Runner,
    in_every_rank,
    temporary_runner,
)
from tests.support.machine import need_fuse, patience
from tests.support.targets.misbehaving import misbehaving

ASYNC = "--ckpt-strategy=async"
ASYNC_SUBJECT = f"{SUBJECT}/torch/async"
FILES = "*optim_states*"
NAMES = ", ".join(strategy.name for strategy in STRATEGIES)
OF_ASYNC = ("BLOCKING", "BACKGROUND", "LOST-WORK", "CRASH-ASYNC", "RETAIN-COMMITTED")
SUBJECTS = {
    f"{SUBJECT}": "sync",
    f"{SUBJECT}/torch/async": "async",
    MEASURED: "sync",
    f"{SUBJECT}/stream/async": "async",
}
# An engine that lets the job continue before it has copied anything.
NOTHING_COPIED = """
import sys
import time

if "pytest_ckpt.ranks" in sys.orig_argv:
    from pytest_ckpt.ranks.engines.whole_state import CompleteState
    from pytest_ckpt.ranks.engines.stream.engine import StagedFiles
    from pytest_ckpt.ranks.strategies.asynchronous import Background

    begin = Background.begin

    def begun(background, work, start):
        # The job gets time to change its state.
        return begin(background, lambda: (time.sleep(0.5), work())[1], start)

    def stage(whole):
        whole.copy, whole.is_staged = whole.state, True
        return 1

    def staged(files, threads):
        files._copies, files._is_staged = files._state, True
        return 1

    CompleteState.stage, StagedFiles.stage, Background.begin = stage, staged, begun
"""


# Two faults at a kill: a client that loses acknowledged bytes with its process, or a store that shows an uncommitted
# save.
WHEN_KILLED = """
import os, pathlib, sys

if "pytest_ckpt.ranks" in sys.orig_argv:
    from pytest_ckpt.ranks.process.forked import ForkedProcess

    kill, target = ForkedProcess.kill, pathlib.Path(os.environ["CKPT_LOSES"])

    def killed(child):
        kill(child)
        newest = sorted(target.glob("*/*/checkpoint-*"))[-1:]
        for directory in newest if os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK")) == "0" else []:
            if os.environ["CKPT_WAY"] == "lose" and "d" in child.sent:
                for file in directory.iterdir():
                    os.truncate(file, file.stat().st_size // 2)
            elif os.environ["CKPT_WAY"] == "show" and directory.name.endswith(".partial"):
                directory.rename(directory.with_name(directory.name.removesuffix(".partial")))

    ForkedProcess.kill = killed

    if os.environ["CKPT_WAY"] == "lose":
        # What is lost is a committed checkpoint, so a kill must come after the commit, however busy the machine is.
        from pytest_ckpt.ranks.scenarios.crashes import CrashScenario

        save = CrashScenario._save
        CrashScenario._save = lambda scenario, ref, _moment, older=0, **_: save(scenario, ref, None, older)
"""


# A retention that deletes the newest committed checkpoint together with the previous one, during a save.
TAKES_THE_NEWEST = """
import os, pathlib, sys, threading

if "pytest_ckpt.ranks" in sys.orig_argv:
    from pytest_ckpt.ranks.scenarios.crashes import CrashScenario

    delete, target = CrashScenario._delete_files, pathlib.Path(os.environ["CKPT_TARGET"])

    def deleted(scenario, number):
        delete(scenario, number)
        if threading.current_thread() is not threading.main_thread():
            newest = sorted(f for f in target.glob("*/*/checkpoint-*") if not f.name.endswith(".partial"))[-1]
            for name in scenario.do.files(number).names:
                os.truncate(newest / name, 0)

    CrashScenario._delete_files = deleted
"""


@pytest.fixture(scope="module", params=[pytest.param("torch,stream", marks=pytest.mark.thorough), "stream"])
def engines(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def together(create_home: Callable[[str], Path], engines: str) -> Run:
    """Return a run of the engines ``engines`` with the strategies sync and async."""
    with temporary_runner(create_home("strategies")) as runner:
        return runner.run(*SMALLEST, f"--ckpt-engine={engines}", "--ckpt-strategy=sync,async", cluster=1)


@pytest.fixture(scope="module")
def subjects(engines: str) -> dict[str, str]:
    """Return {subject: save strategy}, in the order of the run.

    A subject is a combination of layout, engine and strategy.
    """
    if engines == "stream":
        return {MEASURED: "sync", f"{SUBJECT}/stream/async": "async"}
    return SUBJECTS


def measurement_of(run: Run, subject: str) -> dict[str, str]:
    return {v["id"]: v["outcome"] for v in run.document["requirements"] if v["subject"] == subject}


def test_several_engines_and_strategies_are_subjects_of_their_own(together: Run, subjects: dict[str, str]) -> None:
    assert together.code == 0, together.text
    assert [m["subject"] for m in together.document["measurements"]] == list(subjects)
    for subject, strategy in subjects.items():
        verdicts = measurement_of(together, subject)
        assert {"LOAD", "INTEGRITY", "COLD", "DURABLE-CALLS"} <= set(verdicts)
        assert ("SAVE" in verdicts) is (strategy == "sync")
        assert set(OF_ASYNC).issubset(verdicts) is (strategy == "async")
        required = {name: outcome for name, outcome in verdicts.items() if name in {"INTEGRITY", "SAVE", *OF_ASYNC}}
        assert set(required.values()) == {"met"}, (subject, required)


def test_a_save_in_the_background_copies_the_state_before_it_is_committed(
    together: Run, subjects: dict[str, str]
) -> None:
    for measurement in together.document["measurements"]:
        strategy = subjects[measurement["subject"]]
        for save in (o for o in measurement["operations"] if o["kind"] == "save"):
            # On a busy machine, a small save may end before the job's thread gets a processor again.
            assert (save["staged_seconds"] < save["stored_seconds"]) is (strategy == "async")
            assert ("stage" in save["phases"]) is (strategy == "async")


def test_steps_continue_during_every_save_and_between_them(together: Run, subjects: dict[str, str]) -> None:
    for measurement in together.document["measurements"]:
        if subjects[measurement["subject"]] == "sync":
            assert measurement["patterns"] is None
            continue
        training = measurement["patterns"]["training"]
        assert [s["checkpoint"] for s in training["saves"]] == [1, 2]
        saves = [o for o in measurement["operations"] if o["kind"] == "save"]
        for save, steps in zip(saves, training["saves"], strict=True):
            assert len(steps["before_seconds"]) == len(steps["after_seconds"]) == STEPS_ALONE
            assert statistics.median(steps["before_seconds"]) >= training["step_seconds"] * (1 - training["cpu_share"])
            beside = sum(batch["seconds"] for batch in steps["during"])
            assert sum(batch["steps"] for batch in steps["during"]) >= 1
            # The steps end with the one in which the last rank's save ended. A busy machine starts them late.
            assert beside >= save["seconds"] - save["returned_seconds"] - 20 * training["step_seconds"]


def test_the_copy_of_the_state_is_timed_separately_and_reported(together: Run, subjects: dict[str, str]) -> None:
    for measurement in together.document["measurements"]:
        saves = [o for o in measurement["operations"] if o["kind"] == "save"]
        if subjects[measurement["subject"]] == "sync":
            assert [save["copying_seconds"] for save in saves] == [0.0, 0.0]
            assert FACT not in measurement["engine_facts"]
            continue
        assert all(0 < save["copying_seconds"] <= save["staged_seconds"] for save in saves)
        assert re.search(r"by \d+ threads? a rank", measurement["engine_facts"][FACT])
        (verdict,) = (
            v
            for v in together.document["requirements"]
            if (v["id"], v["subject"]) == ("BLOCKING", measurement["subject"])
        )
        added = [
            max(save["returned_seconds"], save["staged_seconds"])
            - save["copying_seconds"]
            + max(0.0, delay_of_steps(steps))
            for save, steps in zip(saves, measurement["patterns"]["training"]["saves"], strict=True)
        ]
        assert verdict["measured"] == pytest.approx(max(added))
        assert "of the client's memory, not of the storage" in verdict["because"]


def delay_of_steps(steps: dict[str, Any]) -> float:
    """Return the time in seconds by which a save delayed the simulated training steps."""
    found: StepsOfSave = from_plain(StepsOfSave, steps)
    return found.extra_seconds


def test_the_terminal_and_the_report_name_engines_and_strategies(
    together: Run, subjects: dict[str, str], engines: str
) -> None:
    scope = together.document["scope"]
    assert (scope["engines"], scope["strategies"]) == (engines.split(","), ["sync", "async"])
    named = "engine stream" if engines == "stream" else "engines torch and stream"
    assert scope["text"].endswith(f"{named}, strategies sync and async")
    assert f"{named}; strategies sync and async" in together.text
    assert {c["subject"]: c["strategy"] for c in together.document["checkpoints"]} == subjects


def test_the_certificate_shows_what_training_loses_and_risks(
    together: Run, subjects: dict[str, str], engines: str
) -> None:
    page = (together.report / "certificate.html").read_text()
    assert page.count("<h3>Saves during training</h3>") == len(engines.split(","))
    rows = {row["subject"]: row for row in together.document["training"]}
    for subject, strategy in subjects.items():
        assert (rows[subject]["at_risk_seconds"] > 0) is (strategy == "async")


def test_saves_that_are_killed_lose_no_checkpoint(together: Run, subjects: dict[str, str]) -> None:
    for measurement in together.document["measurements"]:
        if subjects[measurement["subject"]] == "sync":
            continue
        found = measurement["patterns"]["crashes"]
        assert len(found["kills"]) == found["planned"] == 6
        assert found["integrity"]["bytes_checked"] == 6 * found["bytes"]
        assert all(kill["is_committed"] or kill["reached"] != "committed" for kill in found["kills"])
        assert all(kill["deletes_older"] for kill in found["kills"])


def test_verify_holds_the_evidence_of_saves_in_the_background(together: Run) -> None:
    assert main(["verify", str(together.report)]) == 0


@pytest.mark.thorough
@pytest.mark.parametrize("engine", [TORCH, STREAM])
def test_a_state_that_was_not_copied_before_the_job_continued_is_found(runner: Runner, engine: str) -> None:
    """INTEGRITY fails if the job continues before its state is copied, because the file then mixes two states."""
    run = runner.run(
        *TINY, engine, ASYNC, "--ckpt-operations=1", environment=in_every_rank(runner.home, NOTHING_COPIED)
    )
    assert run.code == 1, run.text
    (verdict,) = (v for v in run.document["requirements"] if v["id"] == "INTEGRITY")
    assert (verdict["outcome"], verdict["reason"]) == ("failed", "wrong bytes")


@pytest.mark.thorough
def test_storage_that_drains_too_slowly_fails_the_background(
    runner: Runner, create_home: Callable[[str], Path]
) -> None:
    need_fuse()
    with misbehaving(create_home("drain")) as target:
        # A checkpoint of 10 MB takes half a second. For 8,000 accelerators the limit is 0.11 s.
        target.fault("slow", bytes_per_second=20e6)
        run = runner.run(*TINY, ASYNC, target=target.path, cluster=8_000)
        assert run.left_on_target == []
    assert run.code == 1, run.text
    verdicts = measurement_of(run, f"{SUBJECT}/stream/async")
    assert (verdicts["BACKGROUND"], verdicts["LOST-WORK"], verdicts["INTEGRITY"]) == ("failed", "failed", "met")
    assert "SAVE" not in verdicts


@pytest.mark.thorough
def test_an_error_in_the_background_is_reported_with_its_call(
    runner: Runner, create_home: Callable[[str], Path]
) -> None:
    need_fuse()
    with misbehaving(create_home("refuses")) as target:
        target.fault("EIO in write", path=FILES)
        run = runner.run(*TINY, TORCH, ASYNC, target=target.path)
        assert run.left_on_target == []
    assert run.code == 1, run.text
    verdicts = measurement_of(run, ASYNC_SUBJECT)
    assert (verdicts["BACKGROUND"], verdicts["BLOCKING"], verdicts["LOST-WORK"]) == ("failed", "not run", "not run")
    failure = run.measurement(ASYNC_SUBJECT)["failure"]
    assert (failure["lane"], failure["errno"]) == (BACKGROUND, errno.errorcode[errno.EIO])


@pytest.mark.parametrize(
    ("engine", "way"),
    [
        ("stream", "lose"),
        pytest.param("stream", "show", marks=pytest.mark.thorough),
        pytest.param("dcp", "lose", marks=pytest.mark.thorough),
        pytest.param("dcp", "show", marks=pytest.mark.thorough),
    ],
)
def test_damage_or_early_visibility_after_a_kill_is_found(runner: Runner, engine: str, way: str) -> None:
    """CRASH-ASYNC fails if killed saving processes leave a fault.

    If ``way`` is ``lose``, a committed checkpoint loses bytes. If ``way`` is ``show``, an unfinished save looks like a
    checkpoint.
    """
    environment = in_every_rank(runner.home, WHEN_KILLED, CKPT_LOSES=str(runner.target), CKPT_WAY=way)
    words = (*TINY, f"--ckpt-engine={engine}", ASYNC, "--ckpt-operations=1")
    run = runner.run(*words, environment=environment)
    assert run.code == 1, run.text
    verdicts = measurement_of(run, f"{SUBJECT}/{engine}/async")
    assert (verdicts["CRASH-ASYNC"], verdicts["INTEGRITY"], verdicts["BACKGROUND"]) == ("failed", "met", "met")
    assert run.left_on_target == []


@pytest.mark.thorough
@pytest.mark.parametrize("engine", ["stream", "dcp"])
def test_retention_that_takes_the_newest_committed_one_is_found(runner: Runner, engine: str) -> None:
    """RETAIN-COMMITTED fails if the newest complete checkpoint is deleted while a newer save is unfinished."""
    run = runner.run(
        *TINY,
        f"--ckpt-engine={engine}",
        ASYNC,
        "--ckpt-operations=1",
        environment=in_every_rank(runner.home, TAKES_THE_NEWEST, CKPT_TARGET=str(runner.target)),
    )
    assert run.code == 1, run.text
    verdicts = measurement_of(run, f"{SUBJECT}/{engine}/async")
    assert (verdicts["RETAIN-COMMITTED"], verdicts["INTEGRITY"]) == ("failed", "met")
    assert run.left_on_target == []


@pytest.mark.thorough
def test_a_save_that_hangs_in_the_background_is_ended_and_named(
    runner: Runner, create_home: Callable[[str], Path]
) -> None:
    need_fuse()
    deadline = max(15, patience(3))
    with misbehaving(create_home("hangs")) as target:
        target.fault("hang", operation="fsync", path=FILES)
        run = runner.run(*TINY, TORCH, ASYNC, f"--ckpt-io-timeout={deadline:.0f}s", target=target.path)
    assert run.code == 1, run.text
    verdict = run.verdict("BACKGROUND", ASYNC_SUBJECT)
    assert (verdict["outcome"], verdict["reason"]) == ("failed", "hung")
    assert run.measurement(ASYNC_SUBJECT)["failure"]["lane"] == BACKGROUND


@pytest.mark.parametrize(
    ("words", "expected_text"),
    [
        (("--ckpt-strategy=asynchronous",), f"one of {NAMES} is expected (did you mean 'async'?)"),
        (("--ckpt-strategy=async:proces",), "(did you mean 'async:process'?)"),
        (("--ckpt-strategy=sync,",), f"one of {NAMES} is expected"),
        (("--ckpt-strategy=step=1ms",), "10ms to 60s are expected"),
        (("--ckpt-strategy=step-cpu=100%",), "more than 0 % and less than 100 % is expected"),
    ],
)
def test_an_impossible_value_is_refused_with_the_possible_values(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], expected_text: str
) -> None:
    assert main(["plan", "--cluster=64", "--ckpt-model=llama3-8b", *words]) == 4
    assert expected_text in capsys.readouterr().err


def test_the_plan_shows_what_each_strategy_needs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--cluster=16000", "--ckpt-model=llama3-405b", "--ckpt-mode=full", "--ckpt-ranks=512",
                 "--ckpt-strategy=sync,async"]) == 0  # fmt: skip
    text = capsys.readouterr().out
    sync, both = text.split("llama3-405b-full/stream/async", maxsplit=1)
    # 5.67 TB: in 5 % of an interval, and in a whole interval.
    assert "save   within 27.8 s: 204 GB/s" in sync
    assert "save   committed within 9.28 min: 10.2 GB/s" in both


@pytest.mark.thorough
def test_a_notice_that_is_too_short_is_reported_and_fails_nothing_else(runner: Runner) -> None:
    """If the notice before a preemption is one second, no save can commit, and only the advisory PREEMPT fails.

    The checkpoints of this test are scaled down to a ten-thousandth, and the notice is scaled down by the same factor.
    """
    run = runner.run(*TINY, "--ckpt-strategy=sync", "--ckpt-suite=preemption-notice=1s")
    verdict = run.verdict("PREEMPT")
    assert (verdict["outcome"], verdict["reason"]) == ("failed", "over limit")
    assert run.code == 0, run.text


@pytest.mark.thorough
def test_plain_saves_are_measured_beside_those_that_the_suite_of_strategies_judges(runner: Runner) -> None:
    run = runner.run(*TINY, "--ckpt-suite=strategies", "--ckpt-strategy=sync,async", "--ckpt-gate-table=speed-only")
    plain, background = sorted((row["subject"] for row in run.document["training"]), key=len)
    assert background.removeprefix(plain) == "/async"
    assert {run.verdict(name, plain)["outcome"] for name in ("SAVE", "LOAD", "INTEGRITY")} == {"met"}
    assert all(row["clusters"] for row in run.document["training"])
    assert main(["verify", str(run.report)]) == 0


@pytest.mark.thorough
@pytest.mark.parametrize("strategy", ["sync", "async"])
def test_a_job_that_is_given_notice_saves(runner: Runner, strategy: str) -> None:
    # The notice is scaled down with the checkpoint, to 11 s: the load of this machine does not decide.
    run = runner.run(*TINY, f"--ckpt-strategy={strategy}", "--ckpt-suite=preemption-notice=30h")
    assert run.code == 0, run.text
    assert run.verdict("PREEMPT")["outcome"] == "met"
    found = run.measurement()["patterns"]["preempt"]
    assert len(found["committed_seconds"]) == 3
    if strategy == "async":
        # The notice waits for the save that had begun.
        assert max(found["committed_seconds"]) > min(save["seconds"] for save in run.operations("save")) / 2
    assert run.left_on_target == []
