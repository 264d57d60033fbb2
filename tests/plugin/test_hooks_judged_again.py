"""``judge`` without the plugin of the run: the plugin's verdicts are copied from the report and marked.

Copied verdicts alone give no certificate.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_ckpt.analysis.comparison import compare_reports
from pytest_ckpt.cli.main import main
from pytest_ckpt.config.gate_files import built_in
from pytest_ckpt.config.options import resolve
from pytest_ckpt.evidence.history import entry
from pytest_ckpt.evidence.judged_run import judge_directory
from pytest_ckpt.evidence.manifest import write_manifest
from pytest_ckpt.evidence.verification import verify_directory
from pytest_ckpt.facts.verdict import Verdict
from pytest_ckpt.grading.catalogue import REQUIREMENTS, extended, requirements_of_run
from pytest_ckpt.grading.grading import ALL_MET, judge_run, without_plugins
from pytest_ckpt.judging.requirement import Requirement
from pytest_ckpt.run.close import write_report
from pytest_ckpt.sizing.plan import plan_run
from pytest_ckpt.vendors import Decision
from tests.support.end_to_end import REQUIRED, Run
from tests.support.synthetic_target import mounted

PLUGIN = "the suite of ACME/conftest.py"
NEEDED = f"Not re-judged: plugin {PLUGIN} is needed."


@pytest.fixture
def directory(acme: Run, tmp_path: Path) -> Path:
    return Path(shutil.copytree(acme.report, tmp_path / "run"))


def verdict(document: dict, requirement: str = "ACME-DROPPED") -> dict:
    (found,) = (v for v in document["requirements"] if v["id"] == requirement)
    return found


def edit(directory: Path, change: Callable[[dict], object]) -> None:
    """Change the report with ``change``, and rewrite the manifest and the pages."""
    document = json.loads((directory / "report.json").read_text())
    change(document)
    write_report(document, directory)


def checks(directory: Path) -> dict[str, tuple[str, str, tuple[str, ...]]]:
    return {c.name: (c.outcome, c.description, c.details) for c in verify_directory(directory, None)}


# --- judge -----------------------------------------------------------------------------------------------------------


def test_with_the_limits_of_the_run_the_plugin_s_verdict_is_kept_and_this_is_reported(
    acme: Run, directory: Path
) -> None:
    document = judge_directory(directory, {})
    kept, was = verdict(document), acme.verdict("ACME-DROPPED")
    assert (kept["outcome"], kept["severity"]) == ("met", "required")
    assert kept["because"] == f"{NEEDED} In the run: {was['because']}"
    assert {v["id"]: v["outcome"] for v in document["requirements"] if v["id"] in REQUIRED} == acme.outcomes()


def test_a_requirement_that_was_not_judged_again_does_not_pass(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["judge", str(directory)]) == 8
    output = capsys.readouterr().out
    assert f"ACME-DROPPED was not re-judged: plugin {PLUGIN} is" in output
    assert "REHEARSAL for a cluster of 1 accelerator: not everything required was run" in output
    assert "passed" not in output


def test_by_other_limits_its_verdict_is_not_known(directory: Path) -> None:
    document = judge_directory(directory, {"ckpt_cluster": "65"})
    kept = verdict(document)
    assert (kept["outcome"], kept["measured"], kept["limit"]) == ("not run", None, None)
    assert kept["because"].startswith(f"{NEEDED} By the limits of the run it was met: ")
    assert document["exit_code"] == 8


def test_a_failed_verdict_stays_failed_with_the_limits_of_the_run(directory: Path) -> None:
    def fail(report: dict) -> None:
        verdict(report).update(outcome="failed", because="The cache was warm.")

    edit(directory, fail)
    document = judge_directory(directory, {})
    assert verdict(document)["outcome"] == "failed"
    assert document["exit_code"] == 1


def test_its_requirement_stays_in_the_catalogue_and_its_sections_are_not_repeated(directory: Path) -> None:
    document = judge_directory(directory, {})
    assert [r["id"] for r in document["catalogue"] if r["plugin"] == PLUGIN] == ["ACME-DROPPED", "ACME-WARMUP"]
    assert document["sections"] == []
    assert "what plugins wrote about the run's own verdicts is not repeated here" in document["disclosures"]
    assert document["environment"]["plugins"][0]["name"] == PLUGIN


def test_a_test_of_it_that_did_not_run_then_does_not_run_now(directory: Path) -> None:
    def leave_out(report: dict) -> None:
        because = "Its test did not run: it was deselected, or the session ended before it."
        verdict(report).update(outcome="not run", reason="no test", because=because)

    edit(directory, leave_out)
    assert verdict(judge_directory(directory, {}))["because"].startswith("Its test did not run")


def test_a_report_cannot_give_one_of_our_requirements_to_a_plugin(acme: Run, directory: Path) -> None:
    """If a report assigns a built-in requirement to a plugin, ``judge`` still judges this requirement itself.

    The verdict in the report is not copied, because it may be forged.
    """

    def steal(report: dict) -> None:
        for row in report["catalogue"]:
            row["plugin"] = "mine"
        verdict(report, "SAVE").update(outcome="met", measured=0.0, because="It is said to be.")

    edit(directory, steal)
    again = judge_directory(directory, {})
    assert verdict(again, "SAVE")["measured"] == acme.verdict("SAVE")["measured"]
    assert not [reason for reason in again["grade_reasons"] if "SAVE was not judged again" in reason]
    assert checks(directory)["verdicts"][0] == "broken"


# --- verify ----------------------------------------------------------------------------------------------------------


def test_an_untouched_directory_is_unchanged_and_unchecked_parts_are_named(directory: Path) -> None:
    found = checks(directory)
    assert {name: outcome for name, (outcome, _, _) in found.items()} == {
        "digests": "holds",
        "verdicts": "holds",
        "pages": "holds",
        "signature": "not checked",
    }
    assert found["verdicts"][1].endswith(f"verdicts of {PLUGIN} cannot be judged again without the plugin")
    assert main(["verify", str(directory)]) == 0


def test_a_verdict_of_a_plugin_without_a_measurement_is_found(directory: Path) -> None:
    next((directory / "measurements").iterdir()).unlink()
    edit(directory, lambda report: report["measurements"].clear())
    assert "judged otherwise: ACME-DROPPED llama3-8b-open-2/stream" in checks(directory)["verdicts"][2]


def test_a_grade_that_does_not_follow_from_a_plugin_s_verdict_is_found(directory: Path) -> None:
    edit(directory, lambda report: verdict(report).update(outcome="failed", because="The cache was warm."))
    outcome, _, details = checks(directory)["verdicts"]
    assert outcome == "broken"
    assert {"differs: grade_reasons of report.json", "differs: exit_code of report.json"} & set(details)


def test_a_changed_section_is_found_on_the_page_or_by_its_digest(directory: Path) -> None:
    document = json.loads((directory / "report.json").read_text())
    document["sections"][0]["rows"][0][1] = "16,000"
    (directory / "report.json").write_text(json.dumps(document, indent=1) + "\n")
    assert checks(directory)["digests"][0] == "broken"
    write_manifest(directory)
    assert checks(directory)["pages"][0] == "broken"


# --- diff and trend --------------------------------------------------------------------------------------------------


def test_facts_of_plugins_are_compared(acme: Run) -> None:
    later = json.loads(json.dumps(acme.document))
    later["environment"]["plugins"][0] |= {"version": "2.2", "facts": {"firmware": "7.3"}}
    changes = {c["name"]: (c["before"], c["after"]) for c in compare_reports(acme.document, later)["environment"]}
    assert changes == {
        f"plugin {PLUGIN} version": ("2.1", "2.2"),
        f"plugin {PLUGIN} firmware": ("7.2.1", "7.3"),
        f"plugin {PLUGIN} health before the run": ("healthy", None),
    }


def test_nights_with_a_plugin_are_not_compared_with_nights_without(acme: Run) -> None:
    (subject,) = entry(acme.document)["subjects"]
    assert subject["conditions"]["plugins"] == [f"{PLUGIN} 2.1"]
    without = acme.document | {"environment": acme.document["environment"] | {"plugins": []}}
    assert "plugins" not in entry(without)["subjects"][0]["conditions"]


# --- grades ----------------------------------------------------------------------------------------------------------


def judged(outcome: str, severity: str = "required") -> tuple:
    """Judge a complete run at full size whose only plugin requirement has the outcome ``outcome``.

    If ``outcome`` is "missing", the run has no verdict on this requirement. Return (judgement, {requirement: plugin}).
    """
    settings = resolve({"ckpt_engine": "torch", "ckpt_cluster": "16000", "ckpt_model": "llama3-8b"}, {})
    plan = plan_run(settings, mounted("ext4"))
    gates = dataclasses.replace(built_in("speed-only"), certifies=True)
    extra = Requirement(
        id="ACME", title="t", severity=severity, source="", plugin="acme", text="A text.",
        function=lambda measurement: Decision(outcome=measurement, because="So."),
    )  # fmt: skip
    catalogue = extended([extra])
    ids = [requirement.id for requirement in requirements_of_run(settings, gates, catalogue)]
    findings = [
        Verdict(id=i, subject="llama3-8b-full", severity=catalogue[i].severity, measured=None, limit=None, unit="",
                outcome=outcome if i == "ACME" else "met", margin=None, because="So.", detail="",
                reason="plugin" if i == "ACME" else "met")
        for i in ids if outcome != "missing" or i != "ACME"
    ]  # fmt: skip
    return judge_run(plan, settings, gates, findings, catalogue=catalogue), {"ACME": "acme"}


@pytest.mark.parametrize(
    ("outcome", "severity", "grade", "code", "again", "code_again"),
    [
        ("met", "required", "certified", 0, "incomplete", 8),
        ("met", "advisory", "certified", 0, "certified", 0),
        ("failed", "required", "not certified", 1, "not certified", 1),
        ("failed", "advisory", "certified", 0, "certified", 0),
        ("not run", "required", "incomplete", 8, "incomplete", 8),
        ("waived", "required", "not certified", 0, "not certified", 0),
        ("missing", "required", "incomplete", 8, "incomplete", 8),
        ("missing", "advisory", "incomplete", 8, "incomplete", 8),
    ],
)
def test_a_plugin_can_make_a_run_fail_and_its_kept_verdict_certifies_nothing(
    outcome: str, severity: str, grade: str, code: int, again: str, code_again: int
) -> None:
    judgement, plugins = judged(outcome, severity)
    assert (judgement.grade, judgement.exit_code) == (grade, code)
    kept = without_plugins(judgement, plugins)
    assert (kept.grade, kept.exit_code) == (again, code_again)
    if (grade, again) == ("certified", "incomplete"):
        assert kept.reasons == ("ACME was not re-judged: plugin acme is needed.",)
        assert judgement.reasons == (ALL_MET,)


def test_no_requirement_of_a_plugin_takes_the_place_of_one_of_ours() -> None:
    mine = Requirement(id="SAVE", title="t", severity="advisory", source="", plugin="acme", text="A text.")
    assert extended([mine]) == REQUIREMENTS
    assert list(extended([mine])) == list(REQUIREMENTS)
