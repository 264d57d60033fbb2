"""Worker processes of checks: the record of their start, their signals and their end."""

from __future__ import annotations

import os
import signal

import pytest

from pytest_ckpt.conformance.context import NotRun
from pytest_ckpt.conformance.workers import gather, working
from tests.support.machine import eventually

LOOKS = 20_000


def test_a_call_never_seems_to_have_begun_before_its_process(tmp_path):
    def calls(talk):
        while True:
            talk.at("open", tmp_path)

    with working([calls]) as (worker,):
        began = worker.doing[0]
        eventually(lambda: worker.doing[1] == "open", "it makes calls")
        looks = [worker.doing[0] for _ in range(LOOKS)]
    assert min(looks) >= began


def test_a_process_that_was_killed_on_the_host_is_no_evidence_about_the_storage():
    def ends(talk):
        talk.at("close", "/x")
        os.kill(os.getpid(), signal.SIGKILL)

    with working([ends]) as workers, pytest.raises(NotRun, match=r"killed by SIGKILL in close of /x, not by the"):
        gather(workers, lambda *_: None)


def test_a_fault_in_a_mapping_is_reported_by_its_signal():
    def ends(_talk):
        os.kill(os.getpid(), signal.SIGBUS)

    with working([ends]) as workers:
        (end,) = gather(workers, lambda *_: None)
    assert end.signal == "SIGBUS"


def test_a_process_that_its_check_killed_has_ended():
    with working([lambda talk: talk.wait_for_check()]) as (worker,):
        worker.kill()
        end = eventually(worker.ended, "it has ended")
    assert end.signal == "SIGKILL"
