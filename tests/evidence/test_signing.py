"""The signature follows DSSE and in-toto, and OpenSSL verifies it. Unusable keys are refused."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import subprocess
import sys

import pytest

from pytest_ckpt.cli.main import main
from pytest_ckpt.evidence.attestation import (
    Envelope,
    Signature,
    envelope_bytes,
    pre_authentication_encoding,
    read_envelope,
    statement,
)
from pytest_ckpt.evidence.manifest import ATTESTATION
from pytest_ckpt.evidence.signing import read_private_key, read_public_key
from pytest_ckpt.support.errors import UsageError
from tests.support import synthetic_run

OPENSSL = shutil.which("openssl")


def openssl(*words):
    assert OPENSSL, "these tests check our signatures with OpenSSL, which is not installed"
    return subprocess.run([OPENSSL, *map(str, words)], check=True, capture_output=True).stdout


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """Return a directory with a key pair (key.pem, key.pub) created by the documented commands."""
    home = tmp_path_factory.mktemp("keys")
    openssl("genpkey", "-algorithm", "ed25519", "-out", home / "key.pem")
    openssl("pkey", "-in", home / "key.pem", "-pubout", "-out", home / "key.pub")
    return home


@pytest.fixture(scope="module")
def run(tmp_path_factory, keys):
    directory = tmp_path_factory.mktemp("run") / "ckpt-report"
    signer = read_private_key(keys / "key.pem", option="--ckpt-sign")
    synthetic_run.write_run(directory, signer=signer, options={"ckpt_sign": str(keys / "key.pem")})
    return directory


def test_the_encoding_is_that_of_the_specification():
    """The encoding equals the example in DSSE's protocol.md. Lengths are in bytes, not in characters."""
    found = pre_authentication_encoding("http://example.com/HelloWorld", b"hello world")
    assert found == b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    assert pre_authentication_encoding("é", "ü".encode()) == b"DSSEv1 2 \xc3\xa9 2 \xc3\xbc"
    assert pre_authentication_encoding("", b"") == b"DSSEv1 0  0 "


def test_openssl_finds_the_signature_right_and_a_changed_payload_wrong(run, keys, tmp_path):
    envelope = json.loads((run / ATTESTATION).read_text())
    assert envelope["payloadType"] == "application/vnd.in-toto+json"
    payload = base64.b64decode(envelope["payload"], validate=True)
    (one,) = envelope["signatures"]
    (tmp_path / "sig").write_bytes(base64.b64decode(one["sig"], validate=True))
    kind = envelope["payloadType"].encode()
    encoded = b"DSSEv1 " + str(len(kind)).encode() + b" " + kind + b" " + str(len(payload)).encode() + b" " + payload
    words = ("pkeyutl", "-verify", "-pubin", "-inkey", keys / "key.pub", "-rawin", "-sigfile", tmp_path / "sig")
    (tmp_path / "pae").write_bytes(encoded)
    assert b"Successfully" in openssl(*words, "-in", tmp_path / "pae")
    (tmp_path / "pae").write_bytes(encoded.replace(b"WARNED", b"PASSED"))
    with pytest.raises(subprocess.CalledProcessError):
        openssl(*words, "-in", tmp_path / "pae")
    der = openssl("pkey", "-pubin", "-in", keys / "key.pub", "-outform", "DER")
    assert one["keyid"] == hashlib.sha256(der).hexdigest()


def test_the_statement_is_an_in_toto_test_result_about_report_and_manifest(run):
    document = json.loads(read_envelope((run / ATTESTATION).read_bytes()).payload)
    assert document["_type"] == "https://in-toto.io/Statement/v1"
    assert document["predicateType"] == "https://in-toto.io/attestation/test-result/v0.1"
    assert {s["name"]: s["digest"] for s in document["subject"]} == {
        name: {"sha256": hashlib.sha256((run / name).read_bytes()).hexdigest()}
        for name in ("manifest.sha256", "report.json")
    }
    predicate = document["predicate"]
    assert predicate["result"] == "WARNED", "a rehearsal that met everything certifies nothing"
    (configuration,) = predicate["configuration"]
    assert configuration["name"] == "plan.json"
    assert f"SAVE {synthetic_run.SUBJECT}" in predicate["passedTests"]
    assert predicate["failedTests"] == []


@pytest.mark.parametrize(
    ("grade", "exit_code", "result"),
    [
        ("certified", 0, "PASSED"),
        ("rehearsal", 0, "WARNED"),
        ("rehearsal", 1, "FAILED"),
        ("not certified", 1, "FAILED"),
        ("not certified", 0, "FAILED"),
        ("incomplete", 8, "FAILED"),
        ("certified", 2, "FAILED"),
    ],
)
def test_only_certified_runs_are_called_passed(grade, exit_code, result):
    verdicts = [
        {"id": name, "subject": "s", "outcome": outcome, "severity": severity}
        for name, outcome, severity in [
            ("A", "met", "required"), ("B", "failed", "required"), ("C", "failed", "advisory"),
            ("D", "waived", "required"), ("E", "not run", "required"),
        ]
    ]  # fmt: skip
    document = {"grade": grade, "exit_code": exit_code, "requirements": verdicts}
    content = json.loads(statement(document, {"manifest.sha256": "0", "report.json": "1"}))["predicate"]
    assert content["result"] == result
    assert (content["passedTests"], content["failedTests"], content["warnedTests"]) == (
        ["A s"],
        ["B s"],
        ["C s", "D s"],
    )


def test_an_envelope_comes_back_from_its_bytes_in_either_base64():
    envelope = Envelope(
        payload=bytes(range(256)), payload_type="t", signatures=(Signature(keyid="k", sig=b"\xff\xfe"),)
    )
    data = envelope_bytes(envelope)
    assert read_envelope(data) == envelope
    assert read_envelope(data.replace(b"+", b"-").replace(b"/", b"_")) == envelope


@pytest.mark.parametrize("data", [b"", b"[]", b"null", b"{}", b'{"payload": 1, "payloadType": "", "signatures": []}',
                                  b'{"payload": "*", "payloadType": "", "signatures": []}',
                                  b'{"payload": "", "payloadType": "", "signatures": [1]}', b"\xff", b"[" * 100_000,
                                  b'{"payload": "", "payload": "", "payloadType": "", "signatures": []}'])  # fmt: skip
def test_an_invalid_envelope_is_refused(data):
    with pytest.raises(ValueError, match="no DSSE envelope"):
        read_envelope(data)


def test_verify_takes_the_public_key(run, keys, capsys):
    assert main(["verify", str(run), f"--key={keys / 'key.pub'}"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "UNCHANGED since it was signed"


def other_keys(home):
    openssl("genpkey", "-algorithm", "X25519", "-out", home / "x25519.pem")
    openssl("pkey", "-in", home / "x25519.pem", "-pubout", "-out", home / "x25519.pub")
    openssl("genpkey", "-algorithm", "ed25519", "-aes256", "-pass", "pass:abc", "-out", home / "locked.pem")
    (home / "text.pem").write_text("not a key")
    (home / "empty.pem").write_text("")


def test_a_key_that_cannot_sign_is_a_usage_error_with_the_reason(keys, tmp_path):
    other_keys(tmp_path)
    for file, why in (
        (keys / "key.pub", "not a private key in PEM"),
        (tmp_path / "x25519.pem", "another kind of key; Ed25519 is expected"),
        (tmp_path / "locked.pem", "protected by a passphrase"),
        (tmp_path / "text.pem", "not a private key in PEM"),
        (tmp_path / "empty.pem", "not a private key in PEM"),
        (tmp_path / "none.pem", "cannot be read: No such file"),
        (tmp_path, "cannot be read: Is a directory"),
    ):
        with pytest.raises(UsageError, match=why) as raised:
            read_private_key(file, option="--ckpt-sign")
        assert raised.value.remedy
    for file, why in (
        (keys / "key.pem", "not a public key in PEM"),
        (tmp_path / "x25519.pub", "another kind of key"),
        (tmp_path / "none.pem", "cannot be read"),
    ):
        with pytest.raises(UsageError, match=why):
            read_public_key(file, option="--key")


@pytest.mark.parametrize("function", [read_private_key, read_public_key])
def test_without_the_library_the_extra_is_named(monkeypatch, tmp_path, function):
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric.ed25519", None)
    with pytest.raises(UsageError, match=r"pip install 'pytest-ckpt\[sign\]'"):
        function(tmp_path / "key.pem", option="--ckpt-sign")


def test_a_bad_key_ends_a_run_before_anything_is_written(run_pytest, pytester):
    (pytester.path / "target").mkdir()
    (pytester.path / "key.pem").write_text("not a key")
    result = run_pytest("--ckpt-target=target", "--cluster=64", "--ckpt-sign=key.pem")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*--ckpt-sign key.pem: it is not a private key in PEM*", "*openssl genpkey*"])
    assert not list((pytester.path / "target").iterdir())
    assert not (pytester.path / "ckpt-report").exists()
