"""Files on the target are removed only after each host has confirmed that no rank of the run is left."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_ckpt.config.options import resolve
from pytest_ckpt.launching import launch_context
from pytest_ckpt.launching.launch_context import LaunchContext
from pytest_ckpt.run.close import _clean
from pytest_ckpt.run.hosts import HostProbe
from pytest_ckpt.run.open import open_run, preflight
from pytest_ckpt.targets.owner import OWNER, owner_of
from tests.support.synthetic_launch import synthetic_context

SAID = {"ckpt_cluster": "64", "ckpt_model": "llama3-8b", "ckpt_profile": "smoke", "ckpt_mode": "open",
        "ckpt_ranks": "2", "ckpt_gate_table": "speed-only"}  # fmt: skip
SILENT = "h2 does not report whether processes of the run are left there, so it may still write"
WHOLE = {"exit_code": 0, "is_complete": True}


@pytest.fixture
def over(tmp_path: Path) -> Callable[[str], LaunchContext]:
    """Return a function that creates the launch context of a run on the hosts of ``--ckpt-hosts``, or on this host."""

    def make(hosts: str) -> LaunchContext:
        return synthetic_context(tmp_path, SAID | ({"ckpt_hosts": hosts} if hosts else {}))

    return make


def ended(directory: Path, how: dict[str, object] | None) -> None:
    """Create the directory of a launch that has ended.

    ``how`` is the content of the launch's exit file. If it is None, there is no exit file.
    """
    launch = directory / "launches" / "1"
    launch.mkdir(parents=True)
    if how is not None:
        (launch / "exit.json").write_text(json.dumps(how))


@pytest.mark.parametrize(
    ("hosts", "how", "asked"),
    [
        ("h1:1,h2:1", None, True),
        ("h1:1,h2:1", {"exit_code": 137, "is_complete": True}, True),
        # Open MPI may report success after it has lost a host.
        ("h1:1,h2:1", {"exit_code": 0, "is_complete": False}, True),
        ("h1:1,h2:1", WHOLE, False),
        ("", None, False),
    ],
)
def test_other_hosts_are_asked_where_a_launch_did_not_end_by_itself(
    over: Callable[[str], LaunchContext],
    monkeypatch: pytest.MonkeyPatch,
    hosts: str,
    how: dict[str, object] | None,
    asked: bool,
) -> None:
    context = over(hosts)
    ended(context.directory, how)
    names: list[str] = []

    def answer(_launcher: object, others: list[str], _run_id: str, _seconds: float) -> str:
        names.extend(others)
        return SILENT

    monkeypatch.setattr(launch_context, "end_on_other_hosts", answer)
    assert context.end_remaining_processes() == (SILENT if asked else "")
    assert names == (["h1", "h2"] if asked else [])


@pytest.mark.parametrize("why", [SILENT, ""])
def test_the_run_s_directory_stays_and_is_reported_where_something_may_still_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    (tmp_path / "target").mkdir()
    monkeypatch.setattr(preflight, "_probe_hosts", lambda *_: HostProbe(failure=None))
    directories = {"ckpt_target": str(tmp_path / "target"), "ckpt_report": str(tmp_path / "report")}
    context = open_run(resolve(SAID | directories, {}), ["pytest"]).context
    (made,) = (tmp_path / "target").iterdir()
    left = _clean(context, why)
    assert left == ([f"{context.run_area.location} stays: {why}"] if why else [])
    assert made.exists() is bool(why)


@pytest.mark.parametrize(
    ("host", "told"),
    [
        (socket.gethostname(), "left on the target by run old of {host}; if that run has ended, remove it: rm -r -- "),
        (
            "h2",
            "found on the target: of run old of h2; this host cannot determine whether that run is still in progress, "
            "so check h2 first. If no run of pytest-ckpt is in progress there, remove it: rm -r -- ",
        ),
    ],
)
def test_a_directory_of_another_run_is_reported_with_the_state_of_that_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, told: str
) -> None:
    there = tmp_path / "target" / "pytest-ckpt-old"
    there.mkdir(parents=True)
    (there / OWNER).write_text(json.dumps(owner_of("old") | {"host": host, "process_began": 1.0}))
    monkeypatch.setattr(preflight, "_probe_hosts", lambda *_: HostProbe(failure=None))
    directories = {"ckpt_target": str(tmp_path / "target"), "ckpt_report": str(tmp_path / "report")}
    opened = open_run(resolve(SAID | directories, {}), ["pytest"])
    assert f"{told.format(host=host)}{there}" in opened.notices
    _clean(opened.context, "")
