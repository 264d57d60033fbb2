"""A failure of a rank: its phase decides which requirement fails and which requirements are "not run"."""

from __future__ import annotations

import dataclasses

import pytest

from pytest_ckpt.config.gate_files import built_in
from pytest_ckpt.config.options import resolve
from pytest_ckpt.facts.failure import Failure
from pytest_ckpt.grading.catalogue import REQUIREMENTS, requirements_of_run
from pytest_ckpt.grading.grading import judge_run
from pytest_ckpt.judging.verdicts import decide
from pytest_ckpt.sizing.plan import plan_run
from tests.support.synthetic_measurement import GATES, LIMITS, measurement, ref
from tests.support.synthetic_target import mounted


def failed_in(operation, kind="error", errno="EIO"):
    return Failure(kind=kind, rank=1, host="n1", operation=operation, message="it said no", errno=errno)


def outcomes(failure, *, saves, loads):
    found = measurement(saves=saves, loads=loads, failure=failure)
    return {r: decide(REQUIREMENTS[r], found, LIMITS, GATES).outcome for r in ("SAVE", "LOAD")}


IN_SAVES = {"saves": (1.0,), "loads": ()}
IN_LOADS = {"saves": (1.0, 1.0, 1.0), "loads": ()}


@pytest.mark.parametrize(("failure", "done", "expected"), [
    (failed_in(ref("save", 2)), IN_SAVES, {"SAVE": "failed", "LOAD": "not run"}),
    # Storage neither kills nor stops a process.
    (failed_in(ref("save", 2), "killed", ""), IN_SAVES, {"SAVE": "not run", "LOAD": "not run"}),
    (dataclasses.replace(failed_in(ref("save", 2), "hung", ""), stack="pid 3 (python3) state T"), IN_SAVES,
     {"SAVE": "not run", "LOAD": "not run"}),
    (dataclasses.replace(failed_in(ref("save", 2), "hung", ""), stack="state t"), IN_SAVES,
     {"SAVE": "not run", "LOAD": "not run"}),
    (dataclasses.replace(failed_in(ref("save", 2), "hung", ""), stack="state D\nin a frozen cgroup"), IN_SAVES,
     {"SAVE": "not run", "LOAD": "not run"}),
    (failed_in(ref("save", 2), errno="EMFILE"), IN_SAVES, {"SAVE": "not run", "LOAD": "not run"}),
    (failed_in(ref("load", 1), errno="ENFILE"), IN_LOADS, {"SAVE": "met", "LOAD": "not run"}),
    (failed_in(ref("save", 2), "hung", ""), IN_SAVES, {"SAVE": "failed", "LOAD": "not run"}),
    (failed_in(ref("save", 2), "too slow", ""), IN_SAVES, {"SAVE": "failed", "LOAD": "not run"}),
    # The target refuses the first directory, so no save is possible.
    (failed_in(ref(stage="prepare"), errno="EROFS"), {"saves": (), "loads": ()}, {"SAVE": "failed", "LOAD": "not run"}),
    (failed_in(ref(stage="prepare"), "hung", ""), {"saves": (), "loads": ()}, {"SAVE": "failed", "LOAD": "not run"}),
    # The client runs out of memory while it creates content, which is not the storage's fault.
    (failed_in(ref("save", 2, "content"), "killed", ""), IN_SAVES, {"SAVE": "not run", "LOAD": "not run"}),
    # A file is missing when its pages are to be dropped or counted, so a checkpoint is lost.
    (failed_in(ref(stage="drop caches"), errno="ENOENT"), IN_LOADS, {"SAVE": "met", "LOAD": "failed"}),
    (failed_in(ref("load", 1, "residency"), errno="ENOENT"), IN_LOADS, {"SAVE": "met", "LOAD": "failed"}),
    (failed_in(ref("load", 1)), IN_LOADS, {"SAVE": "met", "LOAD": "failed"}),
    # The user's command that drops caches fails.
    (failed_in(ref(stage="drop caches"), errno=""), IN_LOADS, {"SAVE": "met", "LOAD": "not run"}),
    (failed_in(ref("load", 1), "interrupted", ""), IN_LOADS, {"SAVE": "met", "LOAD": "not run"}),
])  # fmt: skip
def test_a_failure_fails_the_requirement_whose_operation_it_ended(failure, done, expected):
    assert outcomes(failure, **done) == expected


def test_a_failure_after_everything_was_measured_keeps_a_run_from_being_certified():
    settings = resolve({"ckpt_engine": "torch", "ckpt_cluster": "16000", "ckpt_model": "llama3-8b"}, {})
    plan = plan_run(settings, mounted("ext4"))
    ended_well = measurement()
    ended_badly = measurement(failure=failed_in(ref(stage="remove")))
    speed = dataclasses.replace(built_in("speed-only"), certifies=True)
    asked = requirements_of_run(settings, speed)
    findings = [decide(r, ended_badly, LIMITS, speed) for r in asked]
    assert {v.outcome for v in findings} == {"met"}
    good = judge_run(plan, settings, speed, findings, [ended_well])
    assert (good.grade, good.exit_code) == ("certified", 0)
    bad = judge_run(plan, settings, speed, findings, [ended_badly])
    assert (bad.grade, bad.exit_code) == ("incomplete", 8)
    assert "did not end well: Rank 1 on n1 failed" in bad.reasons[0]
