"""Measure once, judge many: whoever asks first launches the ranks, everybody else reads the file."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pytest_ckpt.measure.containers import lay_out
from pytest_ckpt.measure.launch import Launch
from pytest_ckpt.measure.launcher import Launcher
from pytest_ckpt.measure.processes import end_marked
from pytest_ckpt.measure.tidy import remove_in_time
from pytest_ckpt.ranks.job import EXTRA_CHECKPOINTS, EngineOptions, Job, Task, checkpoint_name, partial_name
from pytest_ckpt.records import (
    CacheFacts,
    DataEffect,
    Durability,
    Failure,
    Integrity,
    Measurement,
    Operation,
    RankFacts,
    Record,
    Retention,
    from_plain,
    to_plain,
)
from pytest_ckpt.settings import Settings
from pytest_ckpt.sizing.plan import Plan, PlannedCheckpoint

Listener = Callable[[dict[str, Any]], None]


class Observer:
    """What else wants to hear of a launch; this one does nothing with it."""

    def begin(self, checkpoints: Sequence[PlannedCheckpoint]) -> None:
        """Say what is about to be measured."""

    def heard(self, event: dict[str, Any]) -> None:
        """Take in an event of rank 0."""

    def tick(self) -> None:
        """Do what has to be done several times a second."""

    def end(self) -> None:
        """Say that the launch is over."""


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
            if not self._file(subject).exists():
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
                )
                for c in planned
            ),
        )
        recorder = _Recorder(planned, job, launch_name, self._file, self._folder / "events.jsonl", self._observer)
        recorder.spent("layout", time.monotonic() - began)
        self._observer.begin(planned)
        failure: Failure | None = Failure(kind="interrupted", message="the run was interrupted")
        try:
            launch = Launch(self._launcher, self._run_id, self._folder / launch_name)
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


class _Recorder:
    """Writes down what a launch tells: every event, and a measurement as soon as it is whole."""

    def __init__(
        self,
        planned: Sequence[PlannedCheckpoint],
        job: Job,
        launch_name: str,
        file_of: Callable[[str], Path],
        events: Path,
        observer: Observer,
    ) -> None:
        self._planned = {c.subject: c for c in planned}
        self._tasks = {t.subject: t for t in job.tasks}
        self._launch_name = launch_name
        self._file_of = file_of
        self._events = events
        self._observer = observer
        self._began = self._since = time.monotonic()
        self._stages: dict[str, float] = {}
        self._subject = ""
        self._operations: list[Operation] = []
        self._durability: Durability | None = None
        self._integrity: Integrity | None = None

    def spent(self, stage: str, seconds: float) -> None:
        """Take in what was spent before the ranks were started."""
        self._stages[stage] = seconds

    def heard(self, event: dict[str, Any]) -> None:
        """Take in an event of rank 0."""
        with self._events.open("a") as events:
            events.write(json.dumps({"seconds": round(time.monotonic() - self._began, 6), **event}) + "\n")
        kind = event["event"]
        if kind == "ready":
            self._lap("launch")
        elif kind == "imported":
            self._lap("import")
        elif kind == "measuring":
            self._subject, self._operations = event["subject"], []
            self._durability = self._integrity = None
        elif kind == "operation":
            self._operations.append(from_plain(Operation, event["operation"]))
        elif kind == "durability":
            self._durability = from_plain(Durability, event["durability"])
        elif kind == "integrity":
            self._integrity = from_plain(Integrity, event["integrity"])
        elif kind == "measured":
            # Starting the ranks is part of the first measurement that they make.
            self._write(
                self._subject,
                cache=from_plain(CacheFacts, event["cache"]),
                ranks=tuple(from_plain(RankFacts, r) for r in event["ranks"]),
                engine_facts=event["engine_facts"],
                retention=_maybe(Retention, event["retention"]),
                data=_maybe(DataEffect, event["data"]),
                stages={**self._stages, **event["stages"]},
            )
            self._stages, self._subject = {}, ""
        self._observer.heard(event)

    def close(self, failure: Failure | None) -> None:
        """Write what is known of the measurement that did not end; a launch that did not start fails them all."""
        if failure is None:
            return
        unfinished = [s for s in self._planned if not self._file_of(s).exists()]
        subjects = [self._subject] if self._subject else unfinished
        for subject in subjects:
            self._write(subject, failure=failure, stages=self._stages)

    def _lap(self, stage: str) -> None:
        now = time.monotonic()
        self._stages[stage] = now - self._since
        self._since = now

    def _write(self, subject: str, **facts: Any) -> None:
        planned, task = self._planned[subject], self._tasks[subject]
        shards = planned.layout
        ranks: tuple[RankFacts, ...] = facts.pop("ranks", ())
        known = {"cache": None, "engine_facts": {}, "failure": None, **facts}
        measurement = Measurement(
            subject=subject,
            model=task.model,
            mode=task.mode,
            processes=task.processes,
            hosts=tuple(dict.fromkeys(r.host for r in ranks)),
            engine=task.engine,
            scale=task.scale,
            seed=task.seed,
            bytes=shards.bytes,
            full_bytes=shards.full_bytes,
            rank_bytes=tuple(rank.bytes for rank in shards.ranks()),
            basis="all ranks",
            operations_planned=task.operations,
            operations=tuple(self._operations) if subject == self._subject else (),
            durability=self._durability if subject == self._subject else None,
            integrity=self._integrity if subject == self._subject else None,
            ranks=ranks,
            launch=self._launch_name,
            **known,
        )
        write_atomically(self._file_of(subject), json.dumps(to_plain(measurement), indent=1) + "\n")


def _maybe(kind: type[Record], data: Any) -> Record | None:
    return None if data is None else from_plain(kind, data)


def read_measurement(file: Path) -> Measurement:
    """Return the measurement that a file holds."""
    return from_plain(Measurement, json.loads(file.read_text()))


def file_names(checkpoints: Iterable[PlannedCheckpoint]) -> set[str]:
    """Return the path, below the run's folder on the target, of every file that ranks may make."""
    return {
        f"{c.subject}/{folder(index)}/{file.name}"
        for c in checkpoints
        for index in range(1, c.operations + EXTRA_CHECKPOINTS + 1)
        for folder in (partial_name, checkpoint_name)
        for rank in c.layout.ranks()
        for file in rank.files
    }


def write_atomically(file: Path, text: str) -> None:
    """Write a file so that a reader finds all of it or none."""
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f".{file.name}.{os.getpid()}")
    partial.write_text(text)
    partial.replace(file)
