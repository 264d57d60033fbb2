"""Separate launches: each measures one pattern of one subject, after the measurements of all subjects.

A subject is a model and how it is saved. A pattern is an additional scenario of a subject. In most patterns with
separate launches, the controller runs commands that change the storage, such as a fault and a repair. In one pattern,
another number of ranks loads the checkpoint (`pytest_ckpt.launching.resized_launches`).

A new pattern with a separate launch needs a row in `OWN_LAUNCHES` and in `sizing.patterns`. If one of its commands must
follow another command, the pattern also needs an entry in `launching.command_keeper`.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from pytest_ckpt.facts.codec import to_plain
from pytest_ckpt.facts.commands import Changed, Command, CommandRun, Failover, Snapshots, Upgrade
from pytest_ckpt.facts.events import CommandEnded, CommandRequested, Event, PatternMeasured
from pytest_ckpt.facts.failure import Failure
from pytest_ckpt.facts.subject import Pattern
from pytest_ckpt.launching.command_keeper import CommandKeeper
from pytest_ckpt.launching.launch import Launch
from pytest_ckpt.launching.own_launch import EventsOfLaunch, directory_of_launch, job_of
from pytest_ckpt.launching.resized_launches import ResizedLaunches
from pytest_ckpt.ranks.process.job import Task
from pytest_ckpt.support import waits
from pytest_ckpt.support.units import format_seconds

if TYPE_CHECKING:
    from pytest_ckpt.facts.settings import Settings
    from pytest_ckpt.launching.launch_context import LaunchContext
    from pytest_ckpt.launching.recorder import Observer
    from pytest_ckpt.sizing.plan import PlannedCheckpoint

COMMAND_LOG = "commands.jsonl"
"""The log file in the directory of a launch, with the result of every command."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class LaunchOfCommands:
    """A pattern that needs a separate launch because its commands change the storage.

    ``words`` returns the pattern's commands from the settings: {command name: command}. ``fields`` is {field of the
    result: command name}. ``empty`` returns the result before the launch; it contains only the commands. ``after`` is
    the field of the result that receives the run of the last command, if the command ended after the ranks.
    """

    name: Pattern
    empty: Callable[[Mapping[str, str]], Changed]
    fields: Mapping[str, Command]
    after: str
    words: Callable[[Settings], Mapping[Command, str | None]]

    def commands(self, settings: Settings) -> dict[Command, str]:
        """Return {command name: command} of this pattern from the settings. A command that is not set is empty."""
        return {command: words or "" for command, words in self.words(settings).items()}

    def launches(
        self, context: LaunchContext, planned: PlannedCheckpoint, number: int, observer: Observer
    ) -> LaunchWithCommands:
        """Return the launch that measures a subject. ``number`` is the number of the launch within the run."""
        return LaunchWithCommands(self, context, planned, number, observer)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class LaunchesOfRanks:
    """A pattern that needs separate launches because other numbers of ranks load the checkpoint."""

    name: Pattern

    def launches(
        self, context: LaunchContext, planned: PlannedCheckpoint, number: int, observer: Observer
    ) -> ResizedLaunches:
        """Return the launches that measure a subject. ``number`` is the number of the first launch within the run."""
        return ResizedLaunches(self.name, context, planned, number, observer)


OwnLaunch = LaunchOfCommands | LaunchesOfRanks

OWN_LAUNCHES: Mapping[Pattern, OwnLaunch] = {
    row.name: row
    for row in (
        # First: it leaves the storage as it is.
        LaunchesOfRanks(name="resized"),
        LaunchOfCommands(
            name="snapshots",
            empty=lambda words: Snapshots(command=words["command"], remove_command=words["remove_command"]),
            fields={"command": "snapshot", "remove_command": "remove"},
            after="ran_after",
            words=lambda s: {"snapshot": s.snapshot_command, "remove": s.remove_snapshot_command},
        ),
        LaunchOfCommands(
            name="upgrade",
            empty=lambda words: Upgrade(command=words["command"]),
            fields={"command": "upgrade"},
            after="ran_after",
            words=lambda s: {"upgrade": s.upgrade_command},
        ),
        # Last: the storage may rebuild for long.
        LaunchOfCommands(
            name="failover",
            empty=lambda words: Failover(fault_command=words["fault_command"], repair_command=words["repair_command"]),
            fields={"fault_command": "fault", "repair_command": "repair"},
            after="repaired_after",
            words=lambda s: {"fault": s.fault_command, "repair": s.repair_command},
        ),
    )
}
"""The separate launches in the order in which they run."""


class LaunchWithCommands:
    """The separate launch of one subject: its ranks, and the process that runs the commands.

    ``found`` is the result so far.
    """

    def __init__(
        self,
        row: LaunchOfCommands,
        context: LaunchContext,
        planned: PlannedCheckpoint,
        number: int,
        observer: Observer,
    ) -> None:
        self._row, self._context, self._planned, self._observer = row, context, planned, observer
        self._subject = planned.subject
        self._directory = directory_of_launch(context, number)
        self._events = EventsOfLaunch(context, observer)
        self._commands = row.commands(context.settings)
        self._words = {field: self._commands[command] for field, command in row.fields.items()}
        self.found = row.empty(self._words)

    def run(self) -> None:
        """Run the launch and fill ``found``.

        Even after an interruption, wait until the commands that must still run, such as the repair, have ended.
        """
        context, settings = self._context, self._context.settings
        task = dataclasses.replace(
            Task.of(self._planned, settings, context.seed),
            own_launch=self._row.name,
            patterns=(),
        )
        job = job_of(context, self._planned.layout.processes, task)
        self._launch = Launch(context.launcher, context.run_id, self._directory, context.redactor)
        self._directory.parent.mkdir(exist_ok=True)
        log = context.directory / f"{self._directory.name}-{COMMAND_LOG}"
        self._keeper = CommandKeeper(self._commands, settings.io_timeout_seconds, log)
        os.set_blocking(self._keeper.descriptor, False)
        self._observer.begin([self._planned])
        failure: Failure | None = Failure(kind="interrupted", message="the run was interrupted")
        try:
            with waits.waiting(self._keeper.waits_for):
                failure = self._launch.run(job, self._record, self._tick, self._observer.printed, [self._planned])
        finally:
            os.set_blocking(self._keeper.descriptor, True)
            left = self._keeper.close()
            for run in left:
                self._report(run)
            owed = next((run for run in reversed(left) if run.command in ("repair", "remove", "upgrade")), None)
            if owed:
                self._end({self._row.after: owed, "failure": failure})
            elif failure:
                self.end(failure)
            self._observer.end()
            if log.exists():
                log.rename(self._directory / COMMAND_LOG)

    def end(self, failure: Failure) -> None:
        """Record a failure. Only the first recorded failure is kept."""
        self._end({"failure": self.found.failure or failure})

    def _end(self, changes: Mapping[str, Failure | CommandRun | None]) -> None:
        self.found = dataclasses.replace(self.found, **changes)  # type: ignore[arg-type]
        self._events.keep(PatternMeasured(subject=self._subject, name=self._row.name, found=self.found))

    def _record(self, event: Event) -> None:
        """Record an event of rank 0."""
        if isinstance(event, CommandRequested):
            self._events.keep(event)
            self._keeper.start(event.command)
            return
        if isinstance(event, PatternMeasured) and isinstance(event.found, Changed):
            # Ranks do not receive the commands: their output could then contain a secret.
            self.found = dataclasses.replace(event.found, **self._words)  # type: ignore[arg-type]
            event = dataclasses.replace(event, found=self.found)
        self._events.keep(event)

    def _tick(self) -> None:
        """Pass the results of ended commands to the event file, the terminal and the ranks."""
        self._observer.tick()
        try:
            data = os.read(self._keeper.descriptor, 1 << 16)
        except BlockingIOError:
            return
        for run in self._keeper.ended(data):
            self._report(run)
            self._launch.answer(to_plain(run))

    def _report(self, run: CommandRun) -> None:
        self._events.keep(CommandEnded(subject=self._subject, run=run))
        text = f"the {run.command} command ended after {format_seconds(run.seconds)}" if run.is_good else run.sentence
        self._observer.printed(self._context.redactor.text(f"{self._subject} {self._row.name}: {text}"))
