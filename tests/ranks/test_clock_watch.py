"""A rank's clock is compared with the kernel's uptime. A slow or fast clock is a fault; a busy host is not."""

from __future__ import annotations

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ckpt.facts.proofs import ClockSpan
from pytest_ckpt.ranks import client_proof
from pytest_ckpt.ranks.client_proof import ClockWatch

UPTIME_STEP = 0.01
LONG = 1000.0


class Host:
    """A fake host, whose clocks advance only in the test.

    ``rate`` is the speed of the host's clock, and 1 is the correct speed. Each reading of a clock takes a microsecond,
    or the next value of ``pauses`` in seconds.
    """

    def __init__(self, rate=1.0):
        self.now, self.rate, self.asleep = 5000.004, rate, 0.0
        self.lost = 0.0
        self.pauses = []

    def clock(self):
        self._look()
        return (self.now - self.asleep - self.lost) * self.rate

    def uptime(self):
        self._look()
        return math.floor(self.now / UPTIME_STEP) * UPTIME_STEP

    def of_kernel(self, clock):
        return self.now if clock == time.CLOCK_BOOTTIME else self.now - self.asleep

    def sleep(self, seconds):
        self.now += seconds
        self.asleep += seconds

    def _look(self):
        self.now += self.pauses.pop(0) if self.pauses else 1e-6


@pytest.fixture
def host(monkeypatch):
    """Return a function that replaces the clocks of this process by the clocks of a fake host with the given rate."""

    def make(rate=1.0):
        made = Host(rate)
        monkeypatch.setattr(client_proof, "_CLOCKS", (made.clock, made.clock))
        monkeypatch.setattr(client_proof, "_uptime", made.uptime)
        monkeypatch.setattr(time, "clock_gettime", made.of_kernel)
        return made

    return make


def worst_after(host, seconds):
    watch = ClockWatch(3, "n1")
    watch.begin()
    host.now += seconds
    watch.end("save 1")
    return watch.worst()


@pytest.mark.parametrize("rate", [0.1, 0.99, 1.01, 10.0])
def test_a_clock_of_another_rate_is_wrong(host, rate):
    worst = worst_after(host(rate), LONG)
    assert worst.is_wrong
    assert worst.clock_seconds == pytest.approx(LONG * rate, rel=1e-3)
    assert worst.uptime_seconds == pytest.approx(LONG, rel=1e-3)
    assert (worst.rank, worst.host, worst.fits_sleep) == (3, "n1", False)


@pytest.mark.parametrize("rate", [1.0, 0.9995, 1.0005])
@pytest.mark.parametrize("seconds", [0.0, 0.004, 0.0099, 1.0, LONG])
def test_an_honest_clock_is_right_whatever_the_resolution_of_the_uptime(host, rate, seconds):
    assert not worst_after(host(rate), seconds).is_wrong


def test_a_process_that_was_taken_off_its_processor_between_two_looks_has_no_wrong_clock(host):
    machine = host()
    # In each of all tries, 100 ms pass between the readings of the clocks and of the uptime.
    machine.pauses = [1e-6, 1e-6, 0.1] * 200
    assert not worst_after(machine, 0.05).is_wrong


def test_the_operation_in_which_the_clock_stood_still_is_named(host):
    machine = host()
    watch = ClockWatch(0, "n1")
    for number in range(1, 4):
        watch.begin()
        machine.now += 10.0
        machine.lost = 5.0 if number == 2 else 0.0
        watch.end(f"save {number}")
    assert watch.worst().of == "save 2"
    assert watch.worst().is_wrong
    assert not watch.worst().fits_sleep


def test_a_host_that_slept_is_distinguished_from_one_whose_clock_is_slow(host):
    machine = host()
    watch = ClockWatch(0, "n1")
    watch.begin()
    machine.now += 10.0
    machine.sleep(60.0)
    watch.end("save 1")
    assert watch.worst().is_wrong
    assert watch.worst().fits_sleep
    assert watch.worst().asleep_seconds == pytest.approx(60.0)


@given(st.floats(0, 1e6), st.floats(0, 0.02))
def test_two_steps_of_the_uptime_are_no_difference(seconds, step):
    span = ClockSpan(rank=0, host="n1", of="x", clock_seconds=seconds, uptime_seconds=seconds + step)
    assert not span.is_wrong


def test_the_clock_of_this_process_is_that_of_its_kernel():
    watch = ClockWatch(0, "n1")
    watch.begin()
    watch.end("nothing")
    assert not watch.worst().is_wrong
