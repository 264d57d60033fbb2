"""The history of runs, and its trend."""

from __future__ import annotations

import json
import multiprocessing
import xml.etree.ElementTree as ET

import pytest

from pytest_ckpt.analysis.trend import create_trend
from pytest_ckpt.cli.main import main
from pytest_ckpt.evidence.history import append_run, check_place, compare_with_reports, entry, read_history
from pytest_ckpt.evidence.manifest import compare
from pytest_ckpt.report.trend import sparkline
from pytest_ckpt.support.errors import UsageError
from tests.support import jsonschema_validation, synthetic_requests, synthetic_run

pytestmark = pytest.mark.covers(commands=("trend",))

DAYS = 40


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """The history entry of one run. Tests copy the entry once for each night, and change the times in the copies."""
    directory = tmp_path_factory.mktemp("template") / "run"
    return entry(synthetic_run.write_run(directory))


def night(template, number, factor=1.0, **changes):
    line = json.loads(json.dumps(template))
    wobble = 1 + number * 7 % 11 / 500
    line |= {"id": f"night-{number:03}", "started": f"2031-{1 + number // 28:02}-{1 + number % 28:02}T02:00:00+00:00"}
    for subject in line["subjects"]:
        subject["save_seconds"] = [0.1 * wobble * factor * (1 + i / 100) for i in range(3)]
        subject["load_seconds"] = [0.05 * wobble * (1 + i / 100) for i in range(3)]
        subject.update(changes)
    return line


def write(directory, lines):
    directory.mkdir(exist_ok=True)
    (directory / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return directory


def trend(directory, capsys, *words):
    code = main(["trend", str(directory), "--json", *words])
    document = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert not jsonschema_validation.violations(document, "trend")
    return code, document


def test_a_run_is_copied_and_its_line_appended(tmp_path, capsys):
    for seed in (1, 2):
        run = tmp_path / f"run-{seed}"
        document = synthetic_run.write_run(run, seed=seed, started=f"2031-05-0{seed}T07:08:09+00:00")
        assert append_run(tmp_path / "kept", document, run) == seed
    entries, notices = read_history(tmp_path / "kept")
    assert notices == []
    assert [e["id"] for e in entries] == ["20310506T070809-000001", "20310506T070809-000002"]
    for e in entries:
        assert not jsonschema_validation.violations(e, "history")
        assert compare(tmp_path / "kept" / e["directory"]).is_same
        assert main(["verify", str(tmp_path / "kept" / e["directory"])]) == 0
    capsys.readouterr()
    code, document = trend(tmp_path / "kept", capsys)
    assert (code, document["runs"], [len(s["points"]) for s in document["series"]]) == (0, 2, [2, 2])


def _append(arguments):
    home, number = arguments
    run = home / f"run-{number}"
    return append_run(home / "kept", synthetic_run.write_run(run, seed=number), run)


def test_runs_that_end_at_once_all_get_their_line(tmp_path):
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        counts = pool.map(_append, [(tmp_path, number) for number in range(8)], chunksize=1)
    assert sorted(counts) == list(range(1, 9))
    entries, notices = read_history(tmp_path / "kept")
    assert (len(entries), notices) == (8, [])


def test_a_torn_line_costs_itself_alone(template, tmp_path):
    directory = write(tmp_path / "kept", [night(template, 1)])
    with (directory / "history.jsonl").open("a") as file:
        file.write('{"schema": "pytest-ckpt/hist')
    run = tmp_path / "run"
    append_run(directory, synthetic_run.write_run(run), run)
    entries, notices = read_history(directory)
    assert len(entries) == 2
    assert [n.split(":")[0] for n in notices] == ["line 2 of history.jsonl was passed over"]


def test_the_same_run_is_not_kept_twice(tmp_path):
    document = synthetic_run.write_run(tmp_path / "run")
    append_run(tmp_path / "kept", document, tmp_path / "run")
    with pytest.raises(OSError, match=r"not empty|exists"):
        append_run(tmp_path / "kept", document, tmp_path / "run")
    assert len(read_history(tmp_path / "kept")[0]) == 1
    assert len(list((tmp_path / "kept" / "runs").iterdir())) == 1


def test_an_unchanged_series_shows_no_change(template, tmp_path, capsys):
    directory = write(tmp_path / "kept", [night(template, n) for n in range(DAYS)])
    code, document = trend(directory, capsys, "--fail-on-regression=10%")
    assert code == 0
    assert [s["change"] for s in document["series"]] == [None, None]
    assert document["regressions"] == []


@pytest.mark.parametrize(("factor", "threshold", "code"), [(1.2, "10%", 1), (1.2, "30%", 0), (0.8, "10%", 0)])
def test_a_change_is_found_and_fails_only_when_it_is_slower_by_so_much(
    template, tmp_path, capsys, factor, threshold, code
):
    lines = [night(template, n, factor if n >= DAYS - 5 else 1.0) for n in range(DAYS)]
    directory = write(tmp_path / "kept", lines)
    got, document = trend(directory, capsys, f"--fail-on-regression={threshold}")
    save, load = document["series"]
    assert save["change"]["ratio"] == pytest.approx(factor, rel=0.02)
    assert save["change"]["since"] == lines[-5]["started"]
    assert load["change"] is None
    assert got == code
    assert document["regressions"] == ([f"{synthetic_run.SUBJECT} save"] if code else [])


def test_without_the_option_a_regression_fails_nothing(template, tmp_path, capsys):
    directory = write(tmp_path / "kept", [night(template, n, 1.5 if n >= 30 else 1.0) for n in range(DAYS)])
    assert trend(directory, capsys)[0] == 0


def test_the_order_is_that_of_the_runs_and_not_of_the_lines(template, tmp_path, capsys):
    lines = [night(template, n, 1.2 if n >= DAYS - 5 else 1.0) for n in range(DAYS)]
    directory = write(tmp_path / "kept", lines[::-1])
    assert trend(directory, capsys)[1]["series"][0]["change"] is not None


def test_runs_under_other_conditions_and_broken_ones_are_left_out_and_counted(template):
    other = template["subjects"][0]["conditions"] | {"engine": "stream"}
    lines = [night(template, n, 5.0, conditions=other) for n in range(10)]
    lines += [night(template, n) for n in range(10, 30)] + [night(template, 30, is_complete=False)]
    series = create_trend(lines, [])["series"][0]
    assert series["omitted"] == {"other conditions": 10, "did not end well": 1}
    assert (len(series["points"]), series["change"]) == (20, None)


def test_for_people_it_prints_sparklines_and_writes_a_page_with_charts(template, tmp_path, capsys):
    lines = [night(template, n, 1.2 if n >= DAYS - 5 else 1.0) for n in range(DAYS)]
    directory = write(tmp_path / "kept", lines)
    page = tmp_path / "trend.html"
    assert main(["trend", str(directory), f"--html={page}", "--fail-on-regression=10%"]) == 1
    text = capsys.readouterr().out
    assert f"REGRESSION of at least 10 %: {synthetic_run.SUBJECT} save" in text
    assert "slower since 2031-02-" in text
    html = page.read_text()
    assert html.count("<svg") == 2
    for picture in html.split("<figure>")[1:]:
        ET.fromstring(picture.split("</figure>")[0])
    assert "<script" not in html


def test_a_sparkline_spans_its_values():
    assert sparkline([1, 2, 3], unicode=True) == "▁▅█"
    assert sparkline([1, 1], unicode=False) == "__"


def test_a_history_lies_neither_in_the_target_nor_in_the_report_and_can_be_written(tmp_path):
    target, report = tmp_path / "target", tmp_path / "report"
    target.mkdir()
    check_place(tmp_path / "new" / "history", target, report)
    (tmp_path / "file").write_text("")
    for place, why in ((target, "target"), (target / "x", "target"), (report / "x", "report"),
                       (tmp_path / "file", "cannot be written")):  # fmt: skip
        with pytest.raises(UsageError, match=why):
            check_place(place, target, report)


@pytest.mark.parametrize("words", [["nowhere"], [".", "--fail-on-regression=much"], [".", "--fail-on-regression=0%"]])
def test_an_invalid_history_or_share_is_a_usage_error(tmp_path, monkeypatch, capsys, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "history.jsonl").write_text("")
    assert main(["trend", *words]) == 4
    assert "pytest-ckpt: error:" in capsys.readouterr().err


def test_an_empty_history_has_no_series(tmp_path, capsys):
    code, document = trend(write(tmp_path / "kept", []), capsys)
    assert (code, document["runs"], document["series"]) == (0, 0, [])
    assert main(["trend", str(tmp_path / "kept")]) == 0


def test_the_99th_percentile_of_requests_to_a_store_is_shown_and_its_change(template, tmp_path, capsys):
    def of(number):
        slower = 3.0 if number >= DAYS - 8 else 1.0
        wobble = 1 + number * 7 % 11 / 500
        return {"request_p99_seconds": {"put part": 0.08 * slower * wobble, "get": 0.04 * wobble}}

    directory = write(tmp_path / "kept", [night(template, n, **of(n)) for n in range(DAYS)])
    code, document = trend(directory, capsys, "--fail-on-regression=10%")
    found = {series["kind"]: series for series in document["requests"]}
    assert {kind: len(series["points"]) for kind, series in found.items()} == {"put part": DAYS, "get": DAYS}
    assert found["put part"]["change"]["runs"] == 8
    assert found["get"]["change"] is None
    assert code == 0, "the limits are for saves and loads"
    page = tmp_path / "trend.html"
    assert main(["trend", str(directory), f"--html={page}"]) == 0
    text = capsys.readouterr().out
    assert "put part" in text
    assert "put part: slower since" in text
    assert "Requests to the object store" in page.read_text()


def test_the_worst_of_several_endpoints_counts(tmp_path):
    document = synthetic_run.write_run(tmp_path / "run")
    document["measurements"][0]["requests"] = [
        *synthetic_requests.requests(),
        synthetic_requests.row("https://third.example", "put part", 7, 0.2),
    ]
    times = entry(document)["subjects"][0]["request_p99_seconds"]
    assert times["put part"] == 0.2
    assert times["get"] == 0.045
    assert "put" not in times, "nothing was answered"


def test_a_line_from_before_requests_had_a_trend_was_not_changed(tmp_path, monkeypatch):
    run = tmp_path / "run"
    append_run(tmp_path / "kept", synthetic_run.write_run(run), run)
    entries, _ = read_history(tmp_path / "kept")
    monkeypatch.setattr("pytest_ckpt.evidence.history._p99_of_requests", lambda _measured: {"get": 0.5})
    kept, notices = compare_with_reports(tmp_path / "kept", entries)
    assert notices == []
    assert kept[0]["subjects"][0]["request_p99_seconds"] == {"get": 0.5}
