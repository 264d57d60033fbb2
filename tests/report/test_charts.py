"""Charts of a certificate: axes, ticks, marks, shares of phases, and labels."""

from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ckpt.report import certificate_charts, charts
from pytest_ckpt.report.certificate_charts import goodput_chart
from pytest_ckpt.report.svg import Axis, escape, round_step
from tests.support.synthetic_run import report

SECONDS = st.floats(min_value=1e-6, max_value=1e6)


@given(low=st.floats(min_value=0, max_value=1e5), span=st.floats(min_value=1e-5, max_value=1e6))
def test_linear_ticks_are_few_and_inside(low: float, span: float) -> None:
    axis = Axis(low=low, high=low + span, start=200, end=20)
    ticks = axis.ticks()
    assert len(ticks) <= 7
    assert all(20 <= axis.at(tick) <= 200 for tick in ticks)


@given(low=SECONDS, factor=st.floats(min_value=2, max_value=1e6))
def test_logarithmic_ticks_are_inside(low: float, factor: float) -> None:
    axis = Axis(low=low, high=low * factor, start=200, end=20, log=True)
    assert axis.at(low) == pytest.approx(200)
    assert axis.at(low * factor) == pytest.approx(20)
    assert len(axis.ticks()) <= 10


@given(SECONDS)
def test_steps_are_round(step: float) -> None:
    found = round_step(step)
    assert step * (1 - 1e-9) <= found <= step * 2.51


@given(seconds=st.lists(SECONDS, min_size=1, max_size=30), limit=st.none() | SECONDS)
def test_any_times_can_be_drawn(seconds: list[float], limit: float | None) -> None:
    operations = [
        {"kind": "save", "index": n, "seconds": s, "slowest_rank": 0, "rank_seconds": [s, s / 2, s / 3, s / 4],
         "phases": {"write": s, "<odd>": s / 7}}
        for n, s in enumerate(seconds, start=1)
    ]  # fmt: skip
    for made in (
        charts.operations_chart("a", "save", operations, len(operations), limit),
        charts.phases_chart("b", "save", operations, len(operations)),
        certificate_charts.heat_map("c", operations),
    ):
        picture = ET.fromstring(made)
        assert picture.get("role") == "img"
        assert picture.findtext("title")
        assert picture.findtext("desc")


def test_operations_that_never_ran_keep_their_place() -> None:
    (ran,) = report(models="llama3-8b", ranks=8, fails_after=3)["measurements"]
    picture = ET.fromstring(charts.operations_chart("a", "save", ran["operations"], 10, 28.0))
    numbers = [text.text for text in picture.iter("text")]
    assert numbers[-5:].count("limit") <= 1
    assert {"1", "4", "10"} <= set(numbers)
    assert "3 of 10 saves" in (picture.findtext("desc") or "")


def test_a_save_over_the_limit_is_a_cross() -> None:
    (ran,) = report(models="llama3-8b", ranks=8)["measurements"]
    saves = [o for o in ran["operations"] if o["kind"] == "save"]
    slowest = sorted(o["seconds"] for o in saves)
    picture = charts.operations_chart("a", "save", saves, 10, (slowest[-3] + slowest[-2]) / 2)
    assert picture.count('class="late"') == 2
    assert picture.count('class="mark save-mark"') == 8


def test_very_different_times_get_a_logarithmic_axis() -> None:
    operations = [
        {"kind": "save", "index": n, "seconds": s, "slowest_rank": 0, "rank_seconds": [s], "phases": {}}
        for n, s in enumerate((0.1, 0.1, 0.1, 40.0), start=1)
    ]
    assert ", log" in charts.operations_chart("a", "save", operations, 4, 28.0)


def test_a_rank_with_more_bytes_is_no_straggler() -> None:
    operation = {"kind": "save", "index": 1, "seconds": 8.0, "slowest_rank": 0, "rank_seconds": [8.0, 1.0, 1.0, 1.0]}
    assert "1 above 1.5" in certificate_charts.heat_map("a", [operation])
    assert "none above 1.5" in certificate_charts.heat_map("a", [operation], [800, 100, 100, 100])


def test_cells_of_the_heat_map_fill_its_rows() -> None:
    (ran,) = report(models="llama3-1t", ranks=1024)["measurements"]
    picture = ET.fromstring(certificate_charts.heat_map("a", ran["operations"]))
    width = sum(float(run.split("h")[1]) for path in picture.iter("path") for run in path.get("d", "").split("M")[1:])
    assert width == pytest.approx(20 * 1001, rel=0.01)


def test_nothing_gives_no_picture() -> None:
    assert charts.operations_chart("a", "save", [], 10, 1.0) == ""
    assert charts.phases_chart("a", "save", [], 10) == ""
    assert certificate_charts.heat_map("a", []) == ""
    assert certificate_charts.cluster_chart("a", [{"subject": "x", "save": None, "load": None}], 16_000) == ""
    assert certificate_charts.stages_bar("a", {}) == ""


def test_escaping_takes_controls_and_quotes() -> None:
    assert escape('<a b="c">\x00\'') == "&lt;a b=&quot;c&quot;&gt;\N{REPLACEMENT CHARACTER}&#x27;"


def test_time_between_calls_is_a_separate_share() -> None:
    """The time between calls is a separate share of an operation. It does not enlarge the shares of the calls.

    Here the calls took 0.25 s of 1 s.
    """
    operation = {"seconds": 1.0, "phases": {"write": 0.25, "commit": 0.0}}
    assert charts.phase_names([operation]) == ["write", charts.BETWEEN]
    assert charts.phase_shares([operation]) == {"write": 0.25, charts.BETWEEN: 0.75}
    whole = {"seconds": 1.0, "phases": {"write": 0.99}}
    assert charts.phase_shares([whole]) == {"write": 1.0}


def test_a_cluster_whose_limits_are_not_met_has_a_hollow_point() -> None:
    clusters = [
        {"accelerators": 64, "effective_training_time_ratio": 0.99, "is_served": True},
        {"accelerators": 16000, "effective_training_time_ratio": 0.8, "is_served": False},
    ]
    rows = [{"subject": name, "clusters": clusters} for name in ("a/torch/async", "a/torch/tiered")]
    root = ET.fromstring(goodput_chart("k", rows, 64))
    points = [e.get("class") for e in root.iter() if e.tag.endswith("circle")]
    assert points == ["point line-0", "point hollow line-0", "point line-1", "point hollow line-1"]
    names = [(float(e.get("y", "0")), e.text) for e in root.iter() if e.text in {"a", "b"}]
    # Two names at each end, one below the other.
    assert len(names) == len(set(names)) == 4


@given(asked=st.integers(min_value=1, max_value=1_000_000))
def test_numbers_of_accelerators_do_not_touch_each_other_below_the_curves(asked: int) -> None:
    """The labels of the horizontal axis do not overlap, whatever the size of the cluster is.

    The label "1" is far to the left, so the labels of larger clusters are close together.
    """
    sizes = sorted({asked, 1_000, 4_000, 16_000, 32_000, 64_000, 100_000})
    clusters = [{"accelerators": n, "effective_training_time_ratio": 0.9, "is_served": True} for n in sizes]
    drawn = ET.fromstring(goodput_chart("key", [{"subject": "s", "clusters": clusters}], asked))
    placed = [
        (float(text.get("x", "")), text.text or "", text.get("y"))
        for text in drawn.iter()
        if text.tag.endswith("text") and re.fullmatch(r"[\d,]+", text.text or "")
    ]
    assert len({y for _, _, y in placed}) == 1
    assert f"{asked:,}" in [text for _, text, _ in placed]
    assert f"{sizes[-1]:,}" in [text for _, text, _ in placed] or asked > 60_000
    for (x, text, _), (beyond, other, _) in itertools.pairwise(sorted(placed)):
        assert beyond - x > 7 * (len(text) + len(other)) / 2, (text, other)
