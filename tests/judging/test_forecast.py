"""The forecast of times and training losses for the whole cluster, which changes no verdict."""

from __future__ import annotations

import dataclasses
import json

import pytest

from pytest_ckpt.cli.main import main
from pytest_ckpt.evidence.manifest import write_manifest
from tests.support import synthetic_run
from tests.support.synthetic_patterns import grown

EIGHT = {"ckpt_model": "llama3-70b", "ckpt_ranks": "8", "ckpt_profile": "nightly"}


def test_a_month_is_simulated_for_each_subject_and_is_no_verdict(tmp_path) -> None:
    document = synthetic_run.write_run(tmp_path / "run", options=EIGHT, save=2.0, load=2.0)
    (row,) = document["forecast"]
    month = row["month"]
    assert month["accelerators"] == 64
    assert 0 < month["goodput_low"] <= month["goodput"] <= month["goodput_high"] <= 1
    spent = month["saving_hours"] + month["lost_work_hours"] + month["restoring_hours"]
    assert spent == pytest.approx((1 - month["goodput"]) * 30 * 24, rel=0.2)
    page = (tmp_path / "run" / "certificate.html").read_text()
    assert "A forecast: no verdict uses it" in page
    # Eight of 64 ranks were measured, with ten saves each. The slowest of 64 takes longer than the slowest of eight.
    slowest = {s["kind"]: s for s in row["slowest"]}
    assert (slowest["save"]["ranks"], slowest["save"]["measured_ranks"]) == (64, 8)
    assert slowest["save"]["low_seconds"] <= slowest["save"]["seconds"] <= slowest["save"]["high_seconds"]
    assert row["projected"] == []


def test_growth_that_was_measured_is_projected_to_all_ranks(tmp_path) -> None:
    saturated = {1: 1e9, 2: 1.8e9, 4: 2.0e9, 8: 2.0e9}
    document = synthetic_run.write_run(
        tmp_path / "run", options={**EIGHT, "ckpt_suite": "performance,scaling"}, change=grown(saturated)
    )
    (row,) = document["forecast"]
    save, load = row["projected"]
    assert (save["kind"], load["kind"], save["clients"], save["unit"]) == ("save", "load", 64, "ranks")
    assert save["low"] <= 2.0e9 <= save["high"]
    assert save["sufficient_up_to_accelerators_low"] <= save["sufficient_up_to_accelerators_high"]
    assert 'id="forecast"' in (tmp_path / "run" / "certificate.html").read_text()


def test_without_a_sign_of_a_ceiling_there_are_bounds_only(tmp_path) -> None:
    linear = {1: 1e9, 2: 2e9, 4: 4e9, 8: 8e9}
    document = synthetic_run.write_run(
        tmp_path / "run", options={**EIGHT, "ckpt_suite": "performance,scaling"}, change=grown(linear)
    )
    save = document["forecast"][0]["projected"][0]
    assert save["median"] is None
    assert "no ceiling shows" in save["unavailable_reason"]
    assert "bounds only" in (tmp_path / "run" / "certificate.html").read_text()


def test_a_measurement_without_its_end_has_none(tmp_path) -> None:
    def ended(m):
        return dataclasses.replace(m, operations=m.operations[:2])

    assert synthetic_run.write_run(tmp_path / "run", change=ended)["forecast"] == []


def test_a_forecast_that_was_changed_is_found(tmp_path, capsys) -> None:
    directory = tmp_path / "run"
    synthetic_run.write_run(directory)
    report = json.loads((directory / "report.json").read_text())
    report["forecast"][0]["month"]["goodput"] = 0.999
    (directory / "report.json").write_text(json.dumps(report, indent=1) + "\n")
    write_manifest(directory)
    assert main(["verify", str(directory)]) == 1
    output = capsys.readouterr().out
    assert "verdicts   broken" in output
    assert "CHANGED" in output
