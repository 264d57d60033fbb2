"""CPU use by other processes, measured in a part of a run, and in each sufficiently long operation of that part."""

from __future__ import annotations

import dataclasses

import pytest

from pytest_ckpt.ranks.process import host_load
from pytest_ckpt.ranks.process.host_load import HostLoadWatch
from pytest_ckpt.support.processor_times import HostTimes
from tests.support.one_rank import SingleRankGroup


class Machine:
    """A fake host with two CPUs; the test sets the CPU times."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at, self.own, self.average = 100.0, 0.0, 0.0
        self.times: HostTimes | None = HostTimes(cores=2, total=200.0, idle=150.0, steal=1.0)
        monkeypatch.setattr(host_load.time, "monotonic", lambda: self.at)
        monkeypatch.setattr(host_load, "host_times", lambda: self.times)
        monkeypatch.setattr(host_load, "seconds_of_this_process", lambda: self.own)
        monkeypatch.setattr(host_load, "load_average", lambda: self.average)

    def spend(self, seconds: float, *, idle: float, steal: float = 0.0, own: float = 0.0) -> None:
        """Let ``seconds`` pass. The other values are CPU seconds, each as a sum over both CPUs."""
        assert self.times
        self.at += seconds
        self.own += own
        self.times = dataclasses.replace(
            self.times,
            total=self.times.total + 2 * seconds,
            idle=self.times.idle + idle,
            steal=self.times.steal + steal,
        )


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def test_time_that_ranks_did_not_use_is_attributed_to_other_processes(machine: Machine) -> None:
    watch = HostLoadWatch(SingleRankGroup())
    machine.average = 3.5
    with watch.spanning("storm", "shifted"):
        machine.spend(10.0, idle=8.0, steal=1.0, own=5.0)
    loads = watch.gathered()
    assert [load.span for load in loads] == ["storm", "shifted"]
    (load, _) = loads
    assert (load.host, load.of, load.cores, load.seconds) == ("here", "all operations", 2, 10.0)
    assert (load.idle_share, load.steal_share) == pytest.approx((0.4, 0.05))
    assert load.others_share == pytest.approx(0.3)
    assert load.load_average == 3.5


def test_one_busy_operation_of_a_quiet_span_counts(machine: Machine) -> None:
    watch = HostLoadWatch(SingleRankGroup())
    with watch.spanning("operations"):
        for number in range(1, 10):
            began = watch.begin()
            machine.spend(2.0, idle=0.0 if number == 4 else 3.9)
            machine.average = 9.0 if number == 5 else 1.0
            watch.end(began, f"save {number}")
    (load,) = watch.gathered()
    assert (load.of, load.is_busy, load.load_average) == ("save 4", True, 9.0)


def test_a_short_operation_is_a_part_of_its_span_only(machine: Machine) -> None:
    watch = HostLoadWatch(SingleRankGroup())
    with watch.spanning("operations"):
        began = watch.begin()
        machine.spend(0.5, idle=0.0)
        watch.end(began, "save 1")
        machine.spend(2.0, idle=4.0)
    (load,) = watch.gathered()
    assert load.of == "all operations"
    assert not load.is_busy


def test_an_operation_of_no_span_and_a_span_without_time_are_not_counted(machine: Machine) -> None:
    watch = HostLoadWatch(SingleRankGroup())
    began = watch.begin()
    machine.spend(5.0, idle=0.0)
    watch.end(began, "canaries")
    with watch.spanning("operations"):
        machine.spend(0.1, idle=0.0)
    assert watch.gathered() == ()


@pytest.mark.parametrize("leads", [True, False])
def test_without_counts_nothing_is_reported(machine: Machine, leads: bool) -> None:
    group = SingleRankGroup()
    group.leads_host = leads
    if leads:
        machine.times = None
    watch = HostLoadWatch(group)
    with watch.spanning("operations"):
        machine.at += 10.0
    assert watch.gathered() == ()
