"""A bucket as a target: parts, acknowledgements, keys, clean-up; what all targets share is in test_store_contract."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import gc
import os
import socket
import threading
import tracemalloc
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pytest_ckpt.facts.targets import Access, AreaRef, CheckpointRef, Names
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.targets.objects import parts
from pytest_ckpt.targets.objects.errors import without_identities
from pytest_ckpt.targets.objects.keys import MARKER, checkpoint_key, checkpoint_number, read_prefix, sort_out
from pytest_ckpt.targets.objects.store import ObjectStore, open_store
from pytest_ckpt.targets.objects.target import ObjectTarget, target
from tests.support.certificates import write_certificate
from tests.support.targets import object_faults_sizes  # noqa: F401 - its faults are in the table, too
from tests.support.targets.object_faults import faulty_store
from tests.support.targets.object_server import (
    ACCOUNT,
    BUCKET,
    CREDENTIALS,
    Fault,
    Misbehaving,
    bucket_of,
    misbehaving_server,
    object_server,
    what_lies_in,
)

REF = CheckpointRef(subject="m", number=1)
NAMES = Names(files={"m": frozenset(("a.pt", "b.pt"))})
PART = parts.MINIMUM_PART_BYTES
THOROUGH = pytest.mark.thorough


class Phases:
    """Phases of which only the bytes count."""

    def __init__(self) -> None:
        self.bytes = 0
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def phase(self, name: str, file: str = "") -> Iterator[None]:
        yield

    def moved(self, count: int) -> None:
        with self._lock:
            self.bytes += count


@pytest.fixture(scope="module")
def honest() -> Iterator[str]:
    with object_server() as endpoint:
        yield endpoint


@pytest.fixture(scope="module")
def misbehaving() -> Iterator[Misbehaving]:
    with misbehaving_server() as found:
        yield found


@pytest.fixture
def server(misbehaving) -> Iterator[Misbehaving]:
    yield misbehaving
    misbehaving.faults.clear()


@pytest.fixture(autouse=True)
def credentials(monkeypatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


def made(endpoint: str, run_id: str, prefix: str = "ckpt") -> tuple[ObjectTarget, AreaRef]:
    storage = target(f"{BUCKET}/{prefix}", Access(endpoints=(endpoint,)))
    return storage, storage.create_area(run_id)


@pytest.fixture
def store(honest, request) -> Iterator[ObjectStore]:
    storage, area = made(honest, "run", request.node.name.replace("[", "-").replace("]", ""))
    attached = open_store(area)
    yield attached
    attached.close()
    storage.clean(area, NAMES, 60.0)


def save(store: ObjectStore, data: bytes, name: str = "a.pt", ref: CheckpointRef = REF, *, order: int = 1):
    """Save one object by parts from three threads, last part first where ``order`` is -1."""
    draft = store.begin(ref, Phases())
    sink = draft.create(name, len(data))
    memory, step = bytearray(data), sink.part_bytes or 1
    with ThreadPoolExecutor(3) as threads:
        offsets = range(0, len(data), step)[::order]
        list(threads.map(lambda at: sink.write_at(at, memoryview(memory)[at : at + step]), offsets))
    return draft, sink


def loaded(store: ObjectStore, name: str = "a.pt", ref: CheckpointRef = REF) -> bytes:
    source = store.open(ref, Phases()).source(name)
    buffer = bytearray(source.size + 10)
    return bytes(buffer[: source.read_into(0, buffer)])


# --- parts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "minimum", "expected"), [
    (1, 0, PART), (PART * parts.MAXIMUM_PARTS, 4 << 20, PART), (PART * parts.MAXIMUM_PARTS + 1, 0, 6 << 20),
    (1, 16 << 20, 16 << 20), (5 << 40, 0, 525 << 20), (None, 0, 16 << 20),
])  # fmt: skip
def test_no_object_needs_more_parts_than_a_store_takes(size, minimum, expected):
    chosen = parts.part_bytes(size, minimum)
    assert chosen == expected
    assert chosen >= PART
    assert size is None or -(-size // chosen) <= parts.MAXIMUM_PARTS


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize(
    "size", [1, PART + 1, *(pytest.param(s, marks=THOROUGH) for s in (PART, 2 * PART, 2 * PART + 12_345))]
)
def test_an_object_of_parts_in_any_order_comes_back_with_its_checksum(store, size, order):
    data = os.urandom(size)
    draft, sink = save(store, data, order=order)
    assert sink.finish().checksum.startswith("crc32:")
    entries, proof = draft.seal()
    assert proof.acknowledged == ("size and CRC-32",)
    store.commit(REF, entries, Phases())
    assert loaded(store) == data


def test_bytes_in_order_become_parts_whatever_their_pieces(store):
    data = os.urandom((16 << 20) + 54_321)
    draft = store.begin(REF, Phases())
    sink = draft.create("a.pt", None)
    assert sink.write(data[:100]) + sink.write(data[100:-7]) + sink.write(data[-7:]) == len(data)
    assert sink.finish().bytes == len(data)
    store.commit(REF, draft.seal()[0], Phases())
    assert loaded(store) == data


def test_an_empty_object_is_one(store):
    draft = store.begin(REF, Phases())
    assert draft.create("a.pt", None).finish().bytes == 0
    store.commit(REF, draft.seal()[0], Phases())
    assert loaded(store) == b""


def test_a_part_is_sent_from_the_caller_s_memory(store):
    """The client library may copy a piece of a part, and not the part."""
    part = 16 << 20
    store._bucket.part_bytes = part
    sink = store.begin(REF, Phases()).create("a.pt", 3 * part)
    memory = bytearray(part)
    sink.write_at(0, memory)
    tracemalloc.start()
    try:
        sink.write_at(part, memory)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    sink.abort()
    assert peak < part / 2


def test_an_error_of_the_store_keeps_no_memory_of_its_callers(store):
    """An error that somebody holds by name holds its frames, and they the buffers of whoever asked."""

    def asked() -> weakref.ref:
        held = threading.Event()
        assert not store.is_committed(REF)
        return weakref.ref(held)

    gc.disable()
    try:
        assert asked()() is None
    finally:
        gc.enable()


def test_parts_that_are_not_whole_or_that_lack_are_refused(store):
    sink = store.begin(REF, Phases()).create("a.pt", 2 * PART)
    for offset, count in ((1, 100), (0, 100)):
        with pytest.raises(OSError, match="parts are whole"):
            sink.write_at(offset, bytearray(count))
    sink.write_at(PART, bytearray(PART))
    with pytest.raises(OSError, match="the part is there"):
        sink.write_at(PART, bytearray(PART))
    with pytest.raises(OSError, match="parts are missing"):
        sink.finish()
    sink.abort()


# --- commit, load, delete ---------------------------------------------------------------------------------------------


def test_a_checkpoint_is_committed_once_and_by_nobody_else_s_marker(store):
    draft, sink = save(store, b"bytes")
    sink.finish()
    entries, _ = draft.seal()
    store.commit(REF, entries, Phases())
    store.commit(REF, entries, Phases())
    with pytest.raises(FileExistsError):
        store.commit(REF, (), Phases())
    assert store.is_committed(REF)


def test_a_deletion_takes_the_marker_first(store):
    draft, sink = save(store, b"bytes")
    sink.finish()
    store.commit(REF, draft.seal()[0], Phases())
    store.delete(REF, [])
    assert not store.is_committed(REF)
    with pytest.raises(FileNotFoundError):
        loaded(store)


def test_an_object_that_the_marker_does_not_name_is_none_of_the_checkpoint(store):
    draft, sink = save(store, b"bytes")
    sink.finish()
    store.commit(REF, draft.seal()[0], Phases())
    _, other = save(store, b"more", "b.pt")
    other.finish()
    with pytest.raises(FileNotFoundError):
        loaded(store, "b.pt")


# --- keys and places --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "location", ["", "Bucket/p", "b", "bu_cket/p", "bucket//p", "bucket/a/../b", "bucket/" + 601 * "x"]
)
def test_what_names_no_place_is_refused(location):
    with pytest.raises(UsageError) as refused:
        read_prefix(location)
    assert refused.value.remedy


def test_a_save_of_the_same_number_has_keys_of_its_own():
    again = CheckpointRef(subject="m", number=12, attempt=2)
    assert checkpoint_key(CheckpointRef(subject="m", number=12)) == "m/checkpoint-0012"
    assert checkpoint_key(again) == "m/checkpoint-0012-again-2"
    assert checkpoint_number("checkpoint-0012-again-2") == 12
    assert checkpoint_number("checkpoint-12x") is None


def test_ranks_take_endpoints_in_turn():
    access = Access(endpoints=("a", "b", "c"))
    assert [access.of_client(n).endpoints[0] for n in range(7)] == ["a", "b", "c", "a", "b", "c", "a"]
    assert Access().of_client(5) == Access()


def test_strange_keys_keep_the_marker_of_their_checkpoint():
    keys = ["OWNER.json", "m/checkpoint-0001/a.pt", f"m/checkpoint-0001/{MARKER}", "m/checkpoint-0002/x.pt",
            f"m/checkpoint-0002/{MARKER}", "pointer", "checks/a/b", "m/ballast"]  # fmt: skip
    found = sort_out(keys, {"m": ["a.pt"]}, {"m": ["ballast"]}, ["checks"])
    assert set(found.own) == {"m/checkpoint-0001/a.pt", f"m/checkpoint-0001/{MARKER}", "checks/a/b", "m/ballast"}
    assert found.own[0] == f"m/checkpoint-0001/{MARKER}"
    assert found.strange == ("m/checkpoint-0002/x.pt", "pointer")


# --- clean-up ---------------------------------------------------------------------------------------------------------


def test_unfinished_uploads_are_aborted_and_strange_ones_named(honest):
    storage, area = made(honest, "r", "uploads")
    store = open_store(area)
    store.begin(REF, Phases()).create("a.pt", 3 * PART).write_at(0, bytearray(PART))
    store.begin(REF, Phases()).create("strange.pt", 3 * PART)
    (left,) = storage.clean(area, NAMES, 60.0)
    assert "strange.pt" in left
    assert "aws s3api abort-multipart-upload" in left
    assert [key for key, _ in what_lies_in(honest)[1] if "uploads/" in key] == [
        f"uploads/pytest-ckpt-r/{checkpoint_key(REF)}/strange.pt"
    ]
    assert storage.clean(area, Names(files={"m": frozenset(("strange.pt",))}), 60.0) == []
    assert [key for key in what_lies_in(honest)[0] if key.startswith("uploads/")] == []


def test_a_store_that_does_not_answer_holds_nobody(server):
    storage, area = made(server.endpoint, "silent")
    server.faults.append(Fault(request="list", way="silent"))
    (left,) = storage.clean(area, NAMES, 2.0)
    assert "did not answer for 2 s" in left
    assert "aws s3 rm --recursive s3://test/ckpt/pytest-ckpt-silent" in left
    server.faults.clear()
    assert storage.clean(area, NAMES, 60.0) == []


# --- a store that misbehaves ------------------------------------------------------------------------------------------


def test_what_the_store_says_wrong_of_an_object_fails_its_save(server):
    storage, area = made(server.endpoint, "r")
    store = open_store(area)
    server.faults.append(Fault(request="put", way="lose", key="a.pt"))
    _, sink = save(store, b"bytes")
    with pytest.raises(FileNotFoundError):
        sink.finish()
    storage.clean(area, NAMES, 60.0)


def test_a_store_that_is_busy_for_a_moment_is_asked_again_and_counted(server):
    storage, area = made(server.endpoint, "r")
    store = open_store(area)
    server.faults.append(Fault(request="put", way="slow down", key="a.pt", times=2))
    _, sink = save(store, b"bytes")
    sink.finish()
    tally = store.requests()[server.endpoint, "put"]
    assert (tally.sent, tally.again, tally.busy) == (3, 2, 2)
    assert tally.waited_seconds > 0
    assert storage.clean(area, NAMES, 60.0) == []


def unused_endpoint() -> str:
    """Return a URL at which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}"


def test_where_an_endpoint_is_gone_the_next_one_is_used_for_all_that_follows(server):
    storage, area = made(server.endpoint, "gone")
    gone = unused_endpoint()
    access = dataclasses.replace(area.access, endpoints=(gone, server.endpoint), embedded="both")
    store = open_store(dataclasses.replace(area, access=access))
    _, sink = save(store, b"bytes")
    sink.finish()
    counted = store.requests()
    # The first request met the one that is gone, and all others went to the next.
    assert [(kind, t.sent, len(t.times)) for (endpoint, kind), t in counted.items() if endpoint == gone] == [
        ("head", 1, 0)
    ]
    assert counted[server.endpoint, "head"].again == 1
    assert counted[server.endpoint, "put"].again == 0
    assert storage.clean(area, NAMES, 60.0) == []


@pytest.mark.parametrize(("busy_seconds", "refusals"), [(1000.0, 7), (0.0, 5)])
def test_a_store_that_is_busy_is_borne_as_long_as_is_allowed_and_at_least_five_times(server, busy_seconds, refusals):
    storage, area = made(server.endpoint, "r")
    access = dataclasses.replace(area.access, busy_seconds=busy_seconds)
    with contextlib.closing(open_store(dataclasses.replace(area, access=access))) as store:
        server.faults.append(Fault(request="put", way="slow down", key="a.pt", times=refusals))
        ends = contextlib.nullcontext() if busy_seconds else pytest.raises(OSError, match="SlowDown")
        with ends:
            save(store, b"bytes")
        tally = store.requests()[server.endpoint, "put"]
    assert tally.busy == refusals
    storage.clean(area, NAMES, 60.0)


def test_a_connection_that_is_cut_once_is_made_again_at_the_same_endpoint(server):
    storage, area = made(server.endpoint, "cut")
    access = dataclasses.replace(area.access, endpoints=(server.endpoint, unused_endpoint()), embedded="both")
    store = open_store(dataclasses.replace(area, access=access))
    server.faults.append(Fault(request="put", way="cut", key="a.pt", times=1))
    _, sink = save(store, b"bytes")
    sink.finish()
    assert {endpoint for endpoint, _ in store.requests()} == {server.endpoint}
    assert storage.clean(area, NAMES, 60.0) == []


def test_a_store_without_checksums_is_taken_by_size_and_etag_and_it_is_told(server):
    storage, area = made(server.endpoint, "told")
    store = open_store(area)
    server.faults += [Fault(request=request, way="no checksum", key="a.pt") for request in ("put", "head")]
    draft, sink = save(store, b"bytes")
    assert sink.finish().checksum.startswith("etag:")
    assert draft.seal()[1].acknowledged == ("size and ETag alone",)
    assert storage.clean(area, NAMES, 60.0) == []


@pytest.mark.parametrize("size", [5, PART + 5])
def test_another_checksum_than_that_of_what_was_sent_fails_the_save(server, size):
    storage, area = made(server.endpoint, f"other-{size}")
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
    """The store has done what it was asked for, and nobody hears of it."""
    storage, area = made(server.endpoint, f"cut-{request_}")
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
    # An upload whose beginning nobody heard of is aborted with the others.
    assert storage.clean(area, names, 60.0) == []


def test_an_answer_that_a_cut_connection_makes_shorter_is_no_answer():
    """A read of at most so many bytes does not say that the connection ended before the announced ones."""
    with faulty_store("reset connections") as endpoint, contextlib.closing(bucket_of(endpoint)) as bucket:
        bucket.put("large", bytes(PART))
        with pytest.raises(OSError, match="the connection was cut"):
            bucket.get("large")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory) -> Path:
    """A certificate of localhost that only we know, and its key."""
    return write_certificate(tmp_path_factory.mktemp("tls") / "both.pem")


def test_tls_is_verified_by_the_certificates_that_are_named(certificate):
    with misbehaving_server(certificate=certificate) as server:
        for endpoint, bundle, says in (
            (server.endpoint, "", "TLS failed"),
            (server.endpoint.replace("localhost", "127.0.0.1"), str(certificate), "TLS failed"),
        ):
            with pytest.raises(UsageError, match=says) as refused:
                target(BUCKET, Access(endpoints=(endpoint,), ca_bundle=bundle)).check()
            assert "--ckpt-ca-bundle" in refused.value.remedy
        access = Access(endpoints=(server.endpoint,), ca_bundle=str(certificate))
        assert target(BUCKET, access).check().options.startswith("endpoint https://localhost:")
        storage = target(f"{BUCKET}/ckpt", access)
        store = open_store(area := storage.create_area("tls"))
        draft, sink = save(store, bytes(PART + 5))
        sink.finish()
        store.commit(REF, draft.seal()[0], Phases())
        assert loaded(store) == bytes(PART + 5)
        assert storage.clean(area, NAMES, 60.0) == []


@pytest.mark.parametrize(("request_", "says"), [
    ("abort", "abort-multipart-upload"), ("delete", "s3 rm --recursive"),
    pytest.param("put", "s3:PutObject", marks=THOROUGH), pytest.param("list", "s3:ListBucket", marks=THOROUGH),
    pytest.param("begin", "s3:PutObject", marks=THOROUGH), pytest.param("get", "s3:GetObject", marks=THOROUGH),
    pytest.param("uploads", "s3:ListBucketMultipartUploads", marks=THOROUGH),
])  # fmt: skip
def test_each_permission_that_lacks_is_named_before_a_run_without_anybody_s_identity(server, request_, says):
    server.faults.append(Fault(request=request_, way="deny", key="TRIAL" if request_ == "get" else ""))
    with pytest.raises(UsageError) as refused:
        target(f"{BUCKET}/ckpt", Access(endpoints=(server.endpoint,))).create_area(f"denied-{request_}")
    assert says in str(refused.value) or "permissions to put" in str(refused.value)
    assert ACCOUNT not in str(refused.value)
    assert CREDENTIALS["AWS_ACCESS_KEY_ID"] not in str(refused.value)
    keys, uploads = what_lies_in(server.behind)
    # What cannot be removed is named, and nothing else stays.
    assert bool([key for key in keys if f"denied-{request_}/" in key]) == (request_ == "delete")
    assert bool([key for key, _ in uploads if f"denied-{request_}/" in key]) == (request_ == "abort")


def test_identities_are_no_part_of_what_a_store_said():
    text = f"User arn:aws:iam::{ACCOUNT}:user/me of {ACCOUNT} with AKIAIOSFODNN7EXAMPLE?X-Amz-Signature=abcdef0123"
    assert without_identities(text) == "User arn:*** of *** with ***?X-Amz-Signature=***"
