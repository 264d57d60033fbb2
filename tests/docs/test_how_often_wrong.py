"""The page on wrong verdicts shows the recorded study. Today's code gives the same verdicts as the study."""

from __future__ import annotations

import itertools
import math
import re

import pytest

from benchmarks import acceptance_study as program
from pytest_ckpt.analysis.acceptance import least_share, trials_for
from pytest_ckpt.analysis.statistics import MAXIMUM_ROUNDS, WINDOW_ROUNDS
from pytest_ckpt.grading.catalogue import REQUIREMENTS
from pytest_ckpt.judging.reasons import is_default_limit
from pytest_ckpt.sizing.patterns import KILLS
from tests.support.acceptance_charts import passed_share
from tests.support.docs_pages import how_often_wrong_page as page
from tests.support.missed_faults import miss_probability
from tests.support.simulated_arrays import truth_of
from tests.support.simulated_runs import GATES, NOT_SIMULATED, OPTIONS, rows

DOCUMENT = page.recorded()
CURVES = {(each["row"], each["truth"]): each for each in DOCUMENT["curves"]}
NOT_AGAIN = "run: python -m tests.support.docs_pages.how_often_wrong_page"


def test_the_page_and_its_pictures_are_made_from_the_study() -> None:
    text = page.PAGE.read_text()
    assert text == page.with_results(text, DOCUMENT), NOT_AGAIN
    for name, content in page.pictures(DOCUMENT).items():
        assert (page.PICTURES / name).read_text() == content, NOT_AGAIN
        assert f"](pictures/{name})" in text
    assert {file.name for file in page.PICTURES.glob("acceptance-*.svg")} == set(page.pictures(DOCUMENT))


def test_the_study_has_every_row_kind_and_margin_with_at_least_a_thousand_arrays() -> None:
    assert set(CURVES) == {(row.name, truth.name) for row in rows() for truth in row.truths}
    assert DOCUMENT["arrays"] >= 1000
    assert DOCUMENT["options"] == OPTIONS
    for (row, truth), each in CURVES.items():
        assert [point["margin"] for point in each["points"]] == list(truth_of(truth).margins), (row, truth)
        assert {point["passed"] + point["failed"] for point in each["points"]} == {DOCUMENT["arrays"]}


def test_arrays_with_independent_operations_pass_as_often_as_independent_trials() -> None:
    found = [each for each in DOCUMENT["curves"] if each["is_independent"]]
    assert len(found) > 30
    for each, point in ((curve, point) for curve in found for point in curve["points"]):
        expected = miss_probability(point["late_share"], each["operations"])
        spread = math.sqrt(expected * (1 - expected) / DOCUMENT["arrays"])
        # By chance alone, none of some hundred points deviates by more than five standard deviations.
        assert passed_share(point) == pytest.approx(expected, abs=5 * spread + 1e-6), (each["row"], each["truth"])


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.name)
def test_the_judges_of_today_decide_as_in_the_study(row) -> None:  # type: ignore[no-untyped-def]
    """A repeated point of the study has the recorded numbers of passed and failed arrays.

    For each row, the test repeats the point at which the share of passed arrays is closest to one half.
    """
    candidates = itertools.product(row.truths, range(len(DOCUMENT["curves"][0]["points"])))
    truth, number = min(
        candidates, key=lambda pair: abs(passed_share(CURVES[row.name, pair[0].name]["points"][pair[1]]) - 0.5)
    )
    recorded = CURVES[row.name, truth.name]["points"][number]
    again = program.point(row, truth, truth.margins[number], DOCUMENT["arrays"], DOCUMENT["seed"])
    assert (again.passed, again.failed) == (recorded["passed"], recorded["failed"]), (
        f"{row.name} decides otherwise than when the study ran: run benchmarks/acceptance_study.py again"
    )


def test_the_figures_of_the_prose_are_so() -> None:
    text = " ".join(page.PAGE.read_text().split())
    assert "A steady array needs a margin of 9 %." in text
    assert "An array with a heavy tail needs a margin of more than half of the limit." in text
    assert math.ceil(truth_of("rate").good_margin * 100) == 9
    assert truth_of("tail").good_margin > 0.5
    assert "with 95 % confidence, only that 74 % of all saves meet the limit." in text
    assert math.floor(least_share(10, 10) * 100) == 74
    for misses in range(4):
        saves = trials_for(0.99, 0.95, misses)
        passes = sum(math.comb(saves, late) * 0.001**late * 0.999 ** (saves - late) for late in range(misses + 1))
        assert f"| {misses} | {saves} | {(1 - passes) * 100:.1f} % |" in text
    assert "25 saves have 21 such windows" in text
    assert MAXIMUM_ROUNDS - WINDOW_ROUNDS + 1 == 21
    assert "CRASH-ASYNC has 60 trials: each kill of a save is one." in text
    assert KILLS == 60
    own_limits = {row.id for row in REQUIREMENTS.values() if row.is_measured and is_default_limit(row.id, "", GATES)}
    named = re.search(r"The time limit of ([A-Z, -]+) and ([A-Z-]+) is a default", text)
    assert named
    assert {*named[1].split(", "), named[2]} == own_limits
    assert set(re.findall(r"NEIGHBOUR|MIXED", text)) == set(NOT_SIMULATED)
