"""A bucket answers late, wrongly, with "busy", or never. The client retries, or reports an error."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import http.client
import http.server
import itertools
import socket
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from pytest_ckpt.facts.targets import Access, Names
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.targets.objects import wire
from pytest_ckpt.targets.objects.client import Bucket
from pytest_ckpt.targets.objects.errors import CutError, of_answer, without_identities
from pytest_ckpt.targets.objects.keys import read_prefix
from pytest_ckpt.targets.objects.store import open_store
from pytest_ckpt.targets.objects.target import target
from tests.support.bucket import NAMES, PART, REF, THOROUGH, Phases, create_target, loaded, save
from tests.support.certificates import write_certificate
from tests.support.targets.object_faults import faulty_store
from tests.support.targets.object_server import (
    ACCOUNT,
    BUCKET,
    CREDENTIALS,
    Fault,
    bucket_of,
    content_of,
    misbehaving_server,
)

CUT = r"get: the connection was cut: [\d,]+ of {promised} bytes were received, from byte {offset} on"


def test_a_wrong_answer_of_the_store_about_an_object_fails_its_save(server):
    storage, area = create_target(server.endpoint, "r")
    store = open_store(area)
    server.faults.append(Fault(request="put", way="lose", key="a.pt"))
    _, sink = save(store, b"bytes")
    with pytest.raises(FileNotFoundError):
        sink.finish()
    storage.clean(area, NAMES, 60.0)


def test_a_store_that_is_busy_for_a_moment_is_asked_again_and_counted(server):
    storage, area = create_target(server.endpoint, "r")
    store = open_store(area)
    server.faults.append(Fault(request="put", way="slow down", key="a.pt", times=2))
    _, sink = save(store, b"bytes")
    sink.finish()
    tally = store.requests()[server.endpoint, "put"]
    assert (tally.sent, tally.again, tally.busy) == (3, 2, 2)
    assert tally.waited_seconds > 0
    assert storage.clean(area, NAMES, 60.0) == []


def unused_endpoint() -> str:
    """Return a URL on which no server listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}"


def test_after_an_endpoint_is_gone_all_requests_use_the_next_one(server):
    storage, area = create_target(server.endpoint, "gone")
    gone = unused_endpoint()
    access = dataclasses.replace(area.access, endpoints=(gone, server.endpoint), embedded="both")
    store = open_store(dataclasses.replace(area, access=access))
    _, sink = save(store, b"bytes")
    sink.finish()
    counted = store.requests()
    # The first request went to the endpoint that is gone, all others went to the next one.
    assert [(kind, t.sent, len(t.times)) for (endpoint, kind), t in counted.items() if endpoint == gone] == [
        ("head", 1, 0)
    ]
    assert counted[server.endpoint, "head"].again == 1
    assert counted[server.endpoint, "put"].again == 0
    assert storage.clean(area, NAMES, 60.0) == []


@pytest.mark.parametrize(("way", "expected_text"), [("slow down", "SlowDown"), ("cut", "the connection was cut")])
@pytest.mark.parametrize(("borne_seconds", "refusals"), [(1000.0, 7), (0.0, 5)])
def test_a_temporary_error_is_retried_for_the_allowed_time_and_at_least_five_times(
    server, borne_seconds, refusals, way, expected_text
):
    storage, area = create_target(server.endpoint, "r")
    access = dataclasses.replace(area.access, borne_seconds=borne_seconds)
    with contextlib.closing(open_store(dataclasses.replace(area, access=access))) as store:
        server.faults.append(Fault(request="put", way=way, key="a.pt", times=refusals))
        ends = contextlib.nullcontext() if borne_seconds else pytest.raises(OSError, match=expected_text)
        with ends:
            save(store, b"bytes")
        tally = store.requests()[server.endpoint, "put"]
    assert tally.again == refusals - (not borne_seconds)
    assert tally.busy == (refusals if way == "slow down" else 0)
    storage.clean(area, NAMES, 60.0)


def test_a_connection_that_is_cut_once_is_made_again_at_the_same_endpoint(server):
    storage, area = create_target(server.endpoint, "cut")
    access = dataclasses.replace(area.access, endpoints=(server.endpoint, unused_endpoint()), embedded="both")
    store = open_store(dataclasses.replace(area, access=access))
    server.faults.append(Fault(request="put", way="cut", key="a.pt", times=1))
    _, sink = save(store, b"bytes")
    sink.finish()
    assert {endpoint for endpoint, _ in store.requests()} == {server.endpoint}
    assert storage.clean(area, NAMES, 60.0) == []


def test_a_store_without_checksums_is_checked_by_size_and_etag_and_this_is_reported(server):
    storage, area = create_target(server.endpoint, "told")
    store = open_store(area)
    server.faults += [Fault(request=request, way="no checksum", key="a.pt") for request in ("put", "head")]
    draft, sink = save(store, b"bytes")
    assert sink.finish().checksum.startswith("etag:")
    assert draft.seal()[1].acknowledged == ("only size and ETag",)
    assert storage.clean(area, NAMES, 60.0) == []


@pytest.mark.parametrize("size", [5, PART + 5])
def test_another_checksum_than_that_of_what_was_sent_fails_the_save(server, size):
    storage, area = create_target(server.endpoint, f"other-{size}")
    store = open_store(area)
    server.faults.append(Fault(request="head", way="other checksum", key="a.pt", skip=1))
    _, sink = save(store, bytes(size))
    with pytest.raises(OSError, match="the store has the CRC-32 AAAAAA==") as failed:
        sink.finish()
    assert failed.value.errno == errno.EIO
    server.faults.clear()
    assert storage.clean(area, NAMES, 60.0) == []


@pytest.mark.parametrize(
    "request_",
    ["put", "end", *(pytest.param(r, marks=THOROUGH) for r in ("begin", "part", "head", "get", "delete", "abort"))],
)
def test_a_connection_that_is_cut_is_made_again(server, request_):
    """The client repeats a request whose connection was cut, although the store has executed the request."""
    storage, area = create_target(server.endpoint, f"cut-{request_}")
    store = open_store(area)
    server.faults.append(Fault(request=request_, way="cut", times=1))
    for name, size in (("a.pt", PART + 5), ("b.pt", 5)):
        _, sink = save(store, bytes(size), name)
        sink.finish()
    _, aborted = save(store, bytes(PART + 5), "c.pt")
    aborted.abort()
    draft, sink = save(store, bytes(5), "d.pt")
    sink.finish()
    store.commit(REF, draft.seal()[0], Phases())
    assert loaded(store, "d.pt") == bytes(5)
    store.delete(REF, ["d.pt"])
    assert not server.faults[0].times
    names = Names(files={"m": frozenset(("a.pt", "b.pt", "c.pt"))})
    # An upload whose start was not confirmed is aborted like the others.
    assert storage.clean(area, names, 60.0) == []


def test_an_answer_that_a_cut_connection_makes_shorter_is_no_answer():
    """An answer that is shorter than its announced length is an error.

    The read call itself does not report this error.
    """
    with faulty_store("reset connections") as endpoint, contextlib.closing(bucket_of(endpoint)) as bucket:
        bucket.put("large", bytes(PART))
        with pytest.raises(OSError, match=CUT.format(promised=f"{PART:,}", offset="0")):
            bucket.get("large")


def test_the_error_about_a_truncated_object_shows_the_promised_and_received_bytes():
    class Cuts(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(206)
            self.send_header("Content-Length", "4000")
            self.send_header("Content-Range", "bytes 1000-4999/5000")
            self.end_headers()
            self.wfile.write(bytes(1500))

        def log_message(self, *_words):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Cuts) as cutting:
        threading.Thread(target=cutting.serve_forever, daemon=True).start()
        with contextlib.closing(bucket_of(f"http://127.0.0.1:{cutting.server_port}")) as bucket:
            view = memoryview(bytearray(4000))
            with pytest.raises(OSError, match="get: the connection was cut") as cut:
                bucket.read_into("large", 1000, view, lambda _count: None)
        cutting.shutdown()
    assert cut.value.errno == errno.ECONNRESET
    assert cut.value.strerror.endswith("cut: 1,500 of 4,000 bytes were received, from byte 1,000 on")


def test_the_error_about_a_reset_connection_shows_the_received_bytes():
    answers = iter([1500, ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")])

    def readinto(_part):
        if isinstance(answer := next(answers), Exception):
            raise answer
        return answer

    stated = SimpleNamespace(length=4000, readinto=readinto, getheader=lambda _name, other: other)
    with pytest.raises(CutError, match=r"1,500 of 4,000 bytes were received, from byte 0 on"):
        wire._read_into(stated, memoryview(bytearray(4000)), lambda _count: None)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory) -> Path:
    """Write a self-signed certificate for localhost and its key to one file; return the file."""
    return write_certificate(tmp_path_factory.mktemp("tls") / "both.pem")


def test_tls_is_verified_by_the_certificates_that_are_named(certificate):
    with misbehaving_server(certificate=certificate) as server:
        for endpoint, bundle, expected_text in (
            (server.endpoint, "", "TLS failed"),
            (server.endpoint.replace("localhost", "127.0.0.1"), str(certificate), "TLS failed"),
        ):
            with pytest.raises(UsageError, match=expected_text) as refused:
                target(BUCKET, Access(endpoints=(endpoint,), ca_bundle=bundle)).check()
            assert "AWS_CA_BUNDLE" in refused.value.remedy
        access = Access(endpoints=(server.endpoint,), ca_bundle=str(certificate))
        assert target(BUCKET, access).check().options.startswith("endpoint https://localhost:")
        storage = target(f"{BUCKET}/ckpt", access)
        store = open_store(area := storage.create_area("tls"))
        draft, sink = save(store, bytes(PART + 5))
        sink.finish()
        store.commit(REF, draft.seal()[0], Phases())
        assert loaded(store) == bytes(PART + 5)
        assert storage.clean(area, NAMES, 60.0) == []


@pytest.mark.parametrize(("request_", "expected_text"), [
    ("abort", "--upload="), ("delete", "objects.remove s3://"),
    pytest.param("put", "s3:PutObject", marks=THOROUGH), pytest.param("list", "s3:ListBucket", marks=THOROUGH),
    pytest.param("begin", "s3:PutObject", marks=THOROUGH), pytest.param("get", "s3:GetObject", marks=THOROUGH),
    pytest.param("uploads", "s3:ListBucketMultipartUploads", marks=THOROUGH),
])  # fmt: skip
def test_each_permission_that_lacks_is_named_before_a_run_without_anybody_s_identity(server, request_, expected_text):
    server.faults.append(Fault(request=request_, way="deny", key="TRIAL" if request_ == "get" else ""))
    with pytest.raises(UsageError) as refused:
        target(f"{BUCKET}/ckpt", Access(endpoints=(server.endpoint,))).create_area(f"denied-{request_}")
    assert expected_text in str(refused.value) or "permissions to put" in str(refused.value)
    assert ACCOUNT not in str(refused.value)
    assert CREDENTIALS["AWS_ACCESS_KEY_ID"] not in str(refused.value)
    keys, uploads = content_of(server.behind)
    # Objects that cannot be removed are named, and nothing else is left.
    assert bool([key for key in keys if f"denied-{request_}/" in key]) == (request_ == "delete")
    assert bool([key for key, _ in uploads if f"denied-{request_}/" in key]) == (request_ == "abort")


def test_a_bucket_that_may_not_be_listed_is_reported_with_the_permission(server):
    server.faults.append(Fault(request="list", way="deny"))
    with pytest.raises(UsageError, match="s3:ListBucket"):
        target(f"{BUCKET}/ckpt", Access(endpoints=(server.endpoint,))).check()


def test_an_endpoint_that_contains_the_bucket_is_reported_with_the_right_endpoint(monkeypatch):
    """If the host name of the endpoint contains the bucket, the error proposes the endpoint without the bucket."""

    def unknown(*_asked):
        raise of_answer(404, b"<Error><Code>NoSuchKey</Code></Error>", "list", f"s3://{BUCKET}")

    monkeypatch.setattr(Bucket, "probe", unknown)
    access = Access(endpoints=(f"https://{BUCKET}.s3.example.com:9000",), embedded="no credentials")
    with pytest.raises(UsageError, match=r"--ckpt-endpoint=https://s3\.example\.com:9000$"):
        target(f"{BUCKET}/ckpt", access).check()


def test_a_connection_is_idle_from_the_end_of_an_answer_on(honest, monkeypatch):
    """The idle time of a connection starts at the end of an answer. The time of a long request does not count."""
    # Between an answer and a request the clock is read four times, between two requests five times: 4.4 s and 5.5 s.
    connected, seconds = [], itertools.count(step=1.1)
    connect = http.client.HTTPConnection.connect
    monkeypatch.setattr(http.client.HTTPConnection, "connect", lambda self: (connected.append(self), connect(self)))
    monkeypatch.setattr(wire, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    place, access = read_prefix(BUCKET), Access(endpoints=(honest,), embedded="a look")
    with contextlib.closing(Bucket(place, access)) as bucket:
        for _ in range(3):
            bucket.probe("")
    assert len(connected) == 1


def test_identities_are_removed_from_the_message_of_a_store():
    text = f"User arn:aws:iam::{ACCOUNT}:user/me of {ACCOUNT} with AKIAIOSFODNN7EXAMPLE?X-Amz-Signature=abcdef0123"
    assert without_identities(text) == "User arn:*** of *** with ***?X-Amz-Signature=***"
