"""Prints the progress of a run: a line for every completed step and, on a terminal, a line that is updated in place."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_ckpt.facts.commands import Changed, Snapshots, Upgrade
from pytest_ckpt.facts.events import (
    CeilingsMeasured,
    DepthChosen,
    MeasurementDone,
    MeasurementStarted,
    OperationDone,
    OperationStarted,
    PatternMeasured,
    StepDone,
)
from pytest_ckpt.facts.many_names import Metadata
from pytest_ckpt.facts.measurement import Endurance, Resized
from pytest_ckpt.sizing.patterns import PATTERNS
from pytest_ckpt.support.units import counted, format_rate, format_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from pytest_ckpt.facts.events import Event
    from pytest_ckpt.facts.measurement import Operation
    from pytest_ckpt.facts.subject import StepKind, Subject
    from pytest_ckpt.sizing.plan import PlannedCheckpoint
    from pytest_ckpt.sizing.steps import Steps

# Saves that take hours print their progress once a minute.
_ENDURANCE_LINE_SECONDS = 60.0
_TICK_SECONDS = 0.2


@dataclass(slots=True)
class Row:
    """The progress of all steps of one kind for one subject.

    ``steps`` describes the planned steps. ``count`` is their number; it decreases if some steps will never run.
    ``done`` is the number of finished steps, and ``seconds`` are their durations. An endurance measurement is one step
    with many saves; ``part_done`` counts these saves. ``clock_seconds`` is the total time of finished steps with a
    fixed duration.
    """

    steps: Steps
    count: int
    done: int = 0
    part_done: int = 0
    clock_seconds: float = 0.0
    seconds: list[float] = field(default_factory=list)

    def ended(self, seconds: float) -> None:
        """Record the end of a step that took ``seconds``."""
        self.done += 1
        self.count = max(self.count, self.done)
        self.seconds.append(seconds)
        if self.steps.turn_seconds is not None:
            self.clock_seconds += seconds

    def restart(self) -> None:
        """Reset the progress, because the steps run again."""
        self.count, self.done, self.part_done, self.clock_seconds = self.steps.count, 0, 0, 0.0
        self.seconds.clear()

    @property
    def bytes_done(self) -> int:
        """The bytes of finished steps. For an endurance measurement, the bytes of its finished saves."""
        if self.steps.parts > 1:
            return self.part_done * self.steps.bytes_each // self.steps.parts
        return self.done * self.steps.bytes_each

    @property
    def bytes_left(self) -> int:
        """The bytes of the remaining steps."""
        if self.done >= self.count:
            return 0
        return self.count * self.steps.bytes_each - self.bytes_done


def seconds_left(rows: Sequence[Row], spent_seconds: float) -> float | None:
    """Return the estimated seconds of the remaining steps; None if the time is unknown or no steps remain.

    ``spent_seconds`` is the time spent so far. The estimate is the remaining bytes divided by the finished steps' bytes
    per second. The remaining time of steps with a fixed duration is added.
    """
    done, remaining = sum(row.bytes_done for row in rows), [row for row in rows if row.done < row.count]
    if not done or not remaining:
        return None
    if all(row.steps.bytes_each == 0 and row.steps.turn_seconds is None for row in remaining):
        # Neither bytes nor the clock predict the time of the remaining steps, such as metadata calls.
        return None
    left = sum(row.bytes_left for row in rows)
    pace = (spent_seconds - sum(row.clock_seconds for row in rows)) / done
    return max(0.0, pace) * left + sum(map(_by_clock, rows))


def _by_clock(row: Row) -> float:
    turn = row.steps.turn_seconds
    if turn is None or row.done >= row.count:
        return 0.0
    return max(0.0, row.count * turn - row.clock_seconds)


@dataclass(slots=True)
class WorkSeconds:
    """The seconds that ranks have spent on steps, over all launches, without the time to start the ranks.

    ``before`` are the seconds of ended launches. ``since`` is the monotonic time of the present launch's first step.
    """

    before: float = 0.0
    since: float | None = None

    def begin(self) -> None:
        """Record the start of a step. Only the first call in a launch has an effect."""
        self.since = time.monotonic() if self.since is None else self.since

    def end(self) -> None:
        """Record the end of a launch."""
        self.before, self.since = self.seconds, None

    @property
    def seconds(self) -> float:
        """The seconds that ranks have spent on steps so far."""
        return self.before + (time.monotonic() - self.since if self.since is not None else 0.0)


@dataclass(slots=True)
class _Launched:
    subjects: Collection[Subject] = ()
    begun: set[Subject] = field(default_factory=set)
    ended: set[Subject] = field(default_factory=set)


class Progress:
    """Counts all steps and checks of a run and prints the run's progress.

    ``steps`` are the steps of all subjects that will be measured; ``checks`` is the number of behaviour checks.
    ``write`` prints a text unchanged and adds no line end. ``fresh_line`` ends a line that other code has begun. If
    ``live``, a line may be overwritten. Steps that will not run, for example after a failed launch, are subtracted from
    the total.
    """

    def __init__(
        self,
        steps: Sequence[Steps],
        checks: int,
        write: Callable[[str], None],
        fresh_line: Callable[[], None] = lambda: None,
        *,
        live: bool,
    ) -> None:
        self._rows = {(s.subject, s.kind): Row(steps=s, count=s.count) for s in steps}
        self._planned: dict[Subject, PlannedCheckpoint] = {}
        self._checks, self._checks_done = checks, 0
        self._write, self._fresh_line, self._live = write, fresh_line, live
        self._spent = WorkSeconds()
        self._launched = _Launched()
        self._doing, self._since = "", time.monotonic()
        self._endurance_began, self._endured_at = 0.0, float("-inf")
        self._shown, self._ticked = "", 0.0

    @property
    def done(self) -> int:
        """The number of ended steps and checks."""
        return self._checks_done + sum(row.done for row in self._rows.values())

    @property
    def total(self) -> int:
        """The total number of steps and checks, as far as the number is known."""
        return self._checks + sum(row.count for row in self._rows.values())

    def begin(self, checkpoints: Sequence[PlannedCheckpoint]) -> None:
        """Record the start of a launch that measures ``checkpoints``."""
        self._planned |= {c.subject: c for c in checkpoints}
        self._launched = _Launched(subjects=tuple(c.subject for c in checkpoints))
        self._now("starting the ranks")

    def record(self, event: Event) -> None:
        """Record an event of rank 0."""
        if isinstance(event, MeasurementStarted):
            self._launched.begun.add(event.subject)
            for row in self._rows_of(event.subject):
                row.restart()
        elif isinstance(event, DepthChosen):
            if event.depth.origin == "ramp":
                self._line(f"{event.subject}: {event.depth.sentence}")
        elif isinstance(event, CeilingsMeasured):
            self._ceilings(event)
        elif isinstance(event, OperationStarted):
            self._spent.begin()
            self._now(str(event.operation))
        elif isinstance(event, OperationDone):
            row = self._row(event.subject, event.operation.kind)
            row.ended(event.operation.seconds)
            self._line(self._result(row, event.operation))
        elif isinstance(event, StepDone):
            self._step(event)
        elif isinstance(event, PatternMeasured):
            self._pattern(event)
        elif isinstance(event, MeasurementDone):
            self._launched.ended.add(event.subject)
            self._drop([event.subject])

    def clear_line(self) -> None:
        """Clear the live line, so that other output can be printed."""
        self._show("")

    def printed(self, text: str) -> None:
        """Print a sentence on a separate line."""
        self._line(text)

    def checking(self, name: str) -> None:
        """Show that a behaviour check begins."""
        self._now(f"check {name}")

    def checked(self, name: str, seconds: float) -> None:
        """Show that a behaviour check has ended.

        The text has no line end, so that pytest may print the outcome on the same line.
        """
        self._checks_done += 1
        self._checks = max(self._checks, self._checks_done)
        self._line(f"[{self.done}/{self.total}] check {name}: {format_seconds(seconds)} ", end="")

    def tick(self) -> None:
        """Update the live line."""
        if not self._live or time.monotonic() - self._ticked < _TICK_SECONDS:
            return
        self._ticked = time.monotonic()
        seconds = format_seconds(round(self._ticked - self._since))
        place = f"step {self.done + 1} of {self.total}: " if self.done < self.total else ""
        self._show(f"{place}{self._doing}, {seconds}{self._remaining()}")

    def end(self) -> None:
        """Record the end of a launch, and subtract the steps that will not run from the total."""
        launched = self._launched
        if launched.begun:
            self._drop(launched.begun - launched.ended, has_failed=True)
        else:
            self._drop(launched.subjects)
        self._spent.end()
        self._show("")

    def _step(self, event: StepDone) -> None:
        self._spent.begin()
        row = self._row(event.subject, event.kind)
        if event.kind == "endurance":
            self._endured(row, event)
            return
        row.ended(event.step_seconds)
        self._line(
            f"{self._place()} {row.steps.label(row.done)}: {format_seconds(event.step_seconds)}{self._remaining()}"
        )

    def _endured(self, row: Row, event: StepDone) -> None:
        """Show one save of the endurance measurement."""
        now = time.monotonic()
        if event.index == 1:
            self._endurance_began = now - event.step_seconds
        row.part_done = event.index
        if row.steps.turn_seconds is not None:
            row.clock_seconds = now - self._endurance_began
        self._now(f"{event.subject} endurance, {counted(event.index, 'save')}")
        if row.steps.turn_seconds and now - self._endured_at < _ENDURANCE_LINE_SECONDS:
            return
        self._endured_at = now
        self._line(
            f"{event.subject} endurance save {event.index}: {format_seconds(event.step_seconds)}{self._remaining()}"
        )

    def _ceilings(self, event: CeilingsMeasured) -> None:
        """Print a notice before the first save if the hosts cannot reach the rate that SAVE or LOAD requires.

        The event contains the rates that the hosts reach without storage.
        """
        planned = self._planned[event.subject]
        demand, hosts = planned.demand, counted(len(event.ceilings), "host")
        makes = sum(ceiling.makes_bytes_per_second for ceiling in event.ceilings)
        compares = sum(ceiling.compares_bytes_per_second for ceiling in event.ceilings)
        for name, does, rate, needed in (
            ("SAVE", "make", makes, demand.save_bytes_per_second if planned.strategy.blocks else 0.0),
            ("LOAD", "compare", compares, demand.load_bytes_per_second),
        ):
            if event.ceilings and rate < needed:
                self._line(
                    f"{event.subject}: {hosts} can {does} {format_rate(rate)} without storage, {format_rate(needed)} "
                    f"are needed: {name} cannot be met, and will not fail the storage"
                )

    def _pattern(self, event: PatternMeasured) -> None:
        # Training is not a step: it runs during saves, which are steps.
        row = None if event.name == "training" else self._rows.get((event.subject, event.name))
        if row is None:
            return
        if event.found is None or isinstance(event.found, Metadata):
            # An error ends the metadata calls before their last step.
            row.count = row.done
        elif isinstance(event.found, Changed):
            self._of_separate_launch(row, event.found)
        elif isinstance(event.found, Resized):
            if event.found.is_over:
                row.count = row.done
        elif isinstance(event.found, Endurance):
            row.done = row.count
            saves = len(event.found.save_seconds)
            self._line(f"{self._place()} {row.steps.label(1)}: {counted(saves, 'save')}{self._remaining()}")

    def _of_separate_launch(self, row: Row, found: Changed) -> None:
        """If the results of a separate launch contain a new trial, print a line with the trial's last operation.

        ``found`` contains all results of the launch so far.
        """
        if isinstance(found, Upgrade):
            done = list(found.operations[-1:])
        elif isinstance(found, Snapshots):
            done = [trial.snapshotted for trial in found.trials]
        else:
            done = [trial.operations[-1] for trial in found.trials]
        if len(done) > row.done:
            row.done = len(done)
            seconds = format_seconds(done[-1].seconds)
            self._line(f"{self._place()} {row.steps.label(row.done)}: {done[-1].kind} {seconds}{self._remaining()}")
        if found.failure or (not isinstance(found, Upgrade) and found.not_run):
            row.count = row.done

    def _result(self, row: Row, operation: Operation) -> str:
        kind, planned = operation.kind, self._planned[row.steps.subject]
        demand = planned.demand
        needed = demand.save_bytes_per_second if kind == "save" else demand.load_bytes_per_second
        return (
            f"{self._place()} {planned.subject} {kind} {operation.index} of {planned.operations}: "
            f"{format_seconds(operation.seconds)}, {format_rate(operation.bytes_per_second)} "
            f"(needed: {format_rate(needed)}){self._remaining()}"
        )

    def _place(self) -> str:
        return f"[{self.done}/{self.total}]"

    def _remaining(self) -> str:
        """Return the remaining time of the steps and the number of remaining checks, as text.

        The text is empty if the time is unknown. The time of the checks is not estimated.
        """
        rows = list(self._rows.values())
        seconds = seconds_left(rows, self._spent.seconds)
        if seconds is None:
            return ""
        is_maximum = any(row.steps.is_maximum and row.done < row.count for row in rows)
        checks = self._checks - self._checks_done
        then = f" and {counted(checks, 'check')}" if checks else ""
        return f", {'at most' if is_maximum else 'about'} {format_seconds(round(seconds) or 1)}{then} left"

    def _row(self, subject: Subject, kind: StepKind) -> Row:
        return self._rows[subject, kind]

    def _rows_of(self, subject: Subject) -> list[Row]:
        return [row for (of, _), row in self._rows.items() if of == subject]

    def _drop(self, subjects: Collection[Subject], *, has_failed: bool = False) -> None:
        """Subtract the steps of ``subjects`` that will not run from the total.

        Steps of separate launches are subtracted only if ``has_failed``.
        """
        for subject in subjects:
            for row in self._rows_of(subject):
                pattern = PATTERNS.get(row.steps.kind)
                if has_failed or pattern is None or not pattern.has_own_launch:
                    row.count = row.done

    def _now(self, doing: str) -> None:
        self._doing, self._since = doing, time.monotonic()

    def _line(self, text: str, end: str = "\n") -> None:
        self._show("")
        self._fresh_line()
        self._write(text + end)
        following = next((r for r in self._rows.values() if r.done < r.count), None)
        if following and self._launched.begun:
            self._now(following.steps.label(following.done + 1))

    def _show(self, text: str) -> None:
        if text != self._shown:
            if not self._shown:
                self._fresh_line()
            blank = " " * max(0, len(self._shown) - len(text))
            self._write("\r" + text + blank + ("" if text else "\r"))
            self._shown = text
