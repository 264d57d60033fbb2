"""The controller asks each host to end the processes of the run, and names the hosts that do not confirm this."""

from __future__ import annotations

import dataclasses

import pytest

from pytest_ckpt.launching.launcher import Launcher
from pytest_ckpt.launching.other_hosts import end_on_other_hosts, sweep_seconds
from tests.support.machine import patience

RUN = "a-test-of-other-hosts"
# Replaces the process on a host: it prints an answer, or nothing for ever.
ANSWERS = """
case {nodes}/{processes} in
    gone/*) exec sleep 600 ;;
    stuck/*) echo '{"stuck": [7, 8]}' ;;
    *) echo '{"stuck": []}' ;;
esac
"""
STARTS = Launcher(template=("sh", "-c", ANSWERS), version="a shell", hosts=())


def test_a_host_that_does_not_answer_takes_no_other_ones_time() -> None:
    why = end_on_other_hosts(STARTS, ["h1", "gone", "h3"], RUN, seconds=patience(3.0))
    assert why == "gone does not report whether processes of the run are left there, so it may still write"


def test_processes_that_cannot_be_ended_are_named_with_their_host() -> None:
    why = end_on_other_hosts(STARTS, ["h1", "stuck"], RUN, 60.0)
    assert why == "processes 7, 8 on stuck are blocked in the kernel and may still write"


def test_if_every_host_answers_nothing_is_reported() -> None:
    assert end_on_other_hosts(STARTS, ["h1", "h2"], RUN, 60.0) == ""


@pytest.mark.parametrize(
    ("version", "deadline", "seconds"),
    [
        ("mpiexec (Open MPI) 5.0.11", 1.0, 30.0),
        ("mpiexec (Open MPI) 5.0.11", 60.0, 60.0),
        ("mpiexec (Open MPI) 5.0.11", 300.0, 90.0),
        ("slurm 22.05.8", 1.0, 90.0),
    ],
)
def test_a_host_may_take_as_long_as_a_rank_within_bounds(version: str, deadline: float, seconds: float) -> None:
    """The time limit of a sweep (the clean-up of the hosts) is a rank's deadline, but at least 30 s and at most 90 s.

    Under Slurm the limit is always 90 s, because a host that Slurm has lost delays the answers of the other hosts.
    """
    assert sweep_seconds(dataclasses.replace(STARTS, version=version), deadline) == seconds
