"""A certificate of several runs is verified with all of them, signed, and changed in no place unseen."""

from __future__ import annotations

import json
import shutil

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from pytest_ckpt.cli.main import main
from pytest_ckpt.evidence.manifest import write_manifest
from pytest_ckpt.evidence.signing import Signer, key_id, read_public_key
from tests.support import made_up_run
from tests.support.by_the_library import faults

pytestmark = pytest.mark.covers(commands=("judge", "verify"))


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
    assert "differs: combined of report.json" in shown
    assert "changed: certificate.html" in shown


def test_another_run_in_the_place_of_one_is_found(written, capsys):
    """With the id of the run that was combined, and other times."""
    out, one, other = written
    shutil.rmtree(other)
    made_up_run.make_run(other, seed=9, started=made_up_run.day_of(2), run_id=f"20310506T070809-{2:06x}")
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
