"""Engine ``dcp``: torch.distributed.checkpoint with its own writer and reader of files, over gloo among the ranks.

The library's are all calls until the save has returned: each rank writes and syncs `__RANK_0.distcp`, then rank 0
writes and syncs `.metadata` and gives it its name. Ours come behind them, on the clock, before the commit: the store
makes each file and the folder durable, whatever the library did, and has seen that.

Every rank waits for the others within the library, so what one rank meets, all are told. A rank that met an error of
the storage ends the launch; the others wait for that, so that none is named in its place.

Where a copy of the state is saved, the library saves it in a thread, as its own `async_save` does with its copy; ours
is made by one copy of each tensor, into memory that stays.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from pytest_ckpt.facts.file_rules import DCP_FILES
from pytest_ckpt.ranks.content import TensorKey, compare
from pytest_ckpt.ranks.engines.dcp.arrivals import Arrivals, OneMetadataReader, of_other_size, of_places
from pytest_ckpt.ranks.engines.dcp.gloo_ranks import GlooRanks
from pytest_ckpt.ranks.engines.dcp.sharded_state import Holders, ShardedState, find_holders
from pytest_ckpt.ranks.engines.dcp.watched_files import WatchedFiles
from pytest_ckpt.ranks.engines.protocol import Clock, Comparison, LocalFault
from pytest_ckpt.sizing.files import files_of, shard_files

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_ckpt.facts.file_rules import FileRule
    from pytest_ckpt.facts.proofs import CommitProof, Entry
    from pytest_ckpt.ranks.content import Bytes, Content
    from pytest_ckpt.ranks.engines.dcp.watch import Watch
    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.ranks.process.job import EngineOptions
    from pytest_ckpt.sizing.models import RankLayout
    from pytest_ckpt.targets.protocol import Committed, Draft

METADATA = ".metadata"
_MAXIMUM_FAULTS = 20
_MICROSECONDS = 1_000_000


class DcpEngine:
    """Keeps the rank's whole state in memory, as a training process does; all ranks call each method together.

    ``rule`` says which files there are: each rank's, and beside `.metadata` small ones that rank 0 writes. ``places``
    is the file that says where all stands.
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
        # What a thread waits with must not meet what the rank waits with meanwhile.
        self._savers = group.duplicate(activity) if options.stages else group
        self._stages, self._is_staged = options.stages, False
        self._copy: ShardedState | None = None
        self._tensors = [tensor for file in shard.files for tensor in file.tensors]
        self._own_files = [file.name for file in shard_files(shard, rule)]
        self._written = [file.name for file in files_of(shard, rule)]
        self._summed = (self.places, f"{self.places}.tmp")
        # By the name of a tensor, of the last load.
        self._file_of: dict[str, str] = {}
        self._ranks = GlooRanks(group)
        self._holders: Holders | None = None
        self._state: ShardedState | None = None
        self._filled = 0
        self._added_seconds = 0.0
        self._sizes: dict[str, int] = {}
        # By the number of a checkpoint, on rank 0, which writes it.
        self._checksums: dict[int, int | None] = {}
        self._arrived: frozenset[str] = frozenset()
        self._faults: list[LocalFault] = []
        self._seen_checksum: int | None = None

    def facts(self) -> dict[str, str]:
        """Return torch's version, how the library is called, and what is added to it."""
        return {
            "torch": torch.__version__,
            "save": "torch.distributed.checkpoint.save, FileSystemWriter as it is: one file a rank, sync_files",
            "load": "torch.distributed.checkpoint.load, FileSystemReader, into tensors that are there",
            "added": f"fsync of each file once more and of the folder, in every save: {self.added_text()}",
        }

    def added_text(self) -> str:
        """Return how long the longest of what is added took, on all ranks; asked of them together."""
        added = self._group.largest(round(self._added_seconds * _MICROSECONDS)) / _MICROSECONDS
        return f"{added * 1000:.1f} ms at most"

    def fill(self, checkpoint: int) -> None:
        """Write the content of ``checkpoint`` over the state."""
        state = self._ready()
        if self._stages and self._copy is None:
            # Touched before the clock runs: a job makes its staging buffer once.
            self._copy = self._new_state()
        for number, tensor in enumerate(self._tensors):
            place = TensorKey(checkpoint=checkpoint, rank=self._shard.rank, tensor=number)
            self._content.fill(state.bytes_of(tensor.name), place)
        self._filled = checkpoint

    def state(self) -> Sequence[Bytes]:
        """Return the memory of this rank's parts of all tensors."""
        state = self._ready()
        return [state.bytes_of(tensor.name) for tensor in self._tensors]

    def stage(self) -> int:
        """Copy every part of a tensor into the staging buffer."""
        assert self._copy, "fill makes it"
        self._is_staged = True
        return self._copy.copy_from(self._ready())

    def save(self, draft: Draft, clock: Clock) -> CommitProof | None:
        """Let the library save, then make durable what it wrote, as the store does."""
        writer, files = self._begin_save(draft, clock)
        state = self._copy if self._is_staged and self._copy else self._ready()
        failures = self._together(clock.activity, lambda: save(state.whole, storage_writer=writer))
        self._is_staged = False
        if self._shard.rank in failures:
            raise files.error or failures[self._shard.rank]
        if failures:
            self._wait_for_the_end(failures)
        if files.error:
            # The library does not hear what its second thread met.
            raise files.error
        self._end_save(draft, files)
        if self._group.rank == 0:
            self._checksums[self._filled] = files.checksum
        began = time.perf_counter()
        draft.adopt(self._written)
        entries, _ = draft.seal()
        self._added_seconds = max(self._added_seconds, time.perf_counter() - began)
        self._sizes = {entry.name: entry.bytes for entry in entries if entry.name in self._own_files}
        return self._committed_as(entries, files)

    def load_steps(self) -> int:
        """Everything is loaded before anything is compared; a job has its tensors before it loads into them."""
        self._ready().clear()
        return 1

    def load(self, committed: Committed, step: int, clock: Clock) -> int:
        """Let the library load; what it cannot read becomes a fault, not an error."""
        self._arrived, self._faults = frozenset(), []
        arrivals, state = Arrivals(), self._ready()
        reader, files = self._begin_load(committed, clock)
        failures = self._together(clock.activity, lambda: load(state.whole, storage_reader=reader, planner=arrivals))
        if files.error:
            raise files.error
        if self._shard.rank in failures:
            # The error has left a phase, and is none of the storage.
            self._activity.forgive()
            self._look_at_sizes(committed, files)
            why = _first_line(failures[self._shard.rank])
            found = arrivals.fault(why, reader.storage_data, state, files)
            self._faults.append(found or of_places(METADATA, "unreadable", files.sizes.get(METADATA, 0), why))
        else:
            self._faults += [
                of_other_size(name, files.sizes[name], size)
                for name, size in self._sizes.items()
                if files.sizes.get(name, size) != size
            ]
        self._arrived, self._seen_checksum = arrivals.whole, files.checksum
        self._file_of = arrivals.files(reader.storage_data) if self._arrived else {}
        return sum(tensor.bytes for tensor in self._tensors if tensor.name in self._arrived)

    def verify(self, checkpoint: int) -> Comparison:
        """Compare every byte of every tensor that has arrived, and what was read of `.metadata`."""
        faults, state = self._faults, self._ready()
        written: int | None = self._group.share(self._checksums.get(checkpoint))
        if not faults and None not in {written, self._seen_checksum} and written != self._seen_checksum:
            why = "the library took it, and its bytes are not those that rank 0 wrote"
            faults.append(of_places(self.places, "foreign", 0, why))
        faults += self._faults_of_small(checkpoint)
        checked, count = 0, len(faults)
        for number, tensor in enumerate(self._tensors):
            if tensor.name not in self._arrived:
                continue
            place = TensorKey(checkpoint=checkpoint, rank=self._shard.rank, tensor=number)
            pages, findings = compare(self._content, state.bytes_of(tensor.name), place)
            checked, count = checked + tensor.bytes, count + pages
            faults.extend(LocalFault.of(found, self._file_of[tensor.name], tensor.name) for found in findings)
        return Comparison(bytes_checked=checked, fault_count=count, faults=tuple(faults[:_MAXIMUM_FAULTS]))

    def release(self) -> None:
        """Let go of the state and of the process group; both are made again when they are needed."""
        self._state = self._copy = None
        self._ranks.leave()

    def _begin_save(self, draft: Draft, clock: Clock) -> tuple[FileSystemWriter, Watch]:
        """Return the library's writer of a checkpoint, and what watches its calls."""
        files, folder = WatchedFiles(clock, self._summed), draft.location()
        writer = self._writer(folder, files)
        self._write_before(folder, files)
        return writer, files

    def _end_save(self, draft: Draft, files: Watch) -> None:
        """Write what there is when the library has saved."""
        assert isinstance(files, WatchedFiles), "made above"
        self._write_behind(draft.location(), files)

    def _committed_as(self, entries: Sequence[Entry], files: Watch) -> CommitProof | None:
        """Return how the library has committed the checkpoint: not at all."""
        del entries, files
        return None

    def _begin_load(self, committed: Committed, clock: Clock) -> tuple[FileSystemReader, Watch]:
        """Return the library's reader of a checkpoint, and what watches its calls."""
        files = WatchedFiles(clock, self._summed)
        folder = str(Path(committed.local_path(METADATA) or "").parent)
        reader = OneMetadataReader(folder)
        reader.fs = files
        self._read_small(folder, files)
        return reader, files

    def _look_at_sizes(self, committed: Committed, files: Watch) -> None:
        """Look how large the rank's files are, where opening them did not tell."""

    def _writer(self, folder: str, files: WatchedFiles) -> FileSystemWriter:
        """Return the library's writer into a folder."""
        writer = FileSystemWriter(folder, thread_count=len(self._own_files))
        writer.fs = files
        return writer

    def _write_before(self, folder: str, files: WatchedFiles) -> None:
        """Write what there is before the library saves: nothing."""

    def _write_behind(self, folder: str, files: WatchedFiles) -> None:
        """Write what there is when the library has saved: nothing."""

    def _read_small(self, folder: str, files: WatchedFiles) -> None:
        """Read the small files beside the library's: there are none."""

    def _faults_of_small(self, checkpoint: int) -> list[LocalFault]:
        """Compare what was read of them."""
        del checkpoint
        return []

    def _ready(self) -> ShardedState:
        """Return the state, which is made with the process group at the first call, outside of any clock."""
        if self._state is None:
            if self._holders is None:
                self._holders = find_holders(self._group, self._tensors)
            self._ranks.join()
            self._state = self._new_state()
        return self._state

    def _new_state(self) -> ShardedState:
        assert self._holders
        return ShardedState(self._shard, self._holders)

    def _together(self, activity: Activity, call: Callable[[], object]) -> Mapping[int, BaseException]:
        """Call the library, and return what failed on which rank.

        Where gloo cannot reach another rank, that one has ended: its end is the one to be told, and not this.
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
        """Wait until those that failed have ended the launch."""
        self._savers.wait()
        rank, failure = next(iter(failures.items()))
        raise RuntimeError(f"rank {rank} could not save: {_first_line(failure)}")


def _first_line(error: BaseException) -> str:
    message = str(error).strip()
    return message.splitlines()[0] if message else type(error).__name__


def make(*, shard: RankLayout, content: Content, group: Group, activity: Activity, options: EngineOptions) -> DcpEngine:
    """Return the engine of a rank's files, whose ranks call each method together."""
    return DcpEngine(shard, content, group, activity, options)
