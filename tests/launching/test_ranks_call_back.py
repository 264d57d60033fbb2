"""Ranks connect to the controller, receive jobs of any size, and send all messages before they end.

The secret that authenticates the connections stays hidden.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_ckpt.facts.events import Event, HostsSeen
from pytest_ckpt.facts.targets import AreaRef
from pytest_ckpt.launching.launch import Launch
from pytest_ckpt.launching.launcher import Launcher, find_launcher
from pytest_ckpt.ranks.process.job import Job
from pytest_ckpt.support.processes import marked_processes
from pytest_ckpt.support.redaction import Redactor
from pytest_ckpt.wire.frames import SECRET
from tests.support import CHECKOUT

MEGABYTE = 1_000_000
RUN = "a-test-of-calls"
# Launcher and rank in one program: it connects as a rank does, and then runs the code of the test.
RANK = """
import sys
if sys.argv[1:] == ["--version"]:
    sys.exit(print("some launcher 1"))
from pytest_ckpt.wire.caller import call
caller = call()
caller.send({"event": "hello", "rank": 0, "host": "here", "pid": 1})
job = caller.receive()
"""
TELLS_MUCH = """
facts = dict(host="x" * 200_000, ranks=[0], cpu="", cores=1, memory_bytes=1, memory_available_bytes=1, kernel="",
             os="", python="", target_is_reached=True)
for _ in range(30):
    caller.send({"event": "hosts", "hosts": [facts]})
"""


def launched(tmp_path: Path, launcher: Launcher, processes: int, more: str = "", **how: Any) -> tuple[Any, list[Event]]:
    """Launch ranks that only report facts about their host; return (failure or None, events)."""
    area = AreaRef(scheme="", location="/", run_id=RUN + more, opener="pytest_ckpt.targets.posix.store:open_store")
    job = Job(processes=processes, area=area, deadline_seconds=60, tasks=())
    listed: list[Event] = []
    launch = Launch(launcher, RUN, tmp_path / "launch", Redactor.of({}, ()))
    return launch.run(job, listed.append, **how), listed


@pytest.fixture
def one_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that creates a launcher of one rank. The rank receives its job and then runs the given code."""
    monkeypatch.setenv("PYTHONPATH", str(CHECKOUT))

    def create_launcher(code: str) -> Launcher:
        program = tmp_path / "rank.py"
        program.write_text(RANK + code)
        return find_launcher(f"{shlex.quote(sys.executable)} {shlex.quote(str(program))}", ())

    return create_launcher


def test_a_job_of_a_megabyte_arrives_and_no_process_shows_the_secret(tmp_path: Path) -> None:
    seen: list[str] = []

    def look() -> None:
        for pid in marked_processes(RUN):
            variables = environment_of(pid)
            if secret := variables.get(SECRET):
                seen.append(secret)
                assert not [words for words in all_command_lines() if secret.encode() in words]

    failure, found = launched(tmp_path, find_launcher(None, ()), 2, "x" * MEGABYTE, tick=look)
    assert failure is None
    (hosts,) = (event.hosts for event in found if isinstance(event, HostsSeen))
    assert [(host.ranks, host.target_is_reached) for host in hosts] == [((0, 1), True)]
    assert len(set(seen)) == 1
    kept = [path for path in (tmp_path / "launch").iterdir() if seen[0] in path.read_text()]
    assert not kept, "no file of the report has it"


def environment_of(pid: int) -> dict[str, str]:
    try:
        pairs = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    except OSError:
        return {}
    return dict(pair.split("=", 1) for pair in pairs if "=" in pair)


def all_command_lines() -> list[bytes]:
    words = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                words.append((entry / "cmdline").read_bytes())
            except OSError:
                continue
    return words


def test_messages_sent_immediately_before_the_end_of_a_rank_arrive(tmp_path: Path, one_rank: Any) -> None:
    failure, found = launched(tmp_path, one_rank(f"{TELLS_MUCH}\ncaller.send('end')\ncaller.receive()"), 1)
    assert failure is None
    assert [len(event.hosts[0].host) for event in found if isinstance(event, HostsSeen)] == [200_000] * 30


def test_a_rank_that_ends_well_before_it_has_reported_all_fails_the_launch(tmp_path: Path, one_rank: Any) -> None:
    failure, _ = launched(tmp_path, one_rank("raise SystemExit(0)"), 1)
    assert failure.kind == "killed"
    assert failure.message == "1 rank ended without a complete report, and the launcher reports success"


def test_a_launcher_that_hands_no_environment_on_is_named(tmp_path: Path) -> None:
    program = tmp_path / "start"
    program.write_text('#!/bin/sh\nwhile [ "$1" != -P ]; do last=$1; shift; done\nexec env -i "$last" "$@"\n')
    program.chmod(0o755)
    launcher = Launcher(template=(str(program),), version="some launcher 1", hosts=())
    failure, _ = launched(tmp_path, launcher, 1)
    assert failure.kind == "error"
    assert "PYTEST_CKPT_CONTROLLER is not in the environment" in failure.message
    assert "srun --export=ALL" in failure.message
