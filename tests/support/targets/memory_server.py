"""The server process that stores the content of ``memory:`` targets.

``python -m tests.support.targets.memory_server NAME`` serves on an abstract Unix socket until its standard input ends.

An object consists of parts of one size; only the last part may be smaller. An object is visible after its commit. The
server refuses a part at another offset, a duplicate part, a commit of an unfinished object, and an area whose identity
differs.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import signal
import socket
import struct
import sys
import threading
import zlib
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Listener
from typing import Any

from pytest_ckpt.facts.proofs import Entry
from pytest_ckpt.facts.targets import CheckpointRef

PART_BYTES = 1 << 18
"""The size of every part except the last one."""


def address(name: str) -> str:
    """Return the socket address of the server with this name."""
    return f"\0pytest-ckpt-memory-{name}"


@dataclass(kw_only=True)
class Upload:
    """An object that is being uploaded. ``pid`` is the sending process.

    ``size`` is None if the sender does not know it yet.
    """

    ref: CheckpointRef
    name: str
    size: int | None
    pid: int
    parts: dict[int, bytes] = field(default_factory=dict)


@dataclass(kw_only=True)
class Area:
    """The content of one run: uploads in progress, and the objects of uncommitted and committed checkpoints."""

    identity: str
    owner: dict[str, Any]
    uploads: dict[str, Upload] = field(default_factory=dict)
    drafts: dict[CheckpointRef, dict[str, bytes]] = field(default_factory=dict)
    committed: dict[CheckpointRef, dict[str, bytes]] = field(default_factory=dict)
    small: dict[str, bytes] = field(default_factory=dict)


class Server:
    """Performs requests one at a time. ``journal`` lists the objects of checkpoints that a clean-up removed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._areas: dict[str, Area] = {}
        self._kills: set[int] = set()
        self.journal: list[tuple[str, ...]] = []

    def ask(self, pid: int, word: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        with self._lock:
            return getattr(self, f"do_{word}")(pid, *arguments, **named)

    def do_ping(self, _pid: int) -> bool:
        return True

    def do_kill_writer_of(self, _pid: int, number: int) -> None:
        """Kill the next process that sends a part of checkpoint ``number``."""
        self._kills.add(number)

    def do_journal(self, _pid: int) -> list[tuple[str, ...]]:
        return list(self.journal)

    def do_areas(self, _pid: int) -> dict[str, dict[str, Any]]:
        return {
            run_id: {**area.owner, "drafts": sorted(_unfinished(area)), "committed": len(area.committed)}
            for run_id, area in self._areas.items()
        }

    def do_create_area(self, _pid: int, run_id: str, owner: dict[str, Any]) -> str:
        if run_id in self._areas:
            raise FileExistsError(errno.EEXIST, "there is an area of that run", run_id)
        self._areas[run_id] = Area(identity=secrets.token_hex(8), owner=owner)
        return self._areas[run_id].identity

    def do_begin(self, pid: int, where: tuple[str, str], ref: CheckpointRef, name: str, size: int | None) -> str:
        area = self._area(where)
        if name in area.drafts.get(ref, {}) or any(u.name == name and u.ref == ref for u in area.uploads.values()):
            raise FileExistsError(errno.EEXIST, "the object is there", name)
        token = secrets.token_hex(8)
        area.uploads[token] = Upload(ref=ref, name=name, size=size, pid=pid)
        return token

    def do_part(self, pid: int, where: tuple[str, str], token: str, offset: int, data: bytes) -> None:
        upload = self._area(where).uploads[token]
        if upload.ref.number in self._kills:
            self._kills.remove(upload.ref.number)
            os.kill(pid, signal.SIGKILL)
        is_last = upload.size is None or offset + len(data) == upload.size
        if offset % PART_BYTES or len(data) > PART_BYTES or (len(data) < PART_BYTES and not is_last):
            raise OSError(errno.EINVAL, "parts are whole and at multiples of their size", upload.name)
        if offset in upload.parts:
            raise OSError(errno.EINVAL, "the part is there", upload.name)
        upload.parts[offset] = data

    def do_finish(self, _pid: int, where: tuple[str, str], token: str) -> Entry:
        area = self._area(where)
        upload = area.uploads[token]
        data = b"".join(upload.parts[offset] for offset in sorted(upload.parts))
        whole = all(offset == number * PART_BYTES for number, offset in enumerate(sorted(upload.parts)))
        if not whole or (upload.size is not None and len(data) != upload.size):
            raise OSError(errno.EIO, "parts are missing", upload.name)
        del area.uploads[token]
        area.drafts.setdefault(upload.ref, {})[upload.name] = data
        return _entry(upload.name, data)

    def do_abort(self, _pid: int, where: tuple[str, str], token: str) -> None:
        self._area(where).uploads.pop(token, None)

    def do_commit(self, _pid: int, where: tuple[str, str], ref: CheckpointRef, entries: list[Entry]) -> None:
        area = self._area(where)
        draft = area.drafts.get(ref, {})
        if {e.name: e for e in entries} != {name: _entry(name, data) for name, data in draft.items()} or not entries:
            raise OSError(errno.EINVAL, "what is to be committed is not what was finished", ref.subject)
        area.committed[ref] = area.drafts.pop(ref)

    def do_committed(self, _pid: int, where: tuple[str, str], subject: str) -> list[int]:
        return sorted(ref.number for ref in self._area(where).committed if ref.subject == subject)

    def do_entries(self, _pid: int, where: tuple[str, str], ref: CheckpointRef) -> list[Entry]:
        return [_entry(name, data) for name, data in sorted(self._objects(where, ref).items())]

    def do_size(self, _pid: int, where: tuple[str, str], ref: CheckpointRef, name: str) -> int:
        return len(self._object(where, ref, name))

    def do_read(
        self, _pid: int, where: tuple[str, str], ref: CheckpointRef, name: str, offset: int, count: int
    ) -> bytes:
        return self._object(where, ref, name)[offset : offset + count]

    def do_delete(self, _pid: int, where: tuple[str, str], ref: CheckpointRef, names: list[str]) -> None:
        area = self._area(where)
        objects = area.committed.get(ref, area.drafts.get(ref, {}))
        for name in names:
            if objects.pop(name, None) is None:
                raise FileNotFoundError(errno.ENOENT, "there is no such object", name)

    def do_finish_delete(self, _pid: int, where: tuple[str, str], ref: CheckpointRef) -> None:
        area = self._area(where)
        for objects in (area.committed, area.drafts):
            if objects.get(ref):
                raise OSError(errno.ENOTEMPTY, "objects are left", ref.subject)
            objects.pop(ref, None)

    def do_put(self, _pid: int, where: tuple[str, str], name: str, data: bytes, when: str) -> bool:
        small = self._area(where).small
        if when == "if absent" and name in small:
            return False
        small[name] = data
        return True

    def do_clean(
        self, _pid: int, where: tuple[str, str], files: dict[str, list[str]], directories: list[str], *, keep: bool
    ) -> list[str]:
        """Remove the objects that ``files`` and ``directories`` name from a run, including unfinished uploads.

        Return a message for each object that remains. The area is removed if it is empty and ``keep`` is False.
        """
        run_id, identity = where
        area = self._areas.get(run_id)
        if area is None:
            return []
        if area.identity != identity:
            return [f"{run_id} was not removed: it is no longer the area that this run made"]
        left = []
        for token, upload in list(area.uploads.items()):
            if upload.name in files.get(upload.ref.subject, ()):
                del area.uploads[token]
                self.journal.append(("draft", upload.ref.subject, str(upload.ref.number), upload.name))
            else:
                left.append(f"{upload.ref.subject}/{upload.name}")
        for kind, kept in (("draft", area.drafts), ("committed", area.committed)):
            for ref, objects in list(kept.items()):
                for name in list(objects):
                    if name in files.get(ref.subject, ()):
                        del objects[name]
                        self.journal.append((kind, ref.subject, str(ref.number), name))
                    else:
                        left.append(f"{ref.subject}/{name}")
                if not objects:
                    del kept[ref]
        for name in list(area.small):
            if name.split("/")[0] in directories:
                del area.small[name]
            else:
                left.append(name)
        if not left and not keep:
            del self._areas[run_id]
        return [f"{run_id}/{name} was not removed: this run did not make it" for name in left]

    def _area(self, where: tuple[str, str]) -> Area:
        run_id, identity = where
        area = self._areas.get(run_id)
        if area is None or area.identity != identity:
            raise FileNotFoundError(errno.ENOENT, "there is no such area", run_id)
        return area

    def _objects(self, where: tuple[str, str], ref: CheckpointRef) -> dict[str, bytes]:
        objects = self._area(where).committed.get(ref)
        if objects is None:
            raise FileNotFoundError(errno.ENOENT, "it is not committed", f"{ref.subject} {ref.number}")
        return objects

    def _object(self, where: tuple[str, str], ref: CheckpointRef, name: str) -> bytes:
        objects = self._objects(where, ref)
        if name not in objects:
            raise FileNotFoundError(errno.ENOENT, "there is no such object", name)
        return objects[name]


def _entry(name: str, data: bytes) -> Entry:
    return Entry(name=name, bytes=len(data), checksum=f"crc32:{zlib.crc32(data):08x}")


def _unfinished(area: Area) -> list[str]:
    uploads = [f"{u.ref.subject}/{u.ref.number}/{u.name}" for u in area.uploads.values()]
    return uploads + [f"{ref.subject}/{ref.number}/{name}" for ref, names in area.drafts.items() for name in names]


def _serve(server: Server, connection: Connection) -> None:
    with socket.socket(fileno=os.dup(connection.fileno())) as peer:
        pid = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
    with contextlib.suppress(EOFError, OSError):
        while True:
            word, arguments, named = connection.recv()
            try:
                answer = server.ask(pid, word, arguments, named)
            except (OSError, KeyError) as error:
                answer = error
            connection.send(answer)


def main() -> None:
    """Serve requests until standard input ends."""
    server, listener = Server(), Listener(address(sys.argv[1]), "AF_UNIX", backlog=64)

    def accept() -> None:
        while True:
            threading.Thread(target=_serve, args=(server, listener.accept()), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    print("ready", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
