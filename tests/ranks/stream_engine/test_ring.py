"""A load compares bytes while it reads, in a ring of buffers. Waits of reads for the comparison are reported."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import numpy as np
import pytest

from pytest_ckpt.ranks.engines.stream import engine as stream
from pytest_ckpt.ranks.engines.stream import ring as ring_module
from pytest_ckpt.ranks.engines.stream.ring import Arrival, Ring
from tests.support.posix_files import clock_of, committed_in
from tests.support.streaming import ODD, everything, load, streaming


class WatchedCondition(threading.Condition):
    """A condition that sets the event ``is_awaited`` when a thread starts to wait."""

    def __init__(self, lock):
        super().__init__(lock)
        self.is_awaited = threading.Event()

    def wait(self, timeout=None):
        self.is_awaited.set()
        return super().wait(timeout)


@pytest.fixture
def clock(monkeypatch):
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(ring_module, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    monkeypatch.setattr(ring_module, "threading", SimpleNamespace(Lock=threading.Lock, Condition=WatchedCondition))
    return clock


def buffers(count):
    return [np.zeros(8, dtype=np.uint8) for _ in range(count)]


@pytest.mark.parametrize(("readers", "stalled"), [(1, 7.0), (2, 3.5)])
def test_a_read_that_waits_for_a_buffer_is_a_stall_of_its_share_of_the_readers(clock, readers, stalled):
    ring = Ring(buffers(1), readers)
    first = ring.buffer()
    got = []
    reader = threading.Thread(target=lambda: got.append(ring.buffer()))
    reader.start()
    assert ring._is_free.is_awaited.wait(60)
    clock.now += 7.0
    ring.free(Arrival("request", first, 8))
    reader.join()
    assert got == [first]
    assert ring.stalled_seconds == stalled


def test_reads_that_find_a_buffer_are_no_stall(clock):
    ring = Ring(buffers(2), 1)
    ring.buffer()
    clock.now += 7.0
    ring.buffer()
    assert ring.stalled_seconds == 0.0


@pytest.mark.parametrize("waits_for", ["buffer", "next"])
def test_a_waiting_thread_ends_when_another_thread_fails(clock, waits_for):
    ring = Ring(buffers(0), 1)
    got = []
    waiting = threading.Thread(target=lambda: got.append(getattr(ring, waits_for)()))
    waiting.start()
    condition = {"buffer": ring._is_free, "next": ring._has_arrived}[waits_for]
    assert condition.is_awaited.wait(60)
    ring.fail()
    waiting.join(60)
    assert got == [None]


def test_a_request_that_arrived_is_compared_after_the_last_reader_left():
    ring = Ring(buffers(1), 1)
    ring.arrived(arrival := Arrival("request", ring.buffer(), 8))
    ring.leave()
    assert ring.next() is arrival
    assert ring.next() is None


@pytest.mark.parametrize("depth", [1, 3])
def test_a_load_with_few_buffers_compares_every_byte(saved, monkeypatch, depth):
    monkeypatch.setattr(stream, "buffer_count", lambda _request, depth: depth)
    assert load(streaming(ODD, depth=depth), saved) == everything(ODD)


def test_a_load_with_few_open_files_reads_them_all(saved, monkeypatch):
    monkeypatch.setattr(stream, "_MAXIMUM_OPEN_FILES", 1)
    assert load(streaming(ODD), saved) == everything(ODD)


def test_the_load_time_excludes_comparisons_after_the_last_read(saved, monkeypatch):
    all_is_read, leave, compare = threading.Event(), Ring.leave, stream.compare

    def leaves(ring):
        leave(ring)
        if not ring._readers:
            all_is_read.set()

    def compares(*arguments):
        assert all_is_read.wait(60)
        return compare(*arguments)

    monkeypatch.setattr(Ring, "leave", leaves)
    monkeypatch.setattr(stream, "compare", compares)
    engine, clock = streaming(ODD), clock_of()
    engine.expect(1)
    assert engine.load(committed_in(saved, clock), 0, clock) == ODD.bytes
    assert clock.left_out_seconds > 0
    assert clock.phases["read"] > 0
    assert clock.stalled_seconds == 0
    assert engine.verify(1).bytes_checked == ODD.bytes
    engine.release()


def test_the_stalls_of_a_pass_are_those_of_the_load(saved, monkeypatch):
    monkeypatch.setattr(Ring, "stalled_seconds", 1.5)
    engine, clock = streaming(ODD), clock_of()
    engine.expect(1)
    engine.load(committed_in(saved), 0, clock)
    engine.release()
    assert clock.stalled_seconds == 1.5


def test_an_error_of_a_comparison_ends_the_load(saved, monkeypatch):
    monkeypatch.setattr(stream, "buffer_count", lambda _request, depth: depth)

    def breaks(*_arguments):
        raise MemoryError

    monkeypatch.setattr(stream, "compare", breaks)
    engine = streaming(ODD)
    with pytest.raises(MemoryError):
        load(engine, saved)
    engine.release()
