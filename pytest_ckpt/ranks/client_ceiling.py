"""Measures the client ceiling: the maximum rate at which each host generates and compares data without storage.

All ranks run the engine ``stream`` concurrently. The data that it writes are discarded, and it compares data from
memory. Content, buffers and threads are the same as in a save and a load.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from pytest_ckpt.facts.client_ceiling import ClientCeiling
from pytest_ckpt.ranks.engines.factory import content_of, create_engine
from pytest_ckpt.ranks.engines.protocol import Clock, expect_parts

if TYPE_CHECKING:
    from pytest_ckpt.ranks.engines.stream.engine import StreamEngine
    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.ranks.process.job import EngineOptions, Task
    from pytest_ckpt.sizing.models import RankLayout
    from pytest_ckpt.targets.protocol import Buffer, Draft, Store

_ROUNDS = 2
"""The number of rounds. The first round also creates tables and threads, which the next round uses."""

_ROUND_SECONDS = 1.0
_BLOCK_BYTES = 4096
_CHECKPOINT = 1


class _EnoughError(Exception):
    """Raised when the time of a measurement round is over."""


@dataclass(kw_only=True, slots=True)
class _Nothing:
    """Counts and discards the bytes that threads write. The count is reported as the rank's progress.

    Raises _EnoughError when the time of a round is over.
    """

    ends: float
    activity: Activity
    bytes: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def discard(self, count: int) -> None:
        with self._lock:
            self.bytes += count
            self.activity.bytes_done += count
        if time.perf_counter() >= self.ends:
            raise _EnoughError


@dataclass(frozen=True, kw_only=True, slots=True)
class _DiscardedFile:
    """A file being written whose bytes are discarded."""

    nothing: _Nothing
    part_bytes: int | None
    alignment: int = _BLOCK_BYTES
    io_mode: str = "into nothing"

    def write_at(self, offset: int, data: Buffer) -> None:
        del offset
        self.nothing.discard(len(data))

    def finish(self) -> None:
        """Do nothing, because nothing was written."""

    def abort(self) -> None:
        """Do nothing, because nothing was written."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _DiscardedDraft:
    """A checkpoint being saved whose files are discarded.

    ``part_bytes`` is a function from the size of a file to the size of the file's parts. It is None if the store does
    not accept files in parts.
    """

    nothing: _Nothing
    part_bytes: Callable[[int], int] | None

    def create(self, name: str, size: int) -> _DiscardedFile:
        del name
        return _DiscardedFile(nothing=self.nothing, part_bytes=self.part_bytes and self.part_bytes(size))


def _return_free_memory() -> None:
    """Return freed memory to the kernel, because all memory of a rank is planned for the workload."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # A C library other than glibc.
        ctypes.CDLL(None).malloc_trim(0)


@dataclass(frozen=True, kw_only=True, slots=True)
class CeilingSearch:
    """Measures the client ceiling of every host. Used before the first save; all ranks call `run` together."""

    group: Group
    activity: Activity
    store: Store
    task: Task
    shard: RankLayout
    options: EngineOptions

    def run(self) -> tuple[ClientCeiling, ...]:
        """On rank 0, return the client ceiling of every host; on other ranks, return an empty tuple."""
        makes, compares = self._rates()
        # The engine's memory can be returned only now, because `_rates` kept a reference to the engine.
        _return_free_memory()
        hosts = self.group.gather(self.group.host)
        return tuple(
            ClientCeiling(
                host=host,
                ranks=hosts.count(host),
                makes_bytes_per_second=makes[host],
                compares_bytes_per_second=compares[host],
            )
            for host in dict.fromkeys(hosts)
            if host in makes and host in compares
        )

    def _rates(self) -> tuple[dict[str, float], dict[str, float]]:
        """Return (rates of generating data, rates of comparing data), each as {host: bytes per second}.

        On ranks other than rank 0, both dictionaries are empty.
        """
        content = content_of(self.task, self.shard)
        engine = cast(
            "StreamEngine",
            create_engine(self.task, self.shard, content, self.group, self.activity, self.options, plain=True),
        )
        expect_parts(engine, self.store)
        engine.fill(_CHECKPOINT)
        makes = self._best(lambda: self._save(engine))
        engine.prepare_comparison()
        compares = self._best(lambda: engine.compare_prepared(_ROUND_SECONDS))
        engine.release()
        return makes, compares

    def _best(self, work: Callable[[], int]) -> dict[str, float]:
        """On rank 0, return {host: highest bytes per second over all rounds}; on other ranks, return {}.

        ``work`` runs for one round and returns the number of bytes that this rank has generated or compared.
        """
        best: dict[str, float] = {}
        for _ in range(_ROUNDS):
            self.group.start_together()
            start = time.perf_counter()
            count = work()
            own: tuple[str, int, float] = (self.group.host, count, time.perf_counter() - start)
            of_ranks: list[tuple[str, int, float]] = self.group.gather(own)
            for host in dict.fromkeys(host for host, _, _ in of_ranks):
                of_host = [(count, seconds) for name, count, seconds in of_ranks if name == host]
                rate = sum(count for count, _ in of_host) / max(seconds for _, seconds in of_host)
                if rate > best.get(host, 0.0):
                    best[host] = rate
        return best

    def _save(self, engine: StreamEngine) -> int:
        """Save for one round to files that discard their bytes. Return the number of bytes that were generated."""
        nothing = _Nothing(ends=time.perf_counter() + _ROUND_SECONDS, activity=self.activity)
        parts = getattr(self.store, "part_bytes", None)
        draft: Any = _DiscardedDraft(nothing=nothing, part_bytes=parts)
        try:
            engine.save(cast("Draft", draft), Clock(activity=self.activity))
        except _EnoughError:
            self.activity.forgive()
        return nothing.bytes
