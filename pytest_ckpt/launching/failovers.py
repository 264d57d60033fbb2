"""A launch of ranks in which the controller breaks a component of the storage, and mends it whatever happens."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from typing import TYPE_CHECKING

from pytest_ckpt.facts.codec import to_plain
from pytest_ckpt.facts.events import CommandAsked, CommandEnded, Event, PatternMeasured, event_to_plain
from pytest_ckpt.facts.failover import CommandRun, Failover
from pytest_ckpt.facts.failure import Failure
from pytest_ckpt.launching.command_keeper import CommandKeeper
from pytest_ckpt.launching.launch import Launch
from pytest_ckpt.ranks.process.job import EngineOptions, Job, Task
from pytest_ckpt.support.units import format_seconds

if TYPE_CHECKING:
    from pytest_ckpt.launching.launch_context import LaunchContext
    from pytest_ckpt.launching.observer import Observer
    from pytest_ckpt.sizing.plan import PlannedCheckpoint

COMMAND_LOG = "commands.jsonl"
"""In the folder of a launch: every run of the commands that break and mend, as it ended."""


class FailoverLaunch:
    """One subject: its ranks, and whoever runs the commands for them; ``found`` is what was seen so far."""

    def __init__(
        self, context: LaunchContext, planned: PlannedCheckpoint, launch_name: str, observer: Observer
    ) -> None:
        self._context, self._planned, self._observer = context, planned, observer
        self._subject = planned.subject
        self._folder = context.folder / launch_name
        settings = context.settings
        assert settings.break_command
        assert settings.mend_command
        self._commands = (settings.break_command, settings.mend_command)
        self.found = Failover(break_command=settings.break_command, mend_command=settings.mend_command)
        self._began = time.monotonic()

    def run(self) -> None:
        """Fill ``found``, which the run's events tell too. A KeyboardInterrupt comes when all is mended."""
        context, settings = self._context, self._context.settings
        self._began = time.monotonic()
        task = dataclasses.replace(
            Task.of(self._planned, settings, context.seed), failover=True, contention=False, endurance=False
        )
        job = Job(
            options=EngineOptions(request_bytes=settings.request_bytes, depth=settings.depth),
            processes=self._planned.layout.processes,
            area=context.own_area,
            deadline_seconds=settings.deadline_seconds,
            tasks=(task,),
        )
        self._launch = Launch(context.launcher, context.run_id, self._folder, context.redactor)
        self._folder.parent.mkdir(exist_ok=True)
        log = context.folder / f"{self._folder.name}-{COMMAND_LOG}"
        self._keeper = CommandKeeper(*self._commands, settings.deadline_seconds, log)
        os.set_blocking(self._keeper.descriptor, False)
        self._observer.begin([self._planned])
        failure: Failure | None = Failure(kind="interrupted", message="the run was interrupted")
        try:
            failure = self._launch.run(job, self._take, self._tick, self._observer.said, answers=True)
        finally:
            os.set_blocking(self._keeper.descriptor, True)
            left = self._keeper.close()
            for run in left:
                self._tell(run)
            mended = next((run for run in reversed(left) if run.command == "mend"), None)
            if failure or mended:
                self.found = dataclasses.replace(self.found, failure=failure, mended_after=mended)
                self._keep(PatternMeasured(subject=self._subject, name="failover", found=self.found))
            self._observer.end()
            if log.exists():
                log.rename(self._folder / COMMAND_LOG)

    def _take(self, event: Event) -> None:
        """Take in an event of rank 0."""
        if isinstance(event, CommandAsked):
            self._keep(event)
            self._keeper.ask(event.command)
            return
        if isinstance(event, PatternMeasured) and isinstance(event.found, Failover):
            # Ranks are told of no command: what they would print could hold a secret.
            told = dataclasses.replace(
                event.found, break_command=self.found.break_command, mend_command=self.found.mend_command
            )
            self.found = told
            event = dataclasses.replace(event, found=told)
        self._keep(event)

    def _tick(self) -> None:
        """Hand on what came of commands."""
        self._observer.tick()
        try:
            data = os.read(self._keeper.descriptor, 1 << 16)
        except BlockingIOError:
            return
        for run in self._keeper.ended(data):
            self._tell(run)
            self._launch.answer(json.dumps(to_plain(run)))

    def _tell(self, run: CommandRun) -> None:
        self._keep(CommandEnded(subject=self._subject, run=run))
        text = f"the {run.command} command ended after {format_seconds(run.seconds)}" if run.is_good else run.sentence
        self._observer.said(self._context.redactor.text(f"{self._subject} failover: {text}"))

    def _keep(self, event: Event) -> None:
        timed = {"seconds": round(time.monotonic() - self._began, 6), **event_to_plain(event)}
        with (self._context.folder / "events.jsonl").open("a") as events:
            events.write(json.dumps(self._context.redactor.plain(timed)) + "\n")
        if isinstance(event, PatternMeasured):
            self._observer.take(event)
