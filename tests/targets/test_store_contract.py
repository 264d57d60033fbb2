"""Properties common to all targets, tested on a directory, on a bucket, and on the ``memory:`` target.

The ``memory:`` target accepts only complete parts.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from pytest_ckpt.facts.codec import from_plain, to_plain
from pytest_ckpt.facts.targets import AreaRef, CheckpointRef, Names, TargetSpec
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.support.references import load
from pytest_ckpt.targets.protocol import Store, Target
from pytest_ckpt.targets.schemes import create_target, known_targets, spec_of
from tests.support import CHECKOUT
from tests.support.targets.memory import memory_server
from tests.support.targets.memory_store import SPEC
from tests.support.targets.object_server import BUCKET, CREDENTIALS, object_server

ROWS: Mapping[str, TargetSpec] = known_targets({"memory": SPEC})
REF = CheckpointRef(subject="m", number=1)
NAMES = Names(files={"m": frozenset(("a.pt", "b.pt"))})
# Several parts, but not a multiple of their size.
DATA = os.urandom((1 << 20) + 12_345)


class Phases:
    """The clock of an operation for tests: it only records the phases and the bytes of the operation."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.bytes = 0
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def phase(self, name: str, file: str = "") -> Iterator[None]:
        self.names.append(name)
        yield

    def moved(self, count: int) -> None:
        with self._lock:
            self.bytes += count


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with object_server() as started:
        yield started


@pytest.fixture(params=["a directory", "a directory that keeps its name", "memory", "a bucket"])
def word(request: pytest.FixtureRequest, tmp_path, monkeypatch) -> Iterator[str]:
    """Return a value of ``--ckpt-target`` for each type of target."""
    if request.param == "a directory":
        yield str(tmp_path)
    elif request.param == "a directory that keeps its name":
        monkeypatch.setattr("pytest_ckpt.targets.posix.target.refuses_to_rename", lambda _: True)
        yield str(tmp_path)
    elif request.param == "a bucket":
        for name, value in CREDENTIALS.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_ENDPOINT_URL", request.getfixturevalue("endpoint"))
        # All tests share one server, and each has its own prefix.
        yield f"s3://{BUCKET}/{request.node.originalname}"
    else:
        with memory_server() as name:
            yield f"memory://{name}"


@pytest.fixture
def storage(word: str) -> Target:
    return create_target(spec_of(word, ROWS), word)


@pytest.fixture
def area(storage: Target) -> AreaRef:
    return storage.create_area("r1")


@pytest.fixture
def store(area: AreaRef) -> Iterator[Store]:
    attached = attach(area)
    attached.prepare("m")
    yield attached
    attached.close()


def attach(area: AreaRef) -> Store:
    """Open the store of an area (the place of a run's files) from its JSON form, as another process does."""
    crossed = from_plain(AreaRef, json.loads(json.dumps(to_plain(area))))
    store: Store = load(crossed.opener)(crossed)
    return store


def save(store: Store, ref: CheckpointRef = REF, name: str = "a.pt", data: bytes = DATA):
    draft = store.begin(ref, Phases())
    sink = draft.create(name, None)
    sink.write(data)
    sink.finish()
    return draft, draft.seal()


def commit(store: Store, ref: CheckpointRef = REF) -> None:
    _, (entries, _) = save(store, ref)
    store.commit(ref, entries, Phases())


def loaded(store: Store, ref: CheckpointRef = REF, name: str = "a.pt") -> bytes:
    source = store.open(ref, Phases()).source(name)
    buffer = bytearray(-(-source.size // 4096) * 4096)
    count = source.read_into(0, buffer)
    source.close()
    return bytes(buffer[:count])


def test_the_check_describes_the_target_and_ranks_can_reach_it(storage, word):
    facts = storage.check()
    assert facts.location == word
    assert facts.kind == storage.describe().kind
    assert from_plain(type(facts), json.loads(json.dumps(to_plain(facts)))) == facts
    assert attach(storage.place()).is_reachable()


def test_a_checkpoint_is_visible_to_another_client_only_after_its_commit(store, area):
    _, (entries, proof) = save(store)
    assert [(e.name, e.bytes) for e in entries] == [("a.pt", len(DATA))]
    assert (proof.files_attempted, proof.files_returned, proof.observed) == (1, 1, "store")
    assert proof.directories_attempted == proof.directories_returned
    other = attach(area)
    assert (list(other.committed("m")), other.is_committed(REF)) == ([], False)
    with pytest.raises(FileNotFoundError):
        loaded(other)
    store.commit(REF, entries, Phases())
    assert (list(other.committed("m")), other.is_committed(REF)) == ([1], True)
    assert loaded(other) == DATA
    assert [(e.name, e.bytes) for e in other.open(REF, Phases()).entries()] == [("a.pt", len(DATA))]
    other.close()


def test_parts_come_in_any_order_from_any_thread(store):
    draft = store.begin(REF, phases := Phases())
    sink = draft.create("a.pt", len(DATA))
    step = sink.part_bytes or 256 << 10
    padded = DATA + bytes(-len(DATA) % sink.alignment)
    with ThreadPoolExecutor(3) as threads:
        offsets = reversed(range(0, len(padded), step))
        list(threads.map(lambda at: sink.write_at(at, bytearray(padded[at : at + step])), offsets))
    assert sink.finish().bytes == len(DATA)
    entries, _ = draft.seal()
    store.commit(REF, entries, phases)
    assert loaded(store) == DATA
    assert phases.bytes >= len(DATA)


def test_a_file_object_is_read_in_any_order(store):
    commit(store)
    with contextlib.closing(store.open(REF, Phases()).file("a.pt")) as file:
        assert file.size == len(DATA)
        assert file.seek(-5, 2) == len(DATA) - 5
        assert file.read(100) == DATA[-5:]
        file.seek(10)
        assert file.read(7) == DATA[10:17]
        assert file.tell() == 17
        assert file.error is None


def test_a_file_that_is_there_is_not_begun_again(store):
    draft, _ = save(store)
    with pytest.raises(FileExistsError):
        draft.create("a.pt", None)


def test_a_draft_that_is_given_up_leaves_no_file(store):
    draft, _ = save(store)
    draft.abort()
    save(store)


def test_two_ranks_save_one_checkpoint(store, area):
    other = attach(area)
    _, (mine, _) = save(store)
    _, (theirs, _) = save(other, name="b.pt", data=b"other")
    store.commit(REF, [*mine, *theirs], Phases())
    assert (loaded(store, name="b.pt"), loaded(other)) == (b"other", DATA)
    other.delete(REF, ["b.pt"])
    store.delete(REF, ["a.pt"])
    store.finish_delete(REF)
    assert list(store.committed("m")) == []
    store.clear("m")
    other.close()


def test_a_name_that_was_deleted_can_be_saved_again(store):
    commit(store)
    store.delete(REF, ["a.pt"])
    store.finish_delete(REF)
    again = CheckpointRef(subject="m", number=1, attempt=1)
    commit(store, again)
    assert loaded(store, again) == DATA


def test_a_small_file_is_put_once_or_always(store):
    assert store.put("pointer", b"1", "if absent")
    assert not store.put("pointer", b"2", "if absent")
    assert store.put("pointer", b"3")


def test_all_that_a_run_made_is_removed(storage, area, store):
    commit(store)
    save(store, CheckpointRef(subject="m", number=2))
    assert storage.clean(area, NAMES, 60.0) == []
    with pytest.raises(FileNotFoundError):
        loaded(attach(area))
    assert storage.clean(area, NAMES, 60.0) == [], "there is nothing left to remove"


def test_files_of_other_programs_remain_and_are_reported(storage, area, store):
    commit(store)
    assert len(storage.clean(area, Names(files={"m": frozenset(("b.pt",))}), 60.0)) == 1
    assert loaded(store) == DATA


def test_an_area_is_kept_for_another_launch(storage, area, store):
    commit(store)
    assert storage.clean(area, NAMES, 60.0, keep_area=True) == []
    store.prepare("m")
    commit(store)
    assert loaded(store) == DATA


def test_the_area_of_another_run_of_that_name_is_not_touched(storage, area, store):
    commit(store)
    stranger = AreaRef(
        scheme=area.scheme, location=area.location, run_id=area.run_id, opener=area.opener,
        identity=tuple("1" for _ in area.identity),
    )  # fmt: skip
    assert len(storage.clean(stranger, NAMES, 60.0)) == 1
    assert loaded(store) == DATA


def test_an_area_is_made_once(storage, area):
    with pytest.raises(UsageError):
        storage.create_area("r1")


_DIES = """
import json, os, signal, sys
from pytest_ckpt.facts.codec import from_plain
from pytest_ckpt.facts.targets import AreaRef, CheckpointRef
from pytest_ckpt.support.references import load
from pytest_ckpt.targets.schemes import create_target, spec_of
from tests.targets.test_store_contract import Phases, ROWS, attach

word = sys.argv[1]
area = create_target(spec_of(word, ROWS), word).create_area("dead")
store = attach(area)
store.prepare("m")
sink = store.begin(CheckpointRef(subject="m", number=7), Phases()).create("a.pt", None)
sink.write(bytes(1 << 20))
from pytest_ckpt.facts.codec import to_plain
print(json.dumps(to_plain(area)), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_draft_of_a_killed_rank_is_found_and_removed(storage, word):
    output = subprocess.run(
        [sys.executable, "-c", _DIES, word], cwd=CHECKOUT, capture_output=True, text=True, check=False
    )
    assert output.returncode == -signal.SIGKILL, output.stderr
    area = from_plain(AreaRef, json.loads(output.stdout))
    (leftover,) = storage.leftovers()
    assert "dead" in leftover.what
    assert "run dead of" in leftover.why
    assert not attach(area).is_committed(CheckpointRef(subject="m", number=7))
    assert storage.clean(area, NAMES, 60.0) == []
    assert list(storage.leftovers()) == []


class TestMemory:
    """Calls that only the ``memory:`` target refuses."""

    @pytest.fixture(params=["memory"])
    def word(self) -> Iterator[str]:
        with memory_server() as name:
            yield f"memory://{name}"

    @pytest.mark.parametrize(("offset", "count"), [(1, 100), (0, 100), (0, 1 << 20)])
    def test_an_incomplete_part_is_refused(self, store, offset, count):
        sink = store.begin(REF, Phases()).create("a.pt", 1 << 20)
        with pytest.raises(OSError, match="parts are whole") as refused:
            sink.write_at(offset, bytearray(count))
        assert refused.value.errno == errno.EINVAL

    def test_a_commit_of_what_was_not_finished_is_refused(self, store):
        _, (entries, _) = save(store)
        store.begin(REF, Phases()).create("b.pt", None).write(b"half")
        save(store, name="c.pt")
        with pytest.raises(OSError, match="not what was finished"):
            store.commit(REF, entries, Phases())

    def test_an_object_without_all_its_parts_is_not_finished(self, store):
        sink = store.begin(REF, Phases()).create("a.pt", 1 << 20)
        sink.write_at(sink.part_bytes, bytearray(sink.part_bytes))
        with pytest.raises(OSError, match="parts are missing"):
            sink.finish()

    def test_it_has_neither_paths_nor_a_cache(self, store):
        draft = store.begin(REF, Phases())
        with pytest.raises(NotImplementedError):
            draft.location()
        commit(store)
        assert store.open(REF, Phases()).local_path("a.pt") is None
        assert store.find_cache_probe("m") is None


def test_another_client_sees_what_was_announced_and_what_was_committed_with_all_of_its_bytes(store, area):
    elsewhere = attach(area)
    store.prepare(REF.subject)
    assert elsewhere.is_prepared(REF.subject)
    store.announce(REF)
    assert elsewhere.shows_draft(REF)
    _, (entries, _) = save(store)
    store.commit(REF, entries, Phases())
    assert elsewhere.sees(REF, entries)
    elsewhere.close()


@pytest.mark.parametrize("word", ["a directory"], indirect=True)
def test_a_client_that_misses_a_name_or_some_bytes_does_not_see_it(store):
    assert not store.is_prepared("another")
    assert not store.shows_draft(REF)
    assert not store.sees(REF, ())
    _, (entries, _) = save(store)
    store.commit(REF, entries, Phases())
    (entry,) = entries
    assert store.sees(REF, ())
    assert not store.sees(REF, [replace(entry, bytes=entry.bytes + 1)])
    assert not store.sees(REF, [entry, replace(entry, name="b.pt")])
