"""The terminal output: narrow, complete, and readable without colours or typographic characters."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

import pytest

from pytest_ckpt.report.text import WIDTH, failure_text, summary_lines
from tests.support import report_pages
from tests.support.synthetic_run import Document, report, steady


def _text(document: Document) -> str:
    return "\n".join(line for line, _ in summary_lines(document))


@pytest.mark.parametrize(
    "make",
    [*(partial(report_pages.document, grade) for grade in ("certified", "not certified", "rehearsal", "incomplete")),
     partial(report, fails_after=3), partial(report_pages.document, "nothing ran"),
     partial(report_pages.document, "contract only"),
     partial(report, steady(1e-4, 1e-4), options={"ckpt_cluster": "1000000"})],
    ids=["certified", "not certified", "rehearsal", "incomplete", "ended early", "nothing ran", "contract", "large"],
)  # fmt: skip
def test_every_line_of_the_summary_is_narrow_and_single(make: Callable[[], Document]) -> None:
    for line, markup in summary_lines(make()):
        assert len(line) <= WIDTH
        assert "\n" not in line
        assert line == line.rstrip()
        assert set(markup) <= {"green", "red", "yellow", "bold"}


def test_ascii_terminals_can_show_it() -> None:
    for grade in ("certified", "not certified", "rehearsal", "incomplete"):
        _text(report_pages.document(grade)).encode("ascii")


def test_certified_is_green_and_names_cluster_and_certificate() -> None:
    lines = summary_lines(report_pages.document("certified"))
    assert ("CERTIFIED for a cluster of 16,000 accelerators", {"green": True, "bold": True}) in lines
    assert lines[-1][0] == "certificate: /srv/made-up/ckpt-report/certificate.html"


def test_the_table_shows_slowest_limit_margin_rates_and_cluster() -> None:
    document = report(models="llama3-8b", ranks=8)
    save = _text(document).splitlines()[1].split()
    assert save[:2] == ["llama3-8b-full/stream", "save"]
    assert save[4:6] == ["27.8", "s"]
    assert save[-1] == f"{document['sufficient_up_to_accelerators'][0]['save']:,}"
    assert "4.04 GB/s" in _text(document)


def test_a_limit_that_was_missed_by_far_stands_apart_from_its_margin() -> None:
    document = report(steady(12_345.0), models="llama3-8b", ranks=8)
    save = _text(document).splitlines()[1]
    assert re.search(r" s +12,\d{3} x limit  ", save), save


def test_each_reason_for_unmet_requirements_is_reported_once() -> None:
    document = report(models="llama3-8b,llama3-70b", ranks=8, fails_after=3)
    text = " ".join(_text(document).split())
    failure = next(v for v in document["requirements"] if v["outcome"] == "failed")
    assert f"failed: SAVE of llama3-8b-full/stream: {failure['because']}" in text
    names = [v["id"] for v in document["requirements"] if "llama3-70b in full has 64 ranks" in v["because"]]
    assert names[:2] == ["SAVE", "LOAD"]
    assert f"not run: {', '.join(names)}" in text
    assert text.count("llama3-70b in full has 64 ranks") == 1


@pytest.mark.parametrize(("change", "ending"), [
    ({}, ": passed"),
    ({"outcome": "failed"}, ": did not pass"),
    ({"outcome": "not run"}, ": not everything required was run"),
])  # fmt: skip
def test_the_text_of_a_rehearsal_shows_its_outcome(change: Document, ending: str) -> None:
    document = report_pages.document("rehearsal")
    document["requirements"][0] |= change
    assert f"REHEARSAL for a cluster of 16,000 accelerators{ending}" in _text(document).splitlines()
    assert "  The run had 3 saves and loads; acceptance needs 10 of each." in _text(document).splitlines()


def _bounded(document: Document, shares: dict[tuple[str, str], float]) -> list[str]:
    """Set the proven share of saves and loads within their limits; return the output lines that state this share.

    ``shares`` is {(requirement, subject): share from 0 to 1}.
    """
    for v in document["requirements"]:
        share = shares.get((v["id"], v["subject"]))
        v["bound"] = None if share is None else {"trials": 10, "met": 10, "share": share, "confidence": 0.95}
    return [line for line in _text(document).splitlines() if "% confidence" in line]


def test_the_closing_lines_show_the_confidence_of_saves_and_loads_in_one_line() -> None:
    document = report(models="llama3-8b,llama3-70b", ranks=64)
    first, second = dict.fromkeys(v["subject"] for v in document["requirements"] if v["id"] == "SAVE")
    every = {(kind, name): 0.741 for kind in ("SAVE", "LOAD") for name in (first, second)}
    said = "  With 95 % confidence, at least 74.1 % of saves and 74.1 % of loads meet the limit, if independent"
    assert _bounded(document, every) == [f"{said}."]
    apart = _bounded(document, every | {("SAVE", second): 0.605})
    assert len(apart) == 2
    assert all(re.search(rf": {name}\.", " ".join(_text(document).split())) for name in (first, second))
    assert _bounded(document, {("LOAD", first): 0.741}) == [
        "  With 95 % confidence, at least 74.1 % of loads meet the limit, if independent."
    ]
    assert not _bounded(document, {})


def test_leftovers_are_named_without_control_characters() -> None:
    document = report_pages.document("certified")
    document["left_behind"] = ["/mnt/a\x1b[2Jb\nc"]
    assert "left on the target: /mnt/a\N{REPLACEMENT CHARACTER}[2Jb c" in _text(document).splitlines()


def test_a_failing_test_explains_itself() -> None:
    verdict = report_pages.document("not certified")["requirements"][0] | {"measured": 33.0, "limit": 27.5}
    verdict["detail"] = "slowest save 3: rank 5\nlimit: 5 % of the interval"
    assert failure_text(verdict, "pytest-ckpt plan --cluster=16000").splitlines() == [
        f"SAVE failed for llama3-8b-full/stream: {verdict['because']}",
        "",
        "  measured  33 s",
        "  limit     27.5 s",
        "  by        5.5 s, 20 % of the limit",
        "",
        "  slowest save 3: rank 5",
        "  limit: 5 % of the interval",
        "",
        "  explained by: pytest-ckpt plan --cluster=16000",
    ]


def test_a_failure_without_numbers_has_none() -> None:
    verdict = report(fails_after=3)["requirements"][0] | {"limit": None, "detail": ""}
    assert failure_text(verdict, "") == f"SAVE failed for llama3-8b-full/stream: {verdict['because']}"


def test_a_known_cure_is_what_to_do_next() -> None:
    document = report_pages.document("not certified")
    failed = next(v for v in document["requirements"] if (v["outcome"], v["severity"]) == ("failed", "required"))
    failed["detail"] = "known of sshfs: it keeps names\ncure: Mount it with dir_cache=no."
    assert "  next: Mount it with dir_cache=no." in _text(document)
    assert "next:" not in failure_text(failed, "", "The storage is too slow.")
    assert "next: The storage" in failure_text(failed | {"detail": ""}, "", "The storage is too slow.")
