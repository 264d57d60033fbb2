"""Runs on a target whose cache the kernel does not show: COLD rests on timed reads, or says what they lack."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.front_door import TINY, FrontDoor, Run
from tests.support.machine import need
from tests.support.matrix import OF_CANARIES
from tests.support.targets.misbehaving import Target, misbehaving

SUBJECT = "llama3-8b-open-1"
CACHE = "client cache survives the drop"


@pytest.fixture(scope="module")
def mounted(make_home: Callable[[str], Path]) -> Iterator[Target]:
    need(os.geteuid() == 0 and os.access("/dev/fuse", os.R_OK | os.W_OK), "a FUSE mount needs root and /dev/fuse")
    with misbehaving(make_home("blind"), second=True, direct_io=True) as target:
        yield target


@pytest.fixture
def target(mounted: Target) -> Iterator[Target]:
    yield mounted
    mounted.clear()
    mounted.empty()


def canaries(run: Run) -> dict[str, Any]:
    (found,) = run.measurement(SUBJECT)["cache"]["canaries"]
    return found


def test_checkpoints_that_are_too_small_leave_it_open_and_say_what_is_needed(target: Target, door: FrontDoor) -> None:
    run = door.run(*TINY, target=target.path)
    assert run.code == 8, run.text
    verdict = run.verdict("COLD")
    assert (verdict["outcome"], verdict["reason"], verdict["basis"]) == ("not run", "unproven", "")
    assert "10 parts of 64 MiB on each host are needed" in verdict["because"]
    assert run.left_on_target == []


@pytest.mark.thorough
def test_a_cache_that_the_given_command_drops_is_proven_cold_by_timed_reads(target: Target, door: FrontDoor) -> None:
    target.fault(CACHE, survives=False)
    run = door.run(*TINY, *OF_CANARIES, f"--ckpt-drop-caches={shlex.join(target.drop_command)}", target=target.path)
    assert run.code == 0, run.text
    verdict = run.verdict("COLD", SUBJECT)
    assert (verdict["outcome"], verdict["basis"]) == ("met", "timed canary")
    assert "the drop works" in verdict["because"]
    assert len(canaries(run)["saved_seconds"]) == 10
    assert canaries(run)["elsewhere_seconds"] == []
    assert run.left_on_target == []


@pytest.mark.thorough
def test_a_cache_that_survives_is_not_told_from_the_storage_without_a_second_client(
    target: Target, door: FrontDoor
) -> None:
    target.fault(CACHE)
    run = door.run(*TINY, *OF_CANARIES, target=target.path)
    assert run.code == 8, run.text
    verdict = run.verdict("COLD", SUBJECT)
    assert (verdict["outcome"], verdict["reason"]) == ("not run", "unproven")
    assert "--ckpt-second-mount" in verdict["because"]


@pytest.mark.thorough
def test_without_any_cache_a_second_client_proves_it(target: Target, door: FrontDoor) -> None:
    # Both clients read at the pace of the storage, which no cache below them hastens.
    target.fault("slow", bytes_per_second=80e6)
    run = door.run(*TINY, *OF_CANARIES, f"--ckpt-second-mount={target.second}", target=target.path)
    assert run.code == 0, run.text
    verdict = run.verdict("COLD", SUBJECT)
    assert (verdict["outcome"], verdict["basis"]) == ("met", "timed canary")
    assert "no cache of this client helps" in verdict["because"]
    assert len(canaries(run)["elsewhere_seconds"]) == 10
