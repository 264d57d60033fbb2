"""The program that studies wrong verdicts, tested with few simulated arrays.

It is also tested with cases whose result is known without simulation.
"""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest

from benchmarks import acceptance_study as program
from tests.support.missed_faults import miss_probability
from tests.support.simulated_arrays import Drawn, Truth
from tests.support.simulated_runs import NOT_SIMULATED, Row, Timed, rows, timed_requirements

ROWS = {row.name: row for row in rows()}
FAR_BELOW, FAR_ABOVE = -9.0, 0.8
WITH_A_LIMIT = [row for row in rows() if row.name != "STEADY"]


def late_in(share: float) -> Truth:
    """Return a simulated array on which the share ``share`` of operations takes twice the limit.

    All other operations take half of the limit.
    """

    def draw(chance, margin, arrays, series):
        drawn = [np.where(chance.random((arrays, n)) < share, 2.0, 0.5) for n in series]
        return [Drawn(slowest=times, others=times / 2) for times in drawn]

    return Truth(
        name=f"late in {share}", sentence="", margins=(0.0,), draw=draw, late=lambda ratio: share, is_independent=True
    )


def passed_share(row: Row, truth: Truth, arrays: int, seed: int = 1) -> float:
    (point,) = program.curve(row, truth, arrays, seed).points
    return point.passed / arrays


def timed(row: Row, factor: float) -> list[list[Timed]]:
    """Return the simulated operations of a requirement. Each operation takes ``factor`` times its limit."""
    return [
        [Timed(seconds=limit * factor, ranks=(limit * factor,) * 8)] * n
        for limit, n in zip(row.limits, row.operations, strict=True)
    ]


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.name)
def test_no_verdict_is_wrong_far_from_the_limit(row: Row) -> None:
    for truth in row.truths:
        below, above = program.curve(row, dataclasses.replace(truth, margins=(FAR_BELOW, FAR_ABOVE)), 12, 1).points
        assert (below.is_good, below.passed, below.failed) == (False, 0, 12), truth.name
        assert (above.is_good, above.passed, above.failed) == (True, 12, 0), truth.name


@pytest.mark.parametrize("row", WITH_A_LIMIT, ids=lambda row: row.name)
def test_the_judge_decides_at_the_limit_that_the_row_names(row: Row) -> None:
    assert set(row.outcomes(timed(row, 1 - 1e-9)).values()) == {"met"}
    assert set(row.outcomes(timed(row, 1 + 1e-9)).values()) == {"failed"}


@pytest.mark.parametrize("share", [0.0, 0.05, 0.1, 0.3, 1.0])
def test_ten_saves_of_which_a_share_is_late_pass_as_often_as_ten_independent_trials(share: float) -> None:
    arrays, expected = 400, miss_probability(share, 10)
    spread = math.sqrt(expected * (1 - expected) / arrays)
    assert expected == pytest.approx((1 - share) ** 10)
    assert passed_share(ROWS["SAVE"], late_in(share), arrays) == pytest.approx(expected, abs=4 * spread)


def test_one_late_load_of_29_operations_fails_the_certificate() -> None:
    row = ROWS["SAVE, LOAD, SHIFTED and RESHAPED"]
    assert row.trials == 29
    series = timed(row, 0.5)
    series[3][1] = timed(row, 2.0)[3][1]
    assert row.outcomes(series) == {"SAVE": "met", "LOAD": "met", "SHIFTED": "met", "RESHAPED": "failed"}


def test_the_seed_fixes_every_number_and_another_seed_changes_them() -> None:
    one, same, other = (program.study(20, seed, 1, ["SHIFTED"]) for seed in (1, 1, 2))
    assert one == same
    assert one != other


def test_several_processes_find_the_numbers_of_one() -> None:
    assert program.study(5, 1, 2, ["NODE-LOSS"]) == program.study(5, 1, 1, ["NODE-LOSS"])


def test_every_mandatory_limit_of_time_is_in_the_study() -> None:
    studied = {name for row in rows() for name in row.requirements}
    assert studied <= timed_requirements()
    assert timed_requirements() - studied <= set(NOT_SIMULATED)


def test_the_program_writes_a_table_a_document_and_pictures(tmp_path, monkeypatch, capsys) -> None:
    file = tmp_path / "study.json"
    words = ["--arrays=5", "--processes=1", "--row=NODE-LOSS", f"--raw={file}", f"--pictures={tmp_path}"]
    monkeypatch.setattr("sys.argv", ["acceptance_study.py", *words])
    program.main()
    document = json.loads(file.read_text())
    assert {each["row"] for each in document["curves"]} == {"NODE-LOSS"}
    assert all(p["passed"] + p["failed"] == 5 for each in document["curves"] for p in each["points"])
    text = capsys.readouterr().out
    assert text.startswith("5 arrays a point, seed 1.")
    assert text.count("NODE-LOSS, ") == len(document["curves"])
    picture = (tmp_path / "acceptance-node-loss.svg").read_text()
    assert all(f">{each['truth']}</text>" in picture for each in document["curves"])
