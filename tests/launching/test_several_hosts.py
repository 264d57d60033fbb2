"""Ranks on several hosts with a network of their own, started over ssh by a controller on another host than rank 0."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.front_door import TINY
from tests.support.hosts.lab import Step, need_hosts, on_hosts


@pytest.mark.thorough
def test_rank_0_may_be_on_another_host_than_the_controller(make_home: Callable[[str], Path]) -> None:
    need_hosts()
    (done,) = on_hosts(make_home("hosts"), 3, Step(options=(*TINY, "--ckpt-hosts=h2:1,h3:1")))
    run = done.run
    assert run.code == 0, run.text
    assert run.measurement()["hosts"] == ["h2", "h3"]
    assert {name: run.outcomes()[name] for name in ("SAVE", "LOAD", "INTEGRITY", "DURABLE-CALLS")} == dict.fromkeys(
        ("SAVE", "LOAD", "INTEGRITY", "DURABLE-CALLS"), "met"
    )
    assert done.left == ()
