"""A drain copies a checkpoint from the local tier to the target. It reads and writes concurrently."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import numpy as np
import pytest

from pytest_ckpt.facts.targets import CheckpointRef
from pytest_ckpt.ranks.engines.protocol import Clock
from pytest_ckpt.ranks.engines.stream.ring import Ring
from pytest_ckpt.ranks.process.activity import Activity
from pytest_ckpt.ranks.process.job import EngineOptions
from pytest_ckpt.ranks.strategies.tiered import Copies
from pytest_ckpt.targets.posix.store import PosixStore
from tests.support.machine import patience

REF = CheckpointRef(subject="drained", number=1)
NAME = "file"
REQUEST = 8192


class Tier:
    """A fake local tier with one file. The object is also the source from which this file is read."""

    def __init__(self, size):
        self.data = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)
        self.size = size
        self.is_closed = False

    def open(self, _ref, _clock):
        return self

    def source(self, _name):
        return self

    def read_into(self, offset, buffer):
        piece = self.data[offset : offset + len(buffer)]
        buffer[: len(piece)] = piece
        return len(piece)

    def close(self):
        self.is_closed = True


class Target:
    """A fake target that keeps the written bytes.

    The object is also the draft (an uncommitted checkpoint) and the only file in the draft.
    """

    def __init__(self, *, part_bytes=None, alignment=4096):
        self.part_bytes, self.alignment = part_bytes, alignment
        self.pieces, self.ended, self.lock = {}, [], threading.Lock()

    def begin(self, _ref, _clock):
        return self

    def create(self, _name, _size):
        return self

    def write_at(self, offset, data):
        with self.lock:
            assert offset not in self.pieces
            self.pieces[offset] = bytes(data)

    def finish(self):
        self.ended.append("finish")

    def abort(self):
        self.ended.append("abort")

    def written(self):
        return (), None

    def bytes(self, size):
        """Return the first ``size`` written bytes, without the padding that follows them."""
        found = bytearray()
        for offset in sorted(self.pieces):
            assert offset == len(found)
            assert len(self.pieces[offset]) % self.alignment == 0
            found += self.pieces[offset]
        return bytes(found[:size])


@pytest.fixture
def clock(capfd):
    return Clock(activity=Activity())


def drain(tier, target, clock, depth=2):
    copies = Copies(target, tier, EngineOptions(request_bytes=REQUEST, depth=depth))
    try:
        copies.copy(REF, [NAME], clock)
    finally:
        copies.release()
    return copies


@pytest.mark.parametrize("part_bytes", [None, 4 * REQUEST])
@pytest.mark.parametrize("size", [0, 1, REQUEST, 10 * REQUEST, 41 * REQUEST + 5])
@pytest.mark.parametrize("depth", [1, 3])
def test_every_byte_arrives_in_its_place(clock, size, part_bytes, depth):
    tier, target = Tier(size), Target(part_bytes=part_bytes)
    drain(tier, target, clock, depth)
    assert target.bytes(size) == tier.data.tobytes()
    assert target.ended == ["finish"]
    assert tier.is_closed


def test_the_requested_numbers_of_reads_and_writes_are_in_flight_together(clock):
    """Two reads and two writes are in flight at the same time, as requested.

    Each fake read waits for another read. Each fake write waits for another write and for a later read.
    """
    depth = 2
    reads, writes = (threading.Barrier(depth, timeout=patience(60)) for _ in range(2))
    later = threading.Event()

    class Reads(Tier):
        def read_into(self, offset, buffer):
            reads.wait()
            if offset >= depth * REQUEST:
                later.set()
            return super().read_into(offset, buffer)

    class Writes(Target):
        def write_at(self, offset, data):
            writes.wait()
            assert later.wait(patience(60))
            super().write_at(offset, data)

    tier, target = Reads(8 * REQUEST), Writes()
    copies = drain(tier, target, clock, depth)
    assert target.bytes(tier.size) == tier.data.tobytes()
    assert copies.facts()["drain"].startswith("requests of 8 KiB, 2 read from the local tier while 2 are written")


def test_a_drain_of_large_parts_has_fewer_in_flight_and_reports_it(clock):
    part = 32 << 20
    tier, target = Tier(3 * REQUEST), Target(part_bytes=part)
    facts = drain(tier, target, clock, depth=4).facts()
    assert target.bytes(tier.size) == tier.data.tobytes()
    assert facts["drain"].startswith("requests of 32 MiB, 1 read")
    assert facts["drain buffers"] == "67.1 MB a rank"


@pytest.mark.parametrize("side", ["read", "write"])
def test_an_error_ends_the_drain_and_is_reported_with_its_side(capfd, side):
    told = []
    activity = Activity()
    activity.report_through(told.append)

    def fails(*_arguments):
        raise OSError(errno.EIO, "broken")

    tier, target = Tier(40 * REQUEST), Target()
    if side == "read":
        tier.read_into = fails
    else:
        target.write_at = fails
    with pytest.raises(OSError, match="broken") as met:
        drain(tier, target, Clock(activity=activity))
    activity.failed(met.value)
    assert (told[-1].phase, told[-1].file, told[-1].errno) == (side, NAME, "EIO")
    assert target.ended == ["abort"]
    assert tier.is_closed


def test_a_hang_during_a_drain_is_reported_as_a_read_or_a_write(capfd):
    """The message about a drain that hangs contains the phase of the drain.

    The phase is "write" during writes to the target, and "read" during reads from the local tier.
    """

    phases = []

    class Noted(Activity):
        def __setattr__(self, name, value):
            if name == "phase":
                phases.append(value)
            super().__setattr__(name, value)

    activity = Noted()
    phases.clear()
    drain(Tier(REQUEST), Target(), Clock(activity=activity))
    assert phases == ["read", "write", "read", ""]


def test_a_file_that_is_cut_off_in_the_local_tier_is_an_error(clock):
    tier, target = Tier(2 * REQUEST), Target()
    tier.data = tier.data[:REQUEST]
    with pytest.raises(OSError, match="gave 0 of 8192 bytes"):
        drain(tier, target, clock)


@pytest.mark.parametrize(("stalled", "phase"), [(0.0, "read"), (1e9, "write")])
def test_the_time_of_a_pass_is_of_the_side_that_the_other_waits_for(clock, monkeypatch, stalled, phase):
    monkeypatch.setattr(Ring, "stalled_seconds", stalled)
    drain(Tier(8 * REQUEST), Target(), clock)
    other = {"read": "write", "write": "read"}[phase]
    assert clock.phases[phase] > 0
    assert clock.phases[other] == 0


def test_a_directory_is_drained_into_another(clock, tmp_path):
    tier, target = Tier(5 * REQUEST + 1), PosixStore(Path(tmp_path))
    target.prepare(REF.subject)
    drain(tier, target, clock)
    target.commit(REF, (), clock)
    (file,) = tmp_path.rglob(NAME)
    assert file.read_bytes() == tier.data.tobytes()
