"""Run directories that were changed with a text editor: the change is reported, and no verdict becomes better.

Some changes try to crash the reader: invalid numbers, wrong types, names with control characters.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_ckpt.cli.main import main
from pytest_ckpt.evidence.judged_run import judge_directory
from pytest_ckpt.evidence.manifest import ATTESTATION, MANIFEST, write_manifest
from pytest_ckpt.evidence.signing import Signer
from pytest_ckpt.evidence.verification import verify_directory
from pytest_ckpt.run.close import write_report
from tests.support import synthetic_run
from tests.support.forging import HOSTILE, NUMBERS, edit
from tests.support.fuzz.values import places, set_value
from tests.support.jsonschema_validation import violations
from tests.support.selection import examples

SUBJECT = synthetic_run.SUBJECT
FACTS = f"measurements/{SUBJECT}.json"
REPORT, EVENTS, SESSION = "report.json", "events.jsonl", "session.json"


@pytest.fixture(scope="module")
def late(tmp_path_factory):
    """Directory of a run whose saves exceeded their limit."""
    directory = tmp_path_factory.mktemp("late") / "run"
    document = synthetic_run.write_run(directory, save=100.0)
    assert {v["id"]: v["outcome"] for v in document["requirements"]}["SAVE"] == "failed"
    return directory


@pytest.fixture
def run(late, tmp_path):
    return shutil.copytree(late, tmp_path / "run")


def judge(directory, capsys, *words):
    """Run ``pytest-ckpt judge --json``; return (exit code, document or None, standard error)."""
    code = main(["judge", str(directory), "--json", *words])
    output = capsys.readouterr()
    return code, json.loads(output.out, parse_constant=pytest.fail) if output.out else None, output.err


def verify(directory, capsys):
    """Run ``pytest-ckpt verify --json``; return (exit code, details of all checks)."""
    code = main(["verify", str(directory), "--json"])
    document = json.loads(capsys.readouterr().out)
    assert not violations(document, "verify")
    return code, [d for c in document["checks"] for d in c["details"]]


def shorten(measurement):
    for operation in measurement["operations"]:
        share = 0.001 / operation["seconds"]
        operation["seconds"] *= share
        operation["rank0_seconds"] *= share
        operation["rank_seconds"] = [s * share for s in operation["rank_seconds"]]
        operation["phases"] = {name: s * share for name, s in operation["phases"].items()}


# --- a run directory of ours
# --------------------------------------------------------------------------------------------


def test_measurements_that_were_changed_certify_nothing(run, capsys):
    edit(run / FACTS, shorten)
    code, document, _ = judge(run, capsys)
    assert any(f"The directory is not as its run left it: changed {FACTS}." in r for r in document["grade_reasons"])
    assert document["grade"] != "certified"
    code, details = verify(run, capsys)
    assert (code, details[0]) == (1, f"changed: {FACTS}")


def test_a_changed_directory_lowers_the_grade_from_certified_to_incomplete(tmp_path, capsys, monkeypatch):
    synthetic_run.write_run(tmp_path / "run")
    edit(tmp_path / "run" / FACTS, shorten)
    # A run at full size would take hundreds of GiB, so this small one is judged as if it had full size.
    monkeypatch.setattr("pytest_ckpt.grading.grading.shortfalls", lambda *_: [])
    code, document, _ = judge(tmp_path / "run", capsys)
    assert (code, document["exit_code"], document["grade"]) == (8, 8, "incomplete")
    write_manifest(tmp_path / "run")
    assert judge(tmp_path / "run", capsys)[1]["grade"] == "certified"


def test_without_a_manifest_nothing_is_certified(run, capsys):
    (run / MANIFEST).unlink()
    reasons = judge(run, capsys)[1]["grade_reasons"]
    assert any(f"{MANIFEST} cannot be read: No such file or directory" in reason for reason in reasons)


def halved(report):
    save = next(v for v in report["requirements"] if v["id"] == "SAVE")
    save["measured"] /= 2


def unmeasured(report):
    report["measurements"] = []
    for verdict in report["requirements"]:
        verdict["outcome"] = "met"


def milder(document):
    document["gate_table"]["kinds"]["SAVE"] = "advisory"


def longest_default(report):
    next(s for s in report["settings"] if s["option"] == "--ckpt-ranks")["default"] = "other"


def of_another_version(report):
    report["run"]["version"] = "0.0.9"


SAVE = f"judged otherwise: SAVE {SUBJECT}"
FORGERIES = {
    "shorter times of a measurement": (FACTS, shorten, SAVE),
    "shorter times in the report": (
        REPORT, lambda r: shorten(r["measurements"][0]), f"differs: measurements of {REPORT}"),
    "one byte more in the report": (
        REPORT, lambda r: r["measurements"][0].update(bytes=112_423_865), f"differs: measurements of {REPORT}"),
    "a field that no run writes in a measurement": (FACTS, lambda m: m.update(id=1), f"changed: {FACTS}"),
    "a better verdict": (REPORT, lambda r: r["requirements"][0].update(outcome="met", severity="advisory"), SAVE),
    "a smaller result": (REPORT, halved, SAVE),
    "a verdict less": (REPORT, lambda r: r["requirements"].pop(0), SAVE),
    "a verdict twice": (REPORT, lambda r: r["requirements"].append(r["requirements"][0]), SAVE),
    "verdicts without a measurement": (REPORT, unmeasured, SAVE),
    "a better grade": (REPORT, lambda r: r.update(grade="certified"), f"differs: grade of {REPORT}"),
    "a larger cluster": (
        REPORT, lambda r: r["cluster"].update(accelerators=128), f"differs: cluster of {REPORT}"),
    "a longer limit": (
        REPORT, lambda r: r["cluster"].update(save_limit_seconds=1e6), f"differs: cluster of {REPORT}"),
    "an exit code of a run that passed": (REPORT, lambda r: r.update(exit_code=0), f"differs: exit_code of {REPORT}"),
    "milder gates under the name of a table that ships": (REPORT, milder, f"differs: gate_table of {REPORT}"),
    "a requirement that the version did not have": (
        REPORT, lambda r: r["catalogue_names"].remove("SAVE"), f"differs: catalogue_names of {REPORT}"),
    "a row of the catalogue less": (REPORT, lambda r: r["catalogue"].pop(), f"differs: catalogue of {REPORT}"),
    "another default of an option": (REPORT, longest_default, f"differs: settings of {REPORT}"),
    "a disclosure less": (REPORT, lambda r: r["disclosures"].clear(), f"differs: disclosures of {REPORT}"),
    "a field that no run writes": (REPORT, lambda r: r.update(id="x"), f"differs: id of {REPORT}"),
    "another version": (REPORT, of_another_version, f"differs: run.version of {REPORT}"),
    "another moment": (REPORT, lambda r: r["run"].update(started="2020-01-01T00:00:00+00:00"), "changed: certificate"),
    "another command": (REPORT, lambda r: r["run"].update(command=["pytest"]), "changed: certificate.html"),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGERIES)
def test_a_file_that_was_changed_with_a_manifest_to_fit_does_not_verify(run, capsys, name):
    file, change, expected_text = FORGERIES[name]
    edit(run / file, change)
    write_manifest(run)
    code, details = verify(run, capsys)
    assert code == 1
    assert any(expected_text in detail for detail in details), details


def test_a_certificate_that_was_changed_with_a_manifest_to_fit_is_named(run, capsys):
    page = run / "certificate.html"
    page.write_text(page.read_text().replace("failed", "passed"))
    write_manifest(run)
    assert verify(run, capsys) == (1, ["changed: certificate.html"])


def test_a_measurement_that_was_removed_is_missed(run, capsys):
    (run / FACTS).unlink()
    write_manifest(run)
    code, details = verify(run, capsys)
    assert code == 1
    assert SAVE in details


def test_files_that_were_all_changed_to_fit_are_found_by_the_signature_alone(run, late, capsys):
    """If measurements, report, pages and manifest are forged consistently, only the signature reveals the change."""
    edit(run / FACTS, shorten)
    write_manifest(run)
    forged = json.loads((run / REPORT).read_text())
    write_report(judge_directory(run, {}, as_recorded=True) | {"run": forged["run"]}, run)
    assert verify(run, capsys) == (0, [])
    key = Ed25519PrivateKey.generate()
    signed = shutil.copytree(late, run.with_name("signed"))
    write_report(json.loads((signed / REPORT).read_text()), signed, Signer(key=key))
    assert broken(signed, key) == set()
    shutil.copy(signed / ATTESTATION, run)
    assert broken(run, key) == {"signature"}


def broken(directory, key):
    return {c.name for c in verify_directory(directory, [key.public_key()]) if c.outcome == "broken"}


def test_a_verdict_without_a_measurement_is_not_judged(run, capsys):
    (run / FACTS).unlink()
    edit(run / REPORT, unmeasured)
    write_manifest(run)
    code, document, _ = judge(run, capsys)
    assert code == 8
    assert {v["outcome"] for v in document["requirements"]} == {"not run"}
    assert verify(run, capsys)[0] == 1


@pytest.fixture
def two_subjects(tmp_path):
    directory = tmp_path / "run"
    synthetic_run.write_run(directory, options={"ckpt_model": "llama3-8b,llama3-70b", "ckpt_ranks": "8"})
    return directory


def test_measurements_of_two_subjects_in_each_others_place_are_refused(two_subjects, capsys):
    one, other = sorted((two_subjects / "measurements").iterdir())
    aside = one.rename(one.with_name("aside"))
    other.rename(one)
    aside.rename(other)
    write_manifest(two_subjects)
    code, document, error = judge(two_subjects, capsys)
    assert (code, document) == (4, None)
    assert "is not a measurement of this run: its subject is llama3-70b-open-8, the plan's is llama3-8b-open-8" in error
    assert verify(two_subjects, capsys)[0] == 1


def swap_names(measurement):
    measurement["subject"] = "llama3-70b-open-8"


FAULT = {
    "kind": "flipped", "rank": 0, "host": "n1", "checkpoint": 1, "file": "f", "tensor": "t", "offset": 0, "bytes": 1,
    "detail": "",
}  # fmt: skip
IMPOSSIBLE = {
    "full_bytes": (lambda m: m.update(full_bytes=1), "its full_bytes is 1, the plan's is"),
    "bytes": (lambda m: m.update(bytes=10**15), "its bytes is 1000000000000000, the plan's is"),
    "scale": (lambda m: m.update(scale=1.0), "its scale is 1.0, the plan's is 0.001"),
    "fewer planned": (lambda m: m.update(operations_planned=1), "its operations_planned is 1, the plan's is 3"),
    "processes": (lambda m: m.update(processes=1), "its processes is 1, the plan's is 2"),
    "another subject": (swap_names, "its subject is llama3-70b-open-8"),
    "inferred": (lambda m: m.update(basis="inferred from rank 0"), "its basis is inferred from rank 0"),
    "one left out": (lambda m: m["operations"].pop(0), "its saves are numbered [2, 3], and 3 were planned"),
    "one twice": (lambda m: m["operations"].insert(1, m["operations"][0]), "its saves are numbered [1, 1, 2, 3]"),
    "only the result": (lambda m: m["operations"][0].update(seconds=0.001), "save 1: it took 0.001 s, and rank"),
    "a rank less": (lambda m: m["operations"][0]["rank_seconds"].pop(), "save 1: times of 1 of 2 ranks"),
    "another slowest": (lambda m: m["operations"][0].update(slowest_rank=9), "save 1: rank 9 is named as the slowest"),
    "another rank 0": (lambda m: m["operations"][0].update(rank0_seconds=1.0), "save 1: rank 0 took 1.0 s in one"),
    "a long wait": (lambda m: m["operations"][0].update(starved_seconds=1e6), "a rank waited for a CPU for 1000000"),
    "a long phase": (lambda m: m["operations"][0]["phases"].update(write=1e6), "save 1: its phase write is longer"),
    "more resident than there is": (
        lambda m: m["operations"][3].update(mapped_bytes=1, resident_bytes=2), "load 1: 2 of 1 bytes were in a cache"),
    "fewer bytes to compare": (
        lambda m: m["integrity"].update(bytes_expected=1, bytes_checked=1), "1 bytes were to be compared, and its"),
    "a fault that is not counted": (
        lambda m: m["integrity"]["faults"].append(FAULT), "it names 1 faults and counts 0"),
    "fewer files": (
        lambda m: m["durability"].update(files=1, files_synced=1), "durable calls are recorded for 1 files in 3 saves"),
}  # fmt: skip


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_facts_that_cannot_be_are_refused_and_named(run, capsys, name):
    change, expected_text = IMPOSSIBLE[name]
    edit(run / FACTS, change)
    write_manifest(run)
    code, document, error = judge(run, capsys)
    assert (code, document) == (4, None)
    assert expected_text in error
    assert "pytest-ckpt verify lists the changed files of the directory" in error
    assert verify(run, capsys)[0] == 1


ANOMALY = {"kind": "lost", "where": "file", "seen": "nothing", "expected": "a name"}
OBSERVATION = {
    "requirement": "NAMES", "subject": "listing", "trials": 10, "seconds": 1.0, "measured": None, "unit": "",
    "anomaly_count": 0, "anomalies": [], "facts": {}, "not_run": "", "blocked": None, "errno": "",
    "reproduce": "",
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "change", "expected_text"),
    [
        ("NAMES.listing", {"anomalies": [ANOMALY]}, "it names 1 anomalies and counts 0"),
        ("NAMES.listing", {"anomaly_count": 3}, "it names 0 anomalies and counts 3"),
        ("NAMES.listing", {"measured": -1.0, "unit": "s"}, "it measured -1 s"),
        ("NAMES.listing", {"trials": "many"}, "$.trials: Expected `int`, got `str`"),
        ("NAMES.other", {}, "is of another check: it contains the observation of NAMES.listing"),
    ],
)
def test_observations_that_cannot_be_are_refused_and_named(run, capsys, name, change, expected_text):
    (run / "observations").mkdir()
    (run / "observations" / f"{name}.json").write_text(json.dumps(OBSERVATION | change))
    write_manifest(run)
    code, document, error = judge(run, capsys)
    assert (code, document) == (4, None)
    assert expected_text in error


@pytest.mark.parametrize("number", NUMBERS)
def test_a_number_that_is_none_is_no_time(run, capsys, number):
    """A measurement is refused if one of its times is an invalid number, such as NaN.

    An accepted invalid number could decide whether a limit is met.
    """
    text = (run / FACTS).read_text()
    measurement = json.loads(text)
    measurement["operations"][1]["seconds"] = "HERE"
    (run / FACTS).write_text(json.dumps(measurement).replace('"HERE"', number))
    write_manifest(run)
    code, document, error = judge(run, capsys)
    assert (code, document) == (4, None)
    assert FACTS in error
    assert verify(run, capsys)[0] == 1


BROKEN = {
    "nothing": b"",
    "cut off": b'{"schema": "pytest-ckpt/report/1"',
    "deep": b"[" * 100_000,
    "deep and whole": b"[" * 2_000 + b"]" * 2_000,
    "not UTF-8": b"\xff\xfe{}",
    "UTF-16": '{"a": 1}'.encode("utf-16"),
    "a name twice": b'{"grade": "certified", "grade": "rehearsal"}',
    "a list": b"[]",
    "a number": b"3",
}


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("file", [REPORT, FACTS])
def test_a_file_that_is_no_document_is_named_by_every_command(run, capsys, file, name):
    (run / file).write_bytes(BROKEN[name])
    code, document, error = judge(run, capsys)
    assert (code, document) == (4, None)
    assert Path(file).name in error
    if file == REPORT:
        assert main(["diff", str(run), str(run)]) == 4
        assert REPORT in capsys.readouterr().err
    assert verify(run, capsys)[0] == 1


@pytest.mark.parametrize("file", [REPORT, FACTS, EVENTS, SESSION, "plan.json"])
@given(data=st.data())
@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_value_in_any_place_ends_in_a_message_or_a_judgement(late, tmp_path_factory, capsys, file, data):
    home = tmp_path_factory.mktemp("any")
    run = shutil.copytree(late, home / "run")
    is_lines = file == EVENTS
    lines = (run / file).read_text().splitlines() if is_lines else [(run / file).read_text()]
    number = data.draw(st.integers(0, len(lines) - 1))
    document = json.loads(lines[number])
    place = data.draw(st.sampled_from([(), *places(document)]))
    document = set_value(document, place, data.draw(HOSTILE))
    lines[number] = json.dumps(document)
    (run / file).write_text("\n".join(lines) + "\n")
    write_manifest(run)
    page = f"--html={home / 'page.html'}"
    commands = (["judge", run], ["judge", run, "--json"], ["judge", run, page], ["verify", run], ["diff", run, late])
    code = main(list(map(str, data.draw(st.sampled_from(commands)))))
    output = capsys.readouterr()
    assert code in (0, 1, 2, 3, 4, 8)
    assert "\x1b" not in output.out + output.err
    assert (code == 4) == (not output.out)
    shutil.rmtree(home)


def test_names_that_steer_a_terminal_are_printed_as_text(run, late, capsys):
    (run / "a\x1b[2Jb\nc").write_text("")
    edit(run / REPORT, lambda report: report["run"].update(version="0.0.1\x1b[2J"))
    edit(run / REPORT, lambda report: report["environment"]["hosts"][0].update(cpu="\x1b[2J"))
    for words in (["verify", run], ["judge", run], ["diff", run, late], ["diff", late, run]):
        main(list(map(str, words)))
        output = capsys.readouterr()
        assert "\x1b" not in output.out + output.err
        assert output.out


def test_diff_reports_a_changed_report(run, late, capsys):
    edit(run / REPORT, lambda report: report.update(grade="rehearsal", exit_code=0))
    assert main(["diff", str(late), str(run)]) == 0
    assert (
        f"{run}: report.json is not as its run left it: run pytest-ckpt verify for details" in capsys.readouterr().out
    )
    assert main(["diff", str(late), str(late)]) == 0
    assert "not as its run left it" not in capsys.readouterr().out
