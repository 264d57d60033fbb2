"""A rank's state in memory, as in a training process.

The state is filled, copied for a save, and compared after a load. `CompleteState` is for engines whose library accepts
tensors. The type variable ``Array`` is the library's tensor type.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from pytest_ckpt.ranks.content import TensorKey, compare
from pytest_ckpt.ranks.engines.protocol import MAXIMUM_FAULTS_OF_RANK, Comparison, LocalFault
from pytest_ckpt.support.host_state import cores_of_this_process
from pytest_ckpt.support.units import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from pytest_ckpt.ranks.content import Bytes, Content
    from pytest_ckpt.ranks.engines.protocol import Clock
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.ranks.process.job import EngineOptions
    from pytest_ckpt.sizing.models import ShardFile, Tensor
    from pytest_ckpt.targets.protocol import CommittedCheckpoint, ReadableFile


FACT = "copy of the state"


def threads_of(group: Group) -> int:
    """Return the number of threads that copy this rank's state. All ranks call this together."""
    of_all: list[frozenset[int]] = group.share(group.gather(frozenset(cores_of_this_process())))
    return share_of_cores(len(cores_of_this_process()), [of_all[rank] for rank in group.ranks_of_host])


def share_of_cores(own: int, of_ranks: Sequence[Collection[int]]) -> int:
    """Return the number of cores that this rank uses to copy its state, at least 1 and at most ``own``.

    ``own`` is the number of cores that this rank may use. ``of_ranks`` contains, for each rank of the host, the cores
    that the rank may use. The union of these cores is divided equally among the ranks.

    A training job copies in the same way: the stager of torch.distributed.checkpoint (DefaultStager) calls
    ``Tensor.copy_`` in one thread. On a CPU, this call divides a tensor among `torch.get_num_threads` threads, by
    default one per core. If torchrun starts a job without OMP_NUM_THREADS, the job has only one thread per process and
    copies more slowly.
    """
    return max(1, min(own, len(frozenset().union(*of_ranks)) // len(of_ranks)))


def copy_facts(threads: int) -> dict[str, str]:
    """Return a dictionary with one engine fact: how ``threads`` threads copy the state."""
    by = counted(threads, "thread")
    return {
        FACT: f"in main memory, by {by} a rank, its share of the host's cores, as Tensor.copy_ of torch.distributed."
        "checkpoint's stager uses by default; an accelerator would copy from its own memory"
    }


def copy_state(copies: Sequence[Bytes], sources: Sequence[Bytes], threads: int) -> int:
    """Copy ``sources`` to ``copies`` with ``threads`` threads. Return the number of bytes copied.

    Each source is copied to the memory at the same index in ``copies``, which has the same size.
    """
    ends = np.cumsum([len(source) for source in sources], dtype=np.int64)
    whole = int(ends[-1]) if len(ends) else 0
    spans = [(whole * part // threads, whole * (part + 1) // threads) for part in range(threads)]

    def copy(span: tuple[int, int]) -> None:
        for number, start, stop in _pieces(span, ends.tolist()):
            np.copyto(copies[number][start:stop], sources[number][start:stop])

    if threads == 1:
        copy(spans[0])
    else:
        # New threads, because a pool that was started before a fork has no threads in the child.
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(copy, spans))
    return whole


def _pieces(span: tuple[int, int], ends: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yield (index, start, stop) for each memory that contains a part of the byte range ``span``.

    The memories are placed end to end, and ``ends`` are the offsets of their ends. ``span`` is (first offset, offset
    after the last byte). ``start`` and ``stop`` are offsets in the memory with this index.
    """
    begin = 0
    for number, end in enumerate(ends):
        start, stop = max(span[0], begin), min(span[1], end)
        if start < stop:
            yield number, start - begin, stop - begin
        begin = end


Array = TypeVar("Array")


class CompleteState(Generic[Array]):
    """The state of a rank: {file name: {tensor name: tensor}}. If the options have ``stages``, a copy exists too.

    ``empty`` creates a tensor. ``bytes_of`` returns the memory of a tensor. The first call of `fill` creates the
    tensors.
    """

    def __init__(
        self,
        files: Sequence[ShardFile],
        rank: int,
        content: Content,
        *,
        empty: Callable[[Tensor], Array],
        bytes_of: Callable[[Array], Bytes],
        options: EngineOptions,
    ) -> None:
        self._files, self._rank, self._content = files, rank, content
        self._empty, self._bytes_of, self._options = empty, bytes_of, options
        self.state: dict[str, dict[str, Array]] = {}
        self.copy: dict[str, dict[str, Array]] = {}
        self.is_staged = False

    def fill(self, checkpoint: int) -> None:
        """Write the content of checkpoint number ``checkpoint`` into the state."""
        if not self.state:
            self.state = self._new()
        if self._options.stages and not self.copy:
            # Touched before the clock runs: a job makes its staging buffer once.
            self.copy = self._new()
            for data in self._memory(self.copy):
                data[:] = 0
        for number, data in enumerate(self._memory(self.state)):
            self._content.fill(data, TensorKey(checkpoint=checkpoint, rank=self._rank, tensor=number))

    def memory(self) -> list[Bytes]:
        """Return the memory of the tensors, without the copy."""
        return self._memory(self.state)

    def stage(self) -> int:
        """Copy every tensor for the next save. Return the number of bytes copied."""
        self.is_staged = True
        return copy_state(self._memory(self.copy), self._memory(self.state), self._options.copy_threads)

    def to_save(self) -> Mapping[str, Mapping[str, Array]]:
        """Return the tensors that the current save writes.

        If `stage` was called for this save, the tensors are those of the copy. If not, they are those of the state.
        """
        return self.copy if self.is_staged else self.state

    def saved(self) -> None:
        """Record that a save has ended. Until `stage` is called again, saves write the state itself."""
        self.is_staged = False

    def clear(self) -> None:
        """Free all memory."""
        self.state, self.copy = {}, {}

    def _new(self) -> dict[str, dict[str, Array]]:
        return {file.name: {tensor.name: self._empty(tensor) for tensor in file.tensors} for file in self._files}

    def _memory(self, of: Mapping[str, Mapping[str, Array]]) -> list[Bytes]:
        """Return the memory of the tensors, ordered by tensor number. The number determines the content of a tensor."""
        return [self._bytes_of(tensor) for tensors in of.values() for tensor in tensors.values()]


Loaded = dict[str, "Mapping[str, Bytes] | LocalFault"]
"""For each file name: the bytes of the file's tensors by name, or the fault if the file could not be loaded."""


def load_files(
    files: Sequence[ShardFile],
    committed: CommittedCheckpoint,
    clock: Clock,
    read: Callable[[ShardFile, ReadableFile], Mapping[str, Bytes] | LocalFault],
) -> Loaded:
    """Load files one after the other. Return {file name: result of ``read``}.

    ``read`` loads one file. It returns {tensor name: bytes of the tensor}, or a fault.
    """
    loaded: Loaded = {}
    for file in files:
        source = committed.file(file.name)
        try:
            with clock.phase("read", file.name):
                loaded[file.name] = read(file, source)
        finally:
            source.close()
    return loaded


def loaded_bytes(loaded: Loaded) -> int:
    """Return the number of tensor bytes that were loaded."""
    return sum(
        len(data) for tensors in loaded.values() if not isinstance(tensors, LocalFault) for data in tensors.values()
    )


def compare_loaded(
    loaded: Loaded, files: Sequence[ShardFile], rank: int, checkpoint: int, content: Content, options: EngineOptions
) -> Comparison:
    """Compare every byte that was loaded from a rank's files. Free each file after its comparison."""
    checked, count, numbered = 0, 0, 0
    faults: list[LocalFault] = []
    for file in files:
        tensors = loaded.pop(file.name, None)
        first, numbered = numbered, numbered + len(file.tensors)
        if tensors is None:
            # The load ended before this file, and reported the reason.
            continue
        if isinstance(tensors, LocalFault):
            count += 1
            faults.append(tensors)
            continue
        for number, tensor in enumerate(file.tensors, start=first):
            data = tensors[tensor.name]
            place = TensorKey(checkpoint=checkpoint, rank=rank, tensor=number)
            start, _ = options.span(tensor.elements)
            pages, findings = compare(content, data, place, start * tensor.bytes // tensor.elements)
            checked += len(data)
            count += pages
            faults.extend(LocalFault.of(one, file.name, tensor.name) for one in findings)
        del tensors
    return Comparison(bytes_checked=checked, fault_count=count, faults=tuple(faults[:MAXIMUM_FAULTS_OF_RANK]))
