"""Faulty object stores: pytest-ckpt's healthy server with one fault each.

A fault is a class of stores, and its docstring is the description of the fault. The keywords of the class are the
columns of its row in the fault matrix (see `object_matrix`). Faults do not depend on time. If a change is visible late,
only the first request after the change does not see the change.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

from pytest_ckpt.targets.objects.server.bucket_store import BucketStore, Object, RequestRefused, StoredPart
from pytest_ckpt.targets.objects.server.http import Handler, Server
from tests.support.targets.object_server import BUCKET

FAULTS: dict[str, type[Store]] = {}
"""All faults by name; importing the other modules adds theirs."""


# Changed objects are stored in memory.
MAXIMUM_CHANGED_BYTES = 1 << 30


class Store(BucketStore):
    """A healthy object store, and the base class of all faults.

    ``handler`` is the class of its HTTP request handler.
    """

    handler: ClassVar[type[Handler]] = Handler
    row: ClassVar[dict[str, Any]]

    def __init_subclass__(cls, fault: str = "", **row: Any) -> None:
        super().__init_subclass__()
        if fault:
            cls.row = row
            FAULTS[fault] = cls

    def __init__(self) -> None:
        super().__init__()
        self.release_blocked = threading.Event()
        # For each key: the state before its last change, and which clients have not yet seen that change.
        self.before: dict[str, Object | None] = {}
        self.unseen: set[str] = set()

    def forget(self) -> None:
        """Close the file that contains the objects."""
        self._space.file.close()

    def now(self, bucket: str, key: str) -> Object | None:
        """Return the present object of a key, regardless of the fault; None if there is no object."""
        return dict(self.keys_now(bucket)).get(key)

    def keys_now(self, bucket: str) -> list[tuple[str, Object]]:
        """Return (key, object) of all present objects in a bucket, regardless of the fault."""
        return BucketStore.keys(self, bucket, "")

    def changed(self, key: str, before: Object | None) -> None:
        """Record a change of a key. ``before`` is the object before the change."""
        self.before[key] = before
        self.unseen.add(key)

    def first_look(self, key: str) -> bool:
        """Return whether this is the first call for the key since its last change."""
        is_first = key in self.unseen
        self.unseen.discard(key)
        return is_first

    def _publish(self, bucket: str, key: str, *words: Any) -> Object:
        before = self.now(bucket, key)
        made = super()._publish(bucket, key, *words)
        self.changed(key, before)
        return made

    def delete(self, bucket: str, key: str) -> None:
        before = self.now(bucket, key)
        super().delete(bucket, key)
        self.changed(key, before)


@contextlib.contextmanager
def faulty_store(fault: str = "", address: str = "127.0.0.1") -> Iterator[str]:
    """Start a store on this host during the block; yield its endpoint.

    ``fault`` is the name of the fault. An empty name starts a healthy store.
    """
    held = FAULTS[fault]() if fault else Store()
    held.make_bucket(BUCKET)
    server = Server((address, 0), functools.partial(held.handler, held))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://{address}:{server.server_address[1]}"
    finally:
        held.release_blocked.set()
        server.shutdown()
        server.server_close()
        thread.join()
        held.forget()


class Requests(Handler):
    """A request handler with access to its store."""

    _store: Store


# --- visible state ----------------------------------------------------------------------------------------------------


def _of_command(command: str) -> type[Handler]:
    """Return a handler class for a store with the method `late`.

    If a request has the HTTP method ``command``, such as GET, the answer is the object that `late` returns.
    """

    class Late(Requests):
        def _done(self) -> None:
            if self.command == command and self._key:
                found = self._store.late(self._bucket, self._key)
                if found is None:
                    raise RequestRefused(404, "NoSuchKey", "The specified key does not exist.")
                self._get(found)
            else:
                super()._done()

    return Late


class _Late(Store):
    def late(self, bucket: str, key: str) -> Object | None:
        raise NotImplementedError


class _Stale(_Late):
    """Base class: the first request after an overwrite returns the old object."""

    def late(self, bucket: str, key: str) -> Object | None:
        found = self.now(bucket, key)
        return self.before[key] if found and self.first_look(key) and self.before[key] else found


class StaleGet(
    _Stale,
    fault="stale get",
    fails="VISIBLE.get UPDATE.put MULTIPART.hidden RANGE.overwritten",
    expected_text="old object after an overwrite",
):
    """The first GET after an overwrite returns the old object."""

    handler = _of_command("GET")


class Ghost(_Late, fault="ghost after delete", fails="VISIBLE.get", expected_text="deleted object still seen"):
    """The first GET after a deletion returns the deleted object."""

    handler = _of_command("GET")

    def late(self, bucket: str, key: str) -> Object | None:
        found = self.now(bucket, key)
        return self.before.get(key) if found is None and self.first_look(key) else found


class NegativeCache(
    _Late,
    fault="negative cache",
    fails="VISIBLE.get MULTIPART.hidden DIGEST.object",
    expected_text="new object not seen",
    may="COMMIT.marker",
):
    """If a GET of a missing object returned 404, the next GET returns 404 even after the object was created."""

    handler = _of_command("GET")

    def __init__(self) -> None:
        super().__init__()
        self.missed: set[str] = set()

    def late(self, bucket: str, key: str) -> Object | None:
        found = self.now(bucket, key)
        if found is None:
            self.missed.add(key)
        elif key in self.missed:
            self.missed.discard(key)
            return None
        return found


class LateHead(
    _Late,
    fault="late head",
    fails="VISIBLE.head MULTIPART.hidden DIGEST.kept LIVE.requests LARGE.ranges LIMITS.many CROWD.marker",
    expected_text="new object not seen",
):
    """The first HEAD of a new object returns 404."""

    handler = _of_command("HEAD")

    def late(self, bucket: str, key: str) -> Object | None:
        return None if self.first_look(key) and not self.before[key] else self.now(bucket, key)


class StaleHead(
    _Stale, fault="stale head", fails="VISIBLE.head MULTIPART.hidden", expected_text="old object after an overwrite"
):
    """The first HEAD after an overwrite returns the headers of the old object."""

    handler = _of_command("HEAD")


class LateShards(
    _Late, fault="late objects", fails="COMMIT.marker", expected_text="object of a committed checkpoint missing"
):
    """The first GET of a new object of 20 to 30 kB returns 404, although the put was acknowledged."""

    handler = _of_command("GET")

    def late(self, bucket: str, key: str) -> Object | None:
        found = self.now(bucket, key)
        is_shard = found is not None and 20_000 <= found.bytes < 30_000
        return None if is_shard and self.first_look(key) else found


class StaleList(
    Store,
    fault="stale list",
    fails="VISIBLE.list MULTIPART.hidden LIST.pages LIST.names LARGE.ranges LIMITS.many CROWD.marker",
    expected_text="new object not seen",
):
    """The first listing after a put lacks the new object."""

    def keys(self, bucket: str, prefix: str) -> list[tuple[str, Object]]:
        found = super().keys(bucket, prefix)
        return [pair for pair in found if not (self.first_look(pair[0]) and not self.before[pair[0]])]


class ListedAfterDelete(
    Store, fault="listed after delete", fails="VISIBLE.list", expected_text="deleted object still seen"
):
    """The first listing after a deletion still contains the object."""

    def keys(self, bucket: str, prefix: str) -> list[tuple[str, Object]]:
        found = super().keys(bucket, prefix)
        there = {key for key, _ in found}
        gone = [(k, o) for k, o in self.before.items() if o and k.startswith(prefix) and k not in there]
        return sorted([*found, *((k, o) for k, o in gone if self.first_look(k))])


class Truncated(
    _Late,
    fault="truncated object",
    fails="COMMIT.marker MULTIPART.parts LIMITS.parts RANGE.bytes RANGE.overwritten OVERWRITE.writers",
    expected_text="not intact",
):
    """A GET of an object of 10 kB to 1 GiB returns the first half of the object, with status 200."""

    handler = _of_command("GET")

    def late(self, bucket: str, key: str) -> Object | None:
        found = self.now(bucket, key)
        return _half(found) if found and 10_000 < found.bytes < MAXIMUM_CHANGED_BYTES else found


class Flipped(
    _Late,
    fault="flipped bit",
    fails="COMMIT.marker MULTIPART.parts LIMITS.parts RANGE.bytes RANGE.overwritten OVERWRITE.writers",
    expected_text="not intact",
):
    """A GET of an object of 10 kB to 1 GiB returns the object with one bit changed."""

    handler = _of_command("GET")

    def late(self, bucket: str, key: str) -> Object | None:
        found = self.now(bucket, key)
        if not found or not 10_000 < found.bytes < MAXIMUM_CHANGED_BYTES:
            return found
        data = bytearray(bytes_of(found))
        data[len(data) // 2] ^= 1
        return of_bytes(found, bytes(data))


def _half(found: Object) -> Object:
    return of_bytes(found, bytes_of(found)[: found.bytes // 2])


def bytes_of(found: Object) -> bytes:
    return b"".join(os.pread(p.space.file.fileno(), p.bytes, p.offset) for p in found.pieces)


def of_bytes(found: Object, data: bytes) -> Object:
    """Return a copy of an object with other content."""
    piece = StoredPart(found.pieces[0].space, len(data))
    piece.space.write(piece.offset, data)
    return replace(found, pieces=(piece,))
