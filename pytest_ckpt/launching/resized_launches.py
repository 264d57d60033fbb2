"""Launches that load a checkpoint with twice and with half as many ranks as saved it.

The checkpoint remains on the target between these launches. Before any other launch, files of earlier launches are
removed.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from pytest_ckpt.facts.events import PatternMeasured, StepDone
from pytest_ckpt.facts.failure import Failure
from pytest_ckpt.facts.measurement import Resized
from pytest_ckpt.launching.launch import Launch
from pytest_ckpt.launching.own_launch import EventsOfLaunch, directory_of_launch, job_of
from pytest_ckpt.ranks.process.job import ResizedTask, Task
from pytest_ckpt.sizing.resharding import SIZES, ranks_of, reason_without_ranks
from pytest_ckpt.support.host_state import memory_available_bytes

if TYPE_CHECKING:
    from pytest_ckpt.facts.events import Event
    from pytest_ckpt.facts.subject import Pattern
    from pytest_ckpt.launching.launch_context import LaunchContext
    from pytest_ckpt.launching.recorder import Observer
    from pytest_ckpt.sizing.plan import PlannedCheckpoint


class ResizedLaunches:
    """The launches that save one subject's checkpoint and load it with other numbers of ranks.

    ``found`` is the result so far; ``number`` is the number of the first launch.
    """

    def __init__(
        self, name: Pattern, context: LaunchContext, planned: PlannedCheckpoint, number: int, observer: Observer
    ) -> None:
        self._name, self._context, self._planned, self._number = name, context, planned, number
        self._observer = observer
        self._events = EventsOfLaunch(context, observer)
        self.found = Resized(saved_by=planned.layout.processes)

    def run(self) -> None:
        """Run the launches and fill ``found``. Stop after the first launch that fails.

        If this cluster cannot start the ranks of a load, omit that load. If both loads are omitted, do not save either.
        """
        saved_by = self._planned.layout.processes
        reasons = {size: self._reason_not_run(size) for size in SIZES}
        self.found = dataclasses.replace(self.found, not_run={size: words for size, words in reasons.items() if words})
        sizes = [size for size in SIZES if not reasons[size]]
        self._observer.begin([self._planned])
        try:
            for size in ("", *sizes) if sizes else ():
                if failure := self._launch(size, ranks_of(size, saved_by) if size else saved_by):
                    self.end(failure)
                    return
            self._store_results()
        finally:
            self._observer.end()

    def end(self, failure: Failure) -> None:
        """Record a failure. Only the first recorded failure is kept."""
        self.found = dataclasses.replace(self.found, failure=self.found.failure or failure)
        self._store_results()

    def _reason_not_run(self, size: str) -> str:
        launcher = self._context.launcher
        return reason_without_ranks(
            size,
            self._planned.layout,
            self._planned.engine.memory,
            slots=sum(host.slots for host in launcher.hosts) if launcher.is_slurm and launcher.hosts else None,
            available_bytes=memory_available_bytes() if launcher.stays_here else None,
        )

    def _launch(self, size: str, processes: int) -> Failure | None:
        """Launch ``processes`` ranks. Return the failure of the launch; None if the launch completed.

        If ``size`` is empty, the ranks save the checkpoint; otherwise they load it.
        """
        context = self._context
        task = dataclasses.replace(
            Task.of(self._planned, context.settings, context.seed),
            own_launch=self._name,
            patterns=(),
            resized=ResizedTask(make=self._planned.engine.resizes, size=size),
        )
        directory = directory_of_launch(context, self._number)
        directory.parent.mkdir(exist_ok=True)
        self._number += 1
        launch = Launch(context.launcher, context.run_id, directory, context.redactor)
        job = job_of(context, processes, task)
        try:
            return launch.run(job, self._record, self._observer.tick, self._observer.printed, [self._planned])
        except BaseException:
            self.end(Failure(kind="interrupted", message="the run was interrupted"))
            raise

    def _record(self, event: Event) -> None:
        """Record an event of rank 0. Results of loads are combined in ``found``."""
        if isinstance(event, PatternMeasured) and isinstance(event.found, Resized):
            self.found = dataclasses.replace(
                self.found,
                halved=event.found.halved or self.found.halved,
                doubled=event.found.doubled or self.found.doubled,
            )
            self._store_results()
            return
        self._events.keep(event)
        if isinstance(event, StepDone):
            self._observer.record(event)

    def _store_results(self) -> None:
        self._events.keep(PatternMeasured(subject=self._planned.subject, name=self._name, found=self.found))
