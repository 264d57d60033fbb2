"""Saves that are not alone: a second job saves in bursts, or samples are read at random meanwhile."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ckpt.facts.events import PatternFound, PatternMeasured
from pytest_ckpt.facts.measurement import BesideNeighbour, BesideReads
from pytest_ckpt.ranks.engines.protocol import Clock, Engine
from pytest_ckpt.ranks.operations import Operations, make_folder
from pytest_ckpt.ranks.process.job import BESIDE_WORK, OF_NEIGHBOUR, partial_name
from pytest_ckpt.ranks.scenarios.samples import PAUSE_SECONDS, READ_BYTES, READERS
from pytest_ckpt.support.resources import PACKAGE_HOME

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_ckpt.facts.measurement import Operation
    from pytest_ckpt.facts.subject import OperationRef, Pattern
    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.ranks.process.group import Group

# In turns, so that a drift of the storage favours neither.
_ALONE_OR_BESIDE = (False, True, True, False, False, True)
# A turn is long enough for a 99th percentile, and no longer than it has to be.
_LEAST_SECONDS, _MOST_SECONDS = 1.0, 30.0
# What the content of a checkpoint can be numbered by.
_CONTENTS = 4095


class SavesBeside:
    """Measures both, in turns with the same alone; rank 0 tells each as soon as it is known.

    ``engine`` has content of its own, another one for every save; ``drop`` empties the caches of what is about to be
    read.
    """

    def __init__(
        self,
        group: Group,
        activity: Activity,
        do: Operations,
        *,
        engine: Engine,
        rank_bytes: int,
        folder: Path,
        after: int,
        drop: Callable[[Sequence[Path]], None],
    ) -> None:
        self._group = group
        self._activity = activity
        self._do = do
        self._engine = engine
        self._rank_bytes = rank_bytes
        self._number, self._neighbour_number = after + BESIDE_WORK, after + OF_NEIGHBOUR
        self._neighbour_folder = folder / partial_name(self._neighbour_number)
        self._drop = drop
        self._content = 0
        self._bursts = 0

    def measure(self, kept: Sequence[int], usual_seconds: float) -> None:
        """Measure beside a neighbour, then beside reads of the checkpoints that were ``kept``.

        ``usual_seconds`` is what a save takes otherwise; rank 0 knows it.
        """
        if self._group.size < 2:
            self._tell("neighbour", None, "One rank cannot be two jobs; two are needed.")
        else:
            self._beside_neighbour()
        paths = [path for checkpoint in kept for path in self._do.paths(checkpoint)]
        self._beside_reads(paths, min(max(self._group.share(usual_seconds), _LEAST_SECONDS), _MOST_SECONDS))
        self._engine.release()

    def _beside_neighbour(self) -> None:
        """Let the first half of the ranks save, alone and while the other half saves in bursts, in turns."""
        ranks = math.ceil(self._group.size / 2)
        is_job = self._group.rank < ranks
        saves: dict[bool, list[Operation]] = {False: [], True: []}
        for number, beside in enumerate(_ALONE_OR_BESIDE, start=1):
            at, bursts = self._do.one("neighbour", "save", number), beside and not is_job
            if bursts:
                with self._do.stage("content", at.at("content")):
                    self._engine.fill(self._next())
            saved = self._save(at, takes_part=is_job, meanwhile=self._save_in_bursts if bursts else None)
            saves[beside] += [saved] if saved else []
        with self._do.stage("remove", self._do.all("remove", "neighbour")):
            gathered = self._group.gather((self._bursts, self._bursts * self._rank_bytes))
            if self._group.rank == 0:
                self._neighbour_folder.rmdir()
        if self._group.rank == 0:
            found = BesideNeighbour(
                ranks=ranks,
                neighbour_ranks=self._group.size - ranks,
                bytes=saves[True][0].bytes,
                alone_seconds=tuple(o.seconds for o in saves[False]),
                beside_seconds=tuple(o.seconds for o in saves[True]),
                bursts=sum(g[0] for g in gathered),
                neighbour_bytes=sum(g[1] for g in gathered),
            )
            self._tell("neighbour", found)

    def _save_in_bursts(self, over: threading.Event) -> None:
        """Save this rank's files, rest for as long as that took, and again, until it is over."""
        while not over.is_set():
            began = time.perf_counter()
            make_folder(self._neighbour_folder)
            self._engine.save(self._neighbour_folder, Clock(activity=self._activity))
            self._do.unlink(self._neighbour_number, is_partial=True)
            self._bursts += 1
            if not over.wait(time.perf_counter() - began):
                self._engine.fill(self._next())

    def _beside_reads(self, paths: Sequence[Path], seconds: float) -> None:
        """Read samples on every host, alone and while all ranks save, in turns of ``seconds`` at least."""
        self._drop(paths)
        p99: dict[bool, list[float]] = {False: [], True: []}
        counts: dict[bool, list[int]] = {False: [], True: []}
        saves: list[float] = []
        is_direct = True
        for number, beside in enumerate(_ALONE_OR_BESIDE, start=1):
            at = self._do.one("mixed", "save" if beside else "read", number)
            with self._do.stage("content", at.at("content")), self._activity.in_phase("start of the reader"):
                reader = _Reader(paths, seed=number) if self._group.leads_host else None
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
                    reads, is_direct = reader.end()
                taken = [took for at, took in reads if any(start <= at <= end for start, end in spans)]
            every = sorted(took for of_rank in self._group.gather(taken) for took in of_rank)
            if every:
                p99[beside].append(every[math.ceil(0.99 * len(every)) - 1])
            counts[beside].append(len(every))
        if self._group.rank == 0:
            way = (
                "around the client's page cache" if is_direct else "through the client's page cache, advised to drop it"
            )
            found = BesideReads(
                reads=f"{READERS} readers a host, {READ_BYTES >> 10} KiB at random places of {len(paths)} files, "
                f"{PAUSE_SECONDS * 1000:g} ms between two reads of a reader, {way}",
                alone_p99_seconds=tuple(p99[False]),
                beside_p99_seconds=tuple(p99[True]),
                alone_reads=tuple(counts[False]),
                beside_reads=tuple(counts[True]),
                save_seconds=tuple(saves),
            )
            self._tell("mixed", found)

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
            self._engine,
            self._number,
            counted=False,
            meanwhile=meanwhile,
            at=at,
            content=self._next(),
            takes_part=takes_part,
        )
        with self._do.stage("remove", at.at("remove")):
            if takes_part:
                self._do.unlink(self._number)
            self._do.remove_folders([self._number], also_own=False)
        return operation

    def _tell(self, name: Pattern, found: PatternFound | None, not_run: str = "") -> None:
        self._do.tell(PatternMeasured(subject=self._do.subject, name=name, found=found, not_run=not_run))

    def _next(self) -> int:
        """Return the number of a content that was not saved before, as long as there are such."""
        self._content = self._content % _CONTENTS + 1
        return self._content


class _Reader:
    """A process that reads samples on this host."""

    def __init__(self, paths: Sequence[Path], seed: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "pytest_ckpt.ranks.scenarios.samples"],
            cwd=PACKAGE_HOME,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._say(json.dumps({"paths": [str(path) for path in paths], "seed": seed}))
        self._hear()

    def begin(self) -> None:
        """Let it read."""
        self._say("")

    def end(self) -> tuple[list[tuple[float, float]], bool]:
        """Stop it; return when each read began and how long it took, and whether it went around the page cache."""
        self._say("")
        heard = self._hear()
        self._process.communicate()
        return heard["reads"], heard["direct"]

    def _say(self, line: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def _hear(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the process that reads samples ended before it was asked to")
        heard: dict[str, Any] = json.loads(line)
        if "errno" in heard:
            raise OSError(heard["errno"], heard["message"])
        return heard
