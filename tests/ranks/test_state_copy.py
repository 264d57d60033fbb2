"""The copy of a state contains every byte. Several threads copy at the same time, as many as the cores permit."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ckpt.ranks.engines import whole_state
from pytest_ckpt.ranks.engines.whole_state import copy_state, share_of_cores
from tests.support.machine import patience


@given(sizes=st.lists(st.integers(0, 50), max_size=6), threads=st.integers(1, 9))
def test_every_byte_is_copied_and_none_beyond(sizes, threads):
    sources = [np.arange(1, size + 1, dtype=np.uint8) for size in sizes]
    copies = [np.zeros(size + 3, dtype=np.uint8) for size in sizes]
    assert copy_state(copies, sources, threads) == sum(sizes)
    for copy, source in zip(copies, sources, strict=True):
        assert copy.tolist() == [*source.tolist(), 0, 0, 0]


def test_one_large_tensor_is_copied_by_all_threads_at_once(monkeypatch):
    together = threading.Barrier(3, timeout=patience(60))

    def copy(to, data):
        together.wait()
        to[:] = data

    monkeypatch.setattr(whole_state.np, "copyto", copy)
    (to,), data = [np.zeros(10, dtype=np.uint8)], np.arange(10, dtype=np.uint8)
    assert copy_state([to], [data], 3) == 10
    assert to.tolist() == data.tolist()


@pytest.mark.parametrize(
    ("own", "of_ranks", "threads"),
    [
        (16, [range(16)], 16),
        (16, [range(16)] * 4, 4),
        (2, [range(2)] * 8, 1),
        (8, [range(8), range(8), range(8, 16), range(8, 16)], 4),
        (1, [range(1), range(1, 2)], 1),
        (2, [range(2), range(2, 16)], 2),
    ],
    ids=["alone", "four share", "more ranks than cores", "two nodes", "bound to a core", "bound to fewer"],
)
def test_a_rank_has_its_share_of_the_hosts_cores(own, of_ranks, threads):
    assert share_of_cores(own, of_ranks) == threads
