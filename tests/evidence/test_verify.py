"""``pytest-ckpt verify`` finds and names every change in a run directory."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pytest_ckpt.cli.main import main
from pytest_ckpt.evidence.manifest import ATTESTATION, MANIFEST, compare, write_manifest
from pytest_ckpt.evidence.signing import Signer
from pytest_ckpt.evidence.verification import verify_directory
from pytest_ckpt.run.close import write_report
from tests.support import synthetic_run
from tests.support.jsonschema_validation import violations

pytestmark = pytest.mark.covers(commands=("verify",))

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
CERTIFICATE, REPORT, FACTS = "certificate.html", "report.json", f"measurements/{synthetic_run.SUBJECT}.json"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Directory of two runs: ``signed``, and ``plain`` without a signature."""
    home = tmp_path_factory.mktemp("runs")
    options = {"ckpt_sign": "/keys/key.pem"}
    synthetic_run.write_run(home / "signed", signer=Signer(key=KEY), options=options)
    synthetic_run.write_run(home / "plain")
    return home


@pytest.fixture
def plain(finished, tmp_path):
    return shutil.copytree(finished / "plain", tmp_path / "run")


@pytest.fixture
def signed(finished, tmp_path):
    return shutil.copytree(finished / "signed", tmp_path / "run")


def outcomes(directory, key=None):
    return {c.name: c.outcome for c in verify_directory(directory, key)}


def details(directory, key=None):
    return [d for c in verify_directory(directory, key) for d in c.details]


def files_of(directory):
    return sorted(p.relative_to(directory).as_posix() for p in directory.rglob("*") if p.is_file())


def edit(file, change):
    document = json.loads(file.read_text())
    change(document)
    file.write_text(json.dumps(document, indent=1) + "\n")


def test_an_untouched_directory_is_unchanged(plain):
    assert outcomes(plain) == {
        "digests": "holds", "verdicts": "holds", "pages": "holds", "signature": "not checked"
    }  # fmt: skip


def test_an_untouched_signed_directory_is_unchanged(signed):
    assert set(outcomes(signed, [KEY.public_key()]).values()) == {"holds"}
    assert outcomes(signed)["signature"] == "not checked"


@pytest.mark.parametrize(
    "options",
    [
        {"ckpt_gate_table": "auto", "ckpt_suite": "performance"},
        {"ckpt_operations": "10"},
        {"ckpt_save_budget": "0.01%"},
    ],
)
def test_runs_of_other_kinds_are_unchanged_too(tmp_path, options):
    """``verify`` reports no change in runs with another suite, more operations, or failed requirements."""
    synthetic_run.write_run(tmp_path / "run", options=options)
    assert "broken" not in outcomes(tmp_path / "run").values(), details(tmp_path / "run")


def test_an_interrupted_run_keeps_its_exit_code(tmp_path):
    synthetic_run.write_run(tmp_path / "run", fails=True)
    assert "broken" not in outcomes(tmp_path / "run").values()


def test_sha256sum_agrees(plain):
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", MANIFEST], cwd=plain, check=True)


@pytest.mark.thorough
def test_a_changed_byte_in_any_file_is_found_and_the_file_is_named(signed):
    """A changed byte in any file is found, and the file is named.

    The test changes the first, the last and three other bytes of every file, including the attestation.
    """
    rng = random.Random(7)
    tried = 0
    for name in files_of(signed):
        file = signed / name
        data = file.read_bytes()
        places = {0, len(data) - 1, *(rng.randrange(len(data)) for _ in range(3))} if data else set()
        for place in sorted(places):
            flipped = bytearray(data)
            flipped[place] ^= 1 << rng.randrange(8)
            file.write_bytes(flipped)
            found = verify_directory(signed, [KEY.public_key()])
            assert "broken" in {c.outcome for c in found}, f"{name}, byte {place}"
            if name not in (MANIFEST, ATTESTATION):
                assert f"changed: {name}" in found[0].details
            tried += 1
        file.write_bytes(data)
    assert tried > 40
    assert "broken" not in outcomes(signed, [KEY.public_key()]).values()


@pytest.mark.parametrize("bit", range(8))
def test_a_changed_bit_anywhere_in_the_manifest_is_found_without_a_signature_too(plain, bit):
    """A changed bit in the manifest is found without a signature, too. The test changes one bit in each byte."""
    data = (plain / MANIFEST).read_bytes()
    for place in range(bit, len(data), 8):
        flipped = bytearray(data)
        flipped[place] ^= 1 << bit
        (plain / MANIFEST).write_bytes(flipped)
        assert not compare(plain).is_same, f"byte {place}"


@pytest.mark.thorough
@pytest.mark.parametrize("change", [b"\n", b" ", b"x"])
def test_a_byte_put_at_the_end_or_taken_from_it_is_found(signed, change):
    for name in files_of(signed):
        data = (signed / name).read_bytes()
        for other in (data + change, data[:-1]):
            if other == data:
                continue
            (signed / name).write_bytes(other)
            assert "broken" in outcomes(signed, [KEY.public_key()]).values(), name
        (signed / name).write_bytes(data)


def test_added_and_removed_files_are_named(plain):
    (plain / "launches" / "1" / "rank-0.log").unlink()
    (plain / "launches" / "1" / "rank-7.log").write_text("later")
    (plain / "link").symlink_to("/etc")
    assert details(plain)[:3] == ["added: launches/1/rank-7.log", "added: link", "removed: launches/1/rank-0.log"]


def test_a_link_in_the_place_of_a_file_is_found(plain, tmp_path):
    (plain / "plan.json").rename(tmp_path / "plan.json")
    (plain / "plan.json").symlink_to(tmp_path / "plan.json")
    assert details(plain) == ["changed: plan.json"]


def test_names_that_need_escapes_are_listed_as_sha256sum_lists_them(plain):
    (plain / "a\\b\nc").write_text("odd")
    write_manifest(plain)
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", MANIFEST], cwd=plain, check=True)
    assert compare(plain).is_same


def test_a_report_against_its_schema_is_found_and_not_judged(plain):
    edit(plain / REPORT, lambda report: report.update(grade="splendid"))
    write_manifest(plain)
    assert outcomes(plain) | {"signature": ""} == {
        "digests": "holds", "verdicts": "broken", "pages": "not checked", "signature": ""
    }  # fmt: skip
    assert any("splendid" in d for d in details(plain))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"schema": NaN}', "\xff"])
def test_a_report_that_cannot_be_read_is_found(plain, text):
    (plain / REPORT).write_bytes(text.encode("latin-1"))
    assert {"digests": "broken", "verdicts": "broken"}.items() <= outcomes(plain).items()


def test_all_changed_alike_is_found_by_the_signature_alone(signed):
    """If times, report, certificate and manifest are forged consistently, only the signature reveals the change."""
    forged = signed.with_name("forged")
    synthetic_run.write_run(forged, save=0.01, options={"ckpt_sign": "/keys/key.pem"})
    assert outcomes(forged) == {
        "digests": "holds", "verdicts": "holds", "pages": "holds", "signature": "broken"
    }  # fmt: skip
    shutil.copy(signed / ATTESTATION, forged)
    assert outcomes(forged, [KEY.public_key()])["signature"] == "broken"
    assert any("changed since: manifest.sha256, report.json" in d for d in details(forged))
    other = Ed25519PrivateKey.generate()
    write_report(json.loads((forged / REPORT).read_text()), forged, Signer(key=other))
    assert set(outcomes(forged, [other.public_key()]).values()) == {"holds"}
    assert details(forged, [KEY.public_key()]) == [
        "no signature in it was made with a private key that belongs to --key"
    ]


def test_a_signature_that_was_taken_away_is_missed(signed):
    (signed / ATTESTATION).unlink()
    assert outcomes(signed)["signature"] == "broken"


def test_with_a_key_a_directory_without_a_signature_does_not_hold(plain):
    assert outcomes(plain, [KEY.public_key()])["signature"] == "broken"


def test_verify_reports_what_holds_and_what_an_unsigned_directory_cannot_show(plain, capsys):
    assert main(["verify", str(plain)]) == 0
    output = capsys.readouterr().out
    assert "the run was not signed" in output
    assert output.splitlines()[-1] == "UNCHANGED; signature not checked"
    (plain / REPORT).write_text("{}")
    assert main(["verify", str(plain)]) == 1
    output = capsys.readouterr().out
    assert "changed: report.json" in output
    assert output.splitlines()[-1].startswith("CHANGED")


def test_the_command_prints_json(plain, capsys):
    assert main(["verify", str(plain), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert not violations(document, "verify")
    assert (document["schema"], document["outcome"]) == ("pytest-ckpt/verify/1", "unchanged")
    assert [c["name"] for c in document["checks"]] == ["digests", "verdicts", "pages", "signature"]


@pytest.mark.parametrize("words", [["nowhere"], ["."], [".", "--key=nowhere"]])
def test_an_unverifiable_directory_is_a_usage_error(tmp_path, monkeypatch, capsys, words):
    monkeypatch.chdir(tmp_path)
    assert main(["verify", *words]) == 4
    assert "pytest-ckpt: error:" in capsys.readouterr().err


def test_it_imports_nothing_that_only_a_run_needs(plain):
    code = (
        f"import sys; from pytest_ckpt.cli.main import main; main(['verify', {str(plain)!r}]); "
        # numpy may be imported, because it computes the forecast again.
        "print([m for m in ('torch', 'mpi4py', 'psutil', 'cryptography') if m in sys.modules])"
    )
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2]
    )
    assert output.stdout.splitlines()[-1] == "[]"
