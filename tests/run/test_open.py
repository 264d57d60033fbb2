"""If the opening of a run fails, only the file with the reason remains."""

from __future__ import annotations

import os
import tempfile
from types import SimpleNamespace

import pytest

from pytest_ckpt.config.options import resolve
from pytest_ckpt.facts.environment import HostFacts
from pytest_ckpt.facts.targets import Access
from pytest_ckpt.judging.requirement import Requirement
from pytest_ckpt.run import open as opening
from pytest_ckpt.run import resume
from pytest_ckpt.run.context import unpack
from pytest_ckpt.run.crash import Crash
from pytest_ckpt.run.hosts import HostProbe
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.targets.posix.target import PosixTarget

TINY = {
    "ckpt_cluster": "64",
    "ckpt_model": "llama3-8b",
    "ckpt_mode": "open",
    "ckpt_ranks": "2",
    "ckpt_profile": "smoke",
    "ckpt_gate_table": "speed-only",
}


@pytest.fixture
def settings(tmp_path, monkeypatch):
    """Return the settings of a run whose target, report and scratch directory are in ``tmp_path``. No rank starts."""
    for name in ("target", "scratch"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    monkeypatch.setattr(opening.preflight, "_probe_hosts", lambda *_: HostProbe(failure=None))
    directories = {"ckpt_target": str(tmp_path / "target"), "ckpt_report": str(tmp_path / "report")}
    return resolve(TINY | directories, {})


def names(directory):
    return sorted(p.name for p in directory.iterdir())


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
    monkeypatch.setattr(opening.preflight, "_probe_hosts", lambda *_: HostProbe(failure=None))
    # Files that a crash has left do not stop the next run.
    run = opening.open_run(settings, ["pytest"])
    assert names(run.context.directory) == ["measurements", "plan.json", "session.json"]


def test_too_little_space_and_too_little_memory_are_reported_at_once(settings, monkeypatch):
    host = HostFacts(
        host="n1", ranks=(0, 1), cpu="", cores=2, memory_bytes=1 << 20, memory_available_bytes=1 << 20, kernel="",
        os="", python="", target_is_reached=True,
    )  # fmt: skip
    monkeypatch.setattr(opening.preflight, "_probe_hosts", lambda *_: HostProbe(failure=None, hosts=(host,)))
    full = os.statvfs_result((4096, 4096, 10**6, 10, 10, 10**6, 10**6, 10**6, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _: full)
    with pytest.raises(UsageError) as refused:
        opening.open_run(settings, ["pytest"])
    message = str(refused.value)
    first, second = message.index("1. Too little space on the target"), message.index("2. Too little memory on n1")
    assert message.index("Give the target more space") in range(first, second)
    assert message.index("Spread the ranks over more hosts") > second


def test_a_crash_before_the_report_is_known_is_reported_in_one_sentence(settings, tmp_path, monkeypatch):
    stat = os.stat

    def dead(path, *arguments, **named):
        if path == tmp_path / "report":
            raise OSError(116, "Stale file handle")
        return stat(path, *arguments, **named)

    def broken(*_, **__):
        raise RuntimeError("ours")

    monkeypatch.setattr(opening, "_open", broken)
    monkeypatch.setattr(os, "stat", dead)
    with pytest.raises(Crash, match=r"RuntimeError: ours; its traceback is in .*scratch"):
        opening.open_run(settings, ["pytest"])


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
        id="ACME-IT", title="It", severity="required", source="ACME", plugin="acme", text="It is.", function=judge
    )
    context = opening.open_run(settings, ["pytest"], [extra]).context
    document = unpack(context.pack())
    assert document.extras == context.extras
    assert document.catalogue["ACME-IT"].function is None
    assert unpack(context.pack(), [extra]) == context
    assert unpack(context.pack(), []).extras == []


def test_files_of_a_killed_start_stay_while_its_process_is_blocked_and_a_notice_says_so(monkeypatch):
    monkeypatch.setattr(resume, "end_marked", lambda _run_id: [4711])
    killed = SimpleNamespace(is_closed=False, area=SimpleNamespace(access=Access(), run_id="one"))
    (notice,) = resume.clear_area(killed, SimpleNamespace(), 1.0)
    assert notice.startswith("the files of the killed start stay on the target: processes 4711 cannot be ended")
