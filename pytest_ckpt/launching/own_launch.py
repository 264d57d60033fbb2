"""Functions for separate launches: directory, job and events. A separate launch measures one pattern of one subject."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from pytest_ckpt.facts.events import PatternMeasured, event_to_plain
from pytest_ckpt.launching.depths import known_depth
from pytest_ckpt.ranks.process.job import EngineOptions, Job
from pytest_ckpt.sizing.stream_buffers import USUAL_DEPTH

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_ckpt.facts.events import Event
    from pytest_ckpt.launching.launch_context import LaunchContext
    from pytest_ckpt.launching.recorder import Observer
    from pytest_ckpt.ranks.process.job import Task


def name_of_launch(number: int) -> str:
    """Return the path of the directory of the launch ``number``, relative to the run directory."""
    return f"launches/{number}"


def directory_of_launch(context: LaunchContext, number: int) -> Path:
    """Return the path of the directory of the launch ``number``."""
    return context.directory / name_of_launch(number)


def job_of(context: LaunchContext, processes: int, task: Task) -> Job:
    """Return a job with one task, for a launch of ``processes`` ranks."""
    settings = context.settings
    depth = known_depth(settings, context.directory, processes)
    return Job(
        options=EngineOptions(request_bytes=settings.io_size_bytes, depth=depth.requests if depth else USUAL_DEPTH),
        processes=processes,
        area=context.run_area,
        deadline_seconds=settings.io_timeout_seconds,
        tasks=(task,),
    )


class EventsOfLaunch:
    """Appends events of separate launches to the run's event file.

    Each event has the seconds since this object was created.
    """

    def __init__(self, context: LaunchContext, observer: Observer) -> None:
        self._context, self._observer = context, observer
        self._began = time.monotonic()

    def keep(self, event: Event) -> None:
        """Append an event to the run's event file. The results of a pattern are also passed to the observer."""
        timed = {"seconds": round(time.monotonic() - self._began, 6), **event_to_plain(event)}
        with (self._context.directory / "events.jsonl").open("a") as events:
            events.write(json.dumps(self._context.redactor.plain(timed)) + "\n")
        if isinstance(event, PatternMeasured):
            self._observer.record(event)
