"""Weights that a rank of a replica loads in one pass. Bytes are compared during the reads, and waits are reported."""

from __future__ import annotations

import threading

import pytest

from pytest_ckpt.facts.targets import CheckpointRef
from pytest_ckpt.ranks.content import Content
from pytest_ckpt.ranks.engines.protocol import Clock
from pytest_ckpt.ranks.engines.stream.ring import Ring
from pytest_ckpt.ranks.process.activity import Activity
from pytest_ckpt.ranks.scenarios import serving
from pytest_ckpt.ranks.scenarios.serving import WeightsEngine
from pytest_ckpt.ranks.strategies.protocol import write_files
from pytest_ckpt.sizing.reading import Weights
from pytest_ckpt.targets.posix.store import PosixStore
from tests.support.machine import patience

NUMBER, PAGE = 5, 4096
REF = CheckpointRef(subject="weights", number=NUMBER)
# One rank reads all of the three files; the first file has several pieces.
WEIGHTS = Weights(processes=1, readers=1, full_bytes=1 << 40, file_pages=(9, 1, 4))


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(serving, "_PIECE_BYTES", 2 * PAGE)
    monkeypatch.setattr(serving, "_PIECES", 3)


@pytest.fixture
def clock(capfd):
    return Clock(activity=Activity())


@pytest.fixture
def store(tmp_path, clock):
    store = PosixStore(tmp_path)
    store.prepare(REF.subject)
    engine = engine_of()
    engine.fill(NUMBER)
    write_files(engine, store, REF, clock)
    engine.release()
    store.commit(REF, (), clock)
    return store


def engine_of(way="reads", weights=WEIGHTS, rank=0):
    return WeightsEngine(weights, rank, Content(3), NUMBER, way)


def compared(store, clock, way="reads", **of):
    engine = engine_of(way, **of)
    steps = engine.load_steps()
    count = engine.load(store.open(REF, clock), 0, clock)
    found = engine.verify(NUMBER)
    engine.release()
    assert steps == 1
    assert count == found.bytes_checked
    return found


@pytest.mark.parametrize("way", ["reads", "mmap"])
@pytest.mark.parametrize("open_files", [1, 64])
def test_every_byte_is_compared_in_one_pass(store, clock, monkeypatch, way, open_files):
    monkeypatch.setattr(serving, "_MAXIMUM_OPEN_FILES", open_files)
    found = compared(store, clock, way)
    assert (found.bytes_checked, found.fault_count) == (WEIGHTS.bytes, 0)
    assert clock.phases["read"] > 0


@pytest.mark.parametrize("readers", [2, 3])
def test_the_readers_of_a_replica_share_each_file(store, clock, readers):
    shared = Weights(processes=readers, readers=readers, full_bytes=1 << 40, file_pages=WEIGHTS.file_pages)
    assert sum(compared(store, clock, weights=shared, rank=rank).bytes_checked for rank in range(readers)) == (
        WEIGHTS.bytes
    )


def test_a_rank_that_reads_nothing_only_waits(store, clock):
    alone = Weights(processes=2, readers=2, full_bytes=1 << 40, file_pages=(1,))
    assert compared(store, clock, weights=alone, rank=0).bytes_checked == 0
    assert "read" not in clock.phases


@pytest.mark.parametrize("way", ["reads", "mmap"])
def test_a_wrong_byte_is_found_where_it_lies(store, clock, tmp_path, way):
    (file,) = tmp_path.rglob(WEIGHTS.names[0])
    data = bytearray(file.read_bytes())
    data[5 * PAGE + 17] ^= 1
    file.write_bytes(data)
    found = compared(store, clock, way)
    assert (found.bytes_checked, found.fault_count) == (WEIGHTS.bytes, 1)
    (fault,) = found.faults
    assert (fault.file, fault.offset // PAGE) == (WEIGHTS.names[0], 5)


@pytest.mark.parametrize("way", ["reads", "mmap"])
def test_a_file_that_is_cut_off_brings_fewer_bytes(store, clock, tmp_path, way):
    (file,) = tmp_path.rglob(WEIGHTS.names[0])
    file.write_bytes(file.read_bytes()[: 3 * PAGE])
    assert compared(store, clock, way).bytes_checked == WEIGHTS.bytes - 6 * PAGE


def test_pieces_are_compared_while_later_pieces_are_read(store, clock, monkeypatch):
    """Pieces are compared while later pieces are still read.

    The fake last read waits until the comparison of the first piece has begun.
    """
    begun, read, compare = threading.Event(), WeightsEngine._read, serving.compare

    def reads(engine, piece, buffer):
        if piece == engine._pieces[-1]:
            assert begun.wait(patience(60))
        return read(engine, piece, buffer)

    def compares(*arguments):
        begun.set()
        return compare(*arguments)

    monkeypatch.setattr(WeightsEngine, "_read", reads)
    monkeypatch.setattr(serving, "compare", compares)
    assert compared(store, clock).bytes_checked == WEIGHTS.bytes


def test_stalls_are_counted_and_what_is_compared_at_the_end_is_left_out(store, clock, monkeypatch):
    monkeypatch.setattr(Ring, "stalled_seconds", 1.5)
    compared(store, clock)
    assert clock.stalled_seconds == 1.5
    assert clock.left_out_seconds > 0
    assert clock.phases["read"] >= 0


def test_between_files_what_is_compared_late_is_a_stall(store, clock, monkeypatch):
    monkeypatch.setattr(serving, "_MAXIMUM_OPEN_FILES", 1)
    compared(store, clock)
    assert clock.stalled_seconds > 0


def test_an_error_names_the_file_that_failed(store, capfd, monkeypatch):
    told, activity = [], Activity()
    activity.report_through(told.append)
    read = WeightsEngine._read

    def fails(engine, piece, buffer):
        if piece.file == 2:
            raise OSError(5, "broken")
        return read(engine, piece, buffer)

    monkeypatch.setattr(WeightsEngine, "_read", fails)
    with pytest.raises(OSError, match="broken") as met:
        compared(store, Clock(activity=activity))
    activity.failed(met.value)
    assert (told[-1].phase, told[-1].file) == ("read", WEIGHTS.names[2])
