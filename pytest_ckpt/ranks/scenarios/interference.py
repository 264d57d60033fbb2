"""Contention: a second job saves in bursts, or data loaders read samples at random, during the saves."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytest_ckpt.facts.codec import to_plain
from pytest_ckpt.facts.events import PatternMeasured
from pytest_ckpt.facts.measurement import MixedLoad, NoisyNeighbour
from pytest_ckpt.facts.targets import AreaRef, CheckpointRef
from pytest_ckpt.ranks.engines.protocol import Clock
from pytest_ckpt.ranks.operations import Operations
from pytest_ckpt.ranks.process.host_cache import Files
from pytest_ckpt.ranks.scenarios.samples import PAUSE_SECONDS, READ_BYTES, READERS
from pytest_ckpt.sizing.patterns import MAXIMUM_TURN_SECONDS, MINIMUM_TURN_SECONDS, PATTERNS
from pytest_ckpt.support.resources import PACKAGE_HOME
from pytest_ckpt.support.units import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_ckpt.facts.measurement import Operation
    from pytest_ckpt.facts.subject import OperationRef, Pattern
    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.ranks.scenarios.context import ScenarioContext
    from pytest_ckpt.ranks.strategies.protocol import Strategy
    from pytest_ckpt.targets.protocol import Store

# In turns, so that a drift of the storage favours neither.
_ALONE_OR_BESIDE = (False, True, True, False, False, True)
# What the content of a checkpoint can be numbered by.
_CONTENTS = 4095


class InterferenceScenario:
    """Measures each load alone and beside the other, alternating; rank 0 reports each result at once.

    What ``strategy`` saves has content of its own, another one for every save; ``drop`` empties the caches of what is
    about to be read. The ranks of an engine that ``is_collective`` cannot be two jobs.
    """

    def __init__(
        self,
        group: Group,
        activity: Activity,
        do: Operations,
        *,
        strategy: Strategy,
        store: Store,
        area: AreaRef,
        rank_bytes: int,
        after: int,
        drop: Callable[[Sequence[Files]], None],
        is_collective: bool = False,
    ) -> None:
        self._group = group
        self._activity = activity
        self._do = do
        self._strategy = strategy
        self._engine = strategy.engine
        self._store = store
        self._area = area
        self._rank_bytes = rank_bytes
        self._number, self._neighbour_number = after + PATTERNS["mixed"].first, after + PATTERNS["neighbour"].first
        self._drop = drop
        self._is_collective = is_collective
        self._content = 0
        self._bursts = 0

    def measure(self, kept: Sequence[int], usual_seconds: float) -> None:
        """Measure beside a neighbour, then beside reads of the checkpoints that were ``kept``.

        ``usual_seconds`` is what a save takes otherwise; rank 0 knows it.
        """
        if self._group.size < 2:
            self._send("neighbour", None, "One rank cannot be two jobs; two are needed.")
        elif self._is_collective:
            why = "The ranks of this engine save together: half of them cannot be a second job."
            self._send("neighbour", None, why)
        else:
            self._beside_neighbour()
        self._beside_reads(
            [self._do.files(checkpoint) for checkpoint in kept],
            # A turn is long enough for a 99th percentile, and no longer than it has to be.
            min(max(self._group.share(usual_seconds), MINIMUM_TURN_SECONDS), MAXIMUM_TURN_SECONDS),
        )
        self._strategy.release()
        self._engine.release()

    def _beside_neighbour(self) -> None:
        """Let the first half of the ranks save, alone and while the other half saves in bursts, in turns."""
        ranks = math.ceil(self._group.size / 2)
        is_job = self._group.rank < ranks
        self._neighbour = self._do.new_ref(self._neighbour_number, "neighbour")
        saves: dict[bool, list[Operation]] = {False: [], True: []}
        for number, beside in enumerate(_ALONE_OR_BESIDE, start=1):
            at, bursts = self._do.one("neighbour", "save", number), beside and not is_job
            if bursts:
                with self._do.stage("content", at.at("content")):
                    self._engine.fill(self._next())
            saved = self._save(at, takes_part=is_job, meanwhile=self._save_in_bursts if bursts else None)
            if saved:
                saves[beside].append(saved)
                self._do.step("neighbour", number, saved.seconds)
        with self._do.stage("remove", self._do.all("remove", "neighbour")):
            gathered = self._group.gather((self._bursts, self._bursts * self._rank_bytes))
            if self._group.rank == 0:
                for burst in range(max(bursts for bursts, _ in gathered)):
                    self._store.finish_delete(self._of_burst(burst))
        if self._group.rank == 0:
            found = NoisyNeighbour(
                ranks=ranks,
                neighbour_ranks=self._group.size - ranks,
                bytes=saves[True][0].bytes,
                undisturbed_seconds=tuple(o.seconds for o in saves[False]),
                contended_seconds=tuple(o.seconds for o in saves[True]),
                bursts=sum(g[0] for g in gathered),
                neighbour_bytes=sum(g[1] for g in gathered),
            )
            self._send("neighbour", found)

    def _save_in_bursts(self, over: threading.Event) -> None:
        """Save this rank's files, rest for as long as that took, and again, until it is over."""
        while not over.is_set():
            began = time.perf_counter()
            clock = Clock(activity=self._activity)
            draft = self._store.begin(self._of_burst(self._bursts), clock)
            self._engine.save(draft, clock)
            draft.abort()
            self._bursts += 1
            if not over.wait(time.perf_counter() - began):
                self._engine.fill(self._next())

    def _of_burst(self, burst: int) -> CheckpointRef:
        """Return what the ranks of the second job save in a burst: never under a name that was used before."""
        return replace(self._neighbour, attempt=burst)

    def _beside_reads(self, files: Sequence[Files], seconds: float) -> None:
        """Read samples on every host, alone and while all ranks save, in turns of ``seconds`` at least."""
        self._drop(files)
        p99: dict[bool, list[float]] = {False: [], True: []}
        counts: dict[bool, list[int]] = {False: [], True: []}
        saves: list[float] = []
        way = ""
        for number, beside in enumerate(_ALONE_OR_BESIDE, start=1):
            at = self._do.one("mixed", "save" if beside else "read", number)
            with self._do.stage("content", at.at("content")), self._activity.in_phase("start of the reader"):
                reader = _Reader(self._area, files, seed=number) if self._group.leads_host else None
            self._group.wait()
            if reader:
                reader.begin()
            if beside:
                spans, took = self._save_for(at, seconds)
                saves += took
            else:
                spans = [self._wait_for(at, seconds)]
            taken: list[float] = []
            if reader:
                with self._activity.in_phase("read of samples"):
                    reads, way = reader.end()
                taken = [took for at, took in reads if any(start <= at <= end for start, end in spans)]
            every = sorted(took for of_rank in self._group.gather(taken) for took in of_rank)
            if every:
                p99[beside].append(every[math.ceil(0.99 * len(every)) - 1])
            counts[beside].append(len(every))
            self._do.step("mixed", number, spans[-1][1] - spans[0][0])
        ways = self._ways(way)
        if self._group.rank == 0:
            count = sum(len(of.names) for of in files)
            found = MixedLoad(
                reads=f"{READERS} readers a host, {READ_BYTES >> 10} KiB at random places of {count} files, "
                f"{PAUSE_SECONDS * 1000:g} ms between two reads of a reader, {ways}",
                undisturbed_p99_seconds=tuple(p99[False]),
                contended_p99_seconds=tuple(p99[True]),
                undisturbed_reads=tuple(counts[False]),
                contended_reads=tuple(counts[True]),
                save_seconds=tuple(saves),
            )
            self._send("mixed", found)

    def _ways(self, way: str) -> str:
        """Say how reads passed the page cache, and on how many hosts where it was not on all of them alike."""
        counts = Counter(filter(None, self._group.gather(way)))
        if len(counts) < 2:
            return next(iter(counts), way)
        return ", ".join(f"{how} on {counted(count, 'host')}" for how, count in counts.most_common())

    def _save_for(self, at: OperationRef, seconds: float) -> tuple[list[tuple[float, float]], list[float]]:
        """Save again and again until the saves have taken so long.

        Return when each was, on this rank's clock, and on rank 0 how long each took.
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
        self, at: OperationRef, *, takes_part: bool = True, meanwhile: Callable[[threading.Event], None] | None = None
    ) -> Operation | None:
        """Save a checkpoint that is none of the subject's own, and delete it."""
        operation = self._do.save(
            self._strategy,
            self._number,
            role="beside work",
            meanwhile=meanwhile,
            at=at,
            content=self._next(),
            takes_part=takes_part,
        )
        with self._do.stage("remove", at.at("remove")):
            if takes_part:
                self._do.delete_own(self._number)
            self._do.finish_delete([self._number])
        return operation

    def _send(self, name: Pattern, found: object, not_run: str = "") -> None:
        self._do.send(PatternMeasured(subject=self._do.subject, name=name, found=found, not_run=not_run))

    def _next(self) -> int:
        """Return the number of a content that was not saved before, as long as there are such."""
        self._content = self._content % _CONTENTS + 1
        return self._content


class _Reader:
    """A process that reads samples on this host."""

    def __init__(self, area: AreaRef, files: Sequence[Files], seed: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "pytest_ckpt.ranks.scenarios.samples"],
            cwd=PACKAGE_HOME,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        asked = {"area": to_plain(area), "files": [to_plain(of) for of in files], "seed": seed}
        self._say(json.dumps(asked))
        self._hear()

    def begin(self) -> None:
        """Let it read."""
        self._say("")

    def end(self) -> tuple[list[tuple[float, float]], str]:
        """Stop it; return when each read began and how long it took, and how reads passed the page cache."""
        self._say("")
        found = self._hear()
        self._process.communicate()
        return found["reads"], found["way"]

    def _say(self, line: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def _hear(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the process that reads samples ended before it was asked to")
        document: dict[str, Any] = json.loads(line)
        if "errno" in document:
            raise OSError(document["errno"], document["message"])
        return document


def measure(at: ScenarioContext) -> None:
    """Save during other work."""
    InterferenceScenario(
        at.group,
        at.activity,
        at.do,
        strategy=at.strategy(aside="contention"),
        store=at.store,
        area=at.area,
        rank_bytes=at.shard.bytes,
        after=at.task.operations,
        drop=at.drop,
        is_collective=at.task.is_collective,
    ).measure(at.own.kept, at.own.usual_seconds)
