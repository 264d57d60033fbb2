"""``pytest-ckpt judge RUN1 RUN2 …``: one certificate from several runs, none of it better than the runs allow."""

from __future__ import annotations

import dataclasses
import json
import shutil

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from pytest_ckpt.cli.main import main
from pytest_ckpt.evidence.manifest import write_manifest
from pytest_ckpt.evidence.schemas import faults
from pytest_ckpt.evidence.signing import Signer, key_id, read_public_key
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


def day(number):
    return f"2031-05-{number:02d}T07:08:09+00:00"


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


@pytest.fixture
def make(tmp_path):
    """Make a run of a day; returns its folder."""

    def made(number, **words):
        folder = tmp_path / f"run-{number}"
        made_up_run.make_run(folder, seed=number, started=day(number), **words)
        return folder

    return made


@pytest.fixture
def judge(capsys):
    """Judge folders together; returns exit code and report."""

    def judged(*words):
        capsys.readouterr()
        code = main(["judge", *map(str, words), "--json"])
        shown = capsys.readouterr()
        return code, json.loads(shown.out) if shown.out else shown.err

    return judged


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
    assert document["run"]["started"] == day(1)
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
    report["run"]["finished"] = day(3)
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


@pytest.fixture
def written(make, tmp_path):
    """A certificate of two runs with its folders, and what checks them all."""
    folders = make(1, save=100.0), make(2)
    out = tmp_path / "out"
    assert main(["judge", *map(str, folders), f"--out={out}"]) == 0
    return out, *folders


def verify(capsys, *words):
    capsys.readouterr()
    code = main(["verify", *map(str, words)])
    shown = capsys.readouterr()
    return code, shown.out + shown.err


def test_verify_holds_the_certificate_and_all_its_runs(written, capsys):
    code, shown = verify(capsys, *written)
    assert code == 0, shown
    assert "verdicts         holds        7 verdicts follow from the runs" in shown
    assert "run 1: verdicts  holds" in shown
    assert "run 2: pages     holds" in shown
    assert sorted(p.name for p in written[0].iterdir()) == [
        "certificate.html", "junit.xml", "manifest.sha256", "report.json",
    ]  # fmt: skip


def test_verify_asks_for_all_runs_of_a_certificate_and_for_no_other(written, make, capsys):
    out, one, other = written
    code, shown = verify(capsys, out)
    assert (code, "not named: run 1" in shown) == (4, True)
    code, shown = verify(capsys, out, one)
    assert (code, "not named: run 2" in shown) == (4, True)
    code, shown = verify(capsys, out, one, other, make(3))
    assert (code, "is none of the runs of this certificate" in shown) == (4, True)
    code, shown = verify(capsys, one, other)
    assert (code, "holds no certificate of several runs" in shown) == (4, True)


def test_a_certificate_that_says_more_than_its_runs_is_found_by_its_place(written, capsys):
    out, *_ = written
    report = json.loads((out / "report.json").read_text())
    report["combined"]["superseded"] = []
    (out / "report.json").write_text(json.dumps(report, indent=1) + "\n")
    write_manifest(out)
    code, shown = verify(capsys, *written)
    assert code == 1
    assert "report.combined.superseded[SAVE" in shown
    assert "changed: certificate.html" in shown


def test_another_run_in_the_place_of_one_is_found(written, capsys):
    """With the id of the run that was combined, and other times."""
    out, one, other = written
    shutil.rmtree(other)
    made_up_run.make_run(other, seed=9, started=day(2), run_id=f"20310506T070809-{2:06x}")
    code, shown = verify(capsys, out, one, other)
    assert code == 1
    assert "run 2: its manifest.sha256 is another one" in shown


def test_a_change_in_a_run_is_named_with_the_run(written, capsys):
    out, one, other = written
    (one / "events.jsonl").write_text("")
    code, shown = verify(capsys, out, one, other)
    assert code == 1
    assert "run 1: digests   broken" in shown
    assert "changed: events.jsonl" in shown


def pair(folder, name):
    """Make a pair of keys; returns the files of the private and of the public one, and the private one."""
    key = Ed25519PrivateKey.generate()
    private, public = folder / f"{name}.pem", folder / f"{name}.pub"
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    private.chmod(0o600)
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return private, public, key


def test_a_certificate_of_several_runs_can_be_signed(make, tmp_path, capsys):
    private, public, _ = pair(tmp_path, "key")
    out, folders = tmp_path / "out", (make(1), make(2))
    assert main(["judge", *map(str, folders), f"--out={out}", f"--sign={private}"]) == 0
    code, shown = verify(capsys, out, *folders, f"--key={public}")
    assert (code, "UNCHANGED since it was signed" in shown) == (0, True), shown
    (out / "attestation.dsse.json").unlink()
    code, shown = verify(capsys, out, *folders, f"--key={public}")
    assert (code, "attestation.dsse.json is not there" in shown) == (1, True)


def test_who_signed_the_certificate_and_each_of_its_runs_is_told_known_or_not(make, tmp_path, capsys):
    private, tester, _ = pair(tmp_path, "tester")
    _, vendor, of_vendor = pair(tmp_path, "vendor")
    _, unused, _ = pair(tmp_path, "unused")
    out, folders = tmp_path / "out", (make(1, signer=Signer(key=of_vendor)), make(2))
    assert main(["judge", *map(str, folders), f"--out={out}", f"--sign={private}"]) == 0
    code, shown = verify(capsys, out, *folders, f"--key={tester}", f"--key={vendor}", f"--key={unused}")
    assert code == 0, shown
    lines = [" ".join(line.split()) for line in shown.splitlines() if line.startswith("signer ")]
    assert [line.partition("; SHA-256")[0] for line in lines] == [
        f"signer known {tester}: signature in {out}",
        f"signer known {vendor}: signature in {folders[0]}",
        f"signer known {unused}: no signature here",
    ]
    # Whoever knows one of the two does not take the other's word.
    code, shown = verify(capsys, out, *folders, f"--key={tester}", "--json")
    document = json.loads(shown)
    assert faults(document, "verify") == []
    assert (code, document["outcome"]) == (1, "changed")
    assert [c["name"] for c in document["checks"] if c["outcome"] == "broken"] == ["run 1: signature"]
    assert document["signers"] == [
        {"key_id": key_id(read_public_key(tester, option="--key")), "key": str(tester), "signed": [str(out)]},
        {"key_id": key_id(of_vendor.public_key()), "key": "", "signed": [str(folders[0])]},
    ]
    # Without a key, all that is known of both is their own word.
    code, shown = verify(capsys, out, *folders)
    assert (code, shown.count("not known"), shown.count("by its own word")) == (0, 2, 2), shown


def test_a_stranger_who_takes_a_known_keys_id_is_not_known(make, tmp_path, capsys):
    _, vendor, of_vendor = pair(tmp_path, "vendor")
    folder = make(1, signer=Signer(key=Ed25519PrivateKey.generate()))
    attestation = folder / "attestation.dsse.json"
    envelope = json.loads(attestation.read_text())
    envelope["signatures"][0]["keyid"] = key_id(of_vendor.public_key())
    attestation.write_text(json.dumps(envelope))
    code, shown = verify(capsys, folder, f"--key={vendor}", "--json")
    assert code == 1
    assert [(s["key"], s["signed"]) for s in json.loads(shown)["signers"]] == [
        (str(vendor), []), ("", [str(folder)]),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["RUN", "--out=NEW"], "one folder was named"),
        (["RUN", "OTHER", "--sign=key.pem"], "there is no --out"),
        (["RUN", "OTHER", "--out=RUN"], "there is something there"),
        (["OUT", "OTHER"], "holds a certificate of several runs, and no run"),
    ],
)
def test_what_makes_no_sense_is_refused(written, capsys, tmp_path, words, shown):
    names = {"RUN": written[1], "OTHER": written[2], "OUT": written[0], "NEW": tmp_path / "new"}
    for name, path in names.items():
        words = [word.replace(name, str(path)) for word in words]
    capsys.readouterr()
    assert main(["judge", *words]) == 4
    assert shown in capsys.readouterr().err


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
