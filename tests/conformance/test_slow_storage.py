"""Checks of races on slow storage: a check ends in time, and reports the faults that it has found until then.

A slow call is not reported as a hang. A check that made too few trials is "not run".
"""

from __future__ import annotations

import pytest

from pytest_ckpt.conformance.__main__ import make
from pytest_ckpt.conformance.context import CheckContext, Findings, NotRun, ObservedRace
from pytest_ckpt.conformance.process import CallReporter
from pytest_ckpt.facts.checks import BY_NAME
from pytest_ckpt.facts.event_line import line_of_call


def context(directory, **how):
    values = {"directory": directory, "witness": directory, "seed": 1, "share": 0.1, "report_call": lambda *_: None}
    return CheckContext(**values | how)


@pytest.mark.parametrize("check", ["COMMIT.file", "COMMIT.directory", "POINTER.overwrite"])
def test_a_race_whose_time_is_over_is_not_called_met(check, tmp_path):
    seen = make(BY_NAME[check], context(tmp_path, race_seconds=0.0))
    assert seen.anomaly_count == 0
    assert seen.not_run.startswith(("1 rename and ", "1 overwrite and "))
    assert "of each are needed: while the name was in use, " in seen.not_run


def test_a_race_that_reached_its_minimum_when_the_time_ended_counts(tmp_path):
    race = ObservedRace(context=context(tmp_path, race_seconds=0.0), change="rename", query="read", wanted=9, minimum=2)
    race.changes, race.observations = 2, 5
    assert not race.may_continue(Findings())
    race.changes = 1
    with pytest.raises(NotRun, match=r"^1 rename and 5 reads were made in .*, and 2 of each are needed"):
        race.may_continue(Findings())


def test_a_fault_is_reported_even_if_a_race_did_not_reach_its_minimum(tmp_path):
    race = ObservedRace(context=context(tmp_path, race_seconds=0.0), change="rename", query="read", wanted=9, minimum=2)
    race.changes, findings = 1, Findings()
    findings.wrong("name missing", where="file", seen="nothing", expected="the file")
    assert not race.may_continue(findings)


def test_each_change_is_told_so_that_a_slow_one_is_not_called_hung(tmp_path):
    listed = []
    race = ObservedRace(
        context=context(tmp_path, report_call=lambda *call: listed.append(call)),
        change="renames",
        query="reads",
        wanted=9,
        minimum=2,
    )
    assert list(race.some(3, "rename", "/a")) == [1, 2, 3]
    assert listed == [("rename", "/a")] * 3
    assert race.may_continue(Findings())


def test_calls_are_reported_at_most_once_a_second_and_once_per_name(capsys, monkeypatch):
    now = iter([0.0, 0.2, 0.4, 1.3, 1.4])
    monkeypatch.setattr("pytest_ckpt.conformance.process.time.monotonic", lambda: next(now))
    report_call = CallReporter()
    for path in ("/a", "/a", "/b", "/b", "/b"):
        report_call("rename", path)
    assert capsys.readouterr().err == line_of_call("rename", "/a") + line_of_call("rename", "/b")
