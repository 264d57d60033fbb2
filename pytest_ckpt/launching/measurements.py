"""Measures each subject (a model and how it is saved) once per run, and stores the measurement in a file.

The first caller launches the ranks; later callers read the file. Therefore all tests use the same measurement, even
with several pytest-xdist workers or after a worker has crashed.

A pattern is an additional scenario of a subject, such as an injected fault. The run's area is the run's directory or
prefix on the target. A later start can continue a run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import functools
import json
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pytest_ckpt.evidence.starts import ADDED, BROKEN_OFF, directory_of_start
from pytest_ckpt.facts.checks import CHECKS_DIRECTORY
from pytest_ckpt.facts.codec import from_plain, to_plain
from pytest_ckpt.facts.commands import Changed
from pytest_ckpt.facts.failure import Failure
from pytest_ckpt.facts.measurement import Measurement, Patterns, Resized, with_patterns_of
from pytest_ckpt.facts.subject import Pattern, Subject
from pytest_ckpt.facts.targets import AreaRef, Names
from pytest_ckpt.judging.verdicts import AdditionalMeasurement
from pytest_ckpt.launching.depths import known_depth
from pytest_ckpt.launching.launch import Launch
from pytest_ckpt.launching.launch_context import LaunchContext
from pytest_ckpt.launching.own_launch import name_of_launch
from pytest_ckpt.launching.recorder import HookFailed, LaunchHooks, Observer, Recorder, write_atomically
from pytest_ckpt.launching.separate_launches import OWN_LAUNCHES, OwnLaunch
from pytest_ckpt.ranks.process.job import EngineOptions, Job, Task
from pytest_ckpt.sizing.deltas import delta_name
from pytest_ckpt.sizing.files import names_of
from pytest_ckpt.sizing.many_names import top_directory
from pytest_ckpt.sizing.patterns import PATTERNS
from pytest_ckpt.sizing.plan import PlannedCheckpoint
from pytest_ckpt.sizing.stream_buffers import USUAL_DEPTH
from pytest_ckpt.support import waits
from pytest_ckpt.targets.posix.second_mount import through_second_mount

HOOKS_LOG = "hooks.log"
"""The log file in the directory of a launch with details of a failed hook, for the plugin's author."""


class Measurements:
    """The measurements of one run. If a measurement does not exist, it is performed when it is requested."""

    def __init__(
        self, context: LaunchContext, observer: Observer, hooks: LaunchHooks, waiting: Launch | None = None
    ) -> None:
        """Store the context of the run.

        ``waiting`` is a launch whose ranks have started and wait for a job. If it has the required number of ranks, it
        performs the first measurement.
        """
        self._context = context
        self._waiting = waiting
        self._redactor = context.redactor
        self._observer = observer
        self._hooks = hooks
        self._wanted = {c.subject for c in context.plan.runnable}

    def limit_to(self, subjects: set[Subject]) -> None:
        """Limit later launches to ``subjects``, the subjects that this session will request."""
        self._wanted &= subjects

    def measurement(self, subject: Subject | str) -> Measurement:
        """Return the measurement of a subject. If the measurement does not exist, launch the ranks.

        The launch also measures the other wanted subjects that need the same number of ranks. The run's plan must allow
        the subject to run.
        """
        subject = Subject.from_text(subject) if isinstance(subject, str) else subject
        with self._lock():
            # If a launch ends between two subjects, another launch measures the remaining ones.
            while not self._file(subject).exists():
                processes = self._context.plan.of(subject).layout.processes
                tasks = [
                    c
                    for c in self._context.plan.runnable
                    if c.layout.processes == processes
                    and (c.subject in self._wanted or c.subject == subject)
                    and not self._file(c.subject).exists()
                ]
                self._measure(tasks, self._tidy(tasks))
        return self._read(subject)

    def measured_separately(self, subject: Subject | str, name: Pattern) -> Measurement:
        """Return a subject's measurement, including the pattern ``name``, which separate launches measure.

        If the run does not require the pattern, return the measurement without the pattern. All wanted subjects and the
        patterns listed earlier in `OWN_LAUNCHES` are measured first. Fault injection is last, because a rebuild of the
        storage would slow other measurements.
        """
        subject = Subject.from_text(subject) if isinstance(subject, str) else subject
        if not self._is_requested(name, subject):
            return self.measurement(subject)
        for planned in self._context.plan.runnable:
            if planned.subject in self._wanted or planned.subject == subject:
                self.measurement(planned.subject)
        for row in OWN_LAUNCHES.values():
            if row.name == name:
                break
            if self._is_requested(row.name, subject):
                self._measure_separately(row, subject)
        return self._measure_separately(OWN_LAUNCHES[name], subject)

    def _is_requested(self, name: Pattern, subject: Subject) -> bool:
        return PATTERNS[name].is_requested(self._context.plan.of(subject), self._context.settings)

    def _measure_separately(self, row: OwnLaunch, subject: Subject) -> Measurement:
        with self._lock():
            measurement = read_measurement(self._stored_path(subject))
            patterns = measurement.patterns or Patterns()
            if measurement.failure or patterns.result_of(row.name):
                return measurement
            planned = self._context.plan.of(subject)
            began = time.monotonic()
            number = self._launches() + 1
            directory = name_of_launch(number)
            launch = row.launches(self._context, planned, number, self._observer)
            try:
                # No subject is measured again now, so files that the user keeps (--ckpt-keep-files) stay.
                if failure_of_hook := self._tidy(()) or self._hook(
                    directory, lambda: self._hooks.before((str(subject),))
                ):
                    launch.end(failure_of_hook)
                else:
                    launch.run()
            finally:
                stages = measurement.stages | {row.name: time.monotonic() - began}
                shown = dataclasses.replace(
                    measurement, stages=stages, patterns=_with(patterns, row.name, launch.found)
                )
                if failure_of_hook := self._hook(
                    directory, lambda: self._hooks.after(from_plain(Measurement, to_plain(shown)))
                ):
                    launch.end(failure_of_hook)
                added = _with(patterns, row.name, launch.found)
                plain = self._redactor.plain(to_plain(dataclasses.replace(measurement, patterns=added, stages=stages)))
                write_atomically(self._stored_path(subject), json.dumps(plain, indent=1) + "\n")
        return self._read(subject)

    def _launches(self) -> int:
        return len(list((self._context.directory / "launches").glob("[0-9]*")))

    def _tidy(self, planned: Sequence[PlannedCheckpoint]) -> Failure | None:
        """End the processes of earlier launches, and remove the files of these launches. Return None on success.

        Files of the subjects ``planned`` are removed; without ``keep_files``, the files of all subjects are removed. If
        processes may still write, return a failure, because they would disturb the next launch.
        """
        if not self._launches():
            return None
        with waits.waiting("removing what the previous launch left"):
            return self._tidied(planned)

    def _tidied(self, planned: Sequence[PlannedCheckpoint]) -> Failure | None:
        if reason := self._context.end_remaining_processes():
            return Failure(kind="launch", message=f"after the launch before {reason}")
        stale = planned if self._context.settings.keep_files else self._context.plan.runnable
        self._context.clean(possible_names(stale), self._context.settings.io_timeout_seconds, keep_area=True)
        return None

    def _measure(self, planned: Sequence[PlannedCheckpoint], obstacle: Failure | None = None) -> None:
        """Launch the ranks and write the measurements of the subjects ``planned``.

        If ``obstacle`` is given, do not launch. Write ``obstacle`` as the failure of each measurement.
        """
        launch_name = name_of_launch(self._launches() + 1)
        settings = self._context.settings
        subjects = tuple(c.subject for c in planned)
        began = time.monotonic()
        failure_of_hook = obstacle or self._hook(
            launch_name, functools.partial(self._hooks.before, tuple(map(str, subjects)))
        )
        hook_seconds = time.monotonic() - began
        processes = planned[0].layout.processes
        job = Job(
            options=EngineOptions(request_bytes=settings.io_size_bytes, depth=settings.io_depth or USUAL_DEPTH),
            depth=known_depth(settings, self._context.directory, processes),
            processes=processes,
            area=self._context.run_area,
            deadline_seconds=settings.io_timeout_seconds,
            tasks=tuple(Task.of(c, settings, self._context.seed) for c in planned),
            second=self._second_area(),
            local=self._context.local,
        )
        events = self._context.directory / "events.jsonl"
        # A measurement becomes visible only after the plugins' hooks have received it, even if this process is killed.
        made = self._paths_of_launch(launch_name) if self._hooks.is_active else self._file
        recorder = Recorder(planned, job, launch_name, made, events, self._observer, self._redactor)
        if self._hooks.is_active:
            recorder.spent("hooks", hook_seconds)
        self._observer.begin(planned)
        if failure_of_hook:
            self._observer.end()
            recorder.close(failure_of_hook)
            self._show(subjects, launch_name)
            return
        failure: Failure | None = Failure(kind="interrupted", message="the run was interrupted")
        try:
            failure = self._launch(job, self._context.directory / launch_name).run(
                job, recorder.record, self._observer.tick, self._observer.printed, planned
            )
        finally:
            self._observer.end()
            recorder.close(failure)
            if self._hooks.is_active:
                self._show(subjects, launch_name)

    def _launch(self, job: Job, directory: Path) -> Launch:
        """Return the launch for a job: the waiting launch if its number of ranks fits, otherwise a new launch."""
        launch, self._waiting = self._waiting, None
        if launch and launch.waiting == job.processes:
            launch.move_to(directory)
            return launch
        if launch:
            launch.end()
        return Launch(self._context.launcher, self._context.run_id, directory, self._redactor)

    def _second_area(self) -> AreaRef | None:
        """Return the run's area, with its path on a second mount of this host; None without a second mount.

        If the run has several hosts, return None, because another host is the second client.
        """
        settings, area = self._context.settings, self._context.run_area
        if not settings.second_mount or settings.has_several_hosts:
            return None
        return through_second_mount(settings.second_mount, area)

    def _show(self, subjects: Sequence[Subject], launch_name: str) -> None:
        """Pass the measurements of ``subjects`` to the plugins' hooks, then write the measurements.

        If a hook fails for a measurement, that measurement is written as failed.
        """
        for subject in subjects:
            pending_file = self._paths_of_launch(launch_name)(subject)
            if not pending_file.exists():
                continue
            measurement = read_measurement(pending_file)
            began = time.monotonic()
            failure_of_hook: Failure | None = Failure(
                kind="hook", message="The run was interrupted in a plugin's hook pytest_ckpt_after_measure"
            )
            try:
                failure_of_hook = self._hook(
                    launch_name, functools.partial(self._hooks.after, read_measurement(pending_file))
                )
            finally:
                spent = measurement.stages.get("hooks", 0.0) + time.monotonic() - began
                shown = dataclasses.replace(
                    measurement,
                    stages=measurement.stages | {"hooks": spent},
                    failure=measurement.failure or failure_of_hook,
                )
                plain = self._redactor.plain(to_plain(shown))
                write_atomically(self._file(subject), json.dumps(plain, indent=1) + "\n")
                pending_file.unlink()

    def _hook(self, launch_name: str, call: Callable[[], None]) -> Failure | None:
        """Run ``call``, which calls plugins' hooks. Return None if all hooks succeed.

        If a hook fails, write the error to a log in the directory of the launch ``launch_name``, and return the
        failure.
        """
        try:
            call()
        except HookFailed as error:
            log = self._context.directory / launch_name / HOOKS_LOG
            log.parent.mkdir(parents=True, exist_ok=True)
            with log.open("a") as file:
                file.write(self._redactor.text(f"{error}\n{error.trace}") + "\n")
            return Failure(kind="hook", message=self._redactor.text(str(error)))
        return None

    def _paths_of_launch(self, launch_name: str) -> Callable[[Subject], Path]:
        return lambda subject: self._context.directory / launch_name / f"{subject.slug}.json"

    def _file(self, subject: Subject) -> Path:
        """Return the path of the file to which the present start of the run writes a subject's measurement.

        If this start only adds patterns to a measurement of an earlier start, the file is separate from the earlier
        file.
        """
        if str(subject) in self._context.lacking:
            return directory_of_start(self._context.directory, self._context.start) / ADDED / f"{subject.slug}.json"
        return self._stored_path(subject)

    def _stored_path(self, subject: Subject) -> Path:
        return self._context.directory / "measurements" / f"{subject.slug}.json"

    def _read(self, subject: Subject) -> Measurement:
        return complete_measurement(self._stored_path(subject), self._measurements_of_starts(ADDED, subject))

    def not_judged(self, subject: Subject) -> list[AdditionalMeasurement]:
        """Return the measurements of a subject that receive no verdict of their own.

        These are the interrupted measurements, and the measurements of patterns that later starts of the run added.
        """
        return [*self._measurements_of_starts(BROKEN_OFF, subject), *self._measurements_of_starts(ADDED, subject)]

    def _measurements_of_starts(self, kind: str, subject: Subject) -> list[AdditionalMeasurement]:
        return measurements_of_starts(self._context.directory, self._context.start, kind, subject)

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        """In the ``with`` block, let only this process of the run measure.

        Concurrent measurements would slow each other.
        """
        with (self._context.directory / "lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _with(patterns: Patterns, name: Pattern, found: Changed | Resized) -> Patterns:
    changes: dict[str, Any] = {name: found}
    return dataclasses.replace(patterns, **changes)


def measurements_of_starts(directory: Path, starts: int, kind: str, subject: Subject) -> list[AdditionalMeasurement]:
    """Return the measurements of a subject from the starts 1 to ``starts`` of a run, each with its start number.

    ``kind`` is the name of the directory to read. One directory contains interrupted measurements; another contains
    measurements of patterns that a start added.
    """
    files = [(n, directory_of_start(directory, n) / kind / f"{subject.slug}.json") for n in range(1, starts + 1)]
    return [AdditionalMeasurement(start=n, measurement=read_measurement(file)) for n, file in files if file.exists()]


def complete_measurement(file: Path, added: Iterable[AdditionalMeasurement]) -> Measurement:
    """Return the measurement in a file, including the patterns that later starts of the run measured.

    ``added`` contains the measurements of these patterns.
    """
    return functools.reduce(with_patterns_of, (other.measurement for other in added), read_measurement(file))


def read_measurement(file: Path) -> Measurement:
    """Return the measurement stored in a file."""
    return from_plain(Measurement, json.loads(file.read_text()))


def possible_names(checkpoints: Collection[PlannedCheckpoint]) -> Names:
    """Return the names of all files that ranks may create in the run's area."""
    files: dict[str, frozenset[str]] = {}
    other_files: dict[str, frozenset[str]] = {}
    for planned in checkpoints:
        slug, ranks = planned.subject.slug, planned.layout.ranks()
        deltas = (delta_name(rank.rank) for rank in ranks) if planned.deltas else ()
        of_patterns = (row.names(planned) for row in PATTERNS.values())
        files[slug] = names_of(planned.layout, planned.engine.files).union(deltas, *of_patterns)
        other_files[slug] = frozenset().union(*(row.other_files(planned) for row in PATTERNS.values()))
    many = {c.subject.slug: c.many_names.at_once for c in checkpoints if c.many_names}
    return Names(
        files=files,
        other_files=other_files,
        directories=frozenset(map(top_directory, many)),
        in_directories=max(many.values(), default=0),
    )


def names_of_run(checkpoints: Collection[PlannedCheckpoint]) -> Names:
    """Return the names of all files and directories that ranks and checks may create in the run's area."""
    names = possible_names(checkpoints)
    return dataclasses.replace(names, directories=names.directories | {CHECKS_DIRECTORY})
