"""JUnit XML as CI systems read it: counts, properties, and texts with only valid characters."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from pytest_ckpt.report.junit import write_junit
from tests.support import report_pages, synthetic_requests
from tests.support.synthetic_run import Document, late, report


def _written(document: Document, directory: Path) -> ET.Element:
    write_junit(document, directory / "junit.xml")
    assert [p.name for p in directory.iterdir()] == ["junit.xml"]
    return ET.parse(directory / "junit.xml").getroot()


def _properties(element: ET.Element) -> dict[str, str]:
    return {p.get("name", ""): p.get("value", "") for p in element.findall("properties/property")}


@pytest.mark.parametrize(
    "name", ["certified", "not certified", "incomplete", "hostile", "nothing ran", "contract only"]
)
def test_counts_are_those_of_the_verdicts(name: str, tmp_path: Path) -> None:
    document = report_pages.document(name)
    verdicts = document["requirements"]
    suite = _written(document, tmp_path).find("testsuite")
    assert suite is not None
    failures = sum(v["outcome"] == "failed" and v["severity"] == "required" for v in verdicts)
    skipped = sum(v["outcome"] in ("not run", "waived") for v in verdicts)
    assert suite.get("name") == "pytest-ckpt"
    assert suite.get("tests") == str(len(verdicts)) == str(len(suite.findall("testcase")))
    assert suite.get("failures") == str(failures) == str(len(suite.findall("testcase/failure")))
    assert suite.get("skipped") == str(skipped) == str(len(suite.findall("testcase/skipped")))
    found = _properties(suite)
    run = re.sub(r"[\u202e\u0007]", "\N{REPLACEMENT CHARACTER}", document["run"]["id"])
    assert (found["grade"], found["run"], found["cluster"]) == (document["grade"], run, "16000")


def test_a_case_has_what_was_measured(tmp_path: Path) -> None:
    document = report(late, models="llama3-8b", ranks=8)
    verdict = document["requirements"][0]
    case = next(_written(document, tmp_path).iter("testcase"))
    assert (case.get("classname"), case.get("name")) == ("pytest_ckpt.SAVE", "SAVE[llama3-8b-full/stream]")
    assert float(case.get("time", "")) == pytest.approx(verdict["measured"], abs=1e-6)
    found = _properties(case)
    assert found["requirement"] == "SAVE"
    assert (found["subject"], found["severity"], found["outcome"]) == ("llama3-8b-full/stream", "required", "failed")
    assert [float(found[name]) for name in ("measured", "limit", "margin")] == [
        verdict["measured"], verdict["limit"], verdict["margin"],
    ]  # fmt: skip
    assert found["unit"] == "s"
    failure = case.find("failure")
    assert failure is not None
    assert failure.get("message") == verdict["because"]
    assert failure.text == verdict["detail"]


def test_advisory_waived_and_not_run(tmp_path: Path) -> None:
    document = report(models="llama3-8b", ranks=8)
    by_id = {v["id"]: v for v in document["requirements"]}
    by_id["REPEAT"] |= {"outcome": "failed", "because": "saves vary", "detail": "more"}
    by_id["SAVE"] |= {"outcome": "waived", "because": "until the firmware is there"}
    by_id["COLD"] |= {"outcome": "not run", "because": "no probe", "measured": None, "limit": None, "margin": None}
    cases = {case.get("name", "").split("[")[0]: case for case in _written(document, tmp_path).iter("testcase")}
    assert cases["REPEAT"].find("failure") is None
    assert cases["REPEAT"].findtext("system-out") == "advisory requirement failed: saves vary\nmore"
    assert _properties(cases["REPEAT"])["outcome"] == "failed"
    messages = {name: element.get("message") for name in cases
                if (element := cases[name].find("skipped")) is not None}  # fmt: skip
    assert messages["SAVE"] == "waived: until the firmware is there"
    assert messages["COLD"] == "not run: no probe"
    assert "measured" not in _properties(cases["COLD"])


def test_requests_to_an_object_store_are_properties(tmp_path: Path) -> None:
    document = report(models="llama3-8b", ranks=8)
    document["measurements"][0]["requests"] = synthetic_requests.requests(again=2)
    suite = _written(document, tmp_path).find("testsuite")
    assert suite is not None
    found = [p.get("value", "") for p in suite.findall("properties/property") if p.get("name") == "requests"]
    assert len(found) == len(document["measurements"][0]["requests"])
    assert found[1] == (
        f"llama3-8b-full/stream {synthetic_requests.ONE} put part: 2645 sent, 2 again, 2 busy, waited 0.500000 s; "
        "median, p99, slowest: 0.042000, 0.084000, 0.168000 s"
    )
    assert found[-1].endswith("5 sent, 4 again, 4 busy, waited 1.000000 s; median, p99, slowest: -, -, - s")
