"""Plugins that misbehave during a run: the report states this, and plugins cannot change built-in verdicts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.end_to_end import REQUIRED, SUBJECT, Run, temporary_runner
from tests.support.hostile_plugin import JUDGES
from tests.support.selection import first_few
from tests.support.vendor_directory import QUICK

HOSTILE = (
    JUDGES
    + """
def pytest_ckpt_environment_facts():
    return {"<b>place</b>": "<script>alert(2)</script>", "api_token": "s3cr3t-value", "where": "http://me:pass@host/x"}

def pytest_ckpt_after_measure(measurement):
    measurement.stages.clear()
    measurement.cache.readings[0:]
    object.__setattr__(measurement, "operations", ())

def pytest_ckpt_report_sections(document):
    for verdict in document["requirements"]:
        verdict["outcome"] = "met"
    document["grade"] = "certified"
    document.clear()
    return [
        Section(
            title="<h1>Certified</h1>",
            paragraphs=["<script>alert(3)</script>", "left \\u202e right", "http://me:pass@host/x"],
            head=["<td>"],
            rows=[["<img src=x>"]],
        )
    ]
"""
)
NAMES = ("mutates", "raises", "skips", "waives", "measures_nan", "says_yes", "fails")


@pytest.fixture(scope="module")
def hostile(create_home: Callable[[str], Path]) -> Run:
    with temporary_runner(create_home("hostile")) as runner:
        directory = runner.home / "vendor"
        directory.mkdir()
        (directory / "conftest.py").write_text(HOSTILE)
        return runner.run(*QUICK, "--pyargs", "pytest_ckpt.suites", "vendor")


def test_hostile_hooks_do_not_change_built_in_verdicts(hostile: Run) -> None:
    assert hostile.code == 0, hostile.text
    assert hostile.outcomes() == dict.fromkeys(REQUIRED, "met")
    assert hostile.document["grade"] == "rehearsal"


def test_hostile_hooks_leave_the_measurements_unchanged(hostile: Run) -> None:
    assert len(hostile.operations("save")) == len(hostile.operations("load")) == 2
    assert min(o["seconds"] for o in hostile.measurement()["operations"]) > 0
    assert {"saves", "loads", "hooks"} <= set(hostile.measurement()["stages"])
    assert hostile.measurement() == json.loads((hostile.report / "measurements" / f"{SUBJECT}+stream.json").read_text())


@pytest.mark.parametrize(
    ("judge", "expected_text"),
    [
        ("RAISES", "gave no decision: AttributeError: 'Measurement' object has no attribute 'no_such_field'."),
        ("SKIPS", "gave no decision: Skipped: no time."),
        ("WAIVES", "the outcome is 'waived', and one of met, failed, not run is expected."),
        ("MEASURES-NAN", "measured is nan, and a finite number or None is expected."),
        ("SAYS-YES", "it returned True, and a pytest_ckpt.vendors.Decision is expected."),
    ],
)
def test_a_judge_that_gives_no_decision_is_not_run_and_named(hostile: Run, judge: str, expected_text: str) -> None:
    verdict = hostile.verdict(f"ACME-{judge}")
    assert verdict["outcome"] == "not run"
    assert verdict["because"].startswith("The judge of plugin vendor/conftest.py gave no decision: ")
    assert verdict["because"].endswith(expected_text)


def test_a_judge_that_changes_what_it_sees_changes_a_copy(hostile: Run) -> None:
    assert hostile.verdict("ACME-MUTATES")["outcome"] == "met"
    assert hostile.document["cluster"]["save_limit_seconds"] < 1e9
    assert hostile.verdict("SAVE")["measured"] == max(o["seconds"] for o in hostile.operations("save"))


def test_html_is_text_everywhere(hostile: Run) -> None:
    page = (hostile.report / "certificate.html").read_text()
    for tag in ("<script", "<b>", "<i>", "<h1>Certified", "<img", "<title>\n"):
        assert tag not in page
    for shown in (
        "&lt;script&gt;alert(2)&lt;/script&gt;",
        "&lt;script&gt;alert(3)",
        "&lt;h1&gt;Certified",
        "A &lt;title",
    ):
        assert shown in page
    assert "\u202e" not in page
    assert hostile.verdict("ACME-FAILS")["detail"] == "<i>a</i>\nb"


def test_a_section_cannot_change_the_document(hostile: Run) -> None:
    (section,) = hostile.document["sections"]
    assert section["plugin"] == "vendor/conftest.py"
    assert section["title"] == "<h1>Certified</h1>"
    assert hostile.verdict("ACME-FAILS")["outcome"] == "failed"


def test_secrets_in_facts_and_sections_are_hidden(hostile: Run) -> None:
    (plugin,) = hostile.document["environment"]["plugins"]
    assert plugin["facts"]["api_token"] == "***"
    assert plugin["facts"]["where"] == "http://***@host/x"
    assert hostile.document["sections"][0]["paragraphs"][2] == "http://***@host/x"
    for file in filter(Path.is_file, hostile.report.rglob("*")):
        assert b"s3cr3t-value" not in file.read_bytes(), file


# --- the end ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "expected_text"),
    first_few(
        [
            ("raise ValueError('no printer')", "failed in pytest_ckpt_report_sections: ValueError: no printer"),
            ("raise SystemExit(3)", "failed in pytest_ckpt_report_sections: SystemExit: 3"),
            ("return '<p>all well</p>'", "'<p>all well</p>' was returned, and a list of sections is expected"),
            (
                "return [Section(title='T', paragraphs='one')]",
                "the paragraphs of the section 'T' are 'one', and a list",
            ),
            ("return [Section(title='T', rows=[[1]])]", "row 1 of the section 'T' are [1], and a list of texts"),
            (
                "return [Section(title='T', head=['a', 'b'], rows=[['x']])]",
                "row 1 of the section 'T' has 1 cells, and 2",
            ),
        ],
        1,
    ),
)
def test_sections_that_fail_cost_only_themselves(run_with: Callable[..., Run], body: str, expected_text: str) -> None:
    run = run_with(
        f"""
        from pytest_ckpt.vendors import Section

        def pytest_ckpt_report_sections(document):
            {body}
        """
    )
    assert run.code == 0, run.text
    (section,) = run.document["sections"]
    assert section["title"] == "This plugin's sections could not be written"
    assert expected_text in section["paragraphs"][0]
    assert "This plugin&#39;s sections could not be written" in (run.report / "certificate.html").read_text()
