"""The data loader of the pattern mixed, which reads training samples during saves.

The loader detects an empty queue and keeps errors. It counts only reads during a save.
"""

from __future__ import annotations

import errno
import threading

import pytest

from pytest_ckpt.ranks.scenarios import samples
from pytest_ckpt.ranks.scenarios.samples import SampleReads, _Loader

BYTES = 4096


class Source:
    """A file whose reads wait until the test sets ``gate``. Each read then reports ``got`` read bytes."""

    size = 16 * BYTES
    io_mode = "by the test"

    def __init__(self, got: int = BYTES) -> None:
        self.gate = threading.Event()
        self._got = got

    def read_into(self, offset: int, buffer: bytearray) -> int:
        self.gate.wait()
        return self._got

    def close(self) -> None:
        """Do nothing, because no file is open."""


class Ready(threading.Semaphore):
    """A semaphore that sets the event ``is_awaited`` when training waits for a sample."""

    def __init__(self) -> None:
        super().__init__(0)
        self.is_awaited = threading.Event()

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        if blocking:
            self.is_awaited.set()
        return super().acquire(blocking, timeout)


@pytest.fixture
def without_prefetch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let training begin without prefetched samples; the queue has space for one sample."""
    monkeypatch.setattr(samples, "PREFETCH_SECONDS", 0.0)


def loader_of(source: Source) -> _Loader:
    return _Loader(files=[source], sample_bytes=BYTES, sample_seconds=1e-3, ready=Ready())


@pytest.mark.usefixtures("without_prefetch")
def test_training_that_waits_for_a_sample_is_noticed() -> None:
    source = Source()
    loader = loader_of(source)
    threads = [threading.Thread(target=loader.read, args=(1,)), threading.Thread(target=loader.train)]
    for thread in threads:
        thread.start()
    assert isinstance(loader.ready, Ready)
    loader.ready.is_awaited.wait()
    source.gate.set()
    loader.stop(1)
    for thread in threads:
        thread.join()
    assert loader.found.waits
    assert loader.found.waits[0][1] > 0
    assert loader.error is None


@pytest.mark.usefixtures("without_prefetch")
def test_a_short_read_is_an_error_and_no_sample() -> None:
    source = Source(got=BYTES - 1)
    source.gate.set()
    loader = loader_of(source)
    loader.read(1)
    assert loader.error is not None
    assert loader.error.errno == errno.EIO
    assert loader.found.reads == []


def test_the_queue_has_room_for_the_samples_of_its_seconds() -> None:
    source = Source()
    source.gate.set()
    loader = _Loader(files=[source], sample_bytes=BYTES, sample_seconds=0.1)
    assert [loader.free_slots.acquire(blocking=False) for _ in range(6)] == [True] * 5 + [False]


def test_only_reads_and_waits_that_begin_within_a_save_count() -> None:
    found = SampleReads(
        reads=[(1.0, 9.0), (2.0, 0.1), (4.0, 0.1)], waits=[(0.5, 5.0), (2.5, 0.2)], busy=0.3, io_mode="so"
    )
    inside = found.within([(1.5, 3.0), (3.9, 5.0)])
    assert (inside.reads, inside.waits) == ([(2.0, 0.1), (4.0, 0.1)], [(2.5, 0.2)])
    assert (inside.busy, inside.io_mode) == (0.3, "so")
