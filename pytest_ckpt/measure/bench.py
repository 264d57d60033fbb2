"""Measure once, judge many: whoever asks first launches the ranks, everybody else reads the file."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from pytest_ckpt.measure.containers import lay_out
from pytest_ckpt.measure.launch import Launch
from pytest_ckpt.measure.launcher import Launcher
from pytest_ckpt.measure.observer import Observer
from pytest_ckpt.measure.processes import end_marked
from pytest_ckpt.measure.recorder import Recorder
from pytest_ckpt.measure.tidy import remove_in_time
from pytest_ckpt.ranks.job import EXTRA_CHECKPOINTS, EngineOptions, Job, Task, checkpoint_name, partial_name
from pytest_ckpt.records import Failure, Measurement, from_plain
from pytest_ckpt.redaction import Redactor
from pytest_ckpt.settings import Settings
from pytest_ckpt.sizing.near_full import LEVELS, ballast_name
from pytest_ckpt.sizing.plan import Plan, PlannedCheckpoint

Listener = Callable[[dict[str, Any]], None]


class Bench:
    """Hands out measurements of one run, from the files in ``folder``; makes those that are not there yet."""

    def __init__(
        self,
        *,
        settings: Settings,
        plan: Plan,
        folder: Path,
        target_folder: Path,
        target_identity: Sequence[int],
        launcher: Launcher,
        run_id: str,
        seed: int,
        observer: Observer,
    ) -> None:
        self._settings = settings
        self._redactor = Redactor.of(os.environ, (o.value for o in settings.origins))
        self._plan = plan
        self._folder = folder
        self._target_folder = target_folder
        self._target_identity = target_identity
        self._launcher = launcher
        self._run_id = run_id
        self._seed = seed
        self._observer = observer
        self._wanted = {c.subject for c in plan.runnable}

    def want(self, subjects: set[str]) -> None:
        """Limit what is measured to the subjects that will be asked for."""
        self._wanted &= subjects

    def measurement(self, subject: str) -> Measurement:
        """Return the facts about a subject that can run; launch the ranks when nobody has measured it yet.

        One launch serves every wanted subject with the same number of ranks that is not there yet.
        """
        with self._lock():
            # A launch that ends between two subjects leaves some for another one.
            while not self._file(subject).exists():
                processes = self._plan.of(subject).layout.processes
                tasks = [
                    c
                    for c in self._plan.runnable
                    if c.layout.processes == processes
                    and (c.subject in self._wanted or c.subject == subject)
                    and not self._file(c.subject).exists()
                ]
                self._tidy(tasks)
                self._measure(tasks)
        return read_measurement(self._file(subject))

    def _launches(self) -> int:
        return len(list((self._folder / "launches").glob("[0-9]*")))

    def _tidy(self, planned: Sequence[PlannedCheckpoint]) -> None:
        """End and remove what a launch before left that did not come to its end: its space and names are needed."""
        if self._launches() and not end_marked(self._run_id):
            stale = planned if self._settings.keep else self._plan.runnable
            seconds = self._settings.deadline_seconds
            remove_in_time(self._target_folder, self._target_identity, file_names(stale), seconds, keep_folder=True)

    def _measure(self, planned: Sequence[PlannedCheckpoint]) -> None:
        launch_name = f"launches/{self._launches() + 1}"
        settings = self._settings
        began = time.monotonic()
        containers = lay_out(c.layout for c in planned) if settings.engine == "stream" else ()
        job = Job(
            options=EngineOptions(request_bytes=settings.request_bytes, depth=settings.depth, containers=containers),
            processes=planned[0].layout.processes,
            folder=str(self._target_folder),
            deadline_seconds=settings.deadline_seconds,
            tasks=tuple(
                Task(
                    subject=c.subject,
                    model=c.layout.model.name,
                    mode=c.layout.mode,
                    processes=c.layout.processes,
                    scale=c.layout.scale,
                    operations=c.operations,
                    engine=settings.engine,
                    seed=self._seed,
                    drop_caches=settings.drop_caches,
                    keep=settings.keep,
                    retain=settings.retain,
                    data_pairs=settings.data_pairs,
                    compressible=settings.compressible,
                    contention=settings.asks_contention,
                    endurance=settings.asks_endurance,
                    duration_seconds=settings.duration_seconds,
                    near_full_bytes=c.checkpoint_bytes if settings.near_full else 0,
                )
                for c in planned
            ),
        )
        events = self._folder / "events.jsonl"
        recorder = Recorder(planned, job, launch_name, self._file, events, self._observer, self._redactor)
        recorder.spent("layout", time.monotonic() - began)
        self._observer.begin(planned)
        failure: Failure | None = Failure(kind="interrupted", message="the run was interrupted")
        try:
            launch = Launch(self._launcher, self._run_id, self._folder / launch_name, self._redactor)
            failure = launch.run(job, recorder.heard, self._observer.tick)
        finally:
            self._observer.end()
            recorder.close(failure)

    def _file(self, subject: str) -> Path:
        return self._folder / "measurements" / f"{subject}.json"

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        """Let one process of the run measure at a time: two measurements at once would slow each other."""
        with (self._folder / "lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def read_measurement(file: Path) -> Measurement:
    """Return the measurement that a file holds."""
    return from_plain(Measurement, json.loads(file.read_text()))


def file_names(checkpoints: Collection[PlannedCheckpoint]) -> set[str]:
    """Return the path, below the run's folder on the target, of every file that ranks may make."""
    ballast = {
        f"{c.subject}/{ballast_name(level, rank)}"
        for c in checkpoints
        for level in LEVELS
        for rank in range(c.layout.processes)
    }
    return ballast | {
        f"{c.subject}/{folder(index)}/{file.name}"
        for c in checkpoints
        for index in range(1, c.operations + EXTRA_CHECKPOINTS + 1)
        for folder in (partial_name, checkpoint_name)
        for rank in c.layout.ranks()
        for file in rank.files
    }
