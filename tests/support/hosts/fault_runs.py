"""Runs on three simulated hosts with a fault during a save. Every launcher is tested with the same faults."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.support import CHECKOUT
from tests.support.end_to_end import SMALLEST
from tests.support.hosts.faults import FaultKind, InjectedFault
from tests.support.hosts.lab import Step, StepResult, on_hosts
from tests.support.hosts.storage import HONEST_FUSE
from tests.support.hosts.wrong_clock import LEFT, WrongClock, need_faketime

RunFault = FaultKind | Literal["clocks", "full disk"]
# From this step on host 3 is slow, then host 2 is lost, then host 3 is full and cut off.
LAST: tuple[RunFault, ...] = ("slow", "host", "full disk", "cut")
_ENDS_BY_ITSELF: tuple[RunFault, ...] = ("cut for 5 s", "slow")
_HAPPENS_BEFORE: tuple[RunFault, ...] = ("clocks", "full disk")
_BLOCKED: RunFault = "controller killed while ranks wait"
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
_BEFORE: Mapping[RunFault, tuple[tuple[int, str], ...]] = {
    "full disk": ((3, _FULL),),
    "cut": ((3, _EMPTY), (1, _RESUME)),
}


def run_with_faults(
    home: Path,
    *run_faults: RunFault,
    options: Sequence[str] = (),
    python: str = sys.executable,
    environment: Mapping[str, str] | None = None,
    slurm: bool = False,
) -> dict[RunFault, StepResult]:
    """Perform a run for each fault in one lab; return {fault: result}.

    The faults of `LAST` come last. The monotonic clock of h2 is ten minutes ahead in all runs. The time of day of h2 is
    ten minutes ahead only in the run ``clocks``.
    """
    need_faketime()
    clock = WrongClock(home, 2, _AHEAD_SECONDS)
    said = environment or {}
    paths = ":".join(filter(None, (said.get("PYTHONPATH", ""), str(CHECKOUT))))
    before = {**_BEFORE, "clocks": ((2, clock.begin()),), "slow": ((2, clock.end()),)}

    def options_of(run_fault: RunFault) -> Sequence[str]:
        if not slurm or run_fault != "clocks":
            return options
        return [clock.slurm_launcher(option) if option.startswith("--ckpt-launcher=") else option for option in options]

    ordered = sorted(run_faults, key=lambda run_fault: LAST.index(run_fault) if run_fault in LAST else -1)
    steps = {
        run_fault: Step(
            options=(
                *_OPTIONS,
                *(_OF_2 if run_fault in ("full disk", "cut") else _OF_3),
                *(_FEW if run_fault in _HAPPENS_BEFORE else _SOME if run_fault in _ENDS_BY_ITSELF else _MANY),
                *(("-p", "tests.support.hosts.blocked_run") if run_fault == _BLOCKED else ()),
                *options_of(run_fault),
            ),
            faults=_injected_faults(run_fault),
            before=before.get(run_fault, ()),
            environment={**said, "PYTHONPATH": paths},
            python=python,
        )
        for run_fault in ordered
    }
    results = on_hosts(home, 3, *steps.values(), storage=HONEST_FUSE, slurm=slurm, ahead={2: _AHEAD_SECONDS})
    return dict(zip(steps, results, strict=True))


def _injected_faults(run_fault: RunFault) -> tuple[InjectedFault, ...]:
    if run_fault in _HAPPENS_BEFORE:
        return ()
    return (InjectedFault(what=run_fault, host=3 if run_fault in ("slow", "cut") else 2),)


def failure_of(results: StepResult) -> Mapping[str, Any]:
    """Return the failure that ended a run early."""
    failure: Mapping[str, Any] = _measured(results)["failure"]
    assert failure, results.text
    return failure


def _measured(results: StepResult) -> Mapping[str, Any]:
    (measured,) = results.run.document["measurements"]
    return dict(measured)


def _processes_left(results: StepResult) -> list[str]:
    return [name for name in results.left if name.isdigit()]


# The first test waits for all runs of its launcher.
@pytest.mark.timeout(2700)
@pytest.mark.thorough
class FaultTests:
    """Tests of runs with injected faults, which every launcher must pass.

    The test module of a launcher contains a subclass, and a fixture ``results`` that returns {fault: result}. The
    subclass may add tests for its launcher. The class attributes state what the launcher cannot do, and which files it
    leaves.
    """

    RUN_FAULTS: tuple[RunFault, ...] = (
        "rank", "daemon", "launcher", "Ctrl-C", "TERM", "controller killed", _BLOCKED, "cut for 5 s", "clocks", *LAST
    )  # fmt: skip
    NAMES_A_FULL_HOST = True
    # Whether the started ranks wait for their measurements after they have inspected their hosts.
    RANKS_WAIT = True
    # Files that the launcher itself keeps on a host between jobs, as HOST:PATH without the host.
    OF_THE_LAUNCHER: tuple[str, ...] = ()

    def litter(self, results: StepResult) -> list[str]:
        """Return the files that a run left in private directories of hosts, except the launcher's own files."""
        return [name for name in results.litter if not name.partition(":")[2].startswith(self.OF_THE_LAUNCHER)]

    @pytest.mark.parametrize("run_fault", ["rank", "daemon"])
    def test_a_killed_rank_or_daemon_is_named_with_its_host(
        self, results: Mapping[RunFault, StepResult], run_fault: RunFault
    ) -> None:
        failure = failure_of(results[run_fault])
        assert (failure["kind"], failure["host"]) == ("killed", "h2"), failure["message"]
        assert (results[run_fault].left, self.litter(results[run_fault])) == ((), [])

    def test_a_launcher_that_is_killed_accuses_no_storage(self, results: Mapping[RunFault, StepResult]) -> None:
        """If the launcher is killed, the failure names no rank, and the run leaves no files and no processes."""
        failure = failure_of(results["launcher"])
        assert (failure["kind"], failure["rank"], results["launcher"].code) == ("killed", None, 8), failure["message"]
        assert (results["launcher"].left, self.litter(results["launcher"])) == ((), [])

    @pytest.mark.parametrize("run_fault", ["Ctrl-C", "TERM"])
    def test_an_interrupted_run_leaves_nothing_on_any_host(
        self, results: Mapping[RunFault, StepResult], run_fault: RunFault
    ) -> None:
        assert results[run_fault].code == 2, results[run_fault].text
        assert results[run_fault].run.document["grade"] != "certified"
        assert (results[run_fault].left, self.litter(results[run_fault])) == ((), [])

    @pytest.mark.parametrize("run_fault", ["controller killed", _BLOCKED])
    def test_a_killed_controller_leaves_no_process_on_any_host(
        self, results: Mapping[RunFault, StepResult], run_fault: RunFault
    ) -> None:
        """No process remains on any host. The run directory stays on the target, because no process can remove it."""
        killed = results[run_fault]
        assert killed.code != 0
        assert (_processes_left(killed), self.litter(killed)) == ([], [])
        session = json.loads((killed.run.report / "session.json").read_text())
        assert Path(session["area"]["location"]).name in killed.left

    def test_the_controller_is_killed_while_ranks_wait(self, results: Mapping[RunFault, StepResult]) -> None:
        """The controller was killed while the ranks of the first launch waited, so the launch has no exit file.

        With a launcher whose ranks do not wait, the first launch has already ended and has an exit file.
        """
        launches = results[_BLOCKED].run.report / "launches"
        assert [directory.name for directory in launches.iterdir()] == ["probe"]
        assert (launches / "probe" / "exit.json").exists() is not self.RANKS_WAIT

    @pytest.mark.parametrize("run_fault", ["cut for 5 s", "slow"])
    def test_a_network_that_is_gone_for_5_seconds_or_slow_ends_no_run(
        self, results: Mapping[RunFault, StepResult], run_fault: RunFault
    ) -> None:
        assert _measured(results[run_fault])["failure"] is None, results[run_fault].text
        assert (results[run_fault].left, self.litter(results[run_fault])) == ((), [])

    def test_no_time_compares_the_clocks_of_two_hosts(self, results: Mapping[RunFault, StepResult]) -> None:
        """No measured time contains the difference between the clocks of two hosts.

        The time of day and the monotonic clock of h2 are ten minutes ahead.
        """
        measured = _measured(results["clocks"])
        assert measured["failure"] is None, results["clocks"].text
        assert measured["hosts"] == ["h1", "h2", "h3"]
        assert min(s for o in measured["operations"] for s in o["rank_seconds"]) > 0
        seconds = [s for o in measured["operations"] for s in (o["seconds"], *o["rank_seconds"], *o["phases"].values())]
        assert min(seconds) >= 0
        assert max(seconds) < _AHEAD_SECONDS / 2
        ahead = {
            host["host"]: host["client"]["clock_ahead_seconds"]
            for host in results["clocks"].run.document["environment"]["hosts"]
        }
        assert ahead == {"h1": "0", "h2": str(_AHEAD_SECONDS), "h3": "0"}
        assert f"h2 is {_AHEAD_SECONDS} seconds ahead" in " ".join(results["clocks"].text.split())
        litter = [name for name in self.litter(results["clocks"]) if not name.partition(":")[2].startswith(LEFT)]
        assert (results["clocks"].left, litter) == ((), [])

    def test_a_full_local_disk_is_reported_with_its_host_before_anything_is_written(
        self, results: Mapping[RunFault, StepResult]
    ) -> None:
        full = results["full disk"]
        assert full.code in (0, 4), full.text
        if full.code and self.NAMES_A_FULL_HOST:
            assert "h3" in full.text.split("Try it by hand")[0], full.text
        assert full.left == ()

    @pytest.mark.parametrize(("run_fault", "host"), [("host", "h2"), ("cut", "h3")])
    def test_a_host_that_is_gone_or_cut_off_is_named_and_what_it_may_still_write_is_not_removed(
        self, results: Mapping[RunFault, StepResult], run_fault: RunFault, host: str
    ) -> None:
        """The failure names only the lost host, and the run directory stays on the target.

        An unreachable host may still write, and the controller cannot distinguish it from a host without power.
        """
        failure = failure_of(results[run_fault])
        assert failure["host"] == host, failure["message"]
        assert failure["kind"] == ("hung" if run_fault == "cut" else "killed"), failure["message"]
        (left,) = results[run_fault].run.document["left_behind"]
        # The other hosts have reported that they are clean, so only this host is listed.
        assert left.partition(" stays: ")[2] == (
            f"{host} does not report whether processes of the run are left there, so it may still write"
        )
        assert _processes_left(results[run_fault]) == []
        # The run directory was not removed.
        assert results[run_fault].left
        # The processes that requested the end on other hosts have ended too, and left nothing.
        assert [name for name in self.litter(results[run_fault]) if name.startswith("h1:")] == []
