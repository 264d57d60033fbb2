"""``pytest-ckpt doctor`` on a target that does not answer: it reports the target and finishes its other checks."""

from __future__ import annotations

import json
import os

import pytest

from pytest_ckpt.cli.main import main
from pytest_ckpt.run.preflight import ANSWER_SECONDS
from tests.support.jsonschema_validation import violations
from tests.support.machine import eventually, patience

# No rank starts. Other tests cover ranks on a target that hangs.
WORDS = ("--ckpt-ranks=2", "--ckpt-launcher=no-such-launcher", "--cluster=64")
DEADLINE_SECONDS = 2
AFTER = ["cores", "memory", "memory limit"]


def doctor(target, capsys, seconds=None):
    seconds = seconds or round(patience(DEADLINE_SECONDS))
    code = main(["doctor", "--json", f"--ckpt-target={target.path}", f"--ckpt-io-timeout={seconds}s", *WORDS])
    document = json.loads(capsys.readouterr().out)
    assert not violations(document, "doctor")
    assert code == 4
    return document["findings"]


def test_a_healthy_target_is_looked_at(target, capsys):
    found = {f["name"]: f for f in doctor(target, capsys)}
    assert found["target"]["can"]
    assert " free on the target" in found["space"]["description"]
    assert "O_DIRECT" in found
    assert not list(target.path.iterdir())


@pytest.mark.parametrize("operation", [pytest.param("statfs", marks=pytest.mark.thorough), "attributes"])
def test_a_target_that_does_not_answer_is_named_and_the_rest_is_examined(target, capsys, operation):
    target.fault("hang", operation=operation)
    # doctor never waits longer than ``ANSWER_SECONDS``, even on a busy machine.
    seconds = round(min(patience(DEADLINE_SECONDS), ANSWER_SECONDS))
    found = doctor(target, capsys, seconds)
    target.clear()
    (silent,) = (f for f in found if f["name"] == "target")
    assert (silent["can"], silent["needed"]) == (False, True)
    assert f"the target did not answer for {seconds} s; process " in silent["description"]
    assert silent["remedy"]
    names = [f["name"] for f in found]
    assert [n for n in AFTER if n in names] == AFTER
    # Without a target, doctor inspects a directory of this host.
    assert next(f for f in found if f["name"] == "residency")["description"].endswith("not on a target")
    assert names[-1] == "clock"
    pid = int(silent["description"].split("; process ")[1].split()[0])
    eventually(lambda: not is_running(pid), "the process that waited ends when the target answers")


@pytest.mark.thorough
@pytest.mark.parametrize("operation", ["create", "write", "fsync"])
def test_a_target_that_hangs_in_writes_is_named(target, capsys, operation):
    target.fault("hang", operation=operation)
    seconds = round(min(patience(DEADLINE_SECONDS), ANSWER_SECONDS))
    found = doctor(target, capsys, seconds)
    target.clear()
    first, silent = (f for f in found if f["name"] == "target")
    assert first["can"]
    assert f"the target did not answer for {seconds} s" in silent["description"]
    assert "O_DIRECT" not in {f["name"] for f in found}
    assert found[-1]["name"] == "clock"
    pid = int(silent["description"].split("; process ")[1].split()[0])
    eventually(lambda: not is_running(pid), "the process that waited ends when the target answers")


def test_a_refusal_by_the_target_is_reported(target, capsys):
    target.fault("EIO in write")
    found = {f["name"]: f for f in doctor(target, capsys)}
    assert found["target"]["can"]
    assert found["residency"]["description"].endswith("Input/output error")
    assert not found["residency"]["can"]


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
