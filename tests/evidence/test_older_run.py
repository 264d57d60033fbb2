"""Run directories of other versions: each run is judged by the requirements and checks of its own version."""

from __future__ import annotations

import json
import shutil

import pytest

from pytest_ckpt.cli.main import main
from pytest_ckpt.evidence import judged_run
from pytest_ckpt.evidence.judged_run import judge_directory
from pytest_ckpt.evidence.manifest import MANIFEST, write_manifest
from pytest_ckpt.evidence.verification import verify_directory
from pytest_ckpt.facts.checks import CHECKS, Check
from pytest_ckpt.grading import catalogue
from pytest_ckpt.grading.catalogue import CATALOGUE_NAMES, REQUIREMENTS
from pytest_ckpt.judging.decision import Decision
from pytest_ckpt.judging.requirement import Requirement
from tests.support import synthetic_run
from tests.support.forging import edit

pytestmark = pytest.mark.covers(commands=("verify", "judge"))

REPORT, SESSION = "report.json", "session.json"
SEALED = (REPORT, MANIFEST, "certificate.html", "junit.xml")
LATER_REQUIREMENT = Requirement(
    id="LATER",
    title="Came after the run",
    severity="required",
    source="made up for a test",
    text="Made up for a test.",
    function=lambda measurement: Decision(
        outcome="failed", reason="over limit", because=f"Made up for {measurement.subject}."
    ),
)
LATER_CHECK = Check(
    requirement="MKDIR", subject="later", code="mkdir:later", relies="made up for a test", how="Made up for a test."
)
KINDS = {
    "speed": {},
    "behaviour": {"ckpt_gate_table": "auto", "ckpt_suite": "conformance"},
}
VERDICTS = {"speed": ("LATER", synthetic_run.SUBJECT), "behaviour": ("MKDIR", "later")}
NAMES = {"speed": "LATER", "behaviour": "MKDIR.later"}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    home = tmp_path_factory.mktemp("made")
    for name, options in KINDS.items():
        synthetic_run.write_run(home / name, options=options)
    return home


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def directory(made, kind, tmp_path):
    return shutil.copytree(made / kind, tmp_path / "run")


@pytest.fixture
def later(monkeypatch):
    """Return a function that adds a requirement and a check to the current version of pytest-ckpt."""

    def add():
        monkeypatch.setitem(REQUIREMENTS, "LATER", LATER_REQUIREMENT)
        for module in (catalogue, judged_run):
            monkeypatch.setattr(module, "CHECKS", (*CHECKS, LATER_CHECK))

    return add


def remade(directory, *changes):
    for file, change in changes:
        edit(directory / file, change)
    write_manifest(directory)


def of_version(version):
    return (
        (REPORT, lambda report: report["run"].update(version=version)),
        (REPORT, lambda report: report["environment"]["versions"].update({"pytest-ckpt": version})),
        (SESSION, lambda session: session["environment"]["versions"].update({"pytest-ckpt": version})),
    )


def results(document):
    return [(v["id"], v["subject"], v["outcome"], v["because"]) for v in document["requirements"]]


def verdicts_of(directory):
    return {c.name: (c.outcome, c.description, c.details) for c in verify_directory(directory, None)}


# --- requirements and checks that came later --------------------------------------------------------------------------


def test_requirements_newer_than_the_run_are_neither_decided_nor_missing(directory, later):
    before = judge_directory(directory, {})
    later()
    now = judge_directory(directory, {})
    assert results(now) == results(before)
    assert (now["grade"], now["grade_reasons"], now["exit_code"]) == (
        before["grade"], before["grade_reasons"], before["exit_code"],
    )  # fmt: skip
    assert now["catalogue"] == before["catalogue"]
    assert now["catalogue_names"] == list(CATALOGUE_NAMES)


def test_a_run_is_unchanged_for_a_version_that_knows_more(directory, later):
    later()
    checks = verdicts_of(directory)
    assert {checks[name][0] for name in ("digests", "verdicts", "pages")} == {"holds"}, checks


def test_a_killed_run_is_judged_by_what_it_knew_too(directory, later):
    for name in SEALED:
        (directory / name).unlink()
    before = judge_directory(directory, {})
    later()
    assert results(judge_directory(directory, {})) == results(before)


def test_a_requirement_that_the_run_knew_and_did_not_decide_is_missing(directory, later, kind):
    later()
    remade(directory, (REPORT, lambda report: report["catalogue_names"].append(NAMES[kind])))
    document = judge_directory(directory, {})
    assert (*VERDICTS[kind], "not run", catalogue.NO_TEST) in results(document)
    assert document["exit_code"] == 8


def test_a_check_whose_run_had_its_requirement_alone_is_not_part_of_it(made, tmp_path, later):
    """A new check of MKDIR is not expected in an older run, although the older run required MKDIR.

    The list of requirements in a run names only the checks of the run's own version.
    """
    directory = shutil.copytree(made / "behaviour", tmp_path / "run")
    later()
    subjects = {v["subject"] for v in judge_directory(directory, {})["requirements"] if v["id"] == "MKDIR"}
    assert subjects
    assert "later" not in subjects


@pytest.mark.parametrize("name", ["SAVE", "INTEGRITY", "COMMIT.file"])
def test_a_name_that_was_taken_from_the_list_of_this_version_is_missed(directory, name):
    remade(
        directory,
        (REPORT, lambda report: report["catalogue_names"].remove(name)),
        (SESSION, lambda session: session["catalogue_names"].remove(name)),
    )
    outcome, _, details = verdicts_of(directory)["verdicts"]
    assert outcome == "broken"
    assert "differs: catalogue_names of report.json" in details


def test_a_name_that_was_added_to_the_list_of_this_version_is_named(directory):
    remade(
        directory,
        (REPORT, lambda report: report["catalogue_names"].append("ADDED")),
        (SESSION, lambda session: session["catalogue_names"].append("ADDED")),
    )
    outcome, _, details = verdicts_of(directory)["verdicts"]
    assert outcome == "broken"
    assert details == ("differs: catalogue_names of report.json",)


def test_a_report_without_the_list_is_refused(directory, capsys):
    remade(directory, (REPORT, lambda report: report.pop("catalogue_names")))
    assert main(["judge", str(directory)]) == 4
    assert "missing required field `catalogue_names`" in capsys.readouterr().err


# --- another version, another schema ----------------------------------------------------------------------------------


def test_the_verdicts_of_another_version_are_checked_and_its_pages_are_not(directory):
    def without_a_requirement(report):
        report["catalogue_names"].remove("MODEL-LOAD")
        report["disclosures"] = ["in other words"]

    remade(
        directory,
        *of_version("0.0.9"),
        (REPORT, without_a_requirement),
        (SESSION, lambda session: session["catalogue_names"].remove("MODEL-LOAD")),
    )
    checks = verdicts_of(directory)
    assert {checks[name][0] for name in ("digests", "verdicts")} == {"holds"}, checks
    assert "version 0.0.9 made the report: only outcomes and grade are compared" in checks["verdicts"][1]
    assert checks["pages"][0] == "not checked"


def test_a_changed_measurement_of_another_version_is_found(made, tmp_path):
    directory = shutil.copytree(made / "speed", tmp_path / "run")
    measured = f"measurements/{synthetic_run.SUBJECT}.json"
    remade(directory, *of_version("0.0.9"), (measured, lambda m: [o.update(phases={}) for o in m["operations"]]))
    assert verdicts_of(directory)["verdicts"][0] == "broken"


@pytest.mark.parametrize("schema", ["report/0", "report/2", "report/99", "report/1x"])
@pytest.mark.parametrize("command", ["judge", "export", "diff"])
def test_a_report_of_another_schema_is_refused(made, tmp_path, capsys, schema, command):
    directory = shutil.copytree(made / "speed", tmp_path / "run")
    remade(directory, (REPORT, lambda report: report.update(schema=f"pytest-ckpt/{schema}")))
    words = {"judge": [], "export": ["--mlperf", str(tmp_path / "out")], "diff": [str(made / "speed")]}[command]
    assert main([command, str(directory), *words]) == 4
    error = capsys.readouterr().err
    assert f"follows pytest-ckpt/{schema}, which this version does not know" in error
    assert "the version of pytest-ckpt that made the run, or a newer one" in error
    assert verdicts_of(directory)["verdicts"][:2] == ("broken", "the files cannot be judged again")


@pytest.mark.parametrize("schema", ["pytest-ckpt/plan/1", 7, None, ["pytest-ckpt/report/1"]])
def test_a_document_that_is_no_report_is_refused(made, tmp_path, capsys, schema):
    directory = shutil.copytree(made / "speed", tmp_path / "run")
    remade(directory, (REPORT, lambda report: report.update(schema=schema)))
    assert main(["judge", str(directory), "--json"]) == 4
    assert "is not a report of pytest-ckpt" in capsys.readouterr().err
    assert json.loads((directory / REPORT).read_text())["schema"] == schema
