"""Histories that were changed with a text editor: the change is reported, and the trend does not become better."""

from __future__ import annotations

import copy
import json
import shutil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_ckpt.cli.main import main
from pytest_ckpt.evidence.history import append_run
from tests.support import synthetic_run
from tests.support.forging import HOSTILE, NUMBERS, edit
from tests.support.fuzz.values import places, set_value
from tests.support.jsonschema_validation import violations
from tests.support.selection import examples

SUBJECT, REPORT = synthetic_run.SUBJECT, "report.json"


@pytest.fixture(scope="module")
def recorded_history(tmp_path_factory):
    """Directory of a history with four runs. In the last run, saves took five times as long."""
    home = tmp_path_factory.mktemp("history")
    for night in range(1, 5):
        document = synthetic_run.write_run(
            home / f"run-{night}", seed=night, started=f"2031-05-0{night}T02:00:00+00:00",
            save=0.5 if night == 4 else 0.1,
        )  # fmt: skip
        append_run(home / "kept", document, home / f"run-{night}")
    return home / "kept"


@pytest.fixture
def history_copy(recorded_history, tmp_path):
    return shutil.copytree(recorded_history, tmp_path / "kept")


def trend(directory, capsys, *words):
    code = main(["trend", str(directory), "--json", *words])
    document = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert not violations(document, "trend")
    return code, document


def lines_of(directory):
    return [json.loads(line) for line in (directory / "history.jsonl").read_text().splitlines()]


def write_lines(directory, lines):
    (directory / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_an_unchanged_history_gives_no_notice(history_copy, capsys):
    _, document = trend(history_copy, capsys)
    assert (document["runs"], document["notices"]) == (4, [])
    assert [p["id"][-1] for p in document["series"][0]["points"]] == ["1", "2", "3", "4"]


def test_a_line_that_stands_twice_counts_once(history_copy, capsys):
    lines = lines_of(history_copy)
    write_lines(history_copy, [*lines, *lines[:3], lines[0]])
    _, document = trend(history_copy, capsys)
    assert document["runs"] == 4
    assert document["notices"][0] == (
        f"line 5 of history.jsonl was passed over: run {lines[0]['id']} has a line already"
    )


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("started", lambda line: line.update(started="2030-01-01T00:00:00+00:00")),
        ("subjects", lambda line: line["subjects"][0].update(save_seconds=[0.1, 0.1, 0.1])),
        ("subjects", lambda line: line["subjects"][0].update(is_complete=False)),
        ("subjects", lambda line: line["subjects"][0]["conditions"].update(engine="other")),
        ("subjects", lambda line: line["subjects"][0].update(save_limit_seconds=1e6)),
        ("grade", lambda line: line.update(grade="certified")),
    ],
)
def test_a_line_that_was_changed_is_compared_with_its_report(history_copy, capsys, name, change):
    before = trend(history_copy, capsys)[1]
    lines = lines_of(history_copy)
    change(lines[3])
    write_lines(history_copy, lines)
    _, document = trend(history_copy, capsys)
    assert document["notices"] == [f"run {lines[3]['id']}: its line was changed ({name}); its report counts"]
    assert document["series"] == before["series"]


def test_a_line_that_was_taken_away_is_missed(history_copy, capsys):
    lines = lines_of(history_copy)
    write_lines(history_copy, lines[:3])
    assert trend(history_copy, capsys)[1]["notices"] == [
        f"in runs, but without a line in history.jsonl: {lines[3]['id']}"
    ]


def test_a_run_whose_report_was_changed_is_left_out(history_copy, capsys):
    lines = lines_of(history_copy)
    report = history_copy / "runs" / lines[3]["id"] / REPORT
    edit(report, lambda document: document.update(grade="certified"))
    _, document = trend(history_copy, capsys)
    assert document["runs"] == 3
    assert document["notices"] == [
        f"run {lines[3]['id']} was left out: runs/{lines[3]['id']}: report.json is not as its run left it"
    ]
    report.write_text("{")
    assert "report.json is not a report: Expecting" in trend(history_copy, capsys)[1]["notices"][0]


def test_run_directories_that_were_cleared_away_cost_no_line(history_copy, capsys):
    for directory in sorted((history_copy / "runs").iterdir())[:2]:
        shutil.rmtree(directory)
    _, document = trend(history_copy, capsys)
    assert document["runs"] == 4
    assert document["notices"] == ["2 of 4 runs have no directory in runs: their lines cannot be checked"]


def test_the_order_is_that_of_time_whatever_the_zone(history_copy, capsys):
    shutil.rmtree(history_copy / "runs")
    lines = lines_of(history_copy)
    # Sorted as text, these two times would be in the wrong order.
    lines[0]["started"], lines[1]["started"] = "2031-05-01T09:00:00+09:00", "2031-05-01T01:00:00"
    write_lines(history_copy, lines[:2])
    _, document = trend(history_copy, capsys)
    assert [p["started"] for p in document["series"][0]["points"]] == [lines[0]["started"], lines[1]["started"]]


@pytest.mark.parametrize("identity", ["../../../etc", "a/b", "", ".", "x" * 200, "a\x1b[2Jb"])
def test_a_name_that_leads_elsewhere_is_none(history_copy, capsys, identity):
    lines = lines_of(history_copy)
    lines[0]["id"] = identity
    write_lines(history_copy, lines)
    _, document = trend(history_copy, capsys)
    assert document["runs"] == 3
    assert "line 1 of history.jsonl was passed over" in document["notices"][0]
    main(["trend", str(history_copy)])
    assert "\x1b" not in capsys.readouterr().out


@given(data=st.data())
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_value_in_any_place_of_a_line_ends_in_a_trend(recorded_history, tmp_path_factory, capsys, data):
    home = tmp_path_factory.mktemp("any")
    lines = lines_of(recorded_history)
    place = data.draw(st.sampled_from(places(lines[1])))
    document = set_value(copy.deepcopy(lines[1]), place, data.draw(HOSTILE))
    write_lines(home, [lines[0], document, *lines[2:]])
    for words in ([], ["--json"], [f"--html={home / 'page.html'}"]):
        assert main(["trend", str(home), *words, "--fail-on-regression=10%"]) == 0
        output = capsys.readouterr()
        assert "\x1b" not in output.out + output.err
    shutil.rmtree(home)


@pytest.mark.parametrize("number", [n for n in NUMBERS if n != "[]"])
def test_a_number_that_is_none_is_no_time_of_a_night(history_copy, capsys, number):
    lines = lines_of(history_copy)
    lines[3]["subjects"][0]["save_seconds"][0] = "HERE"
    text = "".join(json.dumps(line) + "\n" for line in lines).replace('"HERE"', number)
    (history_copy / "history.jsonl").write_text(text)
    _, document = trend(history_copy, capsys)
    assert document["runs"] == 3
    assert document["notices"][0].startswith("line 4 of history.jsonl was passed over")


def test_a_newest_run_that_did_not_end_well_is_named(history_copy, capsys):
    shutil.rmtree(history_copy / "runs")
    lines = lines_of(history_copy)
    lines[3]["subjects"][0]["is_complete"] = False
    write_lines(history_copy, lines)
    assert f"the newest run, {lines[3]['id']}, did not end well: {SUBJECT}" in trend(history_copy, capsys)[1]["notices"]
