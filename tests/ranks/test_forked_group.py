"""Processes that ranks forked hear of each other by their ranks; what one met is told, and the others wait."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from pytest_ckpt.ranks.process.forked import ForkedProcess
from tests.support.machine import patience

HOSTS = ("left", "left", "right")


def of_ranks(work: Callable[[Any], object]) -> list[ForkedProcess]:
    """Fork one process for each of three ranks on two hosts, in this process; each tells what ``work`` returned."""
    children = []
    for rank, host in enumerate(HOSTS):
        of_host = [number for number, other in enumerate(HOSTS) if other == host]
        ranks: Any = SimpleNamespace(
            rank=rank,
            size=len(HOSTS),
            host=host,
            leads_host=rank == of_host[0],
            spans_hosts=True,
            ranks_of_host=of_host,
        )
        children.append(ForkedProcess(ranks, lambda tell, _hear, group: tell(json.dumps(work(group)))))
    return children


def until(children: list[ForkedProcess], is_over: Callable[[], bool]) -> None:
    """Hand on what the processes ask for, as their ranks do together, until it is over."""
    deadline = time.monotonic() + patience(10)
    while not is_over():
        assert time.monotonic() < deadline, [child.error for child in children]
        if all(child.asks() for child in children):
            found = [child.take() for child in children]
            for child in children:
                child.answer(found)
        for child in children:
            child.poll()


def told(work: Callable[[Any], object]) -> list[Any]:
    children = of_ranks(work)
    try:
        until(children, lambda: all(child.sent or child.error for child in children))
        assert [child.error for child in children] == [""] * len(children)
        return [json.loads(child.sent) for child in children]
    finally:
        for child in children:
            child.kill()


def test_each_hears_what_all_say() -> None:
    assert told(lambda group: group.gather(group.rank)) == [[0, 1, 2], [], []]
    assert told(lambda group: group.share(f"of {group.rank}")) == ["of 0"] * 3
    assert told(lambda group: group.largest(group.rank)) == [2] * 3
    assert told(lambda group: group.any_of(group.rank == 1)) == [True] * 3
    assert told(lambda group: group.duplicate(None).wait()) == [None] * 3


def test_hosts_are_told_apart() -> None:
    assert told(lambda group: group.sum_of_host(group.rank + 1)) == [3, 3, 3]
    assert told(lambda group: group.from_host_leader(group.rank)) == [0, 0, 2]


def test_buffers_go_to_the_rank_that_they_are_for() -> None:
    def pass_on(group: Any) -> list[int]:
        found = bytearray(2)
        group.exchange([((group.rank + 1) % 3, bytes([group.rank] * 2))], [((group.rank - 1) % 3, found)])
        return list(found)

    assert told(pass_on) == [[2, 2], [0, 0], [1, 1]]


def test_a_process_that_failed_tells_why_and_the_others_wait() -> None:
    def fail(group: Any) -> None:
        if group.rank == 1:
            raise OSError(5, "Input/output error")
        group.wait()

    children = of_ranks(fail)
    try:
        until(children, lambda: bool(children[1].error))
        assert children[1].error == "OSError: [Errno 5] Input/output error"
        until(children, lambda: children[0].asks() and children[2].asks())
        assert not children[1].asks()
        assert [child.sent for child in children] == ["", "", ""]
    finally:
        for child in children:
            child.kill()
