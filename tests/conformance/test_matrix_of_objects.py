"""The proof of the checks of object stores: a fault fails those that it is mapped to; an honest store fails none."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from pytest_ckpt.config.gate_files import built_in
from pytest_ckpt.facts.checks import in_room
from pytest_ckpt.facts.codec import from_plain
from pytest_ckpt.facts.observation import Observation
from pytest_ckpt.facts.verdict import Verdict
from pytest_ckpt.judging.catalogue import REQUIREMENTS
from pytest_ckpt.judging.verdicts import decide_observed
from tests.support import CHECKOUT
from tests.support.machine import patience
from tests.support.object_matrix import ALL, MATRIX, ONE_OF_EACH, Row
from tests.support.targets.object_faults import FAULTS, faulty_store
from tests.support.targets.object_server import TARGET, moto_server, object_server, what_lies_in

GATES = built_in("object")


def made(endpoint: str, name: str, silent_seconds: float) -> Verdict:
    """Make a check and judge what it saw."""
    words = [name, f"--target={TARGET}", f"--endpoint={endpoint}", "--embedded", "--share=0.05", "--json",
             f"--patience={patience(silent_seconds)}"]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "pytest_ckpt.conformance.objects", *words],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    seen = from_plain(Observation, json.loads(done.stdout))
    assert not seen.not_run, seen.not_run
    return decide_observed(REQUIREMENTS[seen.requirement], seen, GATES)


def failed(endpoint: str, names: Sequence[str], silent_seconds: float = 10.0) -> dict[str, str]:
    """Make checks, two at a time; return why some failed."""
    with ThreadPoolExecutor(2) as threads:
        verdicts = dict(zip(names, threads.map(lambda name: made(endpoint, name, silent_seconds), names), strict=True))
    assert all(verdict.severity == "required" for verdict in verdicts.values())
    return {n: f"{v.because}\n{v.detail}".lower() for n, v in verdicts.items() if v.outcome == "failed"}


def covered(row: Row) -> pytest.MarkDecorator:
    return pytest.mark.covers(requirements=[row.fails[0].partition(".")[0]])


@pytest.mark.parametrize("row", [pytest.param(row, id=row.fault, marks=covered(row)) for row in ONE_OF_EACH])
def test_a_fault_is_found_by_its_checks(row: Row) -> None:
    with faulty_store(row.fault) as endpoint:
        seen = failed(endpoint, row.fails, row.silent_seconds)
    assert set(seen) == set(row.fails)
    assert row.says.lower() in seen[row.fails[0]]


@pytest.mark.thorough
@pytest.mark.parametrize("row", MATRIX, ids=lambda row: row.fault)
def test_a_fault_fails_the_checks_that_it_is_mapped_to_and_no_others(row: Row) -> None:
    with faulty_store(row.fault) as endpoint:
        seen = failed(endpoint, sorted(ALL), row.silent_seconds)
    told = "\n".join(f"{name}: {because}" for name, because in seen.items())
    assert set(row.fails) <= set(seen), f"not found by {sorted(set(row.fails) - set(seen))}; found:\n{told}"
    assert set(seen) <= {*row.fails, *row.may_fail}, f"false alarms:\n{told}"
    assert row.says.lower() in seen[row.fails[0]]


def test_on_an_honest_store_nothing_fails_and_nothing_is_left() -> None:
    with object_server() as endpoint:
        assert failed(endpoint, sorted(ALL)) == {}
        assert what_lies_in(endpoint) == ([], [])


@pytest.mark.thorough
@pytest.mark.parametrize("number", range(20))
def test_an_honest_store_gives_no_alarm(number: int) -> None:
    with faulty_store() as endpoint:
        assert failed(endpoint, sorted(ALL)) == {}


@pytest.mark.thorough
def test_of_a_server_that_others_wrote_the_known_defects_are_found_and_nothing_else() -> None:
    with moto_server() as endpoint:
        seen = failed(endpoint, sorted(ALL))
        assert what_lies_in(endpoint) == ([], [])
    assert set(seen) == {"OBJECT-DIGEST.object", "OBJECT-DIGEST.part"}
    assert all("wrong digest accepted" in because for because in seen.values())


def test_every_fault_has_its_row_and_every_check_a_fault_that_fails_it() -> None:
    assert sorted(row.fault for row in MATRIX) == sorted(FAULTS)
    assert set().union(*(row.fails for row in MATRIX)) == ALL
    assert len(ONE_OF_EACH) == len({check.requirement for check in in_room("objects")})
