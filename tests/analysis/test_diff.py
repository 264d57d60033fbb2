"""``pytest-ckpt diff`` lists the changes between two runs."""

from __future__ import annotations

import json

import pytest

from pytest_ckpt.analysis.comparison import compare_reports
from pytest_ckpt.cli.main import main
from pytest_ckpt.report.diff import diff_lines, diff_sections
from tests.support import synthetic_requests, synthetic_run
from tests.support.jsonschema_validation import violations

pytestmark = pytest.mark.covers(commands=("diff",))

TEN = {"ckpt_operations": "10"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    home = tmp_path_factory.mktemp("runs")
    synthetic_run.write_run(home / "first", seed=1, options=TEN)
    synthetic_run.write_run(home / "again", seed=2, options=TEN)
    synthetic_run.write_run(
        home / "other", seed=3, save=0.2, options=TEN | {"ckpt_save_budget": "3%"}, versions={"torch": "2.14.0"},
        target={
            "options": "rw,nconnect=16<script>",
            "capacity": {"total_bytes": 1 << 50, "used_bytes": 5, "free_bytes": 5, "free_files": None}},
    )  # fmt: skip
    synthetic_run.write_run(home / "short", seed=4)
    synthetic_run.write_run(home / "larger", seed=5, save=1.0, load=0.5, options=TEN | {"ckpt_scale": "1/100"})
    synthetic_run.write_run(home / "slow", seed=6, save=1e6, options=TEN)
    return home


def diff(runs, one, other, capsys, *words):
    assert main(["diff", str(runs / one), str(runs / other), "--json", *words]) == 0
    document = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert not violations(document, "diff")
    return document


def rows(document, name):
    return {r["name"]: (r["before"], r["after"]) for r in document[name]}


def test_two_runs_of_the_same_show_no_change(runs, capsys):
    document = diff(runs, "first", "again", capsys)
    for name in ("settings", "cluster", "system", "environment", "versions", "verdicts"):
        assert document[name] == [], name
    assert [o["change"] for o in document["operations"]] == ["none", "none"]
    for o in document["operations"]:
        assert o["low"] < 1 < o["high"]


def test_diff_names_changes_and_omits_temporary_state(runs, capsys):
    document = diff(runs, "first", "other", capsys)
    assert rows(document, "settings") == {"--ckpt-save-budget": ("5%", "3%")}
    assert rows(document, "versions") == {"torch": ("2.13.0", "2.14.0")}
    assert list(rows(document, "environment")) == ["target options"]
    assert {"save_budget", "save_limit_seconds"} <= set(rows(document, "cluster"))


def test_slower_saves_are_reported_with_ratio_and_interval_and_loads_are_not(runs, capsys):
    save, load = diff(runs, "first", "other", capsys)["operations"]
    assert (save["kind"], save["change"], load["kind"], load["change"]) == ("save", "slower", "load", "none")
    assert 1.8 < save["low"] < save["ratio"] < save["high"] < 2.2
    save, _ = diff(runs, "other", "first", capsys)["operations"]
    assert save["change"] == "faster"


def test_verdicts_that_changed_are_named(runs, capsys):
    document = diff(runs, "first", "slow", capsys)
    (save,) = (v for v in document["verdicts"] if v["id"] == "SAVE")
    assert (save["before"], save["after"]) == ("met", "failed")
    assert save["because"]


def test_too_few_operations_give_a_ratio_and_no_judgement(runs, capsys):
    save, _ = diff(runs, "first", "short", capsys)["operations"]
    assert (save["change"], save["low"]) == ("unknown", None)
    assert save["ratio"] == pytest.approx(1, abs=0.2)


def test_checkpoints_of_different_sizes_are_compared_by_the_byte(runs, capsys):
    save, _ = diff(runs, "first", "larger", capsys)["operations"]
    assert save["ratio"] == pytest.approx(1, abs=0.1)
    assert "seconds per byte" in save["note"]


def test_the_answer_is_always_the_same(runs, capsys):
    assert diff(runs, "first", "other", capsys) == diff(runs, "first", "other", capsys)


def test_for_people_it_prints_a_table_and_writes_a_page(runs, capsys, tmp_path):
    page = tmp_path / "diff.html"
    assert main(["diff", str(runs / "first"), str(runs / "other"), f"--html={page}"]) == 0
    text = capsys.readouterr().out
    assert "--ckpt-save-budget: 5% -> 3%" in text
    assert "slower" in text
    assert "the same in both: system, verdicts" in text
    html = page.read_text()
    assert "&lt;script&gt;" in html
    assert "<script" not in html
    assert "slower" in html


@pytest.mark.parametrize("content", [None, "{}", "[]", "{"])
def test_a_directory_without_a_run_is_a_usage_error(runs, capsys, tmp_path, content):
    if content is not None:
        (tmp_path / "report.json").write_text(content)
    assert main(["diff", str(runs / "first"), str(tmp_path)]) == 4
    assert str(tmp_path / "report.json") in capsys.readouterr().err


def of_store(**words):
    report = synthetic_run.report(models="llama3-8b", ranks=8)
    report["measurements"][0]["requests"] = synthetic_requests.requests(**words)
    return report


def test_requests_to_an_object_store_are_compared_by_kind_over_all_endpoints():
    plain = synthetic_run.report(models="llama3-8b", ranks=8)
    document = compare_reports(of_store(), of_store(again=3, slower=2.0))
    assert not violations(document, "diff")
    rows = {row["kind"]: row for row in document["requests"]}
    assert rows["put part"]["before"] == {"sent": 5290, "again": 0, "busy": 0, "p99_seconds": 0.084,
                                          "slowest_seconds": 0.168}  # fmt: skip
    assert (rows["put part"]["after"]["again"], rows["put part"]["after"]["p99_seconds"]) == (6, 0.168)
    assert rows["put"]["after"]["p99_seconds"] is None
    text = "\n".join(diff_lines(document))
    assert "put part: 5,290 / 0 / 0, 84 ms -> 5,290 / 6 / 6, 168 ms" in text
    assert "Requests" in [section.heading for section in diff_sections(document)]
    alone = compare_reports(plain, of_store())
    assert {row["before"] for row in alone["requests"]} == {None}
    assert compare_reports(plain, plain)["requests"] == []
