"""Writes junit.xml: one test case for each requirement and subject."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING, Any

from pytest_ckpt.report import view
from pytest_ckpt.report.svg import printable
from pytest_ckpt.report.view import start_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path


_PROPERTIES = ("subject", "severity", "outcome", "reason", "measured", "limit", "unit", "margin")


def write_junit(document: dict[str, Any], path: Path) -> None:
    """Write the verdicts of a report document as JUnit XML. The file appears only when it is complete.

    If a required requirement failed, the test case fails. If a requirement was not run or was waived, the test case is
    skipped. If an advisory requirement failed, the test case passes. Its property ``outcome`` and its text then state
    the failure.

    If the measured value is in seconds, it is reported as the time of the test case. If not, the time is 0. A CI system
    that plots the times of test cases then shows the trend of the storage.
    """
    made = path.with_name(path.name + ".part")
    ET.ElementTree(_suites(document)).write(made, encoding="utf-8", xml_declaration=True)
    made.replace(path)


def _suites(document: Mapping[str, Any]) -> ET.Element:
    verdicts = document.get("requirements") or []
    run, cluster = document.get("run") or {}, document.get("cluster") or {}
    target = (document.get("environment") or {}).get("target") or {}
    counts = {
        "tests": len(verdicts),
        "failures": sum(v["outcome"] == "failed" and v["severity"] == "required" for v in verdicts),
        "errors": 0,
        "skipped": sum(v["outcome"] in {"not run", "waived"} for v in verdicts),
        "time": _seconds(run.get("seconds")),
    }
    attributes = {"name": "pytest-ckpt", **{name: str(count) for name, count in counts.items()}}
    top = ET.Element("testsuites", attributes)
    suite = ET.SubElement(top, "testsuite", attributes)
    if run.get("started"):
        suite.set("timestamp", printable(run["started"]))
    _add_properties(
        suite,
        (
            ("run", run.get("id")),
            ("version", run.get("version")),
            ("grade", document["grade"]),
            ("target", target.get("location")),
            ("target_kind", target.get("kind")),
            ("target_source", target.get("source")),
            ("cluster", cluster.get("accelerators")),
            ("save_limit_seconds", cluster.get("save_limit_seconds")),
            ("load_limit_seconds", cluster.get("load_limit_seconds")),
            *(("start", sentence) for sentence in start_lines(document)),
            *(("grade_reason", reason) for reason in document.get("grade_reasons") or []),
            *(("requests", text) for measured in document.get("measurements") or [] for text in _requests(measured)),
        ),
    )
    plugins = view.plugins_by_id(document)
    for verdict in verdicts:
        suite.append(_case(verdict, plugins.get(verdict["id"])))
    return top


def _requests(measured: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence on the requests of a measurement for each endpoint and kind of request."""
    for row in measured.get("requests") or ():
        seconds = [row.get(name) for name in ("median_seconds", "p99_seconds", "slowest_seconds")]
        times = ", ".join("-" if each is None else f"{each:.6f}" for each in seconds)
        yield (
            f"{measured['subject']} {row['endpoint']} {row['kind']}: {row['sent']} sent, {row['again']} again, "
            f"{row['busy']} busy, waited {row['waited_seconds']:.6f} s; median, p99, slowest: {times} s"
        )


def _case(verdict: Mapping[str, Any], plugin: str | None) -> ET.Element:
    in_seconds = verdict["measured"] if verdict.get("unit") == "s" else None
    name = f"{verdict['id']}[{verdict['subject']}]"
    case = ET.Element(
        "testcase", classname=printable(f"pytest_ckpt.{verdict['id']}"), name=printable(name), time=_seconds(in_seconds)
    )
    _add_properties(
        case,
        (
            ("requirement", verdict["id"]),
            ("plugin", plugin),
            *((name, verdict.get(name)) for name in _PROPERTIES),
        ),
    )
    because, detail = printable(verdict["because"]), printable(verdict["detail"])
    if verdict["outcome"] == "failed" and verdict["severity"] == "required":
        ET.SubElement(case, "failure", message=because, type="failed").text = detail or because
    elif verdict["outcome"] == "failed":
        ET.SubElement(case, "system-out").text = f"advisory requirement failed: {because}\n{detail}".rstrip()
    elif verdict["outcome"] in {"not run", "waived"}:
        ET.SubElement(case, "skipped", message=f"{verdict['outcome']}: {because}", type=verdict["outcome"])
    return case


def _add_properties(parent: ET.Element, pairs: Iterable[tuple[str, object]]) -> None:
    properties = ET.SubElement(parent, "properties")
    for name, value in pairs:
        if value is not None:
            shown = value if isinstance(value, str) else json.dumps(value)
            ET.SubElement(properties, "property", name=name, value=printable(shown))


def _seconds(value: float | None) -> str:
    return f"{value or 0:.6f}"
