"""Records a launch: every event, and each measurement when it is complete."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from pytest_ckpt.facts.across_hosts import added_up
from pytest_ckpt.facts.codec import to_plain
from pytest_ckpt.facts.events import (
    Event,
    Imported,
    MeasurementDone,
    MeasurementStarted,
    Ready,
    SubjectEvents,
    event_to_plain,
)
from pytest_ckpt.facts.failure import Failure
from pytest_ckpt.facts.measurement import Measurement
from pytest_ckpt.facts.subject import Subject
from pytest_ckpt.ranks.process.job import Job, Task
from pytest_ckpt.sizing.plan import PlannedCheckpoint
from pytest_ckpt.support.redaction import Redactor


class Observer:
    """Base class for observers of a run. Its methods do nothing."""

    def begin(self, checkpoints: Sequence[PlannedCheckpoint]) -> None:
        """Called with the subjects that a launch is about to measure."""

    def record(self, event: Event) -> None:
        """Called with each event of rank 0."""

    def printed(self, text: str) -> None:
        """Called with each sentence about the launch itself."""

    def tick(self) -> None:
        """Called several times a second."""

    def end(self) -> None:
        """Called at the end of the launch."""

    def checking(self, name: str) -> None:
        """Called when a check of behaviour begins."""

    def checked(self, name: str, seconds: float) -> None:
        """Called when a check of behaviour has ended, with its duration."""


class HookFailed(Exception):  # noqa: N818 - not an error of ours
    """A plugin's hook raised an error. The message names the plugin and the hook; ``trace`` is the traceback."""

    def __init__(self, message: str, trace: str = "") -> None:
        super().__init__(message)
        self.trace = trace


class LaunchHooks:
    """Base class for the plugins' hooks before and after a launch. Its methods do nothing."""

    @property
    def is_active(self) -> bool:
        """Whether a plugin implements these hooks."""
        return False

    def before(self, subjects: tuple[str, ...]) -> None:
        """Called before the ranks that measure ``subjects`` are started. Raises HookFailed if a hook fails."""

    def after(self, measurement: Measurement) -> None:
        """Called with each measurement, including failed ones, after the ranks have ended.

        Raises HookFailed if a hook fails.
        """


class Recorder:
    """Writes the events of a launch to a file, and each complete measurement to a separate file."""

    def __init__(
        self,
        planned: Sequence[PlannedCheckpoint],
        job: Job,
        launch_name: str,
        file_of: Callable[[Subject], Path],
        events: Path,
        observer: Observer,
        redactor: Redactor,
    ) -> None:
        self._planned = {c.subject: c for c in planned}
        self._tasks = {t.subject: t for t in job.tasks}
        self._launch_name = launch_name
        self._file_of = file_of
        self._events = events
        self._observer = observer
        self._redactor = redactor
        self._began = self._since = self._measuring_since = time.monotonic()
        self._stages: dict[str, float] = {}
        self._subject_events: SubjectEvents | None = None
        # Also needed if a launch ends before the first report, because every measurement has a log.
        events.touch()

    def spent(self, stage: str, seconds: float) -> None:
        """Record ``seconds`` as the duration of a stage that ended before the start of the ranks."""
        self._stages[stage] = seconds

    def record(self, event: Event) -> None:
        """Record an event of rank 0."""
        if isinstance(event, MeasurementStarted):
            self._measuring_since = time.monotonic()
        elif isinstance(event, MeasurementDone) and event.client_proofs:
            seconds = time.monotonic() - self._measuring_since
            event = replace(event, client_proofs=replace(event.client_proofs, controller_seconds=seconds))
        with self._events.open("a") as events:
            timed = {"seconds": round(time.monotonic() - self._began, 6), **event_to_plain(event)}
            events.write(json.dumps(self._redactor.plain(timed)) + "\n")
        if isinstance(event, Ready):
            self._lap("launch")
        elif isinstance(event, Imported):
            self._lap("import")
        elif isinstance(event, MeasurementStarted):
            self._subject_events = SubjectEvents(subject=event.subject)
        elif self._subject_events:
            self._subject_events.record(event)
            if isinstance(event, MeasurementDone):
                # Starting the ranks is part of the first measurement that they make.
                self._write(self._subject_events, self._stages | event.stages)
                self._stages, self._subject_events = {}, None
        self._observer.record(event)

    def close(self, failure: Failure | None) -> None:
        """Write the incomplete measurement that the end of the launch interrupted, with the failure.

        If the launch ended before the measurement of its first subject, the measurements of all its subjects are
        written as failed. The reason is that a repeated launch would end the same way. If the launch ended between two
        subjects, a later launch measures the remaining subjects. A launch without a complete measurement has failed,
        even if ``failure`` is None.
        """
        unfinished = [s for s in self._planned if not self._file_of(s).exists()]
        if failure is None:
            if len(unfinished) < len(self._planned):
                return
            failure = Failure(kind="error", message="it ended without an error and without a measurement")
        if self._subject_events:
            self._write(self._subject_events, self._stages, failure)
        elif len(unfinished) == len(self._planned):
            for subject in unfinished:
                self._write(SubjectEvents(subject=subject), self._stages, failure)

    def _lap(self, stage: str) -> None:
        now = time.monotonic()
        self._stages[stage] = now - self._since
        self._since = now

    def _write(self, stated: SubjectEvents, stages: dict[str, float], failure: Failure | None = None) -> None:
        subject = stated.subject
        measurement = measurement_of(
            stated, self._planned[subject], self._tasks[subject], self._launch_name, stages, failure
        )
        write_atomically(
            self._file_of(subject), json.dumps(self._redactor.plain(to_plain(measurement)), indent=1) + "\n"
        )


def measurement_of(
    stated: SubjectEvents,
    planned: PlannedCheckpoint,
    task: Task,
    launch_name: str,
    stages: dict[str, float],
    failure: Failure | None,
) -> Measurement:
    """Return the measurement of a subject from the events that rank 0 reported.

    The measurement is incomplete if rank 0 reported no end. ``stages`` is {stage: seconds}.
    """
    whole, end = planned.layout, stated.end
    ranks = end.ranks if end else ()
    return Measurement(
        subject=stated.subject,
        model=task.model,
        mode=task.mode,
        processes=task.processes,
        hosts=tuple(dict.fromkeys(rank.host for rank in ranks)),
        engine=task.engine,
        scale=task.scale,
        seed=task.seed,
        bytes=whole.bytes,
        full_bytes=whole.full_bytes,
        rank_bytes=whole.rank_bytes,
        basis="all ranks",
        operations_planned=task.operations,
        operations=tuple(stated.operations),
        cache=end.cache if end else None,
        integrity=stated.integrity,
        durability=stated.durability,
        stages=stages,
        ranks=ranks,
        engine_facts=end.engine_facts if end else {},
        retention=end.retention if end else None,
        data=end.data if end else None,
        patterns=stated.patterns,
        failure=failure,
        launch=launch_name,
        save_bytes=planned.save_bytes,
        load_bytes=planned.load_bytes,
        drains=planned.drains,
        host_waits=added_up(stated.host_waits),
        requests=end.requests if end else (),
        client_proofs=end.client_proofs if end else None,
        host_loads=end.host_loads if end else (),
        depth=stated.depth,
        client_ceilings=stated.client_ceilings,
    )


def write_atomically(file: Path, text: str) -> None:
    """Replace the content of a file in one step: a reader sees the complete new text or the previous content."""
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        partial.write_text(text)
        partial.replace(file)
    except OSError:
        # If there is no free space, the temporary file may be incomplete.
        partial.unlink(missing_ok=True)
        raise
