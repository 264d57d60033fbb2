"""``pytest-ckpt judge RUN1 RUN2 …``: one certificate from several runs, none of it better than the runs allow."""

from __future__ import annotations

import dataclasses
import json
import shutil

import pytest

from pytest_ckpt.cli.main import main
from pytest_ckpt.evidence.manifest import write_manifest
from pytest_ckpt.evidence.schemas import faults
from pytest_ckpt.facts.checks import in_room
from pytest_ckpt.facts.observation import Anomaly, Observation
from pytest_ckpt.judging.waivers import Waiver
from tests.support import made_up_run

pytestmark = pytest.mark.covers(commands=("judge", "verify"))
SUBJECT = "llama3-8b-full"
FULL = {
    "ckpt_profile": "acceptance", "ckpt_mode": "full", "ckpt_processes": "8", "ckpt_gates": "posix-local",
    "ckpt_cluster": "16000",
}  # fmt: skip
SPEED = {**FULL, "ckpt_suite": "performance"}
BEHAVIOUR = {**FULL, "ckpt_suite": "conformance"}


def seen(*, failing=""):
    """What the checks saw that need nothing but a folder; one of them finds something wrong."""
    wrong = (Anomaly(kind="torn", where="f", seen="half", expected="all"),)
    return [
        Observation(
            requirement=c.requirement,
            subject=c.subject,
            trials=10,
            measured=0.0,
            unit="s",
            anomaly_count=int(c.name == failing),
            anomalies=wrong if c.name == failing else (),
        )
        for c in in_room("posix")
        if not c.needs
    ]


def outcomes(document):
    return {(v["id"], v["subject"]): v["outcome"] for v in document["requirements"]}


def runs_by_verdict(document):
    return {(r["id"], r["subject"]): r["run"] for r in document["combined"]["results"]}


def test_speed_of_one_day_and_behaviour_of_another_are_one_certificate(make, judge):
    speed, behaviour = make(2, options=SPEED, save=5.0, load=5.0), make(1, options=BEHAVIOUR, observations=seen())
    assert judge(speed)[1]["grade"] == judge(behaviour)[1]["grade"] == "incomplete"
    code, document = judge(speed, behaviour)
    assert (code, document["grade"], document["grade_reasons"][1:]) == (0, "certified", [])
    assert faults(document, "report") == []
    by = runs_by_verdict(document)
    assert by["SAVE", SUBJECT] == "run 2"
    assert {run for (_, subject), run in by.items() if subject != SUBJECT} == {"run 1"}
    assert [run["id"] for run in document["combined"]["runs"]] == [f"20310506T070809-{n:06x}" for n in (1, 2)]
    assert [run["grade"] for run in document["combined"]["runs"]] == ["incomplete", "incomplete"]
    assert document["run"]["started"] == made_up_run.day_of(1)
    assert document["certified_for"]["checkpoints"][0]["subject"] == SUBJECT
    assert {d["name"] for d in document["combined"]["differences"]} == {"--ckpt-suite"}
    assert document["observations"]
    # In whatever order they are named.
    assert judge(behaviour, speed) == (code, document)


def test_a_failed_result_stays_in_the_certificate_when_a_newer_one_is_met(make, judge, capsys):
    failed, again = make(1, save=100.0), make(2)
    assert judge(failed)[0] == 1
    code, document = judge(failed, again)
    assert code == 0
    assert outcomes(document)["SAVE", made_up_run.SUBJECT] == "met"
    replaced = next(s for s in document["combined"]["superseded"] if s["id"] == "SAVE")
    assert (replaced["run"], replaced["outcome"]) == ("run 1", "failed")
    assert (replaced["newer_run"], replaced["newer_outcome"]) == ("run 2", "met")
    main(["judge", str(failed), str(again)])
    assert f"failed before: SAVE {made_up_run.SUBJECT}: failed in run 1, met in run 2" in capsys.readouterr().out


def test_a_newer_failure_takes_the_place_of_an_older_success(make, judge):
    met, failed = make(1), make(2, save=100.0)
    code, document = judge(met, failed)
    assert code == 1
    assert outcomes(document)["SAVE", made_up_run.SUBJECT] == "failed"
    assert document["measurements"][0]["seed"] == 2


def test_what_was_measured_together_is_taken_together(make, judge):
    """No run lends its uncached loads to another one's fast saves."""
    cold, cached = make(1, save=100.0), make(2, change=unproven)
    code, document = judge(cold, cached)
    found = outcomes(document)
    assert code == 1
    assert (found["SAVE", made_up_run.SUBJECT], found["COLD", made_up_run.SUBJECT]) == ("met", "failed")
    assert set(runs_by_verdict(document).values()) == {"run 2"}


def unproven(found):
    loads = [dataclasses.replace(o, resident_bytes=o.mapped_bytes) if o.kind == "load" else o for o in found.operations]
    return dataclasses.replace(found, operations=tuple(loads),
                               cache=dataclasses.replace(found.cache, resident_fraction=1.0))  # fmt: skip


def test_late_saves_of_a_newer_run_count_whatever_its_suite_was(make, judge):
    """A run of contention saves and loads too: what these say against the storage is not passed over."""
    met = make(1)
    late = make(2, save=100.0, options={"ckpt_suite": "contention"})
    fine = make(3, options={"ckpt_suite": "contention"})
    code, document = judge(met, late)
    assert code == 1
    assert runs_by_verdict(document)["SAVE", made_up_run.SUBJECT] == "run 2"
    assert document["measurements"][0]["seed"] == 2
    # What they say for it was not asked, and takes the place of nothing.
    code, document = judge(met, fine)
    assert runs_by_verdict(document)["SAVE", made_up_run.SUBJECT] == "run 1"
    assert document["measurements"][0]["seed"] == 1


def test_a_deselected_test_of_the_newer_run_does_not_uncover_an_older_result(make, judge):
    met, newer = make(1), make(2)
    report = json.loads((newer / "report.json").read_text())
    for verdict in report["requirements"]:
        if verdict["id"] == "COLD":
            verdict.update(outcome="not run", reason="no test", because="Its test did not run: it was deselected, or "
                           "the session ended before it.", measured=None, limit=None, margin=None)  # fmt: skip
    (newer / "report.json").write_text(json.dumps(report, indent=1) + "\n")
    write_manifest(newer)
    code, document = judge(met, newer)
    assert code == 8
    assert outcomes(document)["COLD", made_up_run.SUBJECT] == "not run"


def test_other_models_stand_side_by_side(make, judge):
    small, large = make(1), make(2, options={"ckpt_model": "llama3-70b", "ckpt_processes": "8"})
    _, document = judge(small, large)
    assert [m["subject"] for m in document["measurements"]] == [made_up_run.SUBJECT, "llama3-70b-open-8"]
    assert [c["subject"] for c in document["checkpoints"]] == [made_up_run.SUBJECT, "llama3-70b-open-8"]
    assert len(document["certified_cluster"]) == len(document["training"]) == 2
    assert document["combined"]["superseded"] == []


def test_a_run_at_reduced_size_makes_it_a_rehearsal_where_something_of_it_stands(make, judge):
    smoke = {**SPEED, "ckpt_profile": "smoke"}
    speed, behaviour = make(3, options=SPEED, save=5.0, load=5.0), make(1, options=BEHAVIOUR, observations=seen())
    older = make(2, options=smoke, save=0.001, load=0.001)
    assert judge(speed, behaviour, older)[1]["grade"] == "certified", "nothing of the small run stands"
    newer = make(4, options=smoke, save=0.001, load=0.001)
    code, document = judge(speed, behaviour, newer)
    assert (code, document["grade"]) == (0, "rehearsal")
    assert any("0.001 of the full size" in reason for reason in document["grade_reasons"])


def test_behaviour_that_was_looked_at_in_short_is_a_rehearsal(make, judge):
    speed = make(2, options=SPEED, save=5.0, load=5.0)
    short = make(1, options={**BEHAVIOUR, "ckpt_profile": "smoke"}, observations=seen())
    document = judge(speed, short)[1]
    assert document["grade"] == "rehearsal"
    assert document["grade_reasons"] == ["Run 1: Behaviour checks ran 10 % of their trials."]


def test_a_waived_requirement_is_waived_in_the_certificate_too(make, judge):
    failing = in_room("posix")[0].name
    waiver = Waiver(requirement=failing.partition(".")[0], subject="*", reason="agreed", expires="2031-12-31")
    speed = make(2, options=SPEED, save=5.0, load=5.0)
    behaviour = make(1, options=BEHAVIOUR, observations=seen(failing=failing), waivers=(waiver,))
    code, document = judge(speed, behaviour)
    assert (code, document["grade"]) == (0, "not certified")
    assert document["waivers"][0]["reason"] == "agreed"


OTHER = {
    "target": ({"target": {"source": "/dev/sdx"}}, "target, source"),
    "mount": ({"target": {"options": "rw,sync"}}, "mount options"),
    "gates": ({"options": {"ckpt_gates": "posix-local"}}, "gates"),
    "limit": ({"options": {"ckpt_overhead": "10%"}}, "--ckpt-overhead"),
    "cluster": ({"options": {"ckpt_cluster": "65"}}, "--ckpt-cluster"),
    "condition": ({"options": {"ckpt_step_seconds": "1s"}}, "--ckpt-step-seconds"),
}


@pytest.mark.parametrize("name", OTHER)
def test_runs_of_other_conditions_are_refused(make, judge, name):
    words, shown = OTHER[name]
    code, error = judge(make(1), make(2, **words))
    assert code == 4
    assert f"run 1 and run 2 differ in {shown}" in error, error


def test_a_limit_that_is_given_holds_for_all_runs(make, judge):
    runs = make(1), make(2, options={"ckpt_cluster": "65"})
    code, document = judge(*runs, "--cluster=64")
    assert code == 0
    assert document["cluster"]["accelerators"] == 64
    assert document["combined"]["limits"] == {"ckpt_cluster": "64"}


def test_other_firmware_is_another_target(make, judge):
    folders = make(1), make(2)
    for folder, firmware in zip(folders, ("1.0", "1.1"), strict=True):
        report = json.loads((folder / "report.json").read_text())
        report["system"] = {"system": {"vendor": "V", "product": "P", "firmware": firmware}}
        (folder / "report.json").write_text(json.dumps(report, indent=1) + "\n")
        write_manifest(folder)
    code, error = judge(*folders)
    assert code == 4
    assert "system, firmware: 1.0, and 1.1" in error


def test_the_same_run_twice_and_what_is_no_run_are_refused(make, judge, tmp_path):
    run = make(1)
    code, error = judge(run, run)
    assert (code, "are the same run" in error) == (4, True)
    code, error = judge(run, tmp_path)
    assert (code, "report.json" in error) == (4, True)
    unfinished = shutil.copytree(make(2), tmp_path / "unfinished")
    for name in ("report.json", "manifest.sha256", "certificate.html", "junit.xml"):
        (unfinished / name).unlink()
    code, error = judge(run, unfinished)
    assert (code, "wrote no report" in error) == (4, True)


def test_runs_at_the_same_time_are_told(make, judge, tmp_path):
    one, other = make(1), make(2)
    report = json.loads((one / "report.json").read_text())
    report["run"]["finished"] = made_up_run.day_of(3)
    (one / "report.json").write_text(json.dumps(report, indent=1) + "\n")
    write_manifest(one)
    assert judge(one, other)[1]["combined"]["notices"] == [
        "run 2 began before run 1 had ended: each was load for the other."
    ]


def test_a_changed_run_passes_nothing_though_nothing_of_it_stands(make, judge):
    older, newer = make(1), make(2)
    file = next((older / "measurements").iterdir())
    file.write_text(file.read_text() + "\n")
    code, document = judge(older, newer)
    assert code == 8
    assert any("The folder of run 1 is not as its run left it" in reason for reason in document["grade_reasons"])


def test_each_part_of_the_certificate_names_its_run_and_day(make, tmp_path):
    folders = make(1, save=100.0), make(2), make(3, options={"ckpt_model": "llama3-70b", "ckpt_processes": "8"})
    out = tmp_path / "out"
    main(["judge", *map(str, folders), f"--out={out}"])
    page = (out / "certificate.html").read_text()
    assert "3 runs of the same target" in page
    assert page.count("run 2, 2031-05-02") >= 7
    assert "Saves and loads: run 3, 2031-05-03" in page
    assert "Failed before" in page
    assert 'name="run" value="run 2, 2031-05-02"' in (out / "junit.xml").read_text()


@pytest.mark.parametrize(("older", "newer", "code"), [("16", "16", 0), ("4", "16", 1), ("16", "4", 1), (None, "16", 1)])
def test_what_the_gates_demand_of_clients_holds_in_every_run(make, judge, tmp_path, older, newer, code):
    behaviour, speed = make(1, options=BEHAVIOUR, observations=seen()), make(2, options=SPEED, save=5.0, load=5.0)
    for folder, connections in ((behaviour, older), (speed, newer)):
        report = json.loads((folder / "report.json").read_text())
        for host in report["environment"]["hosts"]:
            host["client"] = {} if connections is None else {"nconnect": connections}
        (folder / "report.json").write_text(json.dumps(report))
        write_manifest(folder)
    gates = tmp_path / "gates.toml"
    gates.write_text('name = "ours"\nextends = "posix-local"\nclients = ["client.nconnect >= 8"]\n')
    found, document = judge(behaviour, speed, f"--ckpt-gates={gates}")
    assert (found, document["grade"]) == (code, "not certified" if code else "certified"), document["grade_reasons"]
    assert any("client.nconnect >= 8" in reason for reason in document["grade_reasons"]) == bool(code)
