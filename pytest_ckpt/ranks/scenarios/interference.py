"""Contention for the storage: two jobs save concurrently, or data loaders read samples during saves.

All saves are paced: a save spreads its bytes over a given time (`pytest_ckpt.ranks.paced`).
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_ckpt.facts.codec import from_plain, to_plain
from pytest_ckpt.facts.events import PatternMeasured
from pytest_ckpt.facts.measurement import MixedLoad, NoisyNeighbour, SavePace
from pytest_ckpt.facts.targets import AreaRef, CheckpointRef
from pytest_ckpt.ranks.engines.protocol import Clock
from pytest_ckpt.ranks.operations import Operations
from pytest_ckpt.ranks.paced import Pace, paced_store
from pytest_ckpt.ranks.process.host_cache import Files
from pytest_ckpt.ranks.scenarios.samples import SampleReads
from pytest_ckpt.sizing.pacing import (
    CONCURRENT_SAVES,
    PREFETCH_SECONDS,
    READERS,
    sample_bytes,
)
from pytest_ckpt.sizing.patterns import PATTERNS
from pytest_ckpt.support.resources import PACKAGE_HOME
from pytest_ckpt.support.units import counted, format_bytes, format_rate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_ckpt.facts.measurement import Operation
    from pytest_ckpt.facts.subject import OperationRef, Pattern
    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.ranks.process.job import PacedTask
    from pytest_ckpt.ranks.scenarios.context import ScenarioContext
    from pytest_ckpt.ranks.strategies.protocol import Strategy
    from pytest_ckpt.sizing.models import Layout, RankLayout
    from pytest_ckpt.targets.protocol import Store

# In turns, so that drift of the storage affects both equally.
_SAVES_FIRST_JOB = (True, False, False, True, True, False)
_DURING_SAVES = (False, True, True, False, False, True)
# The largest number of a checkpoint's content.
_CONTENTS = 4095
_BYPASSED = "This engine writes its files without the store of a run, so its saves cannot be paced."


class InterferenceScenario:
    """Measures paced saves during other work: saves of a second job, then reads of data loaders.

    Rank 0 reports the results of each pattern.

    ``do`` and ``strategy`` save checkpoints to ``store``, whose files accept bytes at ``pace``. Each save has new
    content. ``found`` describes the pace for the report. In a turn of ``turn_seconds``, a data loader on each host
    reads files of ``area`` at ``loader_bytes_per_second``. ``drop`` drops the cached data of the files that will be
    read next. The numbers of the saved checkpoints are larger than ``after``.
    """

    def __init__(
        self,
        group: Group,
        activity: Activity,
        do: Operations,
        *,
        strategy: Strategy,
        store: Store,
        pace: Pace,
        found: SavePace,
        turn_seconds: float,
        loader_bytes_per_second: float,
        area: AreaRef,
        after: int,
        drop: Callable[[Sequence[Files]], None],
    ) -> None:
        self._group = group
        self._activity = activity
        self._do = do
        self._strategy = strategy
        self._engine = strategy.engine
        self._store = store
        self._pace = pace
        self._found = found
        self._turn_seconds = turn_seconds
        self._loader_rate = loader_bytes_per_second
        self._area = area
        self._number, self._neighbour_number = after + PATTERNS["mixed"].first, after + PATTERNS["neighbour"].first
        self._drop = drop
        self._content = 0
        self._saves_aside = self._removed_aside = 0
        self._concurrent_bytes = 0

    def measure(self, rank_bytes: int, files: Sequence[Files]) -> None:
        """Measure saves while another job saves, then saves while data loaders read ``files``.

        ``rank_bytes`` is the number of bytes that this rank saves.
        """
        self._neighbour = self._do.new_ref(self._neighbour_number, "neighbour")
        if not self._learn_pace():
            for name in ("neighbour", "mixed"):
                send_not_run(self._do, name, _BYPASSED)
        else:
            if self._group.size < 2:
                send_not_run(self._do, "neighbour", "One rank cannot be two jobs; two are needed.")
            else:
                self._two_jobs(rank_bytes)
            self._data_loaders(files)
        self._strategy.release()
        self._engine.release()

    def _learn_pace(self) -> bool:
        """Save once without a pace to find the number of bytes of a save. Return whether saves can be paced."""
        at = self._do.all("prepare", "neighbour")
        with self._do.stage("content", at):
            self._engine.fill(self._next())
        self._group.wait()
        with self._do.stage("probes", at):
            self._save_aside()
        self._pace.learn()
        self._remove_aside()
        return not self._group.any_of(self._pace.is_bypassed)

    def _save_aside(self) -> None:
        """Save this rank's files, and discard them instead of committing them."""
        clock = Clock(activity=self._activity)
        draft = self._store.begin(self._aside(self._saves_aside), clock)
        self._engine.save(draft, clock)
        draft.abort()
        self._saves_aside += 1

    def _aside(self, save: int) -> CheckpointRef:
        """Return the reference of a save that is not committed.

        ``save`` is the number of the save. Each number results in a different name.
        """
        return replace(self._neighbour, attempt=save)

    def _remove_aside(self) -> None:
        """Remove the files of the saves that were not committed."""
        with self._do.stage("remove", self._do.all("remove", "neighbour")):
            counts = self._group.gather(self._saves_aside)
            for save in range(self._removed_aside, max(counts, default=0)):
                self._store.finish_delete(self._aside(save))
            self._removed_aside = max(counts, default=0)

    def _two_jobs(self, rank_bytes: int) -> None:
        """Treat each half of the ranks as a job. Measure saves of one job while the other job saves.

        Both jobs save at the same pace.
        """
        ranks = math.ceil(self._group.size / 2)
        is_first = self._group.rank < ranks
        saves: dict[bool, list[Operation]] = {True: [], False: []}
        for number, saves_first in enumerate(_SAVES_FIRST_JOB, start=1):
            at, is_saving = self._do.one("neighbour", "save", number), is_first == saves_first
            if not is_saving:
                with self._do.stage("content", at.at("content")):
                    self._engine.fill(self._next())
            saved = self._save(at, is_saving_rank=is_saving, meanwhile=None if is_saving else self._save_concurrently)
            if saved:
                saves[saves_first].append(saved)
                self._do.step("neighbour", number, saved.seconds)
        self._remove_aside()
        gathered = self._group.gather((self._concurrent_bytes, rank_bytes))
        if self._group.rank == 0:
            found = NoisyNeighbour(
                ranks=ranks,
                neighbour_ranks=self._group.size - ranks,
                bytes=sum(size for _, size in gathered[:ranks]),
                neighbour_bytes=sum(size for _, size in gathered[ranks:]),
                save_seconds=tuple(o.seconds for o in saves[True]),
                neighbour_save_seconds=tuple(o.seconds for o in saves[False]),
                concurrent_bytes=sum(count for count, _ in gathered),
                pace=self._found,
            )
            send(self._do, "neighbour", found)

    def _save_concurrently(self, over: threading.Event) -> None:
        """Save this rank's files repeatedly until ``over`` is set, at most `CONCURRENT_SAVES` times.

        ``over`` is set when the save of the other job has ended.
        """
        self._pace.until(over)
        for save in range(CONCURRENT_SAVES):
            # The first save uses the content that was generated before this turn.
            if save:
                self._engine.fill(self._next())
            self._save_aside()
            self._concurrent_bytes += self._pace.bytes
            if over.is_set():
                break
        self._pace.until(threading.Event())

    def _data_loaders(self, files: Sequence[Files]) -> None:
        """Read samples on every host, in some turns without saves and in other turns while all ranks save."""
        self._drop(files)
        turns: dict[bool, list[_Turn]] = {False: [], True: []}
        saves: list[float] = []
        io_mode = ""
        for number, during_saves in enumerate(_DURING_SAVES, start=1):
            at = self._do.one("mixed", "save" if during_saves else "read", number)
            with self._do.stage("content", at.at("content")), self._activity.in_phase("start of the reader"):
                reader = self._reader(files, number) if self._group.leads_host else None
            self._group.wait()
            if reader:
                reader.begin()
            if during_saves:
                spans, took = self._save_for(at, self._turn_seconds)
                saves += took
            else:
                spans = [self._wait_for(at, self._turn_seconds)]
            reads = SampleReads()
            if reader:
                with self._activity.in_phase("read of samples"):
                    reads = reader.end()
                io_mode = reads.io_mode
            turn = _Turn.of(self._group.gather(reads.within(spans)))
            turns[during_saves].append(turn)
            self._do.step("mixed", number, spans[-1][1] - spans[0][0])
        io_modes = self._io_modes_text(io_mode)
        if self._group.rank == 0:
            count = sum(len(of.names) for of in files)
            found = MixedLoad(
                reads=f"a data loader a host, {format_rate(self._loader_rate)}, {READERS} readers, "
                f"{format_bytes(sample_bytes(self._loader_rate))} at random places of {count} files, a queue of "
                f"{PREFETCH_SECONDS:g} s, {io_modes}",
                undisturbed_p99_seconds=tuple(turn.p99 for turn in turns[False] if turn.reads),
                contended_p99_seconds=tuple(turn.p99 for turn in turns[True] if turn.reads),
                undisturbed_reads=tuple(turn.reads for turn in turns[False]),
                contended_reads=tuple(turn.reads for turn in turns[True]),
                save_seconds=tuple(saves),
                loader_bytes_per_second=self._loader_rate,
                empty_queue_seconds=tuple(turn.waited for turn in turns[True]),
                undisturbed_empty_queue_seconds=tuple(turn.waited for turn in turns[False]),
                client_busy=max(turn.client_busy for turn in turns[True]),
                pace=self._found,
            )
            send(self._do, "mixed", found)

    def _reader(self, files: Sequence[Files], seed: int) -> _Reader:
        return _Reader(self._area, files, seed=seed, bytes_per_second=self._loader_rate)

    def _io_modes_text(self, io_mode: str) -> str:
        """Return on rank 0 a text that states whether the hosts read samples through or past the page cache.

        ``io_mode`` is the description of this host. If hosts differ, the text contains each description and its number
        of hosts.
        """
        counts = Counter(filter(None, self._group.gather(io_mode)))
        if len(counts) < 2:
            return next(iter(counts), io_mode)
        return ", ".join(f"{how} on {counted(count, 'host')}" for how, count in counts.most_common())

    def _save_for(self, at: OperationRef, seconds: float) -> tuple[list[tuple[float, float]], list[float]]:
        """Save repeatedly until the saves have taken ``seconds`` in total.

        Return the start and end of each save on this rank's clock. On rank 0, also return the duration of each save.
        """
        spans, took = [], []
        left = seconds
        while left > 0:
            operation = self._save(at)
            spans.append(self._do.span)
            took += [operation.seconds] if operation else []
            left = self._group.share(seconds - sum(took))
        return spans, took

    def _wait_for(self, at: OperationRef, seconds: float) -> tuple[float, float]:
        with self._do.stage("probes", at), self._activity.wait():
            start = time.perf_counter()
            time.sleep(seconds)
            end = time.perf_counter()
        self._group.wait()
        return start, end

    def _save(
        self,
        at: OperationRef,
        *,
        is_saving_rank: bool = True,
        meanwhile: Callable[[threading.Event], None] | None = None,
    ) -> Operation | None:
        """Save an additional checkpoint, then delete it.

        Return the result of the save on rank 0, and None elsewhere. ``meanwhile`` runs concurrently on this rank.
        """
        operation = self._do.save(
            self._strategy,
            self._number,
            role="beside work",
            meanwhile=meanwhile,
            at=at,
            content=self._next(),
            is_saving_rank=is_saving_rank,
        )
        with self._do.stage("remove", at.at("remove")):
            if is_saving_rank:
                self._do.delete_files_of_rank(self._number)
            self._do.finish_delete([self._number])
        return operation

    def _next(self) -> int:
        """Return the number of the next content. After the largest number, the numbers start again at 1."""
        self._content = self._content % _CONTENTS + 1
        return self._content


class _Turn(NamedTuple):
    """The results of the data loaders of all hosts in one turn. Only rank 0 has the complete results.

    ``reads`` is the number of reads of all hosts. ``p99`` is the 99th percentile of their durations in seconds.
    ``waited`` is the time in seconds in which training waited for samples. ``client_busy`` is the share of time in
    which a data loader used a CPU or waited for a CPU. ``waited`` and ``client_busy`` are maximums over the hosts.
    """

    reads: int
    p99: float
    waited: float
    client_busy: float

    @classmethod
    def of(cls, of_hosts: Sequence[SampleReads]) -> _Turn:
        """Return the combined reads of all ranks, ``of_hosts``. Only ranks that lead a host have reads."""
        every = sorted(took for host in of_hosts for _, took in host.reads)
        return cls(
            reads=len(every),
            p99=every[math.ceil(0.99 * len(every)) - 1] if every else 0.0,
            waited=max((sum(waited for _, waited in host.waits) for host in of_hosts), default=0.0),
            client_busy=max((host.busy for host in of_hosts), default=0.0),
        )


class _Reader:
    """A process that reads samples on this host."""

    def __init__(self, area: AreaRef, files: Sequence[Files], seed: int, bytes_per_second: float) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "pytest_ckpt.ranks.scenarios.samples"],
            cwd=PACKAGE_HOME,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        request = {
            "area": to_plain(area),
            "files": [to_plain(of) for of in files],
            "seed": seed,
            "bytes_per_second": bytes_per_second,
        }
        self._send(json.dumps(request))
        self._receive()

    def begin(self) -> None:
        """Start the reads."""
        self._send("")

    def end(self) -> SampleReads:
        """Stop the reads, and end the process. Return the reads."""
        self._send("")
        document = self._receive()
        self._process.communicate()
        return from_plain(SampleReads, document)

    def _send(self, line: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def _receive(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the process that reads samples ended too early")
        document: dict[str, Any] = json.loads(line)
        if "errno" in document:
            raise OSError(document["errno"], document["message"])
        return document


def send(do: Operations, name: Pattern, found: object) -> None:
    """Report the results of a pattern."""
    do.send(PatternMeasured(subject=do.subject, name=name, found=found))


def send_not_run(do: Operations, name: Pattern, reason: str) -> None:
    """Report why a pattern was not measured."""
    do.send(PatternMeasured(subject=do.subject, name=name, found=None, not_run=reason))


def measure(at: ScenarioContext) -> None:
    """Run this scenario for a subject."""
    task = at.task.paced
    assert task
    if task.not_run:
        for name in ("neighbour", "mixed"):
            send_not_run(at.do, name, task.not_run)
        return
    layout = at.task.layout(task.scale)
    shard = layout.rank(at.group.rank)
    _scenario(at, task, layout, shard).measure(shard.bytes, [at.do.files(checkpoint) for checkpoint in at.own.kept])


def _scenario(at: ScenarioContext, task: PacedTask, layout: Layout, shard: RankLayout) -> InterferenceScenario:
    """Return the scenario for ``task``, in which this rank saves ``shard`` at the pace of the task.

    ``layout`` is the layout of the complete checkpoint, of which ``shard`` is this rank's part.
    """
    pace = Pace(task.seconds)
    store = paced_store(at.store, pace)
    do = Operations(at.group, at.activity, at.do.subject, shard, store, rule=at.task.files)
    # The seconds of these saves belong to the same measurement.
    do.stages = at.do.stages
    return InterferenceScenario(
        at.group,
        at.activity,
        do,
        strategy=at.saver(shard, store),
        store=store,
        pace=pace,
        found=SavePace(seconds=task.seconds, bytes=layout.bytes, full_bytes=layout.full_bytes),
        turn_seconds=task.turn_seconds,
        loader_bytes_per_second=task.loader_bytes_per_second,
        area=at.area,
        after=at.task.operations,
        drop=at.drop,
    )
