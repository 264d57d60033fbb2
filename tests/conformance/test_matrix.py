"""The fault matrix: each fault fails exactly the checks that the table lists for it; without faults, all pass."""

from __future__ import annotations

import contextlib
import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_ckpt.facts.checks import checks_for
from pytest_ckpt.facts.verdict import Verdict
from tests.support.docs_pages import conformance_page
from tests.support.machine import Mounts, need_fuse, patience
from tests.support.matrix import ALL, MATRIX, ONE_OF_EACH, Row, topic_of
from tests.support.matrix_of_speed import OF_SPEED
from tests.support.model_arrays import ARRAYS
from tests.support.target_checks import EFFORT, Pair, observe
from tests.support.targets.misbehaving import FAULTS, misbehaving


def failed(found: dict[str, Verdict]) -> dict[str, str]:
    return {name: verdict.because for name, verdict in found.items() if verdict.outcome == "failed"}


@pytest.fixture(scope="module")
def home(create_home) -> Path:
    need_fuse()
    return create_home("matrix")


@pytest.fixture(scope="module")
def memory(create_home) -> Iterator[tuple[Path, Path]]:
    """Mount a large and a small tmpfs, which store the files of the FUSE targets; yield (large, small)."""
    mounts = Mounts(create_home)
    try:
        yield mounts("tmpfs", 1536), mounts("tmpfs", 96)
    finally:
        mounts.unmount_all()


_number = itertools.count()


@contextlib.contextmanager
def a_pair(home: Path, memory: tuple[Path, Path]) -> Iterator[Pair]:
    here = home / f"pair-{next(_number)}"
    places = [here / "two", here / "small", memory[0] / here.name, memory[1] / here.name]
    for place in places:
        place.mkdir(parents=True)
    two, small, large_store, small_store = places
    try:
        with (
            misbehaving(two, second=True, backing=large_store) as target,
            misbehaving(small, backing=small_store) as other,
        ):
            yield Pair(target, other)
            target.clear()
            other.clear()
    finally:
        for store in (large_store, small_store):
            shutil.rmtree(store)


@pytest.fixture
def pair(home: Path, memory: tuple[Path, Path]) -> Iterator[Pair]:
    with a_pair(home, memory) as made:
        yield made


@pytest.fixture(scope="module")
def operations(home: Path, memory: tuple[Path, Path]) -> dict[str, set[str]]:
    """Return {check: the operations that it requests from a target}, recorded on a target without faults.

    A fault in other operations cannot change the result of the check.
    """
    with a_pair(home, memory) as honest:
        honest.target.record()
        honest.small.record()
        honest.observe(sorted(ALL))
        seen: dict[str, set[str]] = {}
        for target in (honest.target, honest.small):
            for directory, asked in target.operations().items():
                seen.setdefault(directory.rpartition("-")[0], set()).update(asked)
    assert set(seen) >= ALL
    return seen


def test_on_the_honest_target_nothing_fails_and_nothing_is_left_out(pair: Pair) -> None:
    found = pair.observe(sorted(ALL))
    assert {name: v.because for name, v in found.items() if v.outcome != "met" and not is_pause(v)} == {}
    assert set(found) == ALL


def is_pause(verdict: Verdict) -> bool:
    """Return whether a check is over its limit by no more than a pause of a client on a busy machine."""
    if verdict.reason != "over limit" or verdict.measured is None or verdict.limit is None:
        return False
    return verdict.measured < patience(verdict.limit)


def covered(row: Row) -> pytest.MarkDecorator:
    requirements = sorted({name.partition(".")[0] for name in row.fails})
    return pytest.mark.covers(requirements=requirements, faults=[topic_of(row.fault)])


@pytest.mark.in_short
@pytest.mark.parametrize("row", [pytest.param(row, id=row.fault, marks=covered(row)) for row in ONE_OF_EACH])
def test_a_fault_is_found_by_its_checks(row: Row, pair: Pair) -> None:
    pair.fault(row.fault, **row.parameters)
    seen = failed(pair.observe(sorted(row.fails), row.seconds))
    assert set(seen) == row.fails
    for name, words in row.expected_text.items():
        assert words.lower() in seen[name].lower()


@pytest.mark.thorough
@pytest.mark.parametrize("row", MATRIX, ids=lambda row: row.fault)
def test_a_fault_fails_the_checks_that_it_is_mapped_to_and_no_others(
    row: Row, pair: Pair, operations: dict[str, set[str]]
) -> None:
    pair.fault(row.fault, **row.parameters)
    found = pair.observe(sorted(row.meets(operations)), row.seconds)
    seen = failed(found)
    reasons = "\n".join(f"{name}: {because}" for name, because in seen.items())
    assert set(seen) == row.fails, (
        f"not found by {sorted(row.fails - set(seen))}; false alarms {sorted(set(seen) - row.fails)}:\n{reasons}"
    )
    for name, words in row.expected_text.items():
        assert words.lower() in seen[name].lower()
    for name, words in row.reported.items():
        assert words in found[name].detail


def test_every_fault_has_its_row_and_every_check_a_fault_that_fails_it() -> None:
    rows = [row.fault for row in MATRIX] + [row.fault for row in OF_SPEED if row.fault]
    assert len(rows) == len(set(rows))
    assert {*rows, *(array.fault for array in ARRAYS if array.fault)} == set(FAULTS)
    caught = set().union(*(row.fails for row in MATRIX))
    assert caught == ALL
    assert {c.requirement for c in checks_for("posix")} == {name.partition(".")[0] for name in caught}
    assert all(row.fails or row.reported for row in MATRIX)


@pytest.mark.parametrize(
    "kind", ["ext4", *(pytest.param(k, marks=pytest.mark.thorough) for k in ("xfs", "btrfs", "tmpfs"))]
)
def test_on_healthy_file_systems_nothing_fails(kind: str, create_home) -> None:
    mounts = Mounts(create_home)
    try:
        place = mounts(kind, 1536)
        words = {"": [f"--directory={place}", *EFFORT]}
        found = observe(words, [c.name for c in checks_for("posix") if not c.needs])
        assert {name: v.because for name, v in found.items() if v.outcome != "met"} == {}
    finally:
        mounts.unmount_all()


def test_the_page_contains_the_current_tables() -> None:
    page = conformance_page.PAGE.read_text()
    assert conformance_page.with_tables(page) == page, "run: python -m tests.support.docs_pages.conformance_page"
