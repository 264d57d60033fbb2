"""Folders that version 0.1.0 left (schema 1): ``judge`` and ``verify`` give their own verdicts, and see any change."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_ckpt.cli.main import main
from pytest_ckpt.evidence import upgrade
from pytest_ckpt.evidence.manifest import ATTESTATION, MANIFEST, write_manifest
from pytest_ckpt.evidence.schemas import faults
from pytest_ckpt.evidence.upgrade import NOW, Schema, schema_of, upgraded
from tests.support.unpacking import unpack

STORED = Path(__file__).parent / "schema_1"
KEY = STORED / "signed.pub.pem"
# Exit codes of the runs; the vendor's run and the failed one had the hooks of docs/examples/acme.
EXIT_CODES = {"passed": 0, "failed": 1, "signed": 0, "vendor": 0}
# Without its plugin a verdict of a vendor is not judged again, and the run is incomplete.
JUDGED_AGAIN = EXIT_CODES | {"vendor": 8}
COMPARED = ("id", "subject", "severity", "outcome", "measured", "limit", "unit", "margin")


@pytest.fixture
def folder_of(tmp_path):
    def unpacked(name):
        unpack(STORED / f"{name}.tar.gz", tmp_path)
        return tmp_path / name

    return unpacked


@pytest.fixture
def verify(capsys):
    def checks_of(folder, *words):
        code = main(["verify", str(folder), "--json", *words])
        return code, {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}

    return checks_of


def written(folder):
    return json.loads((folder / "report.json").read_text())


def verdicts(document):
    """Without the engine of a subject, which schema 1 left out: the signed run has engine stream."""
    plain = [{name: v[name] for name in COMPARED} for v in document["requirements"]]
    return [v | {"subject": v["subject"].removesuffix("/stream")} for v in plain]


@pytest.mark.parametrize(("name", "code"), JUDGED_AGAIN.items())
def test_a_stored_folder_keeps_its_verdicts_when_it_is_judged(folder_of, capsys, name, code):
    folder = folder_of(name)
    assert main(["judge", str(folder), "--json"]) == code
    before, now = written(folder), json.loads(capsys.readouterr().out)
    assert verdicts(now) == verdicts(before)
    assert now["grade"] == before["grade"]
    assert not faults(now, "report")


@pytest.mark.parametrize(("name", "code"), EXIT_CODES.items())
def test_a_stored_folder_is_unchanged_and_its_pages_are_not_checked(folder_of, verify, name, code):
    folder = folder_of(name)
    assert written(folder)["exit_code"] == code
    result, checks = verify(folder, *([f"--key={KEY}"] if name == "signed" else []))
    outcomes = {check: found["outcome"] for check, found in checks.items()}
    assert result == 0, checks
    assert {outcomes[check] for check in ("digests", "schema", "verdicts")} == {"holds"}
    assert outcomes["pages"] == "not checked"
    assert outcomes["signature"] == ("holds" if name == "signed" else "not checked")
    assert ("plugins" in outcomes) == (name in ("vendor", "failed"))


@pytest.mark.parametrize("name", EXIT_CODES)
def test_a_flipped_byte_in_any_file_of_a_stored_folder_is_named(folder_of, verify, name):
    folder = folder_of(name)
    flipped = []
    for file in sorted(p for p in folder.rglob("*") if p.is_file() and p.name not in (MANIFEST, ATTESTATION)):
        if data := file.read_bytes():
            middle = len(data) // 2
            file.write_bytes(data[:middle] + bytes((data[middle] ^ 1,)) + data[middle + 1 :])
            flipped.append(f"changed: {file.relative_to(folder).as_posix()}")
    result, checks = verify(folder)
    assert result == 1
    assert sorted(checks["digests"]["details"]) == sorted(flipped)


@pytest.mark.parametrize("place", [100, 900])
def test_a_flipped_byte_in_the_signature_of_a_stored_folder_is_named(folder_of, verify, place):
    folder = folder_of("signed")
    data = bytearray((folder / ATTESTATION).read_bytes())
    data[place] ^= 1
    (folder / ATTESTATION).write_bytes(data)
    result, checks = verify(folder, f"--key={KEY}")
    assert result == 1
    assert checks["signature"]["outcome"] == "broken"


def test_a_measurement_that_was_changed_and_sealed_again_contradicts_the_events(folder_of, verify):
    folder = folder_of("passed")
    (file,) = (folder / "measurements").iterdir()
    plain = json.loads(file.read_text())
    for operation in plain["operations"]:
        operation["phases"] = {}
    file.write_text(json.dumps(plain, indent=1) + "\n")
    write_manifest(folder)
    result, checks = verify(folder)
    assert result == 1
    assert checks["digests"]["outcome"] == "holds"
    assert checks["verdicts"]["outcome"] == "broken"


def test_a_report_of_a_schema_that_is_not_known_yet_says_what_to_do(folder_of, capsys):
    folder = folder_of("passed")
    report = written(folder)
    report["schema"] = "pytest-ckpt/report/99"
    (folder / "report.json").write_text(json.dumps(report))
    assert main(["judge", str(folder)]) == 4
    assert "newer" in capsys.readouterr().err


@pytest.mark.parametrize("name", EXIT_CODES)
def test_an_upgrade_changes_a_copy_and_follows_todays_schema(folder_of, name):
    report = written(folder_of(name))
    before = json.dumps(report)
    today = upgraded("report", report, schema_of(report))
    assert json.dumps(report) == before
    assert schema_of(report).number == 1
    assert schema_of(today).number == upgrade.TODAY
    assert not faults(report, "report-1")
    assert not faults(today, "report")
    assert upgraded("report", today, NOW) is today


@pytest.mark.parametrize(
    "schema",
    ["pytest-ckpt/report/0", "pytest-ckpt/report/3", "pytest-ckpt/plan/1", "pytest-ckpt/report/1x", 7, None],
)
def test_a_schema_that_is_not_known_has_no_number(schema):
    assert schema_of({"schema": schema}) is None


@pytest.mark.parametrize("plain", [{}, {"cache": [1], "found": 3}])
def test_an_event_without_what_is_restated_stays(plain):
    assert upgraded("event", plain, Schema(number=1)) == plain


OPEN, RUN = "llama3-8b-open-2", Schema(number=1, engine="stream", subjects=frozenset({"llama3-8b-open-2"}))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None),
        ("import of the engine", None),
        (f"{OPEN} prepare", ("", "", None, "prepare", 0.0)),
        (f"{OPEN} save 2", ("", "save", 2, "operation", 0.0)),
        (f"{OPEN} load 3: residency", ("", "load", 3, "residency", 0.0)),
        (f"{OPEN} storm 1: verify", ("storm", "load", 1, "verify", 0.0)),
        (f"{OPEN} mixed 2", ("mixed", "save", 2, "operation", 0.0)),
        (f"{OPEN} mixed 4", ("mixed", "read", 4, "operation", 0.0)),
        (f"{OPEN} near_full 801", ("near_full", "save", 1, "operation", 0.8)),
        (f"{OPEN} near_full 01", ("near_full", "save", 1, "operation", 0.0)),
        (f"{OPEN} near_full: ballast to 80%", ("near_full", "", None, "ballast", 0.8)),
        (f"{OPEN} endurance: remove", ("endurance", "", None, "remove", 0.0)),
    ],
)
def test_the_text_of_an_operation_becomes_a_reference(text, expected):
    failure = {"kind": "hung", "message": "no answer", "operation": text}
    found = upgraded("measurement", {"subject": OPEN, "failure": failure}, RUN)
    operation = found["failure"]["operation"]
    assert found["subject"] == f"{OPEN}/stream"
    if expected is None:
        assert operation is None
    else:
        assert operation["subject"] == f"{OPEN}/stream"
        assert tuple(operation[n] for n in ("scenario", "action", "index", "stage", "level")) == expected
    assert not faults(found["failure"], "report", "failure")
