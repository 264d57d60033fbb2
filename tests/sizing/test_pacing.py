"""Paced saves (written on a schedule) during other work: the pace is computed from the save limit.

The size of a data loader's reads is computed from the rate of the data loader.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ckpt.config.options import resolve
from pytest_ckpt.facts.engines import BUILT_IN
from pytest_ckpt.sizing.models import layout
from pytest_ckpt.sizing.pacing import (
    LOADER_WORKLOADS,
    paced_accelerators,
    paced_limit_seconds,
    paced_saves,
    sample_bytes,
)
from pytest_ckpt.sizing.plan import PlannedCheckpoint, plan_run
from pytest_ckpt.sizing.steps import planned_steps

STREAM = next(engine for engine in BUILT_IN if engine.name == "stream")
DCP = next(engine for engine in BUILT_IN if engine.name == "dcp")


def planned(**options: str) -> PlannedCheckpoint:
    asked = {"ckpt_model": "llama3-8b", "ckpt_suite": "performance,contention", "ckpt_cluster": "16000"}
    (checkpoint,) = plan_run(resolve(asked | options, {}), None).runnable
    return checkpoint


def test_a_save_takes_four_fifths_of_its_limit() -> None:
    whole = layout("llama3-8b", mode="full")
    pace = paced_saves(whole, 20.0, STREAM)
    assert (pace.seconds, pace.scale, pace.not_run) == (16.0, 1.0, "")


@pytest.mark.parametrize(("scale", "maximum"), [(1.0, 30.0), (1 / 100, 1.0)])
def test_if_the_limit_is_long_a_smaller_checkpoint_is_saved_at_the_same_rate(scale: float, maximum: float) -> None:
    whole = layout("llama3-8b", mode="full", scale=scale)
    pace = paced_saves(whole, 3600.0, STREAM)
    small = layout("llama3-8b", mode="full", scale=pace.scale)
    assert pace.seconds == pytest.approx(maximum, rel=0.05)
    assert small.bytes / pace.seconds == pytest.approx(whole.bytes / (0.8 * 3600))


def test_a_limit_that_fixed_costs_decide_has_no_pace() -> None:
    pace = paced_saves(layout("llama3-8b", mode="full"), 0.1, STREAM)
    assert pace.not_run.startswith("A paced save would take 80 ms; below 100 ms fixed costs decide")


def test_a_library_that_writes_its_files_itself_has_no_pace() -> None:
    assert "engine dcp" in paced_saves(layout("llama3-8b", mode="full"), 20.0, DCP).not_run


@given(st.integers(1, 1_000_000), st.floats(0.01, 1e6))
def test_saves_paced_for_a_cluster_are_fast_enough_for_it_and_no_larger_one(accelerators: int, limit: float) -> None:
    assert paced_accelerators(accelerators, limit, 0.8 * limit) == accelerators
    assert paced_accelerators(2 * accelerators, limit / 2, 0.8 * limit) == accelerators


def test_the_complete_checkpoint_has_its_limit_and_a_smaller_one_no_more_than_that() -> None:
    assert paced_limit_seconds(20.0, 1.0) == 20.0
    assert paced_limit_seconds(20.0, 0.1) == 3.0
    assert paced_limit_seconds(1.0, 0.5) == pytest.approx(0.6)


def test_the_plan_shows_how_long_paced_saves_take() -> None:
    checkpoint = planned(ckpt_cluster="64")
    sentence = checkpoint.scenarios[-1]
    assert "6 saves of half of the ranks while the other half saves, paced to 30 s each" in sentence
    assert sentence.endswith("about 6 min in total")
    settings = resolve({"ckpt_suite": "performance,contention"}, {})
    turns = {s.kind: (s.count, s.turn_seconds) for s in planned_steps(checkpoint, settings, None)}
    assert turns["neighbour"] == turns["mixed"] == (6, checkpoint.pace.seconds if checkpoint.pace else None)


def test_the_plan_explains_why_saves_are_not_paced() -> None:
    planned_of_dcp = planned(ckpt_engine="dcp").scenarios
    assert [text for text in planned_of_dcp if "no saves during other work (NEIGHBOUR, MIXED)" in text]


def test_reads_are_larger_where_a_loader_reads_faster() -> None:
    assert [sample_bytes(rate) for rate in (1.0, 10e6, 1e9, 1e12)] == [128 << 10, 128 << 10, 2 << 20, 16 << 20]


def test_published_rates_are_those_of_one_accelerator() -> None:
    rates = {name: round(workload.bytes_per_second / 1e6) for name, workload in LOADER_WORKLOADS.items()}
    assert rates == {"resnet50": 184, "cosmoflow": 566, "unet3d": 2859}
