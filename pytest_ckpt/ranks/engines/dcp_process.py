"""Saves by a separate process of torch.distributed.checkpoint: `async_save` with AsyncCheckpointerType.PROCESS.

Each rank has one saving process for all its saves. The process is started before the first save, outside the timed
part, because a job starts it only once.

For a save, the rank copies its state into shared memory, like the library's stager. Then the rank sends a writer and
handles of the memory to the saving process. The saving process watches the writer's calls. Through shared memory, the
saving process reports bytes, phases, the first error and the checksum of `.metadata`. Therefore the rank can report
progress during the save.

The saving process ends when the engine is released. If its rank ends earlier, the saving process ends after the current
save, because the library does not interrupt a save.
"""

from __future__ import annotations

import logging
import os
import re
import time
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast, get_args

import torch
from torch.distributed.checkpoint import _async_process_executor
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType, async_save
from torch.distributed.checkpoint.storage import StorageWriter, WriteResult

from pytest_ckpt.facts.failure import Phase
from pytest_ckpt.ranks.engines.dcp_watch import LibraryOperation, WatchedFiles
from pytest_ckpt.ranks.engines.protocol import Clock
from pytest_ckpt.support.errors import KilledError
from pytest_ckpt.support.host_state import shared_memory_free_bytes
from pytest_ckpt.support.processes import describe_exit
from pytest_ckpt.support.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
    from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
    from torch.distributed.checkpoint.staging import AsyncStager

    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.ranks.process.group import Group

PHASES: tuple[Phase, ...] = get_args(Phase)
# Positions in the shared memory; the seconds of each phase follow.
_BYTES, _PHASE, _FILE, _WORKS, _ERRNO, _FAILED_PHASE, _FAILED_FILE, _CHECKSUM, _HAS_CHECKSUM = range(9)
_SECONDS = 9
_POLL_SECONDS = 0.1
_OF_RANK = "the process of torch that saves for this rank"
# The library's message if its process has ended.
_DEAD = re.compile(r"process is dead\. Exit code: (-?\d+)")


class Notes:
    """The reports of a saving process, in memory that it shares with its rank.

    All values are numbers. A file is reported as its number in ``names``, from 1.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        # Whole numbers up to 2^53 are exact in this type.
        values: Any = torch.zeros(_SECONDS + len(PHASES), dtype=torch.float64)
        self.values: torch.Tensor = values.share_memory_()

    def clear(self) -> None:
        """Set all reports to zero. Called before a save."""
        self.values.zero_()

    def number_of(self, name: str) -> int:
        """Return the number of a file; 0 if the file is not in ``names``."""
        return self.names.index(name) + 1 if name in self.names else 0

    def name_of(self, place: int) -> str:
        """Return the name of the file whose number is stored at index ``place`` of the shared memory.

        If the number is 0, return an empty text.
        """
        number = int(self.values[place])
        return self.names[number - 1] if number else ""

    def phase_of(self, place: int) -> Phase:
        """Return the phase whose number is stored at index ``place`` of the shared memory."""
        return PHASES[int(self.values[place])]

    @property
    def seconds(self) -> dict[Phase, float]:
        """{phase: seconds so far} of the present save. Phases without time are omitted."""
        values = self.values[_SECONDS:].tolist()
        return {phase: seconds for phase, seconds in zip(PHASES, values, strict=True) if seconds}

    @property
    def checksum(self) -> int | None:
        """The CRC-32 of `.metadata`; None if the saving process has not written `.metadata` in the present save."""
        return int(self.values[_CHECKSUM]) if self.values[_HAS_CHECKSUM] else None


class _NotedActivity:
    """The activity of the saving process (its phase and bytes), stored in shared memory for the rank."""

    def __init__(self, notes: Notes) -> None:
        self._notes, self._moved = notes, 0

    @property
    def bytes_done(self) -> int:
        """The number of bytes transferred so far."""
        return self._moved

    @bytes_done.setter
    def bytes_done(self, count: int) -> None:
        self._moved = count
        self._notes.values[_BYTES] = count

    @contextmanager
    def in_phase(self, phase: Phase, file: str = "") -> Iterator[None]:
        """Record the phase of the ``with`` block. The first phase that raises an error is recorded as failed."""
        values, place = self._notes.values, (PHASES.index(phase), self._notes.number_of(file))
        values[_PHASE], values[_FILE] = place
        try:
            yield
        except BaseException:
            if not values[_FAILED_PHASE]:
                values[_FAILED_PHASE], values[_FAILED_FILE] = place
            raise
        values[_PHASE] = values[_FILE] = 0

    @contextmanager
    def work(self) -> Iterator[None]:
        """Record that the process works in the ``with`` block and does not wait for other ranks."""
        self._notes.values[_WORKS] = 1
        try:
            yield
        finally:
            self._notes.values[_WORKS] = 0


class _NotedClock(Clock):
    """The clock of a save in the saving process. The clock also stores the seconds of each phase in shared memory."""

    notes: Notes

    @contextmanager
    def phase(self, name: Phase, file: str = "") -> Iterator[None]:
        """Time the ``with`` block as the phase ``name``, and store the total seconds of this phase in shared memory."""
        with Clock.phase(self, name, file):
            yield
        self.notes.values[_SECONDS + PHASES.index(name)] = self.phases[name]


class _NotedFiles(WatchedFiles):
    """Watches the library's calls in the saving process, and stores the results in shared memory."""

    def __init__(self, notes: Notes, summed: Collection[str]) -> None:
        clock = _NotedClock(activity=cast("Activity", _NotedActivity(notes)))
        clock.notes = self._notes = notes
        super().__init__(clock, summed)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute. The values of the first error and of the checksum are also stored in shared memory."""
        super().__setattr__(name, value)
        if name == "error" and value is not None:
            self._notes.values[_ERRNO] = value.errno or 0
        elif name == "checksum" and value is not None:
            self._notes.values[_CHECKSUM], self._notes.values[_HAS_CHECKSUM] = value, 1


class _ProcessWriter(FileSystemWriter):
    """The library's writer. The rank sends the writer to the saving process, where the writer's calls are watched."""

    def __init__(self, directory: str, threads: int, notes: Notes, summed: Collection[str]) -> None:
        super().__init__(directory, thread_count=threads)
        self._notes, self._summed = notes, tuple(summed)

    def __getstate__(self) -> dict[str, object]:
        """Return the attributes to send to the saving process: all except the file system."""
        return {name: value for name, value in self.__dict__.items() if name != "fs"}

    def __setstate__(self, state: Mapping[str, object]) -> None:
        """Restore the writer in the saving process.

        Also limit the saving process to log messages of level warning or higher, to keep the launch's log short.
        """
        logging.getLogger().setLevel(logging.WARNING)
        torch.set_num_threads(1)
        self.__dict__.update(state)
        self.fs = _NotedFiles(self._notes, self._summed)


class _NoStorage(StorageWriter):
    """A writer that stores nothing. A save with this writer only starts the saving process."""

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Do nothing."""

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Do nothing."""

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        return plans

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:  # type: ignore[override]
        done: torch.futures.Future[list[WriteResult]] = torch.futures.Future()
        done.set_result([])
        return cast("Future[list[WriteResult]]", done)

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Do nothing."""

    def storage_meta(self) -> StorageMeta | None:
        return None

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return True


class _Staged:
    """A stager that does not copy, because the engine has already copied the state and timed the copy."""

    should_synchronize_after_execute = False

    def stage(self, state: Any) -> Any:
        return state

    def synchronize_staging(self) -> None:
        """Do nothing, because the copy is complete."""

    def close(self) -> None:
        """Do nothing."""


class SavingProcess:
    """The library's process that saves a rank's state. All ranks call each method together.

    ``names`` are the files on which the process reports. For the files ``summed``, a checksum is computed.
    """

    def __init__(self, names: Sequence[str], summed: Collection[str]) -> None:
        self._notes = Notes((*names, *summed))
        self._summed = tuple(summed)
        self.start_seconds = 0.0

    @staticmethod
    def check_shared_memory(group: Group, copy_bytes: int) -> None:
        """Raise RuntimeError if this host's shared memory is too small for the copies of its ranks.

        ``copy_bytes`` is the size of this rank's copy. All ranks call this together. If shared memory were too small,
        the kernel would kill a rank with SIGBUS.
        """
        need, free = group.host_sum(copy_bytes), shared_memory_free_bytes()
        if need > free:
            raise RuntimeError(
                f"/dev/shm of host {group.host} has {format_bytes(free)} free, and the copies of its ranks need "
                f"{format_bytes(need)}: make it larger (mount -o remount,size=…; containers: --shm-size), or use "
                "--ckpt-strategy=async"
            )

    def start(self, address: str) -> None:
        """Start the process if it does not exist.

        ``address`` is the address of rank 0's host. The library chooses a free port on rank 0's host.
        """
        began = time.perf_counter()
        os.environ.setdefault("MASTER_ADDR", address)
        _future(_async_save({}, _NoStorage())).result()
        self.start_seconds = max(self.start_seconds, time.perf_counter() - began)

    def end(self) -> None:
        """End the process. `start` creates a new process.

        Without this call, the library would keep the process until this rank ends.
        """
        # The library has no function for this: its process ends when the only reference is deleted.
        _async_process_executor._CHECKPOINT_PROCESS = None

    def save(
        self, state: dict[str, object], directory: str, threads: int, clock: Clock, found: LibraryOperation
    ) -> None:
        """Let the process save ``state`` into ``directory`` with ``threads`` threads, and wait for the end of the save.

        The checksum and the first error are stored in ``found``. Raises the errors of
        `torch.distributed.checkpoint.save`. Raises KilledError if the process has ended.
        """
        notes = self._notes
        notes.clear()
        activity, moved = clock.activity, 0
        saving = _future(_async_save(state, _ProcessWriter(directory, threads, notes, self._summed)))
        while not wait((saving,), _POLL_SECONDS).done:
            activity.phase, activity.file = notes.phase_of(_PHASE), notes.name_of(_FILE)
            activity.waiting = not notes.values[_WORKS]
            moved = self._moved(clock, moved)
        activity.phase, activity.file = "", ""
        self._moved(clock, moved)
        for phase, seconds in notes.seconds.items():
            clock.phases[phase] = clock.phases.get(phase, 0.0) + seconds
        found.checksum = notes.checksum
        if number := int(notes.values[_ERRNO]):
            found.error = OSError(number, os.strerror(number))
            activity.fails_at(notes.name_of(_FAILED_FILE), notes.phase_of(_FAILED_PHASE))
        try:
            saving.result()
        except RuntimeError as error:
            if (dead := _DEAD.search(str(error))) is None:
                raise
            raise KilledError(f"{_OF_RANK} {describe_exit(int(dead[1]))}") from None
        except (BrokenPipeError, ConnectionResetError):
            # Errors of the pipe to the process; errors of the storage are inside a CheckpointException.
            raise KilledError(f"{_OF_RANK} has ended") from None

    def _moved(self, clock: Clock, before: int) -> int:
        """Add the newly transferred bytes of the process to ``clock``. Return the total number of transferred bytes.

        ``before`` is the total of the previous call.
        """
        now = int(self._notes.values[_BYTES])
        clock.moved(now - before)
        return now


def _async_save(state: dict[str, object], writer: StorageWriter) -> Any:
    return async_save(
        state,
        storage_writer=writer,
        async_checkpointer_type=AsyncCheckpointerType.PROCESS,
        async_stager=cast("AsyncStager", _Staged()),
    )


def _future(response: Any) -> Future[Any]:
    """Return the future that completes when the save ends.

    ``response`` is the result of `async_save`: this future, or an object with separate futures for the copy and the
    save.
    """
    return cast("Future[Any]", getattr(response, "upload_completion", response))
