"""Requests are signed as in AWS's documentation. Credentials are read from the same sources as in AWS's SDKs."""

from __future__ import annotations

import hashlib

import pytest

from pytest_ckpt.facts.targets import Access
from pytest_ckpt.targets.objects.authentication import (
    Keys,
    NoCredentialsError,
    encoded_path,
    encoded_query,
    find_identity,
    signed,
)

# From "Authenticating Requests: Using the Authorization Header (AWS Signature Version 4)".
KEYS = Keys(access_key="AKIAIOSFODNN7EXAMPLE", secret_key="wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
HOST, MOMENT = "examplebucket.s3.amazonaws.com", "20130524T000000Z"
EMPTY = hashlib.sha256(b"").hexdigest()


@pytest.mark.parametrize(("path", "query", "headers", "signature"), [
    ("/test.txt", [], {"Range": "bytes=0-9"}, "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"),
    ("/", [("lifecycle", "")], {}, "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
    ("/", [("prefix", "J"), ("max-keys", "2")], {}, "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
])  # fmt: skip
def test_signatures_are_those_of_aws_s_examples(path, query, headers, signature):
    sent = signed("GET", path, encoded_query(query), {**headers, "host": HOST}, keys=KEYS, region="us-east-1",
                  moment=MOMENT, body=EMPTY)  # fmt: skip
    assert sent["Authorization"].endswith(f"Signature={signature}")
    assert sent["Authorization"].startswith("AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/")


def test_a_session_s_token_is_sent_and_signed():
    keys = Keys(access_key="a", secret_key="b", token="the token")
    sent = signed("GET", "/", "", {"host": HOST}, keys=keys, region="r", moment=MOMENT)
    assert sent["x-amz-security-token"] == "the token"
    assert "x-amz-security-token" in sent["Authorization"]


def test_paths_and_queries_are_written_as_they_are_signed():
    assert encoded_path("/b/a+b c/ü~") == "/b/a%2Bb%20c/%C3%BC~"
    assert encoded_query([("uploads", ""), ("prefix", "a/b")]) == "prefix=a%2Fb&uploads="


@pytest.fixture
def nothing_else(monkeypatch, tmp_path):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION",
                 "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_PROFILE"):  # fmt: skip
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    # Tests must not ask the metadata service of a cloud machine.
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return tmp_path


def test_keys_of_the_environment_come_first(nothing_else, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "one")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "two")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "three")
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://here:1/")
    found = find_identity(Access())
    assert (found.keys(), found.region, found.endpoint) == (
        Keys(access_key="one", secret_key="two", token="three"), "eu-central-1", "http://here:1",
    )  # fmt: skip
    assert find_identity(Access(endpoints=("http://there:2",))).endpoint == "http://there:2"
    assert "two" not in repr(found.keys())


def test_keys_of_a_profile_are_found(nothing_else, monkeypatch):
    (nothing_else / "credentials").write_text("[array]\naws_access_key_id = p1\naws_secret_access_key = p2\n")
    (nothing_else / "config").write_text("[profile array]\nregion = lab-1\nendpoint_url = http://array:9\n")
    monkeypatch.setenv("AWS_PROFILE", "array")
    found = find_identity(Access())
    assert (found.keys().access_key, found.region, found.endpoint) == ("p1", "lab-1", "http://array:9")


@pytest.mark.parametrize("profile", ["", "nosuchprofile"])
def test_without_keys_the_missing_variables_are_reported(nothing_else, monkeypatch, profile):
    if profile:
        monkeypatch.setenv("AWS_PROFILE", profile)
    with pytest.raises(NoCredentialsError, match=profile or "AWS_ACCESS_KEY_ID"):
        find_identity(Access())


def test_the_embedded_server_is_given_nobody_s_keys(monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "planted")
    found = find_identity(Access(endpoints=("http://127.0.0.1:1",), embedded="pytest-ckpt"))
    assert found.keys() == Keys(access_key="embedded", secret_key="embedded")
