"""The first page: what to do about each exception, the matrix, the contents; and how many sheets a smoke run takes."""

from __future__ import annotations

import re
import subprocess

import pytest

from pytest_ckpt.facts.verdict import REASONS
from pytest_ckpt.judging.next_steps import NEXT_STEPS
from pytest_ckpt.report import front
from pytest_ckpt.report.html import render
from tests.support import CHECKOUT, browser, made_up_run, report_pages

HEADINGS = set(re.findall(r"^### (.+)$", (CHECKOUT / "docs" / "faq.md").read_text(), re.MULTILINE))


def verdict(name, subject="a", outcome="met", severity="required", reason="", detail=""):
    return {
        "id": name, "subject": subject, "outcome": outcome, "severity": severity, "reason": reason, "detail": detail,
    }  # fmt: skip


def document(*verdicts):
    rows = [{"id": n, "suite": "conformance" if n == "COMMIT" else "performance", "next_step": NEXT_STEPS.get(n, "")}
            for n in dict.fromkeys(v["id"] for v in verdicts)]  # fmt: skip
    return {"requirements": list(verdicts), "catalogue": rows}


def test_each_part_of_the_faq_that_is_named_is_there():
    assert {*front.FAQ.values(), *front.FAQ_OF_REASONS.values(), "Waived"} <= HEADINGS
    assert set(front.FAQ) <= set(NEXT_STEPS)
    assert set(front.FAQ_OF_REASONS) <= set(REASONS)


def test_failures_come_first_each_with_its_step_and_what_asks_for_the_same_stands_together():
    points = front.open_points(
        document(
            verdict("LOAD", outcome="not run", reason="no test"),
            verdict("COLD", outcome="not run", reason="no test"),
            verdict("SAVE", outcome="failed", reason="over limit"),
            verdict("SAVE", "b", outcome="failed", reason="over limit"),
            verdict("REPEAT", outcome="failed", severity="advisory"),
            verdict("STALE", outcome="waived"),
            verdict("INTEGRITY"),
        )
    )
    assert [(p.outcome, p.ids, p.names) for p in points] == [
        ("failed", ("SAVE",), "a, b"), ("not run", ("LOAD", "COLD"), "a"), ("waived", ("STALE",), "a"),
    ]  # fmt: skip
    assert points[0].next_step == NEXT_STEPS["SAVE"]
    assert points[0].faq == "SAVE or LOAD: a limit was missed"
    assert "deselecting" in points[1].next_step


def test_what_is_known_to_cure_a_failure_is_the_step():
    found = verdict("STALE", outcome="failed", detail="seen 4 s late\ncure: mount with actimeo=0")
    (point,) = front.open_points(document(found))
    assert point.next_step == "mount with actimeo=0"


def test_nothing_is_to_be_done_where_all_is_met():
    assert front.open_points(document(verdict("SAVE"))) == []


def test_the_matrix_shows_the_worst_and_never_hides_a_failure():
    found = front.matrix(
        document(
            verdict("SAVE", "a"),
            verdict("SAVE", "b", outcome="failed"),
            verdict("STORM", "a", outcome="not run", severity="advisory"),
            verdict("COMMIT", "file"),
            verdict("COMMIT", "folder", outcome="failed"),
        )
    )
    assert found.columns == ("a", "b")
    assert [(row.id, [cell.outcome for cell in row.cells]) for row in found.rows] == [("SAVE", ["met", "failed"])]
    assert [(name, cell.outcome, met, of) for name, cell, met, of in found.behaviour] == [("COMMIT", "failed", 1, 2)]
    assert found.advisory_not_run == ("STORM",)


@pytest.mark.parametrize("name", ["certified", "not certified", "1,024 ranks", "nothing ran"])
def test_every_link_of_a_certificate_leads_somewhere(name):
    page = render(report_pages.DOCUMENTS[name]())
    targets = set(re.findall(r'\bid="([^"]+)"', page))
    assert set(re.findall(r'href="#([^"]+)"', page)) <= targets
    assert 'class="contents"' in page


def test_exceptions_stand_before_everything_else():
    page = render(report_pages.DOCUMENTS["not certified"]())
    order = [page.index(part) for part in ('id="exceptions"', 'class="facts wide"', 'id="matrix"', 'id="limits"')]
    assert order == sorted(order)


@pytest.mark.skipif(not browser.CHROMIUM, reason="Chromium is not installed")
@pytest.mark.parametrize("save", [0.001, 0.3], ids=["passes", "fails"])
def test_a_smoke_run_takes_three_sheets(tmp_path, save):
    made_up_run.make_run(tmp_path / "run", options={"ckpt_gates": "auto", "ckpt_cluster": "16000"}, save=save)
    printed = tmp_path / "run.pdf"
    browser.print_pdf(tmp_path / "run" / "certificate.html", printed)
    said = subprocess.run(["pdfinfo", printed], capture_output=True, text=True, check=True).stdout
    assert int(re.search(r"^Pages:\s+(\d+)", said, re.MULTILINE)[1]) <= 3
    assert browser.faults_of_layout(tmp_path / "run" / "certificate.html", 390) == []
