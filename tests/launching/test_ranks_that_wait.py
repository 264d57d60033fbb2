"""After a job, ranks wait for the next job without using a core. If they have ended, new ranks are started."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_ckpt.facts.events import Event, HostsSeen
from pytest_ckpt.facts.settings import HostSlots
from pytest_ckpt.facts.targets import AreaRef
from pytest_ckpt.launching.launch import Launch
from pytest_ckpt.launching.launcher import Launcher, find_launcher
from pytest_ckpt.ranks.process.job import Job
from pytest_ckpt.support.processes import marked_processes
from pytest_ckpt.support.redaction import Redactor
from tests.support.end_to_end import TINY, Runner, in_every_rank, processes_of
from tests.support.machine import eventually

RUN = "a-test-of-ranks-that-wait"
AREA = AreaRef(scheme="", location="/", run_id=RUN, opener="pytest_ckpt.targets.posix.store:open_store")
LAST = Job(processes=2, area=AREA, deadline_seconds=60, tasks=())
FIRST = replace(LAST, is_followed=True)


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """A launch of two ranks that have reported facts about their host and wait for the next job."""
    launch = Launch(find_launcher(None, ()), RUN, tmp_path / "launch", Redactor.of({}, ()))
    assert launch.run(FIRST, lambda _event: None) is None
    assert launch.waiting == 2
    yield launch
    launch.end()
    assert marked_processes(RUN) == []


def ranks() -> dict[int, list[str]]:
    """Return {process id: lines of /proc/PID/status} of each rank."""
    words = {pid: Path("/proc", str(pid), "cmdline").read_bytes() for pid in marked_processes(RUN)}
    return {
        pid: Path("/proc", str(pid), "status").read_text().splitlines()
        for pid, command in words.items()
        if b"pytest_ckpt.ranks" in command and b"mpiexec" not in command and b"prterun" not in command
    }


def switches() -> dict[int, int]:
    """Return {process id: number of voluntary context switches} of each rank.

    While a rank sleeps, its number does not change.
    """
    name = "voluntary_ctxt_switches:"
    return {
        pid: int(line.removeprefix(name)) for pid, lines in ranks().items() for line in lines if line.startswith(name)
    }


def test_ranks_that_wait_do_not_wake_up_and_do_the_next_job(launch: Launch, tmp_path: Path) -> None:
    listed: list[Event] = []
    before = switches()
    assert len(before) == 2
    # A wait that polls would wake up a thousand times in this time.
    time.sleep(0.5)
    after = switches()
    assert all(after[pid] - before[pid] < 20 for pid in before), (before, after)
    launch.move_to(tmp_path / "elsewhere" / "1")
    assert launch.run(LAST, listed.append) is None
    assert [event.hosts[0].ranks for event in listed if isinstance(event, HostsSeen)] == [(0, 1)]
    assert launch.waiting == 0
    kept = sorted(file.name for file in (tmp_path / "elsewhere" / "1").iterdir())
    assert kept == ["command", "environment", "exit.json", "launcher.log", "rank-0.log", "rank-1.log"]
    assert not (tmp_path / "launch").exists()
    pids = {int(line.split('"pid": ')[1].rstrip("}")) for rank in (0, 1) for line in hellos(tmp_path, rank)}
    assert pids == set(before)


def hellos(directory: Path, rank: int) -> list[str]:
    lines = (directory / "elsewhere" / "1" / f"rank-{rank}.log").read_text().splitlines()
    return [line for line in lines if '"hello"' in line]


def test_ranks_are_started_again_if_a_waiting_rank_is_gone_and_this_is_reported(launch: Launch) -> None:
    gone = next(iter(switches()))
    os.kill(gone, signal.SIGKILL)
    listed: list[Event] = []
    sentences: list[str] = []
    assert launch.run(LAST, listed.append, say=sentences.append) is None
    assert len([event for event in listed if isinstance(event, HostsSeen)]) == 1
    (sentence,) = sentences
    assert sentence.startswith("Ranks that waited for this do not continue (")
    assert sentence.endswith("); they are started again.")


def test_ranks_that_are_not_needed_end_by_themselves(launch: Launch, tmp_path: Path) -> None:
    launch.end()
    assert marked_processes(RUN) == []
    assert '"exit_code": 0' in (tmp_path / "launch" / "exit.json").read_text()
    launch.end()


def test_a_run_that_measures_nothing_leaves_no_rank_waiting(runner: Runner) -> None:
    run = runner.run(*TINY, "--ckpt-engine=stream", "-k", "nothing-of-this-name")
    assert [directory.name for directory in (run.report / "launches").iterdir()] == ["probe"]
    assert '"exit_code": 0' in (run.report / "launches/probe/exit.json").read_text()
    assert marked_processes(run.run_id) == []


HELD_AS_IT_LOOKS = """
import pathlib, signal, sys
if "pytest_ckpt.ranks" in sys.orig_argv:
    from pytest_ckpt.targets.posix.run_directory import PosixAreaView
    PosixAreaView.instead_of = lambda *_: (pathlib.Path({held!r}).touch(), signal.pause())
"""


def test_files_by_which_hosts_look_are_named_by_the_next_run_where_the_controller_was_killed(runner: Runner) -> None:
    """If a controller is killed during the same-target check, the next run names the files that remain.

    In the same-target check, each host looks for files that the other hosts have created.
    """
    held = runner.home / "held"
    environment = in_every_rank(runner.home, HELD_AS_IT_LOOKS.format(held=str(held)))
    started = runner.start(*TINY, "--ckpt-hosts=localhost:2", environment=environment)
    started.until(held.exists, "a rank looks")
    started.process.kill()
    started.process.wait()
    left = sorted(runner.target.iterdir())
    assert [file.name.rpartition(".same")[2] for file in left] == ["", ".0"]
    run_id = left[0].name.removeprefix(".pytest-ckpt-").removesuffix(".same")
    eventually(lambda: not processes_of(run_id), "the ranks have ended")
    header = runner.run(*TINY, "-k", "nothing-of-this-name").text.partition("collected ")[0]
    for file in left:
        assert f"left on the target by run {run_id} of " in header
        assert f"rm -r -- {file}\n" in header


def test_ranks_wait_only_where_no_other_launch_waits_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    open_mpi = Launcher(template=("mpiexec",), version="mpiexec (Open MPI) 5.0.11", hosts=())
    over_hosts = replace(open_mpi, hosts=(HostSlots(name="n1", slots=1), HostSlots(name="n2", slots=1)))
    slurm = replace(over_hosts, template=("srun",), version="slurm-wlm 22.05.8")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert [each.may_wait for each in (open_mpi, over_hosts, slurm)] == [True, True, False]
    # In a job, the daemons are a job step, which the second client's daemons would wait for.
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert [each.may_wait for each in (open_mpi, over_hosts, slurm)] == [True, False, False]
