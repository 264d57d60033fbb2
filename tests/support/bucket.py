"""Shared code of tests of object stores: the names in a bucket, and functions that save and load an object."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from pytest_ckpt.facts.targets import Access, AreaRef, CheckpointRef, Names
from pytest_ckpt.sizing.object_parts import MINIMUM_PART_BYTES
from pytest_ckpt.targets.objects.store import ObjectStore
from pytest_ckpt.targets.objects.target import ObjectTarget, target
from tests.support.targets.object_server import (
    BUCKET,
)

REF = CheckpointRef(subject="m", number=1)
NAMES = Names(files={"m": frozenset(("a.pt", "b.pt"))})
PART = MINIMUM_PART_BYTES
THOROUGH = pytest.mark.thorough


class Phases:
    """Fake phases of a save or a load. They only count the bytes that were moved."""

    def __init__(self) -> None:
        self.bytes = 0
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def phase(self, name: str, file: str = "") -> Iterator[None]:
        yield

    def moved(self, count: int) -> None:
        with self._lock:
            self.bytes += count


def create_target(endpoint: str, run_id: str, prefix: str = "ckpt") -> tuple[ObjectTarget, AreaRef]:
    storage = target(f"{BUCKET}/{prefix}", Access(endpoints=(endpoint,)))
    return storage, storage.create_area(run_id)


def save(store: ObjectStore, data: bytes, name: str = "a.pt", ref: CheckpointRef = REF, *, order: int = 1):
    """Save one object in parts from three threads; return (draft, open object).

    ``store`` begins the draft of checkpoint ``ref``. If ``order`` is -1, the last part is sent first.
    """
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
