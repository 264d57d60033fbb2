"""Ranks on hosts whose processes the controller cannot see. Files are removed only after the ranks have ended."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.end_to_end import TINY, Run, Runner, Sabotage, Started, processes_of
from tests.support.hidden_hosts import HIDDEN, Hosts, hidden_hosts
from tests.support.machine import eventually, need, need_fuse
from tests.support.targets.misbehaving import Target, misbehaving


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    need(os.geteuid() == 0, "only root makes namespaces of processes")
    with hidden_hosts() as made:
        yield made


def blocked_run(runner: Runner, hosts: Hosts, target: Path) -> Started:
    """Start a run whose controller cannot see its ranks. Return it when a rank is stopped in its second save."""
    program = runner.home / "hosts.py"
    program.write_text(hosts.program)
    sabotage = Sabotage(runner.home, "hold", rank=1)
    launcher = f"{shlex.quote(sys.executable)} {program} {{nodes}} {{processes}}"
    started = runner.start(
        *TINY, "--ckpt-hosts=a:1,b:1", f"--ckpt-launcher={launcher}", "--ckpt-drop-caches=true",
        target=target, environment=sabotage.environment, around=HIDDEN,
    )  # fmt: skip
    sabotage.wait_until_blocked(started)
    return started


def interrupted(started: Started) -> Run:
    """Send Ctrl-C to the controller, wait for its end, and return the run."""
    pid = started.process.pid
    (controller,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    os.kill(int(controller), signal.SIGINT)
    return started.finish()


@pytest.fixture
def target(create_home: Callable[[str], Path]) -> Iterator[Target]:
    """A FUSE target, which a run treats as storage shared by several hosts."""
    need_fuse()
    with misbehaving(create_home("shared")) as mounted:
        yield mounted


@pytest.mark.thorough
def test_ranks_elsewhere_are_ended_before_their_directory_is_removed(
    runner: Runner, hosts: Hosts, target: Target
) -> None:
    started = blocked_run(runner, hosts, target.path)
    assert processes_of(started.run_id)
    run = interrupted(started)
    assert run.code == 2, run.text
    eventually(lambda: not processes_of(started.run_id), "no rank is left on any host")
    assert run.left_on_target == []
    assert run.document["left_behind"] == []
    assert [command[-1] for command in hosts.asked if "host_sweep" in command[-1]]


@pytest.mark.thorough
def test_the_directory_stays_if_a_host_does_not_answer_and_the_report_names_it(
    runner: Runner, hosts: Hosts, target: Target
) -> None:
    hosts.sweeps = False
    started = blocked_run(runner, hosts, target.path)
    # Without this clean-up, the ranks would end by themselves after an unknown time.
    assert processes_of(started.run_id)
    run = interrupted(started)
    assert run.code == 2, run.text
    (left,) = run.document["left_behind"]
    assert "a does not report whether processes of the run are left there, so it may still write" in left
    assert "; b does not report" in left
    assert [path.name for path in run.target.iterdir()] == [started.run_directory.name]
