"""Opening a run: whatever goes wrong, nothing of it is left but the file that tells why."""

from __future__ import annotations

import tempfile

import pytest

from pytest_ckpt.config.options import resolve
from pytest_ckpt.judging.requirement import Requirement
from pytest_ckpt.run import open as opening
from pytest_ckpt.run.context import unpack
from pytest_ckpt.run.crash import Crash
from pytest_ckpt.targets.posix.target import PosixTarget

TINY = {
    "ckpt_cluster": "64",
    "ckpt_model": "llama3-8b",
    "ckpt_mode": "open",
    "ckpt_processes": "2",
    "ckpt_profile": "smoke",
    "ckpt_gates": "speed-only",
}


@pytest.fixture
def settings(tmp_path, monkeypatch):
    """Settings of a run whose target, report and scratch folder lie below ``tmp_path``; no ranks are started."""
    for name in ("target", "scratch"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    monkeypatch.setattr(opening.preflight, "_see_hosts", lambda *_: ())
    folders = {"ckpt_target": str(tmp_path / "target"), "ckpt_report": str(tmp_path / "report")}
    return resolve(TINY | folders, {})


def names(folder):
    return sorted(p.name for p in folder.iterdir())


@pytest.mark.parametrize(
    ("part", "step"), [(opening, "find_second_client"), (PosixTarget, "leftovers"), (opening, "write_atomically")]
)
def test_an_error_while_a_run_is_opened_leaves_its_traceback_alone(settings, tmp_path, monkeypatch, part, step):
    def fail(*_):
        raise OSError(107, "Transport endpoint is not connected")

    monkeypatch.setattr(part, step, fail)
    with pytest.raises(Crash, match=r"OSError.*crash\.txt"):
        opening.open_run(settings, ["pytest"])
    assert names(tmp_path / "target") == names(tmp_path / "scratch") == []
    assert names(tmp_path / "report") == ["crash.txt"]
    monkeypatch.undo()
    monkeypatch.setattr(opening.preflight, "_see_hosts", lambda *_: ())
    # What a crash left is no obstacle for the next run.
    run = opening.open_run(settings, ["pytest"])
    assert names(run.context.folder) == ["measurements", "plan.json", "session.json"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_while_a_run_is_opened_leaves_nothing(settings, tmp_path, monkeypatch, error):
    def interrupt(*_):
        raise error

    monkeypatch.setattr(opening, "write_atomically", interrupt)
    with pytest.raises(error):
        opening.open_run(settings, ["pytest"])
    assert names(tmp_path) == ["scratch", "target"]
    assert names(tmp_path / "target") == names(tmp_path / "scratch") == []


def test_a_run_is_planned_once(settings, monkeypatch):
    plans = []
    plan_run = opening.preflight.plan_run
    monkeypatch.setattr(opening.preflight, "plan_run", lambda *a, **k: plans.append(plan_run(*a, **k)) or plans[-1])
    context = opening.open_run(settings, ["pytest"]).context
    assert plans == [context.plan]
    assert context.settings.suites == ("performance",)


def test_a_worker_gets_the_very_context_of_its_run(settings):
    context = opening.open_run(settings, ["pytest"]).context
    assert unpack(context.pack()) == context


def test_a_worker_knows_the_requirements_of_plugins_before_its_own_plugins_are_asked(settings):
    def judge(*_):
        raise AssertionError

    extra = Requirement(
        id="ACME-IT", title="It", severity="required", source="ACME", plugin="acme", words="It is.", judge=judge
    )
    context = opening.open_run(settings, ["pytest"], [extra]).context
    told = unpack(context.pack())
    assert told.extras == context.extras
    assert told.catalogue["ACME-IT"].judge is None
    assert unpack(context.pack(), [extra]) == context
    assert unpack(context.pack(), []).extras == []
