"""The fault matrix of the object-store checks: each fault fails the checks that the table lists for it.

A store without faults passes all checks.
"""

from __future__ import annotations

import pytest

from pytest_ckpt.facts.checks import checks_for
from tests.support.object_checks import failed
from tests.support.object_matrix import ALL, LARGE, MATRIX, ONE_OF_EACH, Row
from tests.support.targets.object_faults import FAULTS, faulty_store
from tests.support.targets.object_server import content_of, moto_server, object_server


def covered(row: Row) -> pytest.MarkDecorator:
    return pytest.mark.covers(requirements=[row.fails[0].partition(".")[0]])


@pytest.mark.parametrize("row", [pytest.param(row, id=row.fault, marks=covered(row)) for row in ONE_OF_EACH])
def test_a_fault_is_found_by_its_checks(row: Row) -> None:
    with faulty_store(row.fault) as endpoint:
        seen = failed(endpoint, row.fails, row.silent_seconds)
    assert set(seen) == set(row.fails)
    assert row.expected_text.lower() in seen[row.fails[0]]


@pytest.mark.thorough
@pytest.mark.parametrize("row", MATRIX, ids=lambda row: row.fault)
def test_a_fault_fails_the_checks_that_it_is_mapped_to_and_no_others(row: Row) -> None:
    with faulty_store(row.fault) as endpoint:
        seen = failed(endpoint, row.meets, row.silent_seconds)
    text = "\n".join(f"{name}: {because}" for name, because in seen.items())
    assert set(row.fails) <= set(seen), f"not found by {sorted(set(row.fails) - set(seen))}; found:\n{text}"
    assert set(seen) <= {*row.fails, *row.may_fail}, f"false alarms:\n{text}"
    assert row.expected_text.lower() in seen[row.fails[0]]


def test_on_an_honest_store_nothing_fails_and_nothing_is_left() -> None:
    with object_server() as endpoint:
        assert failed(endpoint, sorted(ALL)) == {}
        assert content_of(endpoint) == ([], [])


@pytest.mark.thorough
@pytest.mark.parametrize("number", range(20))
def test_an_honest_store_gives_no_alarm(number: int) -> None:
    # Objects of thousands of parts take half of the time of all checks, and their results do not vary.
    with faulty_store() as endpoint:
        assert failed(endpoint, sorted(ALL if number < 2 else ALL - LARGE)) == {}


@pytest.mark.thorough
def test_only_the_known_defects_of_a_third_party_server_are_found() -> None:
    with moto_server() as endpoint:
        # This server joins the parts of an object in memory, where 5 GiB do not fit.
        seen = failed(endpoint, sorted(ALL - LARGE))
        assert content_of(endpoint) == ([], [])
    # This server takes no lock between the test of a condition and the write, so some races have two winners.
    for raced in ("OBJECT-CREATE.put", "OBJECT-CREATE.multipart", "OBJECT-UPDATE.put"):
        assert "several winners" in seen.pop(raced, "several winners")
    assert set(seen) == {"OBJECT-DIGEST.object", "OBJECT-DIGEST.part"}
    assert all("wrong digest accepted" in because for because in seen.values())


def test_every_fault_has_its_row_and_every_check_a_fault_that_fails_it() -> None:
    assert sorted(row.fault for row in MATRIX) == sorted(FAULTS)
    assert set().union(*(row.fails for row in MATRIX)) == ALL
    assert len(ONE_OF_EACH) == len({check.requirement for check in checks_for("objects")})
