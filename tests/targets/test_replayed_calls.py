"""The replay of recorded calls: calls that flush, and file systems that transfer less than requested."""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from types import SimpleNamespace

import pytest

from pytest_ckpt.facts.pattern import Step
from pytest_ckpt.targets.posix.checkpoint import PosixCalls
from pytest_ckpt.targets.posix.page_cache import page_counts
from tests.support.bucket import Phases

BYTES = 1000


@contextlib.contextmanager
def open_file(directory, synchronous=""):
    file = SimpleNamespace(at=lambda at: at, renames=0, name_before=lambda _left: "a.bin", synchronous=synchronous)
    with contextlib.closing(PosixCalls(directory, {0: file}, {0: bytearray(b"x" * BYTES)}, Phases())) as made:
        made.make(step("create"))
        yield made


@pytest.fixture
def calls(tmp_path):
    with open_file(tmp_path) as made:
        yield made


def step(call: str, count: int = 0) -> Step:
    return Step(phase=0, rank=0, lane=0, file=0, call=call, offset=0, bytes=count, count=1)


def unwritten_pages(path):
    with path.open("rb") as file:
        return page_counts(file.fileno()).unwritten


@pytest.mark.parametrize("synchronous", ["", "O_DSYNC", "O_SYNC"])
def test_a_file_is_opened_with_the_flag_that_was_recorded(tmp_path, synchronous):
    with open_file(tmp_path, synchronous) as calls:
        calls.make(step("write", BYTES))
        # Nothing else writes the pages back so soon.
        assert (unwritten_pages(tmp_path / "a.bin") == 0) is bool(synchronous)


def test_a_flush_of_the_file_system_writes_back_what_was_not_synced(tmp_path, calls):
    calls.make(step("write", BYTES))
    assert unwritten_pages(tmp_path / "a.bin") == 1
    calls.make(replace(step("syncfs"), file=-1))
    assert unwritten_pages(tmp_path / "a.bin") == 0


def test_a_write_that_takes_nothing_is_an_error_and_no_endless_loop(calls, monkeypatch):
    monkeypatch.setattr(os, "pwrite", lambda *_asked: 0)
    with pytest.raises(OSError, match="0 bytes of 1000 were taken"):
        calls.make(step("write", BYTES))


def test_a_short_read_continues_until_all_is_read(calls, monkeypatch):
    calls.make(step("write", BYTES))
    read, preadv = [], os.preadv

    def a_few(descriptor, into, at):
        read.append(preadv(descriptor, [into[0][:300]], at))
        return read[-1]

    monkeypatch.setattr(os, "preadv", a_few)
    calls.make(step("read", BYTES))
    assert read == [300, 300, 300, 100]
