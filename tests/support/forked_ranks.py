"""Runs three ranks on two simulated hosts as forked processes of a test, and collects their results."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from pytest_ckpt.ranks.process.forked import ForkedProcess
from tests.support.machine import patience

HOSTS = ("left", "left", "right")


def fork_ranks(work: Callable[[Any], object]) -> list[ForkedProcess]:
    """Fork three processes as ranks on two hosts, and return them.

    Each process calls ``work`` with its group of ranks, and sends the result.
    """
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


def relay_until(children: list[ForkedProcess], is_over: Callable[[], bool]) -> None:
    """Relay messages between the processes ``children`` until ``is_over`` returns true. In a run, ranks relay them."""
    deadline = time.monotonic() + patience(60)
    while not is_over():
        assert time.monotonic() < deadline, [child.error for child in children]
        if all(child.is_waiting() for child in children):
            found = [child.next_value() for child in children]
            for child in children:
                child.answer(found)
        for child in children:
            child.poll()


def results_of(work: Callable[[Any], object]) -> list[Any]:
    children = fork_ranks(work)
    try:
        relay_until(children, lambda: all(child.sent or child.error for child in children))
        assert [child.error for child in children] == [""] * len(children)
        return [json.loads(child.sent) for child in children]
    finally:
        for child in children:
            child.kill()
