"""The ranks of a host are bound to its NUMA nodes in blocks, unless the launcher has bound the ranks."""

from __future__ import annotations

import itertools
import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ckpt.ranks.process import numa
from pytest_ckpt.ranks.process.numa import AS_STARTED, BINDING, ONE_NODE_A_RANK, bind_to_numa_node, cores_of_rank
from tests.support.one_rank import SingleRankGroup

TWO = {0: frozenset({0, 1, 2, 3}), 1: frozenset({4, 5, 6, 7})}
ALL = TWO[0] | TWO[1]


@given(nodes=st.integers(2, 8), cores=st.integers(1, 4), ranks=st.integers(2, 32))
def test_each_node_has_a_block_of_ranks_and_as_many_as_the_others(nodes: int, cores: int, ranks: int) -> None:
    known = {node: frozenset(range(node * cores, (node + 1) * cores)) for node in range(nodes)}
    everything = frozenset(itertools.chain(*known.values()))
    bound = [cores_of_rank(place, [everything] * ranks, known) for place in range(ranks)]
    order = [node for of in bound for node, own in known.items() if own == of]
    assert len(order) == ranks
    assert order == sorted(order)
    counts = [order.count(node) for node in known]
    assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize(
    ("of_ranks", "nodes"),
    [
        ([ALL], TWO),
        ([TWO[0], TWO[1]], TWO),
        ([TWO[0], TWO[0]], TWO),
        ([ALL, TWO[1]], TWO),
        ([ALL, ALL], {0: ALL}),
        ([ALL, ALL], {0: ALL, 1: frozenset()}),
        ([ALL, ALL], {}),
    ],
    ids=["a rank alone", "bound", "bound to one node", "one is bound", "one node", "a node without cores", "no nodes"],
)
def test_ranks_stay_as_they_were_started(of_ranks: list[frozenset[int]], nodes: dict[int, frozenset[int]]) -> None:
    assert [cores_of_rank(place, of_ranks, nodes) for place in range(len(of_ranks))] == [None] * len(of_ranks)


def test_a_rank_is_bound_only_to_permitted_cores_of_its_node() -> None:
    """A rank is bound only to cores of its node that the rank is permitted to use, for example by its control group."""
    some = frozenset({3, 4, 5})
    assert [cores_of_rank(place, [some, some], TWO) for place in (0, 1)] == [{3}, {4, 5}]


class TwoRanks(SingleRankGroup):
    """A group of two ranks on one host. Both ranks may use the same cores."""

    size, ranks_of_host = 2, (0, 1)

    def gather(self, value: Any) -> list[Any]:
        return [value, value]

    def any_of(self, value: bool) -> bool:
        return value


@pytest.mark.parametrize("refuses", [False, True])
def test_whether_a_rank_was_bound_is_a_fact(monkeypatch: pytest.MonkeyPatch, refuses: bool) -> None:
    taken = {}

    def take(thread: int, cores: frozenset[int]) -> None:
        if refuses:
            raise PermissionError
        taken[thread] = cores

    monkeypatch.setattr(numa, "numa_nodes", lambda: TWO)
    monkeypatch.setattr(numa, "cores_of_this_process", lambda: set(ALL))
    monkeypatch.setattr(os, "sched_setaffinity", take)
    assert bind_to_numa_node(TwoRanks()) == {BINDING: AS_STARTED if refuses else ONE_NODE_A_RANK}
    assert set(taken.values()) == (set() if refuses else {TWO[0]})
    assert (os.getpid() in taken) is not refuses


def test_on_a_host_of_one_node_nothing_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numa, "numa_nodes", lambda: {0: ALL})
    assert bind_to_numa_node(TwoRanks()) == {}
