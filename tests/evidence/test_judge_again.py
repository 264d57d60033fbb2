"""``pytest-ckpt judge`` evaluates the files of a run again, without the target, MPI or torch."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_ckpt.report.quantity import time_text
from tests.support.synthetic_run import write_run

pytestmark = pytest.mark.covers(commands=("judge",))

TINY = (
    "--ckpt-model=llama3-8b",
    "--ckpt-mode=open",
    "--ckpt-ranks=2",
    "--ckpt-profile=smoke",
    "--ckpt-operations=2",
    "--ckpt-gate-table=speed-only",
)
# numpy may be imported: it computes the forecast, if it is installed.
HEAVY = ("torch", "mpi4py", "psutil", "jinja2")


def judge(directory, *words):
    command = [sys.executable, "-m", "pytest_ckpt.cli.main", "judge", str(directory), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def run_directory(tmp_path_factory):
    here = tmp_path_factory.mktemp("a run")
    (here / "target").mkdir()
    words = ["--ckpt-target=target", "--cluster=64", "--ckpt-engine=stream", *TINY]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *words]
    subprocess.run(command, cwd=here, capture_output=True, check=True)
    # Only the run directory may be needed.
    (here / "target").rmdir()
    return here / "ckpt-report"


def verdicts(document):
    return [
        {name: v[name] for name in ("id", "subject", "severity", "outcome", "measured", "limit", "because")}
        for v in document["requirements"]
    ]


def test_with_the_limits_of_the_run_the_verdicts_are_those_of_the_run(run_directory):
    found = judge(run_directory, "--json")
    before, after = json.loads((run_directory / "report.json").read_text()), json.loads(found.stdout)
    assert found.returncode == before["exit_code"] == 0
    assert verdicts(after) == verdicts(before)
    assert (after["grade"], after["grade_reasons"]) == (before["grade"], before["grade_reasons"])
    assert after["cluster"] == before["cluster"]
    assert after["measurements"] == before["measurements"]


def test_for_another_cluster_the_same_times_are_judged_by_other_limits(run_directory):
    found = judge(run_directory, "--cluster=100000000", "--json")
    document = json.loads(found.stdout)
    assert found.returncode == document["exit_code"] == 8
    outcomes = {v["id"]: v["outcome"] for v in document["requirements"]}
    # No client can create or compare a checkpoint within some microseconds, so the storage is not judged.
    assert (outcomes["SAVE"], outcomes["LOAD"], outcomes["INTEGRITY"]) == ("not run", "not run", "met")
    assert document["cluster"]["accelerators"] == 100_000_000
    assert "--ckpt-cluster" not in " ".join(document["disclosures"])


def test_misses_that_the_run_planned_are_allowed_again(tmp_path):
    """SAVE and LOAD are met although one of 93 operations is late, because the run's plan allows one miss.

    ``judge`` also computes the largest cluster for which the storage is sufficient. The late operations do not reduce
    this cluster.
    """

    def one_late(measurement):
        late = [replace(o, seconds=100_000.0 * o.seconds) if o.index == 1 else o for o in measurement.operations]
        return replace(measurement, operations=tuple(late))

    options = {"ckpt_confidence": "95/95:misses=1", "ckpt_operations": "93", "ckpt_scale": "1"}
    before = write_run(tmp_path / "run", options=options, change=one_late, save=2.0, load=2.0)
    after = json.loads(judge(tmp_path / "run", "--json").stdout)
    assert verdicts(after) == verdicts(before)
    for requirement, kind in (("SAVE", "saves"), ("LOAD", "loads")):
        (verdict,) = (v for v in after["requirements"] if v["id"] == requirement)
        assert (verdict["outcome"], verdict["bound"]["misses_allowed"]) == ("met", 1)
        assert f"1 of 93 {kind} missed the limit" in verdict["because"]
    (row,) = after["sufficient_up_to_accelerators"]
    assert min(row["save"], row["load"]) >= 64, "as met for 64 accelerators, so sufficient for them"
    printed = " ".join(judge(tmp_path / "run").stdout.split())
    assert "95 % of saves (1 of 93 missed, 1 allowed) and 95 % of loads (1 of 93 missed, 1 allowed)" in printed


def test_for_people_it_prints_the_summary_and_writes_a_certificate_where_it_is_asked_to(tmp_path):
    write_run(tmp_path / "run", change=lambda measurement: replace(measurement, client_ceilings=()))
    found = judge(tmp_path / "run", "--cluster=100000000", f"--html={tmp_path / 'again.html'}")
    assert "failed: LOAD of " in found.stdout
    assert "REHEARSAL for a cluster of 100,000,000 accelerators: did not pass" in found.stdout
    assert "100,000,000 accelerators" in (tmp_path / "again.html").read_text()


def test_the_page_names_the_clusters_of_the_run_and_of_the_second_judgement(tmp_path):
    """If a run for 64 accelerators is judged again for 16,000 accelerators, the new page names both clusters."""
    before = write_run(tmp_path / "run", options={"ckpt_scale": "1", "ckpt_operations": "10"})
    assert "judged_again" not in before
    again = ("--cluster=16000", "--ckpt-save-budget=3%", "--json", f"--html={tmp_path / 'again.html'}")
    after = json.loads(judge(tmp_path / "run", *again).stdout)
    found = after["judged_again"]
    assert (found["accelerators"], found["grade"]) == (64, before["grade"])
    assert found["limits"] == [
        {"option": "--ckpt-cluster", "of_run": "64", "value": "16000"},
        {"option": "--ckpt-save-budget", "of_run": "5%", "value": "3%"},
    ]
    day = time_text(found["judged"]).partition(",")[0]
    page, said = (tmp_path / "again.html").read_text(), judge(tmp_path / "run", *again[:2]).stdout
    for text in (" ".join(page.split()), " ".join(said.split())):
        assert "Run on 6 May 2031, 07:08 UTC for a cluster of 64 accelerators" in text
        assert f"Judged again on {day}" in text
        assert "for a cluster of 16,000 accelerators" in text
        assert "--ckpt-save-budget 3% (5% in the run)" in text
    assert page.index('id="judged-again"') < page.index('id="limits"')
    assert "pytest-ckpt judge DIRECTORY --ckpt-cluster=16000 --ckpt-save-budget=3%" in page


def test_judge_reports_that_all_limits_are_those_of_the_run(tmp_path):
    write_run(tmp_path / "run")
    assert "All limits are those of the run." in judge(tmp_path / "run").stdout
    assert "Judged again" not in (tmp_path / "run" / "certificate.html").read_text()


def test_a_run_without_a_report_is_judged_with_its_original_cluster_named(unfinished):
    document = json.loads(judge(unfinished, "--cluster=100000000", "--json").stdout)
    assert (document["judged_again"]["accelerators"], document["judged_again"]["grade"]) == (64, "")


def test_a_test_that_did_not_run_then_does_not_run_now(run_directory, tmp_path):
    report = json.loads((run_directory / "report.json").read_text())
    for verdict in report["requirements"]:
        if verdict["id"] == "COLD":
            verdict.update(
                outcome="not run",
                reason="no test",
                because="Its test did not run: it was deselected, or the session ended before it.",
            )
    (tmp_path / "report.json").write_text(json.dumps(report))
    (tmp_path / "measurements").symlink_to(run_directory / "measurements")
    found = judge(tmp_path, "--json")
    assert found.returncode == 8
    assert {v["id"]: v["outcome"] for v in json.loads(found.stdout)["requirements"]}["COLD"] == "not run"


@pytest.mark.parametrize("content", [None, "", "{"])
def test_a_directory_without_a_report_is_a_usage_error(tmp_path, content):
    if content is not None:
        (tmp_path / "report.json").write_text(content)
    found = judge(tmp_path)
    assert found.returncode == 4
    assert str(tmp_path / "report.json") in found.stderr
    assert "Traceback" not in found.stderr


SEALED = ("report.json", "certificate.html", "junit.xml", "manifest.sha256")


@pytest.fixture
def unfinished(run_directory, tmp_path):
    """Copy of a run directory without the files that the controller writes at the end (the report and others)."""
    return Path(shutil.copytree(run_directory, tmp_path / "unfinished", ignore=shutil.ignore_patterns(*SEALED)))


def test_a_run_without_a_report_is_incomplete_though_all_of_it_was_measured(run_directory, unfinished):
    found = judge(unfinished, "--json")
    before, after = json.loads((run_directory / "report.json").read_text()), json.loads(found.stdout)
    assert found.returncode == after["exit_code"] == 8
    assert after["grade"] == "incomplete"
    assert verdicts(after) == verdicts(before)
    same = ("cluster", "checkpoints", "measurements", "environment", "gate_table", "waivers", "catalogue", "system")
    assert {name: after[name] for name in same} == {name: before[name] for name in same}
    left = Path(before["environment"]["target"]["location"]) / f"pytest-ckpt-{before['run']['id']}"
    assert f"rm -r -- '{left}'" in after["left_behind"][0]


def test_for_another_cluster_a_run_without_a_report_is_judged_too(unfinished):
    document = json.loads(judge(unfinished, "--cluster=100000000", "--json").stdout)
    assert document["grade"] == "incomplete"
    (load,) = (v for v in document["requirements"] if v["id"] == "LOAD")
    assert (load["outcome"], load["reason"]) == ("not run", "client too slow")


def test_requirements_not_measured_before_the_controller_ended_are_named(unfinished):
    (measurement,) = (unfinished / "measurements").iterdir()
    measurement.unlink()
    document = json.loads(judge(unfinished, "--json").stdout)
    assert {v["outcome"] for v in document["requirements"]} == {"not run"}
    (subject,) = {v["subject"] for v in document["requirements"]}
    assert any(subject in r and "SAVE, LOAD" in r for r in document["grade_reasons"])


def verify(directory):
    command = [sys.executable, "-m", "pytest_ckpt.cli.main", "verify", str(directory), "--json"]
    output = subprocess.run(command, capture_output=True, text=True, check=False)
    document = json.loads(output.stdout)
    return output.returncode, document["outcome"], {c["name"]: c["outcome"] for c in document["checks"]}


def test_verify_reports_a_run_without_a_report_as_incomplete(unfinished):
    code, outcome, checks = verify(unfinished)
    assert (code, outcome) == (8, "incomplete")
    assert set(checks.values()) == {"not checked"}


def test_verify_finds_a_measurement_that_cannot_be_in_a_run_without_a_report(unfinished):
    (file,) = (unfinished / "measurements").iterdir()
    measurement = json.loads(file.read_text())
    measurement["operations"][0]["seconds"] /= 1000
    file.write_text(json.dumps(measurement))
    code, outcome, checks = verify(unfinished)
    assert (code, outcome, checks["verdicts"]) == (1, "changed", "broken")


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"run_id": 1, "target_directory": "x"}'])
def test_a_session_that_no_run_wrote_is_a_usage_error(unfinished, content):
    (unfinished / "session.json").write_text(content)
    found = judge(unfinished)
    assert found.returncode == 4
    assert "Traceback" not in found.stderr


def test_it_imports_nothing_heavy(run_directory):
    code = (
        "import sys; from pytest_ckpt.cli.main import main; "
        f"main(['judge', {str(run_directory)!r}]); print([m for m in {HEAVY!r} if m in sys.modules])"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert output.stdout.splitlines()[-1] == "[]"
