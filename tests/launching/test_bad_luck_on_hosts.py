"""Bad luck while ranks of three hosts save: the right host is named, the run ends, and nothing goes on anywhere."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.front_door import SMALLEST, in_every_rank
from tests.support.hosts.lab import Done, Step, need_hosts, on_hosts
from tests.support.hosts.mishaps import Mishap, What
from tests.support.hosts.storage import HONEST_FUSE

HOSTS = ("--ckpt-hosts=h1:1,h2:1,h3:1", "--ckpt-processes=3", "--ckpt-deadline=10s")
TINIEST = (*SMALLEST, *HOSTS, "--ckpt-scale=1/100000", "--cluster=1", "--ckpt-retain=2")
SAVES_LONG = (*TINIEST, "--ckpt-operations=1000")
SAVES = (*TINIEST, "--ckpt-operations=40")
TIME_OF_DAY = """
import socket, time
if socket.gethostname() == "h2":
    real, real_ns = time.time, time.time_ns
    time.time, time.time_ns = lambda: real() + 600, lambda: real_ns() + 600 * 10**9
"""
# Each in a tmpfs of the host's own.
FULL = (
    "for of in /tmp /dev/shm /run; do mount -o remount,size=64k $of; head -c 1000000 /dev/zero > $of/full || true; done"
)


def happened(
    make_home: Callable[[str], Path], what: What | None, options: tuple[str, ...] = SAVES_LONG, **how: Any
) -> Done:
    need_hosts(HONEST_FUSE, *(["tc"] if what == "slow" else []))
    before = how.pop("before", ())
    mishaps = (Mishap(what=what),) if what else ()
    step = Step(options=options, mishaps=mishaps, before=before, environment=how.pop("environment", {}))
    (done,) = on_hosts(make_home("hosts"), 3, step, storage=HONEST_FUSE, **how)
    return done


def failure_of(done: Done) -> Mapping[str, Any]:
    (measured,) = done.run.document["measurements"]
    failure: Mapping[str, Any] = measured["failure"]
    assert failure, done.text
    return failure


@pytest.mark.thorough
def test_a_killed_rank_is_named_with_its_host_and_the_target_is_clean(make_home: Callable[[str], Path]) -> None:
    done = happened(make_home, "rank")
    failure = failure_of(done)
    assert (failure["kind"], failure["host"], failure["rank"]) == ("killed", "h2", 1), failure["message"]
    assert (done.left, done.litter) == ((), ())


@pytest.mark.thorough
def test_the_host_of_a_killed_daemon_is_named_and_its_ranks_are_ended(make_home: Callable[[str], Path]) -> None:
    done = happened(make_home, "daemon")
    failure = failure_of(done)
    assert (failure["kind"], failure["host"]) == ("killed", "h2"), failure["message"]
    assert (done.left, done.litter) == ((), ())


@pytest.mark.thorough
def test_a_launcher_that_is_killed_leaves_neither_processes_nor_segments(make_home: Callable[[str], Path]) -> None:
    """It would have removed the segments of its own host's ranks, and its session."""
    done = happened(make_home, "launcher")
    failure = failure_of(done)
    assert failure["kind"] in ("killed", "launch"), failure["message"]
    assert (done.left, done.litter) == ((), ())


@pytest.mark.thorough
def test_a_host_that_is_gone_is_named_and_what_it_may_still_write_is_not_removed(
    make_home: Callable[[str], Path],
) -> None:
    """No neighbour of it is; and whether the host is gone or only cannot be reached, nobody here can tell."""
    done = happened(make_home, "host")
    failure = failure_of(done)
    assert (failure["kind"], failure["host"]) == ("killed", "h2"), failure["message"]
    (left,) = done.run.document["left_behind"]
    assert "h2 does not say that no process of the run is left there, so it may still write" in left
    assert [name for name in done.left if name.isdigit()] == [], "no process"


@pytest.mark.thorough
def test_ranks_that_are_cut_off_end_themselves_and_their_folder_stays(make_home: Callable[[str], Path]) -> None:
    done = happened(make_home, "cut")
    failure = failure_of(done)
    assert (failure["kind"], failure["host"]) == ("hung", "h2")
    assert failure["message"].startswith("no word for")
    assert "h2 does not say" in done.run.document["left_behind"][0]
    assert [name for name in done.left if name.isdigit()] == [], "no process, on no host"
    assert done.litter == ()
    assert [name for name in done.left if not name.isdigit()]


@pytest.mark.thorough
def test_a_network_that_is_gone_for_5_seconds_ends_no_run(make_home: Callable[[str], Path]) -> None:
    done = happened(make_home, "cut for 5 s", SAVES)
    (measured,) = done.run.document["measurements"]
    assert measured["failure"] is None, done.text
    assert (done.left, done.litter) == ((), ())


@pytest.mark.thorough
def test_a_slow_network_of_one_host_ends_no_run(make_home: Callable[[str], Path]) -> None:
    done = happened(make_home, "slow", SAVES)
    (measured,) = done.run.document["measurements"]
    assert measured["failure"] is None, done.text
    assert (done.left, done.litter) == ((), ())


@pytest.mark.thorough
def test_no_time_compares_the_clocks_of_two_hosts(make_home: Callable[[str], Path]) -> None:
    """One host's time of day and its monotonic clock are ten minutes ahead."""
    environment = in_every_rank(make_home("ahead"), TIME_OF_DAY)
    done = happened(make_home, None, SAVES, ahead={2: 600.0}, environment=environment)
    (measured,) = done.run.document["measurements"]
    assert measured["failure"] is None, done.text
    assert measured["hosts"] == ["h1", "h2", "h3"]
    longest = max(o["seconds"] for o in measured["operations"])
    assert min(s for o in measured["operations"] for s in o["rank_seconds"]) > 0
    assert longest < 300
    assert all(0 <= seconds < 300 for o in measured["operations"] for seconds in o["phases"].values())
    assert (done.left, done.litter) == ((), ())


@pytest.mark.thorough
def test_a_full_local_disk_is_said_with_its_host_before_anything_is_written(make_home: Callable[[str], Path]) -> None:
    done = happened(make_home, None, SAVES, before=((2, FULL),))
    assert done.code in (0, 4), done.text
    assert done.code == 0 or "h2" in done.text
    assert done.left == ()


@pytest.mark.thorough
@pytest.mark.parametrize("what", ["Ctrl-C", "TERM"])
def test_an_interrupted_run_leaves_nothing_on_any_host(make_home: Callable[[str], Path], what: What) -> None:
    done = happened(make_home, what)
    assert done.code == 2, done.text
    assert done.run.document["grade"] != "certified"
    assert (done.left, done.litter) == ((), ())


@pytest.mark.thorough
def test_a_killed_controller_leaves_no_process_on_any_host(make_home: Callable[[str], Path]) -> None:
    """Nobody is left to remove what lies on the target: the next run tells of it."""
    done = happened(make_home, "controller killed")
    assert done.code != 0
    session = json.loads((done.run.report / "session.json").read_text())
    assert [name for name in done.left if name.isdigit()] == [], "no process, on no host"
    assert done.litter == ()
    assert Path(session["area"]["location"]).name in done.left
