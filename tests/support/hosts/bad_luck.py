"""Runs on three simulated hosts with a fault during a save. Every launcher is tested with the same faults."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.support import CHECKOUT
from tests.support.front_door import SMALLEST
from tests.support.hosts.lab import Done, Step, on_hosts
from tests.support.hosts.mishaps import Mishap, What
from tests.support.hosts.storage import HONEST_FUSE
from tests.support.hosts.wrong_clock import LEFT, WrongClock, need_faketime

Luck = What | Literal["clocks", "full disk"]
# From this step on host 3 is slow, then host 2 is lost, then host 3 is full and cut off.
LAST: tuple[Luck, ...] = ("slow", "host", "full disk", "cut")
_ENDS_BY_ITSELF: tuple[Luck, ...] = ("cut for 5 s", "slow")
_HAPPENS_BEFORE: tuple[Luck, ...] = ("clocks", "full disk")
_HELD: Luck = "controller killed while ranks wait"
_OF_3 = ("--ckpt-hosts=h1:1,h2:1,h3:1", "--ckpt-ranks=3")
_OF_2 = ("--ckpt-hosts=h1:1,h3:1", "--ckpt-ranks=2")
_OPTIONS = (
    *SMALLEST,
    "--ckpt-io-timeout=10s",
    "--ckpt-scale=1/100000",
    "--cluster=1",
    "--ckpt-keep-last=2",
)
# Options with the number of operations: for runs that a fault ends, for runs with a fault in the middle, and for runs
# without one.
_MANY, _SOME, _FEW = ("--ckpt-operations=1000",), ("--ckpt-operations=40",), ()
_AHEAD_SECONDS = 600
# Directories on a tmpfs of each host.
_FULL = """
for of in /tmp /dev/shm /run; do
    mount -o remount,size=$(($(du -sk $of | cut -f1) + 64))k $of
    head -c 1000000 /dev/zero > $of/full || true
done
"""
_EMPTY = "for of in /tmp /dev/shm /run; do rm $of/full; mount -o remount,size=50% $of; done"
# After a full disk, Slurm starts no jobs on the host until it is resumed.
_RESUME = "scontrol update nodename=h3 state=resume || true"
_BEFORE: Mapping[Luck, tuple[tuple[int, str], ...]] = {
    "full disk": ((3, _FULL),),
    "cut": ((3, _EMPTY), (1, _RESUME)),
}


def bad_luck(
    home: Path,
    *lucks: Luck,
    options: Sequence[str] = (),
    python: str = sys.executable,
    environment: Mapping[str, str] | None = None,
    slurm: bool = False,
) -> dict[Luck, Done]:
    """Perform a run for each fault in one lab; return {fault: result}.

    The faults of `LAST` come last. The monotonic clock of h2 is ten minutes ahead in all runs. The time of day of h2 is
    ten minutes ahead only in the run ``clocks``.
    """
    need_faketime()
    clock = WrongClock(home, 2, _AHEAD_SECONDS)
    said = environment or {}
    paths = ":".join(filter(None, (said.get("PYTHONPATH", ""), str(CHECKOUT))))
    before = {**_BEFORE, "clocks": ((2, clock.begin()),), "slow": ((2, clock.end()),)}

    def options_of(luck: Luck) -> Sequence[str]:
        if not slurm or luck != "clocks":
            return options
        return [clock.of_slurm(option) if option.startswith("--ckpt-launcher=") else option for option in options]

    ordered = sorted(lucks, key=lambda luck: LAST.index(luck) if luck in LAST else -1)
    steps = {
        luck: Step(
            options=(
                *_OPTIONS,
                *(_OF_2 if luck in ("full disk", "cut") else _OF_3),
                *(_FEW if luck in _HAPPENS_BEFORE else _SOME if luck in _ENDS_BY_ITSELF else _MANY),
                *(("-p", "tests.support.hosts.holding") if luck == _HELD else ()),
                *options_of(luck),
            ),
            mishaps=_mishaps(luck),
            before=before.get(luck, ()),
            environment={**said, "PYTHONPATH": paths},
            python=python,
        )
        for luck in ordered
    }
    done = on_hosts(home, 3, *steps.values(), storage=HONEST_FUSE, slurm=slurm, ahead={2: _AHEAD_SECONDS})
    return dict(zip(steps, done, strict=True))


def _mishaps(luck: Luck) -> tuple[Mishap, ...]:
    if luck in _HAPPENS_BEFORE:
        return ()
    return (Mishap(what=luck, host=3 if luck in ("slow", "cut") else 2),)


def failure_of(done: Done) -> Mapping[str, Any]:
    """Return the failure that ended a run early."""
    failure: Mapping[str, Any] = _measured(done)["failure"]
    assert failure, done.text
    return failure


def _measured(done: Done) -> Mapping[str, Any]:
    (measured,) = done.run.document["measurements"]
    return dict(measured)


def _processes_left(done: Done) -> list[str]:
    return [name for name in done.left if name.isdigit()]


# The first test waits for all runs of its launcher.
@pytest.mark.timeout(2700)
@pytest.mark.thorough
class BadLuck:
    """The tests that runs with each launcher must pass.

    A test module has a subclass, a fixture ``done`` that returns {fault: result}, and tests that apply only to its
    launcher. The class attributes state what the launcher cannot do, and which files it leaves.
    """

    LUCKS: tuple[Luck, ...] = (
        "rank", "daemon", "launcher", "Ctrl-C", "TERM", "controller killed", _HELD, "cut for 5 s", "clocks", *LAST
    )  # fmt: skip
    NAMES_A_FULL_HOST = True
    # Whether the started ranks wait for their measurements after they have inspected their hosts.
    RANKS_WAIT = True
    # Files that the launcher itself keeps on a host between jobs, as HOST:PATH without the host.
    OF_THE_LAUNCHER: tuple[str, ...] = ()

    def litter(self, done: Done) -> list[str]:
        """Return the files that a run left in private directories of hosts, without files of the launcher."""
        return [name for name in done.litter if not name.partition(":")[2].startswith(self.OF_THE_LAUNCHER)]

    @pytest.mark.parametrize("luck", ["rank", "daemon"])
    def test_a_killed_rank_or_daemon_is_named_with_its_host(self, done: Mapping[Luck, Done], luck: Luck) -> None:
        failure = failure_of(done[luck])
        assert (failure["kind"], failure["host"]) == ("killed", "h2"), failure["message"]
        assert (done[luck].left, self.litter(done[luck])) == ((), [])

    def test_a_launcher_that_is_killed_accuses_no_storage(self, done: Mapping[Luck, Done]) -> None:
        """If the launcher is killed, the run removes its session directory and the ranks' memory segments."""
        failure = failure_of(done["launcher"])
        assert (failure["kind"], failure["rank"], done["launcher"].code) == ("killed", None, 8), failure["message"]
        assert (done["launcher"].left, self.litter(done["launcher"])) == ((), [])

    @pytest.mark.parametrize("luck", ["Ctrl-C", "TERM"])
    def test_an_interrupted_run_leaves_nothing_on_any_host(self, done: Mapping[Luck, Done], luck: Luck) -> None:
        assert done[luck].code == 2, done[luck].text
        assert done[luck].run.document["grade"] != "certified"
        assert (done[luck].left, self.litter(done[luck])) == ((), [])

    @pytest.mark.parametrize("luck", ["controller killed", _HELD])
    def test_a_killed_controller_leaves_no_process_on_any_host(self, done: Mapping[Luck, Done], luck: Luck) -> None:
        """No process remains on any host. The run directory stays on the target, because no process can remove it."""
        killed = done[luck]
        assert killed.code != 0
        assert (_processes_left(killed), self.litter(killed)) == ([], [])
        session = json.loads((killed.run.report / "session.json").read_text())
        assert Path(session["area"]["location"]).name in killed.left

    def test_that_controller_was_killed_while_ranks_waited(self, done: Mapping[Luck, Done]) -> None:
        """The controller was killed while the ranks of the first launch waited, so the launch has no exit file.

        If the launcher's ranks do not wait, the first launch has ended and has an exit file.
        """
        launches = done[_HELD].run.report / "launches"
        assert [directory.name for directory in launches.iterdir()] == ["probe"]
        assert (launches / "probe" / "exit.json").exists() is not self.RANKS_WAIT

    @pytest.mark.parametrize("luck", ["cut for 5 s", "slow"])
    def test_a_network_that_is_gone_for_5_seconds_or_slow_ends_no_run(
        self, done: Mapping[Luck, Done], luck: Luck
    ) -> None:
        assert _measured(done[luck])["failure"] is None, done[luck].text
        assert (done[luck].left, self.litter(done[luck])) == ((), [])

    def test_no_time_compares_the_clocks_of_two_hosts(self, done: Mapping[Luck, Done]) -> None:
        """No measured time contains the difference between the clocks of two hosts.

        The time of day and the monotonic clock of h2 are ten minutes ahead.
        """
        measured = _measured(done["clocks"])
        assert measured["failure"] is None, done["clocks"].text
        assert measured["hosts"] == ["h1", "h2", "h3"]
        assert min(s for o in measured["operations"] for s in o["rank_seconds"]) > 0
        seconds = [s for o in measured["operations"] for s in (o["seconds"], *o["rank_seconds"], *o["phases"].values())]
        assert min(seconds) >= 0
        assert max(seconds) < _AHEAD_SECONDS / 2
        ahead = {
            host["host"]: host["client"]["clock_ahead_seconds"]
            for host in done["clocks"].run.document["environment"]["hosts"]
        }
        assert ahead == {"h1": "0", "h2": str(_AHEAD_SECONDS), "h3": "0"}
        assert f"h2 is {_AHEAD_SECONDS} seconds ahead" in " ".join(done["clocks"].text.split())
        litter = [name for name in self.litter(done["clocks"]) if not name.partition(":")[2].startswith(LEFT)]
        assert (done["clocks"].left, litter) == ((), [])

    def test_a_full_local_disk_is_said_with_its_host_before_anything_is_written(
        self, done: Mapping[Luck, Done]
    ) -> None:
        full = done["full disk"]
        assert full.code in (0, 4), full.text
        if full.code and self.NAMES_A_FULL_HOST:
            assert "h3" in full.text.split("Try it by hand")[0], full.text
        assert full.left == ()

    @pytest.mark.parametrize(("luck", "host"), [("host", "h2"), ("cut", "h3")])
    def test_a_host_that_is_gone_or_cut_off_is_named_and_what_it_may_still_write_is_not_removed(
        self, done: Mapping[Luck, Done], luck: Luck, host: str
    ) -> None:
        """The failure names only the lost host, and the run directory stays on the target.

        The controller cannot distinguish a lost host from an unreachable host, which may still write.
        """
        failure = failure_of(done[luck])
        assert failure["host"] == host, failure["message"]
        assert failure["kind"] == ("hung" if luck == "cut" else "killed"), failure["message"]
        (left,) = done[luck].run.document["left_behind"]
        # The other hosts have reported that they are clean, so only this host is listed.
        assert left.partition(" stays: ")[2] == (
            f"{host} does not report whether processes of the run are left there, so it may still write"
        )
        assert _processes_left(done[luck]) == []
        # The run directory was not removed.
        assert done[luck].left
        # The processes that requested the end on other hosts have ended too, and left nothing.
        assert [name for name in self.litter(done[luck]) if name.startswith("h1:")] == []
