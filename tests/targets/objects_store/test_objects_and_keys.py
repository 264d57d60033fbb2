"""A bucket as a target: multipart uploads, acknowledgements, keys and clean-up.

test_store_contract tests the properties that all targets have in common.
"""

from __future__ import annotations

import gc
import os
import threading
import tracemalloc
import weakref

import pytest

from pytest_ckpt.facts.targets import Access, CheckpointRef, Names
from pytest_ckpt.sizing.object_parts import MAXIMUM_PARTS, part_bytes
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.targets.objects.keys import MARKER, checkpoint_key, checkpoint_number, read_prefix, sort_out
from pytest_ckpt.targets.objects.store import open_store
from tests.support.bucket import NAMES, PART, REF, THOROUGH, Phases, create_target, loaded, save
from tests.support.targets.object_server import (
    Fault,
    content_of,
)

# --- parts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "minimum", "expected"), [
    (1, 0, PART), (PART * MAXIMUM_PARTS, 4 << 20, PART), (PART * MAXIMUM_PARTS + 1, 0, 6 << 20),
    (1, 16 << 20, 16 << 20), (5 << 40, 0, 525 << 20), (None, 0, 16 << 20),
])  # fmt: skip
def test_no_object_needs_more_parts_than_a_store_takes(size, minimum, expected):
    chosen = part_bytes(size, minimum)
    assert chosen == expected
    assert chosen >= PART
    assert size is None or -(-size // chosen) <= MAXIMUM_PARTS


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
    """A part is sent without a complete copy in memory. The client library may copy small pieces."""
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
    """The store does not keep a handled error. The error's stack frames would keep the caller's buffers in memory."""

    def asked() -> weakref.ref:
        held = threading.Event()
        assert not store.is_committed(REF)
        return weakref.ref(held)

    gc.disable()
    try:
        assert asked()() is None
    finally:
        gc.enable()


def test_incomplete_and_missing_parts_are_refused(store):
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
def test_a_target_without_a_location_is_refused(location):
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
    storage, area = create_target(honest, "r", "uploads")
    store = open_store(area)
    store.begin(REF, Phases()).create("a.pt", 3 * PART).write_at(0, bytearray(PART))
    store.begin(REF, Phases()).create("strange.pt", 3 * PART)
    (left,) = storage.clean(area, NAMES, 60.0)
    assert "strange.pt" in left
    assert f"--endpoint={honest} --upload=" in left
    assert [key for key, _ in content_of(honest)[1] if "uploads/" in key] == [
        f"uploads/pytest-ckpt-r/{checkpoint_key(REF)}/strange.pt"
    ]
    assert storage.clean(area, Names(files={"m": frozenset(("strange.pt",))}), 60.0) == []
    assert [key for key in content_of(honest)[0] if key.startswith("uploads/")] == []


def test_a_store_that_does_not_answer_holds_nobody(server):
    storage, area = create_target(server.endpoint, "silent")
    server.faults.append(Fault(request="list", way="silent"))
    (left,) = storage.clean(area, NAMES, 2.0)
    assert "did not answer for 2 s" in left
    assert f"objects.remove s3://test/ckpt/pytest-ckpt-silent --endpoint={server.endpoint}" in left
    server.faults.clear()
    assert storage.clean(area, NAMES, 60.0) == []
