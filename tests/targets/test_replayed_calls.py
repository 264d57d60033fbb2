"""The calls of a replay where the file system does less than it was asked for."""

from __future__ import annotations

import contextlib
import os
from types import SimpleNamespace

import pytest

from pytest_ckpt.facts.pattern import Step
from pytest_ckpt.targets.posix.checkpoint import PosixCalls
from tests.support.bucket import Phases

BYTES = 1000


@pytest.fixture
def calls(tmp_path):
    file = SimpleNamespace(at=lambda place: place, renames=0, name_before=lambda _left: "a.bin")
    with contextlib.closing(PosixCalls(tmp_path, {0: file}, {0: bytearray(b"x" * BYTES)}, Phases())) as made:
        made.make(step("create"))
        yield made


def step(call: str, count: int = 0) -> Step:
    return Step(phase=0, rank=0, lane=0, file=0, call=call, offset=0, bytes=count, count=1)


def test_a_write_that_takes_nothing_is_an_error_and_no_endless_loop(calls, monkeypatch):
    monkeypatch.setattr(os, "pwrite", lambda *_asked: 0)
    with pytest.raises(OSError, match="0 bytes of 1000 were taken"):
        calls.make(step("write", BYTES))


def test_a_short_read_goes_on_until_all_is_read(calls, monkeypatch):
    calls.make(step("write", BYTES))
    read, preadv = [], os.preadv

    def a_few(descriptor, into, at):
        read.append(preadv(descriptor, [into[0][:300]], at))
        return read[-1]

    monkeypatch.setattr(os, "preadv", a_few)
    calls.make(step("read", BYTES))
    assert read == [300, 300, 300, 100]
