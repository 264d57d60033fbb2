"""Engine ``dcp``: torch.distributed.checkpoint (DCP) with its own writer and reader of files.

Ranks communicate over gloo.

Save: each rank writes and syncs its file (`__RANK_0.distcp` on rank 0). Then rank 0 writes, syncs and renames
`.metadata`. These are the library's own calls. Afterwards the store makes each file durable, even if the library has
synced the file, and records the proof. This is within the timed part and before the commit.

Errors: ranks wait for each other within the library, so an error of one rank reaches all ranks. The rank with the error
ends the launch, and the other ranks wait for this end. Therefore the report names the rank with the error.

Copy of the state: for a background save, the library saves a copy in a thread, like its own `async_save`. Each tensor
is copied once, into reused memory. With the strategy ``async:process``, a process of the library saves the copy
(`pytest_ckpt.ranks.engines.dcp_process`).

State: the tensors are DTensors, sharded across ranks. The parts of one tensor have the same name on all ranks. Each
part is one row of the DTensor, and the rows are in rank order. Which ranks share a tensor depends on the tensor. For
weights under ZeRO-3, they are the data-parallel and tensor-parallel ranks of a pipeline stage. For weights under
ZeRO-1, they are the tensor-parallel ranks of the first replica. For the optimizer, they are all ranks. ZeRO and
Megatron's distributed optimizer shard a flat parameter; the concatenated rows are this flat parameter. If only a subset
of ranks runs, a tensor consists of the parts of these ranks.

``.metadata`` lists the complete tensors and the places of their parts. Therefore the library can load the checkpoint
without this package and with another number of ranks.

Flat DTensors are not used. For a flat DTensor, the library (torch 2.13) would list the index of every element of a
part, 8 bytes each. Jobs that shard matrices by rows, such as FSDP, do not have this cost.
"""

from __future__ import annotations

import math
import os
import socket
import sys
import time
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import torch
import torch.distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined]
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard

from pytest_ckpt.facts.file_rules import DCP_FILES
from pytest_ckpt.ranks.content import TensorKey, compare
from pytest_ckpt.ranks.engines.dcp_watch import LibraryOperation, WatchedFiles
from pytest_ckpt.ranks.engines.protocol import MAXIMUM_FAULTS_OF_RANK, Clock, Comparison, LocalFault
from pytest_ckpt.ranks.engines.whole_state import copy_state
from pytest_ckpt.ranks.process.group import longest_seconds
from pytest_ckpt.sizing.files import files_of, shard_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from torch.distributed.checkpoint.metadata import Metadata
    from torch.distributed.checkpoint.planner import LoadPlan, ReadItem

    from pytest_ckpt.facts.file_rules import FileRule
    from pytest_ckpt.facts.proofs import CommitProof, Entry, FaultKind
    from pytest_ckpt.ranks.content import Bytes, Content
    from pytest_ckpt.ranks.engines.dcp_process import SavingProcess
    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.ranks.process.job import EngineOptions
    from pytest_ckpt.sizing.models import Dtype, RankLayout, Tensor
    from pytest_ckpt.targets.protocol import CommittedCheckpoint, Draft

METADATA = ".metadata"

Holders = tuple[tuple[tuple[int, ...], tuple[str, ...]], ...]
"""Groups of ranks, each with the names of the tensors that the group shares. The value is the same on all ranks."""

# The controller ends a rank that hangs, and names the rank and its file; gloo would only report that some rank hung.
_PATIENCE = timedelta(days=30)
_UNTIL_MET = timedelta(minutes=5)
_LOOPBACK = "127.0.0.1"


class DcpEngine:
    """An engine that keeps the rank's complete state in memory, like a training process.

    All ranks call each method together. ``rule`` names the files: the files of each rank, `.metadata`, and small files
    that rank 0 writes. ``places`` is the name of the file that lists the places of all tensors.
    """

    places = METADATA

    def __init__(
        self,
        shard: RankLayout,
        content: Content,
        group: Group,
        activity: Activity,
        options: EngineOptions,
        rule: FileRule = DCP_FILES,
    ) -> None:
        torch.set_num_threads(1)
        self._shard, self._content, self._group, self._activity = shard, content, group, activity
        # A background thread uses a separate group, so that its messages do not mix with the rank's.
        self._savers = group.duplicate(activity) if options.stages else group
        self._stages, self._is_staged, self._copy_threads = options.stages, False, options.copy_threads
        self._copy: ShardedState | None = None
        self._process: SavingProcess | None = None
        self._tensors = [tensor for file in shard.files for tensor in file.tensors]
        self._own_files = [file.name for file in shard_files(shard, rule)]
        self._written = [file.name for file in files_of(shard, rule)]
        self._summed = (self.places, f"{self.places}.tmp")
        if options.stages and options.by_process:
            from pytest_ckpt.ranks.engines.dcp_process import SavingProcess  # noqa: PLC0415 - imported where it is used

            self._process = SavingProcess(self._written, self._summed)
        # The file from which the last load read each tensor, by tensor name.
        self._file_of: dict[str, str] = {}
        self._ranks = GlooRanks(group)
        self._holders: Holders | None = None
        self._state: ShardedState | None = None
        self._filled = 0
        self._added_seconds = 0.0
        self._sizes: dict[str, int] = {}
        # Checksums by checkpoint number, on rank 0, which writes the file.
        self._checksums: dict[int, int | None] = {}
        self._arrived: frozenset[str] = frozenset()
        self._faults: list[LocalFault] = []
        self._seen_checksum: int | None = None

    def facts(self) -> dict[str, str]:
        """Return torch's version, how the library is called, and the calls that pytest-ckpt adds."""
        save_call = "torch.distributed.checkpoint.save"
        process: dict[str, str] = {}
        if self._process:
            save_call = "torch.distributed.checkpoint.async_save in its own process (AsyncCheckpointerType.PROCESS)"
            started = longest_seconds(self._group, self._process.start_seconds)
            process = {"process": f"started once before the first save, off the clock: {started:.1f} s at most"}
        return {
            "torch": torch.__version__,
            "save": f"{save_call}, FileSystemWriter as it is: one file a rank, sync_files",
            **process,
            "load": "torch.distributed.checkpoint.load, FileSystemReader, into tensors that are there",
            "added": f"fsync of each file once more, in every save: {self.added_text()}",
        }

    def added_text(self) -> str:
        """Return the longest duration of the added calls over all ranks, as text. All ranks call this together."""
        added = longest_seconds(self._group, self._added_seconds)
        return f"{added * 1000:.1f} ms at most"

    def fill(self, checkpoint: int) -> None:
        """Write the content of checkpoint number ``checkpoint`` into the state.

        The first call creates the state. If saves use a copy of the state, the first call also allocates memory for the
        copy.
        """
        state = self._ready()
        if self._stages and self._copy is None:
            # The memory is touched before the timed part, because a job allocates its staging buffer once.
            if self._process:
                self._process.check_shared_memory(self._group, self._shard.bytes)
            self._copy = self._new_state(is_shared=self._process is not None)
            if self._process:
                self._process.start(self._ranks.address)
        for number, tensor in enumerate(self._tensors):
            place = TensorKey(checkpoint=checkpoint, rank=self._shard.rank, tensor=number)
            self._content.fill(state.bytes_of(tensor.name), place)
        self._filled = checkpoint

    def state(self) -> Sequence[Bytes]:
        """Return the memory of this rank's part of each tensor."""
        state = self._ready()
        return [state.bytes_of(tensor.name) for tensor in self._tensors]

    def stage(self) -> int:
        """Copy this rank's part of each tensor into the staging buffer. Return the number of copied bytes."""
        assert self._copy, "fill makes it"
        self._is_staged = True
        return self._copy.copy_from(self._ready(), self._copy_threads)

    def save(self, draft: Draft, clock: Clock) -> CommitProof | None:
        """Let the library save, then make the files durable through the store.

        If the library commits the checkpoint, return its proof. In this engine the store commits the files, so the
        result is None.
        """
        failures, files = self._save_files(draft, clock)
        self._is_staged = False
        if self._shard.rank in failures:
            raise files.error or failures[self._shard.rank]
        if failures:
            self._wait_for_the_end(failures)
        if files.error:
            # The library does not report errors of its second thread.
            raise files.error
        if self._process is None:
            self._end_save(draft, files)
        if self._group.rank == 0:
            self._checksums[self._filled] = files.checksum
        began = time.perf_counter()
        draft.adopt(self._written)
        entries, _ = draft.written()
        self._added_seconds = max(self._added_seconds, time.perf_counter() - began)
        self._sizes = {entry.name: entry.bytes for entry in entries if entry.name in self._own_files}
        return self._committed_as(entries, files)

    def load_steps(self) -> int:
        """Set all tensors to zero. Return 1, because a job allocates all tensors and then loads them in one step."""
        self._ready().clear()
        return 1

    def load(self, committed: CommittedCheckpoint, step: int, clock: Clock) -> int:
        """Let the library load. Return the number of tensor bytes loaded.

        Unreadable content is recorded as a fault; no error is raised.
        """
        self._arrived, self._faults = frozenset(), []
        arrivals, state = Arrivals(), self._ready()
        reader, files = self._begin_load(committed, clock)
        failures = self._together(clock.activity, lambda: load(state.whole, storage_reader=reader, planner=arrivals))
        if files.error:
            raise files.error
        if self._shard.rank in failures:
            # The error passed through a phase, but does not come from the storage.
            self._activity.forgive()
            self._query_sizes(committed, files)
            reason = _first_line(failures[self._shard.rank])
            fault = arrivals.fault(reason, reader.storage_data, state, files)
            self._faults.append(fault or of_places(METADATA, "unreadable", files.sizes.get(METADATA, 0), reason))
        else:
            self._faults += [
                size_fault(name, files.sizes[name], size)
                for name, size in self._sizes.items()
                if files.sizes.get(name, size) != size
            ]
        self._arrived, self._seen_checksum = arrivals.whole, files.checksum
        self._file_of = arrivals.files(reader.storage_data) if self._arrived else {}
        return sum(tensor.bytes for tensor in self._tensors if tensor.name in self._arrived)

    def verify(self, checkpoint: int) -> Comparison:
        """Compare every byte of each loaded tensor, and the checksum of `.metadata`, with the written values."""
        faults, state = self._faults, self._ready()
        written: int | None = self._group.share(self._checksums.get(checkpoint))
        if not faults and None not in {written, self._seen_checksum} and written != self._seen_checksum:
            reason = "the library accepted it, but its bytes differ from the bytes that rank 0 wrote"
            faults.append(of_places(self.places, "foreign", 0, reason))
        faults += self._faults_of_small(checkpoint)
        checked, count = 0, len(faults)
        for number, tensor in enumerate(self._tensors):
            if tensor.name not in self._arrived:
                continue
            place = TensorKey(checkpoint=checkpoint, rank=self._shard.rank, tensor=number)
            pages, findings = compare(self._content, state.bytes_of(tensor.name), place)
            checked, count = checked + tensor.bytes, count + pages
            faults.extend(LocalFault.of(finding, self._file_of[tensor.name], tensor.name) for finding in findings)
        return Comparison(bytes_checked=checked, fault_count=count, faults=tuple(faults[:MAXIMUM_FAULTS_OF_RANK]))

    def release(self) -> None:
        """Free the state and leave torch's process group. The next save or load creates both again."""
        self._state = self._copy = None
        if self._process:
            self._process.end()
        self._ranks.leave()

    def _save_files(self, draft: Draft, clock: Clock) -> tuple[Mapping[int, BaseException], LibraryOperation]:
        """Let the library save the state or its copy. Return (errors, watch).

        The errors are {rank: error}. The watch is the object that times the library's calls to the storage.
        """
        state = self._copy if self._is_staged and self._copy else self._ready()
        if process := self._process:
            watch = LibraryOperation(clock, self._summed)
            directory, threads = draft.location(), len(self._own_files)
            call = partial(process.save, state.whole, directory, threads, clock, watch)
            return self._together(clock.activity, call), watch
        writer, files = self._begin_save(draft, clock)
        return self._together(clock.activity, lambda: save(state.whole, storage_writer=writer)), files

    def _begin_save(self, draft: Draft, clock: Clock) -> tuple[FileSystemWriter, LibraryOperation]:
        """Return (writer, watch) for a save.

        The writer is the library's writer for a checkpoint. The watch is the object that times the writer's calls.
        """
        files, directory = WatchedFiles(clock, self._summed), draft.location()
        writer = self._writer(directory, files)
        self._write_before(directory, files)
        return writer, files

    def _end_save(self, draft: Draft, files: LibraryOperation) -> None:
        """Write the small files that come after the library's files."""
        assert isinstance(files, WatchedFiles), "made above"
        self._write_behind(draft.location(), files)

    def _committed_as(self, entries: Sequence[Entry], files: LibraryOperation) -> CommitProof | None:
        """Return the library's proof of a commit. In this engine it is None, because the store commits the files."""
        del entries, files
        return None

    def _begin_load(self, committed: CommittedCheckpoint, clock: Clock) -> tuple[FileSystemReader, LibraryOperation]:
        """Return (reader, watch) for a load.

        The reader is the library's reader for a checkpoint. The watch is the object that times the reader's calls.
        """
        files = WatchedFiles(clock, self._summed)
        directory = str(Path(committed.local_path(METADATA) or "").parent)
        reader = SharedMetadataReader(directory)
        reader.fs = files
        self._read_small(directory, files)
        return reader, files

    def _query_sizes(self, committed: CommittedCheckpoint, files: LibraryOperation) -> None:
        """Query the sizes of the rank's objects. Only engines for object stores implement this method.

        In this engine the method does nothing, because the size of a file is recorded when the file is opened.
        """

    def _writer(self, directory: str, files: WatchedFiles) -> FileSystemWriter:
        """Return the library's writer for ``directory``; it accesses files through ``files``."""
        writer = FileSystemWriter(directory, thread_count=len(self._own_files))
        writer.fs = files
        return writer

    def _write_before(self, directory: str, files: WatchedFiles) -> None:
        """Write the small files that come before the library's files. In this engine there are none."""

    def _write_behind(self, directory: str, files: WatchedFiles) -> None:
        """Write the small files that come after the library's files. In this engine there are none."""

    def _read_small(self, directory: str, files: WatchedFiles) -> None:
        """Read the small files that the library does not read. In this engine there are none."""

    def _faults_of_small(self, checkpoint: int) -> list[LocalFault]:
        """Return the faults of the small files that were read. In this engine there are no small files."""
        del checkpoint
        return []

    def _ready(self) -> ShardedState:
        """Return the state. The first call also creates the state and torch's process group.

        The first call must be outside the timed part.
        """
        if self._state is None:
            self._ranks.join()
            self._state = self._new_state()
        return self._state

    def _new_state(self, *, is_shared: bool = False) -> ShardedState:
        if self._holders is None:
            self._holders = find_holders(self._group, self._tensors)
        return ShardedState(self._shard, self._holders, is_shared=is_shared)

    def _together(self, activity: Activity, call: Callable[[], object]) -> Mapping[int, BaseException]:
        """Run ``call``, in which the library communicates with all ranks. Return {rank: error}.

        An error of gloo means that another rank has ended. In this case, wait before the error is raised, because the
        end of the other rank must be reported first.
        """
        with activity.wait():
            try:
                call()
            except CheckpointException as error:
                return {rank: failure for rank, (failure, _) in error.failures.items()}
            except RuntimeError:
                self._savers.wait()
                raise
        return {}

    def _wait_for_the_end(self, failures: Mapping[int, BaseException]) -> NoReturn:
        """Wait until the failed ranks have ended the launch, which also ends this process.

        ``failures`` is {rank: error}. Raises RuntimeError if the launch continues.
        """
        self._savers.wait()
        rank, failure = next(iter(failures.items()))
        raise RuntimeError(f"rank {rank} could not save: {_first_line(failure)}")


def _first_line(error: BaseException) -> str:
    message = str(error).strip()
    return message.splitlines()[0] if message else type(error).__name__


def make(*, shard: RankLayout, content: Content, group: Group, activity: Activity, options: EngineOptions) -> DcpEngine:
    """Return the engine for the files of one rank. All ranks call each of the engine's methods together."""
    return DcpEngine(shard, content, group, activity, options)


class SharedMetadataReader(FileSystemReader):
    """The library's reader of files, with one `.metadata` for all ranks.

    By default the library reads a separate `.metadata` of each rank, which does not exist in these checkpoints.
    """

    def read_metadata(self) -> Metadata:
        """Read the `.metadata` that all ranks share."""
        return super().read_metadata()


class Arrivals(DefaultLoadPlanner):
    """The library's load planner, extended by a record of the tensor parts that have been loaded."""

    def __init__(self) -> None:
        super().__init__()
        self._planned: list[ReadItem] = []
        self._waiting: list[ReadItem] = []

    def finish_plan(self, new_plan: LoadPlan) -> LoadPlan:
        """Return the plan, and record the parts that this rank will read."""
        plan = super().finish_plan(new_plan)
        self._planned, self._waiting = list(plan.items), list(plan.items)
        return plan

    def commit_tensor(self, read_item: ReadItem, tensor: torch.Tensor) -> None:
        """Record that a part of a tensor has been loaded."""
        super().commit_tensor(read_item, tensor)
        self._waiting = [item for item in self._waiting if item is not read_item]

    @property
    def whole(self) -> frozenset[str]:
        """The names of the tensors whose part on this rank was loaded completely."""
        waiting = {item.dest_index.fqn for item in self._waiting}
        return frozenset(item.dest_index.fqn for item in self._planned) - waiting

    def files(self, places: dict[Any, Any]) -> dict[str, str]:
        """Return {tensor name: file} for this rank's part of each tensor.

        ``places`` comes from `.metadata`; it is {stored part: place}.
        """
        return {item.dest_index.fqn: places[item.storage_index].relative_path for item in self._planned}

    def fault(
        self, reason: str, places: dict[Any, Any], state: ShardedState, files: LibraryOperation
    ) -> LocalFault | None:
        """Return a fault for the first tensor part that was not loaded; None if all parts were loaded.

        ``reason`` is the message of the error that ended the load. ``places`` comes from `.metadata`; it is {stored
        part: place}. ``files`` contains the sizes of the opened files.
        """
        by_file: dict[str, list[ReadItem]] = {}
        for item in self._planned:
            by_file.setdefault(places[item.storage_index].relative_path, []).append(item)
        for name, items in by_file.items():
            for item in items:
                if not any(item is waits for waits in self._waiting):
                    continue
                place, size = places[item.storage_index], files.sizes.get(name, 0)
                ends_early = place.offset + place.length > size
                kind: FaultKind = "short" if ends_early else "unreadable"
                sizes = f"{size} bytes, the part ends at {place.offset + place.length}"
                each, columns = state.item_bytes(item.dest_index.fqn), state.columns(item.dest_index.fqn)
                return LocalFault(
                    kind=kind,
                    file=name,
                    tensor=item.dest_index.fqn,
                    offset=(item.dest_offsets[0] * columns + item.dest_offsets[1]) * each,
                    bytes=math.prod(item.lengths) * each,
                    detail=f"torch.distributed.checkpoint cannot read it, nor the bytes after it ({sizes}): {reason}",
                )
        return None


def of_places(name: str, kind: FaultKind, size: int, reason: str) -> LocalFault:
    """Return a fault that affects a complete file, such as `.metadata`. ``size`` is the size of the file in bytes."""
    return LocalFault(kind=kind, file=name, tensor="", offset=0, bytes=size, detail=reason)


def size_fault(name: str, size: int, written: int) -> LocalFault:
    """Return the fault of a file whose size is ``size`` bytes instead of the ``written`` bytes."""
    detail = f"the file has {size} bytes, {written} were written"
    return LocalFault(kind="foreign", file=name, tensor="", offset=written, bytes=size, detail=detail)


def find_holders(group: Group, tensors: Iterable[Tensor]) -> Holders:
    """Return groups of ranks, each with the names of the tensors of which these ranks have parts.

    All ranks call this together. Raises RuntimeError if the parts of a tensor differ in size or type.
    """
    tensors_of_ranks = group.gather({tensor.name: (tensor.dtype, tensor.elements) for tensor in tensors})
    shared: Holders | str = group.share(_holders(tensors_of_ranks) if group.rank == 0 else ())
    if isinstance(shared, str):
        raise RuntimeError(shared)
    return shared


def _holders(tensors_of_ranks: Sequence[Mapping[str, tuple[str, int]]]) -> Holders | str:
    """Return groups of ranks, each with the names of the tensors of which these ranks have parts.

    Return an error message if the parts of a tensor differ. ``tensors_of_ranks`` contains {tensor name: (type,
    elements)} for each rank.
    """
    ranks: dict[str, list[int]] = {}
    for rank, tensors in enumerate(tensors_of_ranks):
        for name, part in tensors.items():
            ranks.setdefault(name, []).append(rank)
            if part != tensors_of_ranks[ranks[name][0]][name]:
                return f"ranks {ranks[name][0]} and {rank} have parts of {name} that differ in size or type"
    names: dict[tuple[int, ...], list[str]] = {}
    for name, of in ranks.items():
        names.setdefault(tuple(of), []).append(name)
    return tuple((of, tuple(together)) for of, together in names.items())


class ShardedState:
    """The tensors of a rank. ``whole`` is {tensor name: DTensor}.

    If ``is_shared``, the tensors are in shared memory, so another process can read them without a copy.
    """

    def __init__(self, shard: RankLayout, holders: Holders, *, is_shared: bool = False) -> None:
        """Create the tensors of this rank. All ranks call this together.

        For each group of ``holders``, torch creates a device mesh of the group's ranks.
        """
        tensors = {tensor.name: tensor for file in shard.files for tensor in file.tensors}
        self._parts = {name: torch.zeros(1, t.elements, dtype=dtype_of(t.dtype)) for name, t in tensors.items()}
        if is_shared:
            parts: list[Any] = list(self._parts.values())
            for part in parts:
                part.share_memory_()
        self.whole: dict[str, Any] = {}
        for ranks, names in holders:
            # Every rank creates every mesh, because each becomes a process group.
            mesh = DeviceMesh("cpu", list(ranks))
            for name in names if shard.rank in ranks else ():
                self.whole[name] = DTensor.from_local(self._parts[name], mesh, [Shard(0)], run_check=False)

    def bytes_of(self, name: str) -> NDArray[np.uint8]:
        """Return the memory of this rank's part of a tensor."""
        return self._parts[name].view(torch.uint8).numpy().reshape(-1)

    def copy_from(self, other: ShardedState, threads: int) -> int:
        """Copy this rank's parts from another state with the same tensors. Return the number of copied bytes."""
        copies, sources = ([state.bytes_of(name) for name in self._parts] for state in (self, other))
        return copy_state(copies, sources, threads)

    def item_bytes(self, name: str) -> int:
        """Return the size of a tensor's elements in bytes."""
        return self._parts[name].element_size()

    def columns(self, name: str) -> int:
        """Return the number of elements in one row of this rank's part of a tensor."""
        return self._parts[name].shape[1]

    def clear(self) -> None:
        """Set all tensors to zero, so that data of an earlier checkpoint do not remain in memory before a load."""
        for part in self._parts.values():
            part.zero_()


def dtype_of(name: Dtype) -> torch.dtype:
    """Return torch's data type with this name."""
    return {"float16": torch.float16, "float32": torch.float32, "uint8": torch.uint8}[name]


class GlooRanks:
    """torch's process group of all ranks, over gloo.

    A process has at most one such group. Before an engine joins the group, any other engine must have left it.
    """

    def __init__(self, group: Group) -> None:
        self._group = group
        self._store: TCPStore | None = None
        self.address = _LOOPBACK

    @property
    def is_joined(self) -> bool:
        """Whether the process group exists."""
        return self._store is not None

    def join(self) -> None:
        """Create the process group. All ranks call this together."""
        group = self._group
        hosts: list[str] = group.share(group.gather(group.host))
        if len(set(hosts)) == 1:
            # A host may not be able to resolve its own name; a user may name another interface.
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        else:
            self.address = group.share(_address(hosts[0]) if group.rank == 0 else "")
        address = self.address
        if group.rank == 0:
            self._store = _store(address, 0, group.size, leads=True)
        port = group.share(self._store.port if self._store else 0)
        if self._store is None:
            self._store = _store(address, port, group.size, leads=False)
        hook = sys.excepthook
        dist.init_process_group("gloo", store=self._store, rank=group.rank, world_size=group.size, timeout=_PATIENCE)
        # The library wraps the hook each time to print the rank before a traceback, but ranks report errors to the
        # controller.
        sys.excepthook = hook

    def leave(self) -> None:
        """Destroy the process group, if it exists."""
        if self._store is not None:
            dist.destroy_process_group()
            self._store = None


def _store(address: str, port: int, size: int, *, leads: bool) -> TCPStore:
    return TCPStore(address, port, size, is_master=leads, timeout=_UNTIL_MET, wait_for_workers=False)


def _address(host: str) -> str:
    """Return the address at which other hosts reach ``host``: its name, or loopback if the name cannot be resolved.

    Loopback is sufficient for such a name, because only hosts that are simulated on this host have unresolvable names.
    """
    try:
        socket.getaddrinfo(host, None)
    except OSError:
        return _LOOPBACK
    return host
