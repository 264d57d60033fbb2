"""A container of Azure as a target: credentials, signatures, and the meaning of answers."""

from __future__ import annotations

import base64
import hashlib
import hmac
import threading
import urllib.parse
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from pytest_ckpt.facts.targets import TARGETS, Access
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.targets.objects.authentication import NoCredentialsError
from pytest_ckpt.targets.objects.azure import DialectOfAzure, authorization, find_account
from pytest_ckpt.targets.objects.client import Bucket
from pytest_ckpt.targets.objects.keys import read_url
from pytest_ckpt.targets.schemes import create_target
from tests.support.targets.other_servers import ThirdPartyServer, azurite

KEY = base64.b64encode(b"planted key of the account").decode()
TOKEN = "sv=2024-08-04&sp=racwdl&sig=planted%2Fsignature"
PLACE = read_url("az://checkpoints/acceptance")
ENVIRONMENT = {"AZURE_STORAGE_ACCOUNT": "vendor", "AZURE_STORAGE_KEY": KEY}


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_SAS_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    "environment",
    [
        ENVIRONMENT,
        {"AZURE_STORAGE_ACCOUNT_NAME": "vendor", "AZURE_STORAGE_ACCOUNT_KEY": KEY},
        {"AZURE_STORAGE_CONNECTION_STRING": f"DefaultEndpointsProtocol=https;AccountName=vendor;AccountKey={KEY}"},
    ],
)
def test_an_account_and_its_key_are_found_where_azures_tools_have_them(environment: dict[str, str]) -> None:
    found = find_account(environment)
    assert (found.name, found.key) == ("vendor", KEY)
    assert KEY not in repr(found)


@pytest.mark.parametrize("environment", [{}, {"AZURE_STORAGE_ACCOUNT": "vendor"}, {"AZURE_STORAGE_KEY": KEY}])
def test_a_missing_account_is_reported_with_the_variables_to_set(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NoCredentialsError, match="AZURE_STORAGE_CONNECTION_STRING"):
        find_account(environment)
    for name in ("AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_KEY", "AZURE_STORAGE_CONNECTION_STRING"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UsageError, match="AZURE_STORAGE_SAS_TOKEN") as refused:
        create_target(TARGETS["az"], PLACE.url, Access()).check()
    assert refused.value.remedy.startswith("Set AZURE_STORAGE_ACCOUNT")


def test_the_signature_covers_all_parts_of_a_request() -> None:
    def of(
        method: str = "PUT", path: str = "/c/a%20b", query: str = "comp=block&blockid=QQ%3D%3D", size: int = 5
    ) -> str:
        headers = {"host": "ignored", "content-md5": "m", "if-none-match": "*", "x-ms-version": "v", "x-ms-date": "d"}
        return authorization(method, path, query, headers, size, account="vendor", key=KEY)

    text = "PUT\n\n\n5\nm\n\n\n\n\n*\n\n\nx-ms-date:d\nx-ms-version:v\n/vendor/c/a%20b\nblockid:QQ==\ncomp:block"
    signature = hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()
    assert of() == f"SharedKey vendor:{base64.b64encode(signature).decode()}"
    assert len({of(), of("GET"), of(path="/c/b"), of(query=""), of(size=0)}) == 5


@pytest.mark.usefixtures("account")
@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("", ("https://vendor.blob.core.windows.net", "")),
        ("https://blob.array.example", ("https://blob.array.example", "")),
        ("http://127.0.0.1:10000", ("http://127.0.0.1:10000", "/vendor")),
    ],
)
def test_an_endpoint_without_a_name_has_the_account_in_its_paths(url: str, expected: tuple[str, str]) -> None:
    (found,) = DialectOfAzure(PLACE, Access(endpoints=(url,) if url else ())).endpoints
    assert (found.url, found.root) == expected


@pytest.mark.usefixtures("account")
def test_a_token_is_part_of_the_query_and_signs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_KEY")
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", f"?{TOKEN}")
    dialect = DialectOfAzure(PLACE, Access())
    query, headers = dialect.signed("GET", "/c", "comp=list", {}, b"")
    assert query == f"comp=list&{TOKEN}"
    assert "Authorization" not in headers
    assert dialect.hidden()[1:] == (TOKEN, "planted/signature")


# --- the meaning of answers -------------------------------------------------------------------------------------------


class _Canned(BaseHTTPRequestHandler):
    answers: dict[str, tuple[int, str]]

    def log_message(self, *_words: object) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query))
        word = query.get("marker") or query.get("comp") or "blob"
        status, text = self.answers[word]
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture
def canned(account: None) -> Iterator[tuple[dict[str, tuple[int, str]], Access]]:
    answers: dict[str, tuple[int, str]] = {}
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Canned,), {"answers": answers}))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield answers, Access(endpoints=(f"http://127.0.0.1:{server.server_address[1]}",))
    server.shutdown()
    server.server_close()
    thread.join()


def _page(blobs: str, marker: str = "") -> tuple[int, str]:
    return (
        200,
        f"\ufeff<EnumerationResults><Blobs>{blobs}</Blobs><NextMarker>{marker}</NextMarker></EnumerationResults>",
    )


def _blob(name: str, encoded: str = "") -> str:
    facts = "<Properties><Etag>0x1</Etag><Content-Length>7</Content-Length></Properties>"
    return f"<Blob><Name{encoded}>{name}</Name>{facts}</Blob>"


def test_listings_go_over_all_pages_and_names_that_xml_cannot_hold(canned) -> None:
    answers, access = canned
    answers["list"] = _page(_blob("a/1") + _blob("a/%EF%BF%BE", ' Encoded="true"'), "next")
    answers["next"] = _page("<BlobPrefix><Name>a/b/</Name></BlobPrefix>" + _blob("a/2"))
    bucket = Bucket(PLACE, access)
    assert bucket.keys("a/") == ["a/1", "a/%EF%BF%BE", "a/2"]
    assert bucket.directories("a/") == ["a/b/"]
    bucket.close()


def test_a_container_that_keeps_what_is_deleted_is_refused(canned) -> None:
    answers, access = canned
    answers["list"] = _page("")
    kept = "<DeleteRetentionPolicy><Enabled>{}</Enabled></DeleteRetentionPolicy>"
    answers["properties"] = (200, f"<StorageServiceProperties>{kept.format('true')}</StorageServiceProperties>")
    target = create_target(TARGETS["az"], PLACE.url, access)
    with pytest.raises(UsageError, match="would stay"):
        target.check()
    answers["properties"] = (200, f"<StorageServiceProperties>{kept.format('false')}</StorageServiceProperties>")
    facts = target.check()
    assert (facts.kind, facts.gate_kind, facts.capabilities) == ("az", "object-local", frozenset({"objects"}))


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [(403, "AuthenticationFailed", "Set AZURE_STORAGE_ACCOUNT"), (404, "ContainerNotFound", "Make the container")],
)
def test_a_refusal_is_reported_with_what_to_do_and_without_the_key(canned, status: int, code: str, words: str) -> None:
    answers, access = canned
    answers["list"] = (status, f"<Error><Code>{code}</Code><Message>It is not {KEY}, nor ?sig=abc.</Message></Error>")
    with pytest.raises(UsageError, match=code) as refused:
        create_target(TARGETS["az"], PLACE.url, access).check()
    assert words in refused.value.remedy
    assert KEY not in str(refused.value)
    assert "sig=abc" not in str(refused.value)


# --- Microsoft's emulator ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[ThirdPartyServer]:
    with azurite() as started:
        yield started


@pytest.mark.thorough
def test_an_object_of_blocks_is_complete_and_unfinished_blocks_are_listed_and_forgotten(
    server: ThirdPartyServer,
) -> None:
    with server.bucket() as bucket:
        upload = bucket.begin_upload("of blocks")
        sent = [(number, *bucket.put_part("of blocks", upload, number, memoryview(bytes([number]) * 1000)))
                for number in (2, 1)]  # fmt: skip
        assert bucket.uploads("") == [("of blocks", upload)]
        assert not bucket.is_there("of blocks")
        bucket.end_upload("of blocks", upload, sorted(sent))
        assert bucket.get("of blocks") == b"\1" * 1000 + b"\2" * 1000
        window = memoryview(bytearray(10))
        assert bucket.read_into("of blocks", 995, window, lambda _count: None) == 10
        assert bytes(window) == b"\1" * 5 + b"\2" * 5
        with pytest.raises(FileExistsError):
            bucket.put("of blocks", b"", if_absent=True)
        other = bucket.begin_upload("begun")
        bucket.put_part("begun", other, 1, memoryview(b"1"))
        bucket.abort_upload("begun", other)
        bucket.delete("of blocks")
        bucket.delete("of blocks")
    assert server.stored_keys() == ([], [])


@pytest.mark.thorough
def test_uploads_of_a_killed_run_are_removed_and_foreign_uploads_are_named(server: ThirdPartyServer) -> None:
    (left,) = server.clean_up_after_a_killed_run()
    assert "strange.pt was not aborted" in left
    assert "targets.objects.remove az://test/" in left
    assert server.stored_keys() == ([], [])
