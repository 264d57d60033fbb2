"""If ranks are lost, the failure names the lost host, and not another host that noticed the loss first."""

from __future__ import annotations

import dataclasses

import pytest

from pytest_ckpt.facts.events import Beat, Failed, Hello
from pytest_ckpt.facts.subject import OperationRef, Subject
from pytest_ckpt.launching import rank_watchdog
from pytest_ckpt.launching.rank_watchdog import RankWatchdog

SAVE = OperationRef(subject=Subject(model="made", mode="test"), action="save", index=2)
OPEN_MPI = """PRTE has lost communication with a remote daemon.

  HNP daemon   : [prterun-h1-38@0,0] on node h1
  Remote daemon: [prterun-h1-38@0,1] on node h2

This is usually due to either a failure of the TCP network"""
OPEN_MPI_BY_SSH = """Connection to h2 closed by remote host.
A daemon failed to report back after being spawned. This could
be due to several factors, including inability to find the daemon executable.

  Local host:    h1
  Remote host:   h2
  Daemon exit status: 255"""
SLURM = "srun: error: Node failure on h2\nsrun: Job step aborted: Waiting up to 2 seconds for job step to finish."
DISCONNECTED = Failed(
    rank=0, host="h1", operation=SAVE, phase="", file="", errno="", message="Exception: MPI_ERR_PROC_FAILED"
)


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(rank_watchdog, "time", made)
    return made


@pytest.fixture
def watch(clock: Clock) -> RankWatchdog:
    """Return the watchdog of two ranks that save, each on its own host."""
    made = RankWatchdog(2, 10.0, "h1")
    for rank in (0, 1):
        made.record(Hello(rank=rank, host=f"h{rank + 1}", pid=1))
        made.record(Beat(rank=rank, operation=SAVE, phase="write", file="x.pt", waiting=False, progress=(0, 0)))
    return made


@pytest.mark.parametrize("expected_text", [OPEN_MPI, OPEN_MPI_BY_SSH, SLURM])
@pytest.mark.parametrize("exit_code", [0, 255])
def test_a_host_that_the_launcher_lost_is_named_with_what_its_rank_did(
    watch: RankWatchdog, expected_text: str, exit_code: int
) -> None:
    failure = watch.ended(exit_code, expected_text)
    assert failure
    assert (failure.kind, failure.host, failure.rank, failure.phase) == ("killed", "h2", 1, "write")
    assert failure.message.startswith("the launcher has lost h2: ")


def test_a_neighbour_that_lost_its_connection_is_not_the_one_to_blame(watch: RankWatchdog) -> None:
    watch.record(DISCONNECTED)
    failure = watch.ended(1, OPEN_MPI)
    assert failure
    assert (failure.host, failure.rank) == ("h2", 1)


def test_an_error_of_the_storage_stays_the_cause(watch: RankWatchdog) -> None:
    watch.record(Failed(rank=0, host="h1", operation=SAVE, phase="write", file="a", errno="EIO", message="I/O error"))
    failure = watch.ended(1, OPEN_MPI)
    assert failure
    assert (failure.host, failure.errno) == ("h1", "EIO")


def test_without_such_words_who_told_of_an_error_first_is_named(watch: RankWatchdog) -> None:
    watch.record(DISCONNECTED)
    failure = watch.ended(1, "it said something else")
    assert failure
    assert failure.host == "h1"


def test_a_launch_that_never_began_lost_no_host() -> None:
    """If no rank has sent a message, the launch has failed and no host is lost. The launch may be started again."""
    watch = RankWatchdog(2, 10.0, "h1")
    failure = watch.ended(255, OPEN_MPI_BY_SSH)
    assert failure
    assert failure.kind == "launch"
    assert watch.may_be_tried_again(failure)


def test_a_launch_in_which_no_rank_started_is_nobody_s_fault_and_may_be_tried_again(clock: Clock) -> None:
    watch = RankWatchdog(2, 10.0, "h1")
    clock.now += 59
    assert watch.hung() is None
    clock.now += 2
    failure = watch.hung()
    assert failure
    assert (failure.kind, failure.rank, watch.is_silent) == ("launch", None, True)
    assert watch.may_be_tried_again(failure)
    left = dataclasses.replace(failure, stack="process 7 is blocked in the kernel")
    assert not watch.may_be_tried_again(left), "nothing starts beside what cannot be ended"


def test_the_first_rank_that_did_not_start_is_named_and_a_partial_launch_is_not_retried(clock: Clock) -> None:
    watch = RankWatchdog(2, 10.0, "h1")
    watch.record(Hello(rank=0, host="h1", pid=1))
    clock.now += 61
    failure = watch.hung()
    assert failure
    assert (failure.kind, failure.rank, watch.is_silent) == ("launch", 1, False)
    assert not watch.may_be_tried_again(failure)


def working(rank: int, progress: int) -> Beat:
    return Beat(rank=rank, operation=SAVE, phase="write", file="x.pt", waiting=False, progress=(progress, 0))


def test_a_rank_that_never_got_its_job_is_no_hung_storage(clock: Clock) -> None:
    watch = RankWatchdog(2, 10.0, "h1")
    for rank in (0, 1):
        watch.record(Hello(rank=rank, host=f"h{rank + 1}", pid=1))
    clock.now += 5
    watch.record(working(0, 1))
    clock.now += 6
    watch.record(working(0, 2))
    failure = watch.hung()
    assert failure
    assert (failure.kind, failure.rank, failure.host, failure.operation) == ("launch", 1, "h2", None)
    assert failure.message.startswith("no job has reached it for 11 s")


def test_a_silent_rank_is_reported_differently_from_a_rank_without_progress(clock: Clock, watch: RankWatchdog) -> None:
    clock.now += 11
    watch.record(working(0, 5))
    silent = watch.hung()
    assert silent
    assert (silent.kind, silent.host) == ("hung", "h2")
    assert silent.message.startswith("no word for 11 s (--ckpt-io-timeout 10 s): the process, its host or its network")


def test_a_rank_that_speaks_and_does_not_move_hangs_in_its_call(clock: Clock, watch: RankWatchdog) -> None:
    for _ in range(11):
        clock.now += 1
        watch.record(working(0, int(clock.now)))
        watch.record(working(1, 0))
    hung = watch.hung()
    assert hung
    assert (hung.kind, hung.host, hung.phase, hung.file) == ("hung", "h2", "write", "x.pt")
    assert hung.message.startswith("no progress for 11 s")


def test_the_first_of_several_ranks_that_end_without_a_message_is_named(watch: RankWatchdog) -> None:
    """If two ranks end without a message, the failure names the rank that ended first.

    The launcher reports only that a rank has lost its peer. It does not report which rank was killed.
    """
    watch.add_exit(0, ended=7.5)  # the controller noticed it first because it looked late
    watch.add_exit(1, ended=7.25)
    failure = watch.ended(14, "An MPI communication peer process has unexpectedly disconnected.")
    assert failure
    assert (failure.kind, failure.host, failure.rank, failure.phase) == ("killed", "h2", 1, "write")
    well = watch.ended(0, "")
    assert well
    assert (well.rank, well.message[:18]) == (1, "2 ranks ended with")


def test_ranks_that_end_with_their_killed_launcher_are_not_accused(watch: RankWatchdog) -> None:
    watch.add_exit(1, ended=1)
    watch.add_exit(0, ended=2)
    failure = watch.ended(-9, "")
    assert failure
    assert (failure.kind, failure.rank, failure.operation) == ("killed", None, None)
    assert failure.message == "the launcher was killed by signal 9: no output"


def test_the_error_message_of_a_rank_takes_precedence_over_the_order_of_ends(watch: RankWatchdog) -> None:
    watch.record(DISCONNECTED)
    watch.add_exit(1, ended=1)
    failure = watch.ended(1, "something")
    assert failure
    assert failure.message == DISCONNECTED.message


def test_slurm_tells_of_tasks_that_it_ended_itself_and_the_first_that_was_gone_is_named(watch: RankWatchdog) -> None:
    watch.add_exit(1, ended=1)
    watch.add_exit(0, ended=2)
    failure = watch.ended(137, "srun: error: h1: task 0: Killed\nsrun: error: h2: task 1: Killed")
    assert failure
    assert (failure.rank, failure.host, failure.message) == (1, "h2", "the process was killed by signal Killed")


def test_the_rank_that_ended_first_is_named_even_if_slurm_reports_another(
    watch: RankWatchdog,
) -> None:
    """The failure names the rank that ended first, even if Slurm reports only the end of another rank.

    Slurm does not report the end of a rank if Slurm's daemon on the rank's host was killed too.
    """
    watch.add_exit(1, ended=1)
    failure = watch.ended(137, "srun: error: h1: task 0: Killed")
    assert failure
    assert (failure.rank, failure.host) == (1, "h2")
    assert failure.message == "the process ended without a message, before the processes of other ranks"


@pytest.mark.parametrize(("words", "why"), [("", "from outside"), (" DUE TO TIME LIMIT", "at its time limit")])
def test_a_job_that_slurm_cancelled_is_no_rank_s_failure(watch: RankWatchdog, words: str, why: str) -> None:
    cancelled = f"slurmstepd: error: *** STEP 3.0 ON h1 CANCELLED AT 2026-11-23T22:38:00{words} ***\n"
    watch.add_exit(1, ended=1)
    failure = watch.ended(143, f"{cancelled}srun: error: h2: task 1: Terminated")
    assert failure
    assert (failure.rank, failure.operation) == (None, None)
    assert failure.message == f"Slurm ended the job: it was cancelled {why}"


def test_a_step_that_slurm_ends_since_a_rank_was_killed_is_not_called_cancelled(watch: RankWatchdog) -> None:
    cancelled = "slurmstepd: error: *** STEP 3.0 ON h1 CANCELLED AT 2026-11-23T22:38:00 ***\n"
    failure = watch.ended(137, f"srun: error: h2: task 1: Killed\n{cancelled}srun: error: h1: task 0: Killed")
    assert failure
    assert (failure.rank, failure.host) == (1, "h2")
