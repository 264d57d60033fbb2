"""End-to-end runs on clients that cannot create or compare a checkpoint's content within the limits.

The run reports the weak clients before the first save. SAVE and LOAD are "not run", so there is no certificate.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.end_to_end import MEASURED, TINY, Run, temporary_runner

# A save or a load within some microseconds needs more than 1 TB/s from two ranks, which no client reaches.
HUGE = 100_000_000


@pytest.fixture(scope="module")
def run(create_home: Callable[[str], Path]) -> Run:
    with temporary_runner(create_home("weak-clients")) as runner:
        return runner.run(*TINY, cluster=HUGE, with_host_load=True)


@pytest.mark.parametrize("requirement", ["SAVE", "LOAD"])
def test_a_late_operation_is_not_a_failure_of_the_storage(run: Run, requirement: str) -> None:
    verdict = run.verdict(requirement, MEASURED)
    assert (verdict["outcome"], verdict["reason"]) == ("not run", "client too slow"), run.text
    assert verdict["because"].startswith("The clients cannot: ")
    assert run.document["grade"] != "certified"
    assert run.code in (1, 8)


def test_a_weak_client_is_reported_before_the_first_save(run: Run) -> None:
    first_save = run.text.index("save 1 of")
    for does, requirement in (("make", "SAVE"), ("compare", "LOAD")):
        assert run.text.index(f"can {does}") < first_save
        assert f"{requirement} cannot be met, and will not fail the storage" in run.text


def test_the_first_page_shows_the_ceiling_of_the_slowest_host_and_the_next_step(run: Run) -> None:
    (ceiling,) = run.document["measurements"][0]["client_ceilings"]
    assert ceiling["ranks"] == 2
    assert min(ceiling["makes_bytes_per_second"], ceiling["compares_bytes_per_second"]) > 0
    page = (run.report / "certificate.html").read_text()
    front = page[: page.index('id="limits"')]
    assert "Client ceiling" in front
    assert "per host, without storage: saves" in front
    assert "Use more or faster clients" in front
