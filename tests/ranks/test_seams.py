"""A test strategy and a test engine save and load in a directory and in memory, with ranks that MPI starts."""

from __future__ import annotations

import json
import os
import selectors
import socket
import subprocess
import time
from collections.abc import Iterator

import pytest

from pytest_ckpt.facts.codec import to_plain
from pytest_ckpt.facts.events import Beat, Failed, Hello, from_line
from pytest_ckpt.launching.launcher import find_launcher
from pytest_ckpt.launching.rank_watchdog import RankWatchdog
from pytest_ckpt.support.processes import end_launch
from pytest_ckpt.targets.schemes import create_target, known_targets, spec_of
from tests.support import CHECKOUT
from tests.support.late_strategy import LANE
from tests.support.self_committing_engine import FILES
from tests.support.targets.memory import memory_server
from tests.support.targets.memory_store import SPEC

RANKS = 2
_SECONDS = 400


@pytest.fixture(params=["a directory", "memory"])
def storage(request, tmp_path) -> Iterator[object]:
    rows = known_targets({"memory": SPEC})
    if request.param == "a directory":
        target = tmp_path / "target"
        target.mkdir()
        yield create_target(spec_of(str(target), rows), str(target))
    else:
        with memory_server() as name:
            yield create_target(spec_of(f"memory://{name}", rows), f"memory://{name}")


def start(area, tmp_path, **environment):
    launcher = find_launcher(None, ())
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    return subprocess.Popen(
        launcher.command(RANKS, "tests.support.seam_program"),
        cwd=CHECKOUT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=launcher.environment("seams", str(scratch)) | {"SEAM_AREA": json.dumps(to_plain(area)), **environment},
        start_new_session=True,
    )


def test_early_returns_and_engines_that_commit_themselves_lose_no_data(storage, tmp_path):
    process = start(storage.create_area("seams"), tmp_path)
    output, complaint = process.communicate(timeout=_SECONDS)
    assert process.returncode == 0, complaint.decode()
    (line,) = (line for line in output.decode().splitlines() if line.startswith("FOUND "))
    found = json.loads(line.removeprefix("FOUND "))
    assert set(found) == {"own sync", "own late", "stream sync", "stream late"}
    for name, of in found.items():
        assert (of["faults"], of["committed"]) == (0, [1, 2]), name
        durability = of["durability"]
        assert durability["files"] == durability["files_synced"] > 0
        assert durability["directories"] == durability["directories_synced"]
        assert (durability["saves"], durability["commits"]) == (2, 2)
        for save in (o for o in of["operations"] if o["kind"] == "save"):
            assert save["stored_seconds"] <= save["seconds"]
            # A blocking save returns when it is committed; the other one returns long before.
            is_late = save["returned_seconds"] < save["stored_seconds"]
            assert is_late == name.endswith("late"), name
        if name.startswith("own"):
            assert of["files"] == [[FILES] * RANKS] * 2


def test_the_watchdog_names_the_lane_that_hangs_and_not_the_one_that_waits_for_it(tmp_path):
    target = tmp_path / "target"
    target.mkdir()
    rows = known_targets({})
    area = create_target(spec_of(str(target), rows), str(target)).create_area("seams")
    process = start(area, tmp_path, SEAM_HANG="yes")
    try:
        failure = watched(process)
    finally:
        end_launch(process, "seams")
        process.stdout.close()
        process.stderr.close()
    assert (failure.kind, failure.rank, failure.lane, failure.phase) == ("hung", 1, LANE, "write")
    assert str(failure.operation) == "hanging-test save 2"
    assert failure.file.startswith("zero_pp_rank_1_")


def watched(process):
    """Read the ranks' output as a launch does, until the watchdog finds that the ranks hang; return the failure."""
    watch = RankWatchdog(RANKS, 15.0, socket.gethostname())
    os.set_blocking(process.stderr.fileno(), False)
    rest = b""
    began = time.monotonic()
    with selectors.DefaultSelector() as selector:
        selector.register(process.stderr, selectors.EVENT_READ)
        while time.monotonic() - began < _SECONDS:
            if selector.select(0.2):
                *lines, rest = (rest + (process.stderr.read() or b"")).split(b"\n")
                for line in lines:
                    before, event = from_line(line.decode())
                    assert "Traceback" not in before
                    if isinstance(event, Hello | Beat | Failed):
                        watch.record(event)
            if hung := watch.hung():
                return hung
            assert process.poll() is None
    raise AssertionError("nothing was found to hang")
