"""The report on reads during saves, if some hosts use the page cache and others do not."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pytest_ckpt.ranks.scenarios.interference import InterferenceScenario

DIRECT, BUFFERED = "around the page cache", "through the page cache"


@pytest.mark.parametrize(
    ("ways", "expected_text"),
    [
        # One rank of each host reads; the others report nothing.
        ([DIRECT, "", DIRECT, ""], DIRECT),
        ([DIRECT, "", BUFFERED, ""], f"{DIRECT} on 1 host, {BUFFERED} on 1 host"),
        ([BUFFERED, "", DIRECT, "", BUFFERED, ""], f"{BUFFERED} on 2 hosts, {DIRECT} on 1 host"),
    ],
)
def test_the_way_of_reads_is_that_of_every_host_and_not_of_rank_0_s_alone(ways: list[str], expected_text: str) -> None:
    scenario = SimpleNamespace(_group=SimpleNamespace(gather=lambda _own: ways))
    assert InterferenceScenario._io_modes_text(scenario, ways[0]) == expected_text
