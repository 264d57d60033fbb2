"""An engine whose saves are full checkpoints or deltas. A delta contains the pages that changed since the last save.

The engine saves full checkpoints through another engine, the wrapped engine. A rank's delta is one file: an index of
its page ranges, then the complete pages. A chain is a full checkpoint and the deltas that follow it.

A load reads all files of a chain. Every page is compared with the content of the checkpoint that wrote the page, so an
outdated page is detected. The pages are not merged into the state, because a merge accesses only the client's memory
and not the storage.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np

from pytest_ckpt.ranks.content import TensorKey, compare
from pytest_ckpt.ranks.engines.protocol import (
    MAXIMUM_FAULTS_OF_RANK,
    Clock,
    Comparison,
    LocalFault,
    expect,
    staging,
    state_of,
)
from pytest_ckpt.ranks.engines.stream.buffers import MAXIMUM_ALIGNMENT_BYTES, Buffers
from pytest_ckpt.ranks.engines.whole_state import copy_state
from pytest_ckpt.sizing.deltas import PAGE_BYTES, delta_name, index_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_ckpt.facts.proofs import CommitProof, Entry, FaultKind
    from pytest_ckpt.ranks.content import Bytes, Content
    from pytest_ckpt.ranks.engines.protocol import Engine
    from pytest_ckpt.ranks.process.job import EngineOptions
    from pytest_ckpt.sizing.deltas import DeltaRule, Run
    from pytest_ckpt.sizing.models import RankLayout
    from pytest_ckpt.targets.protocol import CommittedCheckpoint, Draft, ReadableFile, Source

_HEAD = struct.Struct("<8sQQQ")
_MAGIC = b"CKPTDLTA"


@dataclass(frozen=True, slots=True)
class Chain:
    """A committed delta, with all checkpoints that must be read to restore it.

    ``links`` are these checkpoints, from the full checkpoint to the delta itself; ``numbers`` are their checkpoint
    numbers. The methods access only the delta itself.
    """

    links: tuple[CommittedCheckpoint, ...]
    numbers: tuple[int, ...]

    def entries(self) -> Sequence[Entry]:
        """Return the names and sizes of all files of the delta."""
        return self.links[-1].entries()

    def source(self, name: str, *, fresh: bool = False) -> Source:
        """Open a file of the delta for reads at offsets."""
        return self.links[-1].source(name, fresh=fresh)

    def file(self, name: str) -> ReadableFile:
        """Open a file of the delta as a file object."""
        return self.links[-1].file(name)

    def local_path(self, name: str) -> str | None:
        """Return the path of a file of the delta; None if the target has no paths."""
        return self.links[-1].local_path(name)


class ChainedEngine:
    """An engine that saves full checkpoints through ``engine`` and writes deltas itself.

    ``rule`` decides which saves are deltas. With the option ``stages``, the job may continue during a save. The changed
    pages are then collected while the job waits. Without this option, they are collected before the clock starts.
    """

    def __init__(
        self, engine: Engine, shard: RankLayout, content: Content, rule: DeltaRule, options: EngineOptions
    ) -> None:
        self._engine, self._shard, self._content, self._rule = engine, shard, content, rule
        self._request_bytes, self._stages = options.request_bytes, options.stages
        self._copy_threads = options.copy_threads
        # The changed pages of the state, before `stage` collects them.
        self._changed: Bytes | None = None
        self._name = delta_name(shard.rank)
        tensors = [(file.name, tensor.name) for file in shard.files for tensor in file.tensors]
        self._tensors = dict(enumerate(tensors))
        self._buffer: Bytes | None = None
        self._number = 0
        # The number of the delta that the last step of a load read, the number of bytes read, and the size of the file;
        # None if the step read a part of the full save.
        self._read: tuple[int, int, int] | None = None
        self._is_idle = False

    def facts(self) -> dict[str, str]:
        """Return the facts of the wrapped engine, and a fact on how deltas are saved."""
        when = "while the job waits" if self._stages else "before the clock runs"
        return self._engine.facts() | {
            "deltas": f"pages that changed are gathered {when}, and written to one file a rank; a restore reads "
            "the full save and every complete delta; putting the pages together is not measured"
        }

    @property
    def contains_delta(self) -> bool:
        """Whether the last filled checkpoint is a delta."""
        return self._rule.is_delta(self._number)

    def fill(self, checkpoint: int) -> None:
        """Generate the content of a checkpoint: the complete state for a full save, the changed pages for a delta."""
        self._number = checkpoint
        if not self._rule.is_delta(checkpoint):
            self._engine.fill(checkpoint)
            return
        size = self._rule.file_bytes(self._shard, checkpoint)
        data = self._buffer_for(size)
        if self._stages:
            if self._changed is None:
                self._changed = Buffers(1, self._rule.largest_file_bytes(self._shard)).slots[0]
            data = self._changed[:size]
        runs = list(self._rule.runs(self._shard, checkpoint))
        index = self._index(checkpoint, runs)
        data[: len(index)] = index
        # Zeros fill the rest of short pages and the space after the last page.
        data[len(index) :] = 0
        for at, run in _placed(runs):
            self._content.fill(data[at : at + run.bytes], self._place(checkpoint, run), run.page * PAGE_BYTES)

    def state(self) -> Sequence[Bytes]:
        """Return the memory of the wrapped engine's state. The buffer of deltas is not included."""
        return state_of(self._engine)

    def stage(self) -> int:
        """Copy the changed pages for a delta, or let the wrapped engine copy its state.

        Return the number of copied bytes.
        """
        if not self.contains_delta or self._changed is None:
            return staging(self._engine).stage()
        size = self._rule.file_bytes(self._shard, self._number)
        return copy_state([self._buffer_for(size)[:size]], [self._changed[:size]], self._copy_threads)

    def save(self, draft: Draft, clock: Clock) -> CommitProof | None:
        """Save the last filled checkpoint, as a full checkpoint or as a delta.

        Return the wrapped engine's proof of the commit; None for a delta.
        """
        if not self._rule.is_delta(self._number):
            return self._engine.save(draft, clock)
        size = self._rule.file_bytes(self._shard, self._number)
        data = self._buffer_for(size)
        sink = draft.create(self._name, size)
        try:
            with clock.phase("write", self._name):
                step, stop = sink.part_bytes or self._request_bytes, -(-size // sink.alignment) * sink.alignment
                for offset in range(0, stop, step):
                    sink.write_at(offset, data[offset : min(offset + step, stop)])
        except BaseException:
            sink.abort()
            raise
        sink.finish()
        return None

    def load_steps(self) -> int:
        """Return the number of load steps: the wrapped engine's steps, and one for each delta of the longest chain.

        This method also allocates the buffer of deltas, because it is called outside the timed part.
        """
        self._buffer_for(self._rule.largest_file_bytes(self._shard))
        return self._engine.load_steps() + max(self._rule.deltas, len(self._rule.surviving_chain) - 1)

    def expect(self, checkpoint: int) -> None:
        """Announce the next load to the wrapped engine, which loads the full checkpoint of the chain.

        ``checkpoint`` is the number of the chain's last checkpoint.
        """
        expect(self._engine, self._rule.chain(checkpoint)[0])

    def load(self, committed: CommittedCheckpoint, step: int, clock: Clock) -> int:
        """Execute step number ``step`` of a load: read a part of the full checkpoint, or one delta.

        Return the number of tensor bytes read. If the chain has fewer steps, return 0.
        """
        links = committed.links if isinstance(committed, Chain) else (committed,)
        delta = step - self._engine.load_steps() + 1
        self._is_idle, self._read = delta >= len(links), None
        if self._is_idle:
            return 0
        if delta < 1:
            return self._engine.load(links[0], step, clock)
        number = cast("Chain", committed).numbers[delta]
        wanted = self._rule.file_bytes(self._shard, number)
        data, got = self._buffer_for(wanted), 0
        source = links[delta].source(self._name)
        try:
            # Only the written size is read, because a file may have grown to any size.
            with clock.phase("read", self._name):
                while got < wanted:
                    step = source.read_into(got, data[got : min(got + self._request_bytes, wanted)])
                    if not step:
                        break
                    got += step
            # The size is queried only now: some clients truncate reads at an old length until it is queried.
            size = source.size
        finally:
            source.close()
        self._read = (number, got, size)
        if got == wanted:
            return self._rule.delta_bytes(self._shard, number)
        runs = list(self._rule.runs(self._shard, number))
        return sum(max(0, min(run.bytes, got - at)) for at, run in _placed(runs))

    def verify(self, checkpoint: int) -> Comparison:
        """Compare the pages read by the last load step. Expected is the content of the checkpoint that wrote them."""
        if self._is_idle:
            return Comparison(bytes_checked=0, fault_count=0, faults=())
        if self._read is None:
            return self._engine.verify(self._rule.chain(checkpoint)[0])
        return self._verify_delta(*self._read)

    def release(self) -> None:
        """Free the memory of the wrapped engine and of the deltas."""
        self._engine.release()
        self._buffer, self._changed, self._read = None, None, None

    def _verify_delta(self, number: int, got: int, size: int) -> Comparison:
        runs = list(self._rule.runs(self._shard, number))
        index = self._index(number, runs)
        wanted = self._rule.file_bytes(self._shard, number)
        data = self._buffer_for(wanted)
        faults: list[LocalFault] = []
        checked = count = 0
        if got != wanted or size != wanted:
            detail = f"the delta has {size} bytes, {got} could be read, {wanted} were written"
            faults.append(self._fault("short" if min(got, size) < wanted else "foreign", min(got, wanted), detail))
        elif not np.array_equal(data[: len(index)], index):
            faults.append(self._fault("unreadable", 0, "the index of the delta is not what was written"))
        for at, run in _placed(runs):
            if at + run.bytes > got:
                break
            part = data[at : at + run.bytes]
            pages, findings = compare(self._content, part, self._place(number, run), run.page * PAGE_BYTES)
            checked += len(part)
            count += pages
            faults.extend(LocalFault.of(finding, self._name, self._tensors[run.tensor][1]) for finding in findings)
        # Count file-level faults once, page faults per page.
        count += sum(not fault.tensor for fault in faults)
        return Comparison(bytes_checked=checked, fault_count=count, faults=tuple(faults[:MAXIMUM_FAULTS_OF_RANK]))

    def _index(self, number: int, runs: Sequence[Run]) -> Bytes:
        """Return the beginning of a delta's file: the number of the delta, its page ranges and a checksum."""
        table = np.array([(run.tensor, run.page, run.pages) for run in runs], dtype="<u8").tobytes()
        head = _HEAD.pack(_MAGIC, number, len(runs), zlib.crc32(table))
        return np.frombuffer((head + table).ljust(index_bytes(len(runs)), b"\0"), dtype=np.uint8)

    def _place(self, number: int, run: Run) -> TensorKey:
        return TensorKey(checkpoint=number, rank=self._shard.rank, tensor=run.tensor)

    def _buffer_for(self, size: int) -> Bytes:
        """Return the buffer of deltas, with space for ``size`` bytes and padding.

        If the buffer is too small, a larger buffer is allocated. The first allocation is sufficient for the largest
        file of the run.
        """
        if self._buffer is None or len(self._buffer) < size + MAXIMUM_ALIGNMENT_BYTES:
            maximum = max(size, self._rule.largest_file_bytes(self._shard))
            self._buffer = Buffers(1, maximum + MAXIMUM_ALIGNMENT_BYTES).slots[0]
        return self._buffer

    def _fault(self, kind: FaultKind, offset: int, detail: str) -> LocalFault:
        return LocalFault(kind=kind, file=self._name, tensor="", offset=offset, bytes=0, detail=detail)


def _placed(runs: Sequence[Run]) -> Iterator[tuple[int, Run]]:
    """Yield (offset in the delta's file, page range) for each page range."""
    at = index_bytes(len(runs))
    for run in runs:
        yield at, run
        at += run.pages * PAGE_BYTES
