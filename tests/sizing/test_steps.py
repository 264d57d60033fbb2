"""The client counts of the suite scaling, and the ranks that save and load for each count."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from pytest_ckpt.sizing.patterns import client_counts, clients_of


def test_counts_double_and_end_with_all() -> None:
    assert [client_counts(n) for n in (1, 2, 3, 8, 12)] == [
        (1,), (1, 2), (1, 2, 3), (1, 2, 4, 8), (1, 2, 4, 8, 12),
    ]  # fmt: skip


@given(st.integers(1, 2000))
def test_no_step_is_more_than_a_doubling(clients) -> None:
    counts = client_counts(clients)
    assert counts[0] == 1
    assert counts[-1] == clients
    assert all(one < other <= 2 * one for one, other in itertools.pairwise(counts))


def test_a_client_is_a_host_where_several_take_part_else_a_rank() -> None:
    assert clients_of(["a", "a", "a"]) == ("ranks", (0, 1, 2))
    assert clients_of(["b", "b", "a", "a", "c"]) == ("hosts", (0, 0, 1, 1, 2))
    # In any order of the ranks.
    assert clients_of(["b", "a", "b", "a"]) == ("hosts", (0, 1, 0, 1))
