"""The fault matrix of end-to-end runs: with each fault of speed, the requirements that the table lists fail.

Without a fault, all requirements are met.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.end_to_end import TINY, Runner, processes_of
from tests.support.machine import need_fuse
from tests.support.matrix_of_speed import OF_SPEED, SpeedRow
from tests.support.targets.misbehaving import Target, misbehaving

# At this size, a cluster of 64 accelerators allows 0.7 s for a save and 2.8 s for a load. A cluster of 1 allows 64
# times as long, a cluster of 256 a quarter.
USUAL = ("--ckpt-gate-table=speed-only", "--ckpt-engine=stream:io-size=64KiB", *TINY)


@pytest.fixture(scope="module")
def target(create_home) -> Iterator[Target]:
    need_fuse()
    with misbehaving(create_home("speed")) as mounted:
        yield mounted


@pytest.fixture(scope="module")
def blind_target(create_home, target: Target) -> Iterator[Target]:
    """A target with two clients. The kernel cannot count the cached pages of the target's files."""
    with misbehaving(create_home("blind"), second=True, direct_io=True) as mounted:
        yield mounted


# The row in the fast set: it shows that a fault of speed is found, and by which requirements.
FAST = ("slow",)
# This target mostly waits, so it is as slow on a busy machine, and no other load adds a failure.
BESIDE_OTHERS = ("writes trickle",)


def covers_marks(row: SpeedRow) -> list[pytest.MarkDecorator]:
    marks = [] if row.title in FAST else [pytest.mark.thorough]
    return marks if row.title in BESIDE_OTHERS else [*marks, pytest.mark.alone]


NAMED = frozenset[str]().union(*(row.fails | row.may_fail for row in OF_SPEED))
ROWS = [pytest.param(row, id=row.title, marks=covers_marks(row)) for row in OF_SPEED]


@pytest.mark.parametrize("row", ROWS)
def test_a_fault_of_speed_fails_what_it_is_mapped_to(
    row: SpeedRow, request: pytest.FixtureRequest, runner: Runner
) -> None:
    target: Target = request.getfixturevalue("blind_target" if row.without_gauge else "target")
    more = (f"--ckpt-second-mount={target.second}",) if row.without_gauge else ()
    if row.fault:
        target.fault(row.fault, **row.parameters)
    try:
        run = runner.run(*USUAL, *row.options, *more, target=Path(target.path), cluster=row.cluster)
        assert run.left_on_target == []
        assert processes_of(run.run_id) == []
    finally:
        target.clear()
        target.empty()
    found = {v["id"]: v for v in run.document["requirements"]}
    # A fault of speed may fail any advisory requirement that no row names.
    failed = {
        name
        for name, verdict in found.items()
        if verdict["outcome"] == "failed" and (name in NAMED or verdict["severity"] == "required")
    }
    assert row.fails <= failed <= row.fails | row.may_fail, run.text
    for name, words in row.expected_text.items():
        assert words in found[name]["because"]
