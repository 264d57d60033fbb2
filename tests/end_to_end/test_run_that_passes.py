"""A small run that meets all required requirements: the files, the numbers and the output of the run."""

from __future__ import annotations

import itertools
import json
import os
import pty
import re
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from pytest_ckpt.sizing.models import layout
from tests.support import jsonschema_validation
from tests.support.end_to_end import (
    MEASURED,
    REQUIRED,
    SMALLEST,
    SUBJECT,
    Run,
    Runner,
    progress_lines,
    started_operation,
)


def test_it_ends_with_zero_and_calls_itself_a_rehearsal(good: Run) -> None:
    assert good.code == 0, good.text
    assert good.document["grade"] == "rehearsal"
    assert good.document["exit_code"] == 0
    assert "REHEARSAL for a cluster of 4 accelerators: passed" in good.text


def test_every_required_requirement_is_met(good: Run) -> None:
    assert good.outcomes() == dict.fromkeys(REQUIRED, "met")


def test_the_run_directory_holds_what_the_contract_names(good: Run) -> None:
    names = {
        "report.json",
        "certificate.html",
        "junit.xml",
        "manifest.sha256",
        "events.jsonl",
        "measurements",
        "launches",
    }
    assert names <= {entry.name for entry in good.report.iterdir()}
    assert [entry.name for entry in (good.report / "measurements").iterdir()] == [f"{SUBJECT}.json"]


def test_the_report_follows_its_schema(good: Run) -> None:
    assert jsonschema_validation.violations(good.document, "report") == []


def test_the_report_repeats_the_measurement_that_was_filed(good: Run) -> None:
    assert good.measurement() == json.loads((good.report / "measurements" / f"{SUBJECT}.json").read_text())


@pytest.mark.parametrize("kind", ["save", "load"])
def test_every_operation_is_there_in_its_order(good: Run, kind: str) -> None:
    assert [o["index"] for o in good.operations(kind)] == [1, 2]


@pytest.mark.parametrize("kind", ["save", "load"])
def test_an_operation_takes_as_long_as_its_slowest_rank(good: Run, kind: str) -> None:
    for operation in good.operations(kind):
        times = operation["rank_seconds"]
        assert len(times) == 2
        assert operation["rank0_seconds"] == times[0]
        assert operation["slowest_rank"] == times.index(max(times))
        assert operation["seconds"] >= max(times)


@pytest.mark.parametrize(
    ("kind", "phases"),
    [
        ("save", {"open", "write", "fsync", "close", "directory", "coordination", "commit"}),
        ("load", {"open", "read", "close"}),
    ],
)
def test_the_phases_of_an_operation_add_up_to_its_time(good: Run, kind: str, phases: set[str]) -> None:
    for operation in good.operations(kind):
        assert set(operation["phases"]) == phases
        assert min(operation["phases"].values()) >= 0
        assert sum(operation["phases"].values()) <= operation["seconds"] + 1e-6
        # Between the phases are only a few lines of Python. The factor of two allows for a busy machine.
        assert sum(operation["phases"].values()) > operation["seconds"] / 2


def test_every_byte_of_the_layout_is_written_and_read(good: Run) -> None:
    planned = layout("llama3-8b", mode="open", processes=2, scale=1 / 1000)
    measurement = good.measurement()
    assert measurement["bytes"] == planned.bytes
    assert measurement["rank_bytes"] == [rank.bytes for rank in planned.ranks()]
    assert {o["bytes"] for o in measurement["operations"]} == {planned.bytes}


def test_every_byte_of_every_load_is_compared(good: Run) -> None:
    integrity = good.measurement()["integrity"]
    assert integrity["bytes_checked"] == integrity["bytes_expected"] == 2 * good.measurement()["bytes"]
    assert integrity["faults"] == []
    assert integrity["fault_count"] == 0


def test_every_file_directory_and_commit_is_counted_as_durable(good: Run) -> None:
    assert good.measurement()["durability"] == {
        "files": 8,  # two saves x two ranks x two files
        "files_synced": 8,
        "directories": 4,  # per save: the checkpoint's, by one rank of the host; its parent, by the committing rank
        "directories_synced": 4,
        "saves": 2,
        "commits": 2,
        "observed": "store",
        "commit_methods": ["rename"],
        "acknowledged": [],
    }


def test_nothing_is_in_the_page_cache_when_a_load_begins(good: Run) -> None:
    cache = good.measurement()["cache"]
    assert cache["required"] is True
    assert len(cache["readings"]) == 2
    assert cache["resident_fraction"] == 0
    for operation in good.operations("load"):
        assert operation["resident_bytes"] == 0
        assert operation["mapped_bytes"] > good.measurement()["bytes"]


def test_no_cluster_follows_from_operations_that_are_short_and_small(good: Run) -> None:
    (row,) = good.document["sufficient_up_to_accelerators"]
    assert row["subject"] == SUBJECT
    assert (row["save"], row["load"], row["overall"]) == (None, None, None)
    assert "sufficient for up to: not stated if an operation took less than 1 s" in good.text


def test_the_events_report_the_run_in_its_order(good: Run) -> None:
    names = [(e["event"], started_operation(e)) for e in good.events]
    saves = [pair for k in (1, 2) for pair in (("start", f"{SUBJECT} save {k}"), ("operation", ""))]
    loads = [pair for k in (1, 2) for pair in (("start", f"{SUBJECT} load {k}"), ("operation", ""), ("integrity", ""))]
    began = [("ready", ""), ("imported", ""), ("measuring", "")]
    assert names == [*began, *saves, ("durability", ""), *loads, ("measured", "")]
    seconds = [e["seconds"] for e in good.events]
    assert seconds == sorted(seconds)


def test_the_one_launch_keeps_its_command_environment_logs_and_exit(good: Run) -> None:
    """A run has one launch, so the same ranks inspect the hosts and measure.

    The directory of the launch contains its command, environment, logs and exit code.
    """
    directory = good.report / "launches" / "1"
    assert list(directory.parent.iterdir()) == [directory]
    assert "mpiexec" in (directory / "command").read_text()
    assert f"PYTEST_CKPT_RUN={good.run_id}" in (directory / "environment").read_text()
    assert json.loads((directory / "exit.json").read_text())["exit_code"] == 0
    for rank in (0, 1):
        lines = map(json.loads, (directory / f"rank-{rank}.log").read_text().splitlines())
        first, second = (line for line in lines if line["event"] == "hello")
        assert first == second
        assert first["rank"] == rank


def test_no_file_of_the_run_repeats_the_environment_of_the_user(good: Run) -> None:
    for file in filter(Path.is_file, good.report.rglob("*")):
        assert b"not-for-the-report" not in file.read_bytes(), file


def _properties(parent: ET.Element) -> dict[str, str]:
    return {p.get("name", ""): p.get("value", "") for p in parent.findall("./properties/property")}


def _as_in_report(run: Run, found: dict[str, str]) -> None:
    verdict = run.verdict(found["requirement"])
    for name in ("measured", "limit"):
        assert (float(found[name]) if name in found else None) == verdict[name]
    assert found["outcome"] == verdict["outcome"]
    assert found["subject"] == verdict["subject"]


def test_junit_xml_of_the_run_directory_carries_each_verdict(good: Run) -> None:
    suite = ET.parse(good.report / "junit.xml").getroot().find("testsuite")
    assert suite is not None
    assert _properties(suite)["grade"] == "rehearsal"
    cases = [_properties(case) for case in suite.findall("testcase")]
    assert [c["requirement"] for c in cases] == [v["id"] for v in good.document["requirements"]]
    for case in cases:
        _as_in_report(good, case)


def test_junit_xml_of_pytest_carries_each_verdict_too(good: Run) -> None:
    cases = [_properties(c) for c in ET.parse(good.home / "pytest.xml").getroot().iter("testcase")]
    assert {c["requirement"] for c in cases} == {v["id"] for v in good.document["requirements"]}
    for case in cases:
        _as_in_report(good, case)


def test_the_manifest_holds_against_every_file(good: Run) -> None:
    done = subprocess.run(
        ["sha256sum", "--check", "--strict", "manifest.sha256"],
        cwd=good.report,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    listed = {line.split("  ", 1)[1] for line in (good.report / "manifest.sha256").read_text().splitlines()}
    there = {str(p.relative_to(good.report)) for p in good.report.rglob("*") if p.is_file()}
    assert there - listed == {"manifest.sha256"}


def test_the_certificate_shows_the_grade_the_subject_and_every_requirement(good: Run) -> None:
    page = (good.report / "certificate.html").read_text()
    assert "rehearsal" in page.lower()
    assert SUBJECT in page
    for requirement in REQUIRED:
        assert requirement in page


def test_the_target_is_empty_afterwards(good: Run) -> None:
    assert good.left_on_target == []
    assert good.document["left_behind"] == []


def test_the_header_describes_the_run_before_it_starts(good: Run) -> None:
    header = good.text.partition("collected ")[0]
    target: dict[str, Any] = good.document["environment"]["target"]
    for words in (
        f"ckpt target: {good.target} ({target['kind']} on {target['mount_point']}",
        " free, ",
        "ckpt cluster: 4 accelerators",
        "a save within ",
        "a load within ",
        f"ckpt {SUBJECT}: 2 ranks",
        "ckpt in all: 2 saves write ",
        " if every save and load just meets its limit",
        "(2 ranks, ",
        "launcher: mpiexec (Open MPI)",
        "ckpt grade possible: rehearsal",
    ):
        assert words in header


def test_without_a_terminal_each_operation_is_one_plain_line(good: Run) -> None:
    lines = progress_lines(good.text)
    wanted = [
        f"[{n}/4] {SUBJECT} {kind} {k} of 2: "
        for n, (kind, k) in enumerate(itertools.product(("save", "load"), (1, 2)), 1)
    ]
    assert [line[: len(start)] for line, start in zip(lines, wanted, strict=True)] == wanted
    for line in lines:
        assert "B/s (needed: " in line
    assert "\r" not in good.text
    assert "\x1b" not in good.text


@pytest.mark.thorough
def test_on_a_terminal_a_live_line_follows_the_run(runner: Runner) -> None:
    ours, theirs = pty.openpty()
    started = runner.start(*SMALLEST, terminal=theirs, environment={"TERM": "xterm"})
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 1 << 16):
            shown += piece
    except OSError:
        pass  # Linux reports in this way that the other side is closed
    finally:
        os.close(ours)
    text = shown.decode()
    assert started.finish().code == 0, text
    assert re.search(r"\rstep 1 of 4: ", text)
    assert re.search(rf"\r *\r\[1/4\] {MEASURED} save 1 of 2: ", text)
    assert len(re.findall(r"\[\d/4\]", text)) == 4
