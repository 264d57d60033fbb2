"""A Google Cloud Storage bucket as a target: credentials, and uploads in parts."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from pytest_ckpt.facts.targets import TARGETS, Access
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.targets.objects.google import below_upload, joined_key, part_key, piece_of
from pytest_ckpt.targets.objects.keys import read_url
from pytest_ckpt.targets.schemes import create_target
from tests.support.targets.other_servers import ThirdPartyServer, fake_gcs_server

PLACE = read_url("gs://checkpoints/acceptance")
UPLOAD = "0123456789abcdef"
TOKEN = "planted-token-of-google"
NAME = "robot@vendor.iam.gserviceaccount.com"


class _Google(BaseHTTPRequestHandler):
    """A server that issues access tokens. ``answers`` maps the end of a request's path to the answer."""

    answers: dict[str, tuple[int, dict[str, Any]]]
    asked: list[tuple[str, str]]

    def log_message(self, *_words: object) -> None:
        """Print nothing."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._say(200, {"access_token": TOKEN, "expires_in": 3600, "token_type": "Bearer"})

    def do_GET(self) -> None:
        self.asked.append((self.path, self.headers.get("Authorization", "")))
        path = self.path.partition("?")[0]
        self._say(*next(answer for end, answer in self.answers.items() if path.endswith(end)))

    def _say(self, status: int, words: dict[str, Any]) -> None:
        data = json.dumps(words).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture
def google(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[type[_Google], Access]]:
    """Start a server that issues access tokens and contains a bucket, and create a service account.

    Yields (handler class of the server, access).
    """
    handler = type("Handler", (_Google,), {"answers": {"/o": (200, {}), "/checkpoints": (200, {})}, "asked": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    make = ["openssl", "genpkey", "-algorithm", "rsa", "-pkeyopt", "rsa_keygen_bits:2048"]
    key = subprocess.run(make, check=True, capture_output=True, text=True).stdout
    account = {"type": "service_account", "client_email": NAME, "private_key": key, "private_key_id": "1",
               "token_uri": f"{url}/token", "project_id": "vendor", "client_id": "1"}  # fmt: skip
    file = tmp_path / "account.json"
    file.write_text(json.dumps(account))
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    yield handler, Access(endpoints=(url,))
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_service_account_authenticates_with_its_own_token(google: tuple[type[_Google], Access]) -> None:
    handler, access = google
    facts = create_target(TARGETS["gs"], PLACE.url, access).check()
    assert (facts.kind, facts.gate_kind, facts.capabilities) == ("gs", "object-local", frozenset({"objects"}))
    assert {word for _, word in handler.asked} == {f"Bearer {TOKEN}"}


def test_a_bucket_that_keeps_what_is_deleted_is_refused(google: tuple[type[_Google], Access]) -> None:
    handler, access = google
    for facts in ({"versioning": {"enabled": True}}, {"softDeletePolicy": {"retentionDurationSeconds": "604800"}}):
        handler.answers["/checkpoints"] = (200, facts)
        with pytest.raises(UsageError, match="would stay"):
            create_target(TARGETS["gs"], PLACE.url, access).check()
    handler.answers["/checkpoints"] = (200, {"softDeletePolicy": {"retentionDurationSeconds": "0"}})
    create_target(TARGETS["gs"], PLACE.url, access).check()


def test_a_refusal_names_neither_token_nor_account(google: tuple[type[_Google], Access]) -> None:
    handler, access = google
    error = {"code": 403, "message": f"{NAME} with {TOKEN} may not.", "errors": [{"reason": "forbidden"}]}
    handler.answers["/o"] = (403, {"error": error})
    with pytest.raises(UsageError, match="forbidden") as refused:
        create_target(TARGETS["gs"], PLACE.url, access).check()
    assert NAME not in str(refused.value)
    assert TOKEN not in str(refused.value)


def test_missing_credentials_are_reported_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    with pytest.raises(UsageError, match=r"none\.json was not found") as refused:
        create_target(TARGETS["gs"], PLACE.url, Access()).check()
    assert "GOOGLE_APPLICATION_CREDENTIALS" in refused.value.remedy


def test_parts_are_distinguished_from_objects_by_their_keys() -> None:
    for made in (part_key("a/b", UPLOAD, 7), joined_key("a/b", UPLOAD, 1, 2), below_upload("a/b", UPLOAD)):
        piece = piece_of(made)
        assert piece
        assert (piece.key, piece.upload) == ("a/b", UPLOAD)
    for other in ("a/b", "a/b.upload-1/00001", f".upload-{UPLOAD}/1", f"a.upload-{UPLOAD}", f"a.upload-{UPLOAD}/1/2"):
        assert piece_of(other) is None


# --- fake-gcs-server --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[ThirdPartyServer]:
    with fake_gcs_server() as started:
        yield started


@pytest.mark.thorough
def test_an_object_of_more_parts_than_are_composed_at_once_is_complete_and_leaves_no_part(
    server: ThirdPartyServer,
) -> None:
    count = 70  # parts are composed in three groups of up to 32, and then these three
    with server.bucket() as bucket:
        upload = bucket.begin_upload("of parts")
        sent = [(number, *bucket.put_part("of parts", upload, number, memoryview(bytes([number]))))
                for number in range(count, 0, -1)]  # fmt: skip
        assert bucket.uploads("") == [("of parts", upload)]
        assert bucket.keys("") == bucket.directories("") == []
        bucket.end_upload("of parts", upload, sorted(sent))
        assert bucket.get("of parts") == b"".join(bytes([number]) for number in range(1, count + 1))
        with pytest.raises(FileExistsError):
            bucket.put("of parts", b"", if_absent=True)
        # Google answers 404; the emulator reports a failure.
        with pytest.raises(OSError, match="end upload"):
            bucket.end_upload("of parts", upload, sorted(sent))
        bucket.delete("of parts")
        bucket.delete("of parts")
    assert server.stored_keys() == ([], [])


@pytest.mark.thorough
def test_parts_that_a_killed_run_sent_are_removed_and_what_is_not_its_own_is_named(server: ThirdPartyServer) -> None:
    (left,) = server.clean_up_after_a_killed_run()
    assert "strange.pt was not aborted" in left
    assert "targets.objects.remove gs://test/" in left
    assert server.stored_keys() == ([], [])
