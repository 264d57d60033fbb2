"""A target for tests that is not a directory: ``memory://NAME``. The process `memory_server` stores its content.

Objects are written in parts of a fixed size; a write at another offset is refused. A checkpoint is visible after its
commit. The target declares that its clients do not cache.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Collection, Mapping, Sequence
from multiprocessing.connection import Client, Connection
from typing import Any, Literal

from pytest_ckpt.facts.proofs import CommitProof, DurabilityProof, Entry
from pytest_ckpt.facts.requests import Tallies
from pytest_ckpt.facts.targets import AreaRef, Capability, CheckpointRef, Leftover, Names, TargetFacts, TargetSpec
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.targets.owner import process_began
from pytest_ckpt.targets.protocol import Buffer, Phases
from pytest_ckpt.targets.timed_calls import NoAnswerError, RefusedError, call_in_time
from pytest_ckpt.targets.without_paths import DraftWithoutPaths, SourceFile, StoreWithoutCache
from tests.support.targets.memory_server import PART_BYTES, address

SPEC = TargetSpec(
    scheme="memory",
    help="objects in the memory of a server, for tests",
    make="tests.support.targets.memory_store:target",
)
OPENER = "tests.support.targets.memory_store:open_store"
CAPABILITIES: frozenset[Capability] = frozenset()
IO_MODE = "by messages to a server: there is no cache on the client"


class Wire:
    """The connections of this process to the server, one for each thread."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._of_thread = threading.local()
        self._open: list[Connection] = []

    def ask(self, word: str, *arguments: Any, **named: Any) -> Any:
        """Send a request and return the server's answer.

        Raises the server's error, or OSError if there is no answer.
        """
        connection: Connection | None = getattr(self._of_thread, "connection", None)
        if connection is None:
            connection = self._of_thread.connection = Client(address(self._name), "AF_UNIX")
            self._open.append(connection)
        connection.send((word, arguments, named))
        answer = connection.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        """Close all connections."""
        for connection in self._open:
            connection.close()
        self._open, self._of_thread = [], threading.local()


# --- the controller's side --------------------------------------------------------------------------------------------


def target(location: str) -> MemoryTarget:
    """Return the target of the server with the name ``location``."""
    return MemoryTarget(location)


class MemoryTarget:
    """A target whose content is stored by the server ``name``."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._wire = Wire(name)

    def describe(self) -> TargetFacts:
        """Return the facts of the target, without a request to the server."""
        return TargetFacts(
            location=f"memory://{self._name}",
            kind="memory",
            gate_kind="speed-only",
            is_local=True,
            capacity=None,
            capabilities=CAPABILITIES,
        )

    def check(self) -> TargetFacts:
        """Return the facts of the target. Raises UsageError if the server does not answer."""
        try:
            self._wire.ask("ping")
        except OSError as error:
            raise UsageError(
                f"--ckpt-target memory://{self._name}: no server answers: {error.strerror}.",
                f"Start it: python -m tests.support.targets.memory_server {self._name}",
            ) from None
        return self.describe()

    def place(self) -> AreaRef:
        """Return a reference to the server. The run id of the reference is empty."""
        return AreaRef(scheme="memory", location=self._name, run_id="", opener=OPENER)

    def create_area(self, run_id: str) -> AreaRef:
        """Create the area of a run (the objects of the run on the server), and return a reference to the area."""
        owner = {"host": socket.gethostname(), "pid": os.getpid(), "began": process_began(os.getpid())}
        try:
            identity = self._wire.ask("create_area", run_id, owner)
        except OSError as error:
            raise UsageError(f"No area can be made: {error.strerror}.", "Look at the server.") from error
        return AreaRef(scheme="memory", location=self._name, run_id=run_id, opener=OPENER, identity=(identity,))

    def leftovers(self) -> Sequence[Leftover]:
        """Return the areas of runs whose controllers have ended, with their uncommitted objects."""
        return [
            Leftover(what=f"{run_id}: {', '.join(area['drafts']) or 'no draft'}", why=f"run {run_id} of {area['host']}")
            for run_id, area in self._wire.ask("areas").items()
            if process_began(area["pid"]) != area["began"]
        ]

    def clean(self, area: AreaRef, names: Names, deadline_seconds: float, *, keep_area: bool = False) -> list[str]:
        """Remove the objects of a run, in a separate process; return a message for each object that remains."""
        asked = {
            "name": area.location,
            "where": [area.run_id, *area.identity],
            "files": {subject: sorted(files) for subject, files in names.files.items()},
            "directories": sorted(names.directories),
            "keep": keep_area,
        }
        try:
            left: list[str] = call_in_time(f"{__name__}:clean_in_process", asked, deadline_seconds)
        except (NoAnswerError, RefusedError) as error:
            return [f"memory://{area.location} of {area.run_id} stays: {error}"]
        return left


def clean_in_process(asked: Mapping[str, Any]) -> Any:
    """Remove the objects of a run; `MemoryTarget.clean` calls this in a separate process."""
    where = tuple(asked["where"])
    return Wire(asked["name"]).ask("clean", where, asked["files"], asked["directories"], keep=asked["keep"])


# --- the side of ranks, checks, readers -------------------------------------------------------------------------------


def open_store(area: AreaRef) -> MemoryStore:
    """Return the store that accesses the area of a run."""
    return MemoryStore(area)


class MemoryStore(StoreWithoutCache):
    """The store of a run's area, which contains all objects of the run."""

    capabilities = CAPABILITIES
    wants_entries = True
    of_each_host = False

    def __init__(self, area: AreaRef) -> None:
        self._wire = Wire(area.location)
        self._where = (area.run_id, *area.identity)

    def is_reachable(self) -> bool:
        """Return whether the server answers."""
        try:
            return bool(self._wire.ask("ping"))
        except OSError:
            return False

    def prepare(self, subject: str) -> None:
        """Do nothing, because workloads need no preparation."""

    def begin(self, ref: CheckpointRef, phases: Phases) -> MemoryDraft:
        """Return a draft (an uncommitted checkpoint) for the objects of this rank."""
        return MemoryDraft(self._wire, self._where, ref, phases)

    def commit(self, ref: CheckpointRef, entries: Sequence[Entry], phases: Phases) -> CommitProof:
        """Write the marker, which lists every object of the checkpoint."""
        with phases.phase("commit"):
            self._wire.ask("commit", self._where, ref, list(entries))
        return CommitProof(method="marker")

    def is_committed(self, ref: CheckpointRef) -> bool:
        """Return whether the checkpoint has a marker."""
        return ref.number in self.committed(ref.subject)

    def put(self, name: str, data: bytes, when: Literal["always", "if absent"] = "always") -> bool:
        """Write a small object; return whether it was written.

        With ``if absent``, an existing object is not replaced.
        """
        return bool(self._wire.ask("put", self._where, name, bytes(data), when))

    def committed(self, subject: str) -> Sequence[int]:
        """Return the numbers of committed checkpoints."""
        numbers: list[int] = self._wire.ask("committed", self._where, subject)
        return numbers

    def open(self, ref: CheckpointRef, phases: Phases) -> MemoryCommitted:
        """Return a committed checkpoint, to read its objects."""
        return MemoryCommitted(self._wire, self._where, ref, phases)

    def delete(self, ref: CheckpointRef, names: Collection[str]) -> None:
        """Delete the objects of this rank in a checkpoint."""
        self._wire.ask("delete", self._where, ref, list(names))

    def finish_delete(self, ref: CheckpointRef) -> None:
        """Delete the marker of a checkpoint."""
        self._wire.ask("finish_delete", self._where, ref)

    def clear(self, subject: str) -> None:
        """Do nothing, because deleted checkpoints leave nothing to remove."""

    def requests(self) -> Tallies:
        """Return no request counts, because this store sends no HTTP requests."""
        return {}

    def close(self) -> None:
        """Close the connections."""
        self._wire.close()


class MemoryDraft(DraftWithoutPaths):
    """The objects that one rank writes to a checkpoint before the commit."""

    def __init__(self, wire: Wire, where: tuple[str, ...], ref: CheckpointRef, phases: Phases) -> None:
        self._wire, self._where, self._ref, self._phases = wire, where, ref, phases
        self._names: list[str] = []
        self._sinks: list[MemorySink] = []
        self._finished: list[Entry] = []

    def create(self, name: str, size: int | None) -> MemorySink:
        """Begin an object; return the sink that accepts its bytes."""
        self._names.append(name)
        with self._phases.phase("open", name):
            token = self._wire.ask("begin", self._where, self._ref, name, size)
        sink = MemorySink(self._wire, self._where, token, name, self._phases, self._finished)
        self._sinks.append(sink)
        return sink

    def seal(self) -> tuple[Sequence[Entry], DurabilityProof]:
        """Return the server's acknowledgements of the objects. There are no directories to sync."""
        proof = DurabilityProof(
            files_attempted=len(self._names),
            files_returned=len(self._finished),
            directories_attempted=0,
            directories_returned=0,
            observed="store",
        )
        return tuple(self._finished), proof

    def commit(self, entries: Sequence[Entry]) -> CommitProof:
        """Write the marker of the checkpoint."""
        with self._phases.phase("commit"):
            self._wire.ask("commit", self._where, self._ref, list(entries))
        return CommitProof(method="marker")

    def abort(self) -> None:
        """Delete the finished objects, and abort the others."""
        for sink in self._sinks:
            sink.abort()
        self._wire.ask("delete", self._where, self._ref, [entry.name for entry in self._finished])


class MemorySink:
    """One object that is being written."""

    alignment = 1
    part_bytes: int | None = PART_BYTES
    io_mode = IO_MODE

    def __init__(
        self, wire: Wire, where: tuple[str, ...], token: str, name: str, phases: Phases, finished: list[Entry]
    ) -> None:
        self._wire, self._where, self._token, self._name = wire, where, token, name
        self._phases, self._finished = phases, finished
        self._rest = bytearray()
        self._sent = 0

    def write(self, data: Buffer) -> int:
        """Append data, and send all complete parts. Return the number of appended bytes."""
        view = memoryview(data).cast("B")
        self._rest += view
        while len(self._rest) >= PART_BYTES:
            self._send(bytes(self._rest[:PART_BYTES]))
            del self._rest[:PART_BYTES]
        self._phases.moved(len(view))
        return len(view)

    def write_at(self, offset: int, data: Buffer) -> None:
        """Send the part at this offset."""
        view = memoryview(data).cast("B")
        self._wire.ask("part", self._where, self._token, offset, bytes(view))
        self._phases.moved(len(view))

    def finish(self) -> Entry:
        """Send the last part. Raises the server's error if the object is not complete."""
        with self._phases.phase("fsync", self._name):
            if self._rest:
                self._send(bytes(self._rest))
                self._rest.clear()
            entry: Entry = self._wire.ask("finish", self._where, self._token)
        self._finished.append(entry)
        return entry

    def abort(self) -> None:
        """Make the server discard the unfinished object."""
        self._wire.ask("abort", self._where, self._token)

    def _send(self, part: bytes) -> None:
        self._wire.ask("part", self._where, self._token, self._sent, part)
        self._sent += len(part)


class MemoryCommitted:
    """A committed checkpoint."""

    def __init__(self, wire: Wire, where: tuple[str, ...], ref: CheckpointRef, phases: Phases) -> None:
        self._wire, self._where, self._ref, self._phases = wire, where, ref, phases

    def entries(self) -> Sequence[Entry]:
        """Return the objects listed in the marker."""
        entries: list[Entry] = self._wire.ask("entries", self._where, self._ref)
        return entries

    def source(self, name: str, *, fresh: bool = False) -> MemorySource:
        """Open an object for reads at offsets."""
        return MemorySource(self._wire, self._where, self._ref, name, self._phases)

    def file(self, name: str) -> SourceFile:
        """Open an object as a file object."""
        return SourceFile(self.source(name))

    def local_path(self, name: str) -> str | None:
        """Return None, because objects have no file paths."""
        return None


class MemorySource:
    """One object, open for reading."""

    io_mode = IO_MODE

    def __init__(self, wire: Wire, where: tuple[str, ...], ref: CheckpointRef, name: str, phases: Phases) -> None:
        self._wire, self._where, self._ref, self._name, self._phases = wire, where, ref, name, phases
        with phases.phase("open", name):
            self.size: int = wire.ask("size", where, ref, name)

    def read_into(self, offset: int, buffer: Buffer) -> int:
        """Read from ``offset`` until the buffer is full or the object ends; return the number of bytes."""
        view = memoryview(buffer).cast("B")
        done = 0
        while done < len(view):
            count = min(PART_BYTES, len(view) - done)
            data: bytes = self._wire.ask("read", self._where, self._ref, self._name, offset + done, count)
            if not data:
                break
            view[done : done + len(data)] = data
            done += len(data)
            self._phases.moved(len(data))
        return done

    def close(self) -> None:
        """Do nothing, because the server keeps no open objects."""
        with self._phases.phase("close", self._name):
            pass
