"""docs/mlperf_v3.md: the tables contain the verdicts of ``judge`` on the published times, which are plausible."""

from __future__ import annotations

import re
from datetime import datetime

import pytest

from pytest_ckpt.sizing.architectures import MODELS
from tests.support.docs_pages import mlperf_v3_page

ROWS = mlperf_v3_page.recorded()["rows"]


@pytest.fixture(scope="module")
def judged():
    return mlperf_v3_page.judged_rows(mlperf_v3_page.recorded())


def test_the_page_is_made_from_the_times():
    page = mlperf_v3_page.PAGE.read_text()
    made = mlperf_v3_page.with_results(page, mlperf_v3_page.recorded())
    assert page == made, "run: python -m tests.support.docs_pages.mlperf_v3_page"


def test_every_row_is_judged_and_none_is_certified(judged):
    assert {(r.submitter, r.system, r.model) for r in judged} == {
        (row["submitter"], row["system"], row["model"]) for row in ROWS
    }
    assert {row.report["grade"] for row in judged} == {"rehearsal"}
    for row in judged:
        for kind in ("save", "load"):
            figure = row.figure(kind)
            assert figure["operations"] == 10
            assert figure["judged_seconds"] >= figure["published_seconds"]


def test_a_row_shows_which_values_are_unknown(judged):
    for row in judged:
        unknown = list(row.unknown())
        assert any(text.startswith("load 10") for text in unknown)
        # If a run saves and then loads, only an upper bound of its last save is known.
        bounded = "at most" in row.figure("save")["basis"]
        assert ("save 10 (only an upper bound is known)" in unknown) == bounded


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['submitter']}-{row['system'][-20:]}-{row['model']}")
def test_the_times_of_a_row_are_such_as_dlio_writes(row):
    """Each row has ten saves and ten loads. A pause of 5 s to 201 s precedes each operation.

    A time that was copied wrongly would probably violate this rule.
    """
    assert row["model"] in MODELS
    for kind in ("saves", "loads"):
        assert sum(len(run[kind]) for run in row["runs"]) == 10
    for run in row["runs"]:
        assert re.fullmatch(r"\d{8}_\d{6}", run["directory"])
        at = datetime.strptime(run["began"], "%H:%M:%S.%f")
        for clock, seconds in run["saves"] + run["loads"]:
            start = datetime.strptime(clock, "%H:%M:%S.%f")
            pause = (start - at).total_seconds() % 86_400
            assert 4.998 <= pause < 201
            assert seconds > 0
            at = datetime.fromtimestamp(start.timestamp() + seconds)
