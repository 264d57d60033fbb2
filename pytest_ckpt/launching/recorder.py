"""Writes down what a launch tells: every event, and a measurement as soon as it is whole."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pytest_ckpt.facts.codec import Record, from_plain, to_plain
from pytest_ckpt.facts.failure import Failure
from pytest_ckpt.facts.measurement import DataEffect, Measurement, Operation, Patterns, RankFacts, Retention
from pytest_ckpt.facts.proofs import CacheFacts, Durability, Integrity
from pytest_ckpt.launching.observer import Observer
from pytest_ckpt.ranks.process.job import Job
from pytest_ckpt.sizing.plan import PlannedCheckpoint
from pytest_ckpt.support.redaction import Redactor


class Recorder:
    """Writes down what a launch tells: every event, and a measurement as soon as it is whole."""

    def __init__(
        self,
        planned: Sequence[PlannedCheckpoint],
        job: Job,
        launch_name: str,
        file_of: Callable[[str], Path],
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
        self._began = self._since = time.monotonic()
        self._stages: dict[str, float] = {}
        self._subject = ""
        self._operations: list[Operation] = []
        self._durability: Durability | None = None
        self._integrity: Integrity | None = None
        self._patterns: dict[str, Any] = {}

    def spent(self, stage: str, seconds: float) -> None:
        """Take in what was spent before the ranks were started."""
        self._stages[stage] = seconds

    def heard(self, event: dict[str, Any]) -> None:
        """Take in an event of rank 0."""
        with self._events.open("a") as events:
            timed = {"seconds": round(time.monotonic() - self._began, 6), **event}
            events.write(json.dumps(self._redactor.plain(timed)) + "\n")
        kind = event["event"]
        if kind == "ready":
            self._lap("launch")
        elif kind == "imported":
            self._lap("import")
        elif kind == "measuring":
            self._subject, self._operations = event["subject"], []
            self._durability = self._integrity = None
            self._patterns = {}
        elif kind == "operation":
            self._operations.append(from_plain(Operation, event["operation"]))
        elif kind == "durability":
            self._durability = from_plain(Durability, event["durability"])
        elif kind == "integrity":
            self._integrity = from_plain(Integrity, event["integrity"])
        elif kind == "pattern" and event.get("not_run"):
            self._patterns.setdefault("not_run", {})[event["name"]] = event["not_run"]
        elif kind == "pattern":
            self._patterns[event["name"]] = event["found"]
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
        """Write what is known of the measurement that did not end.

        A launch that measured nothing fails them all; one that ended between two subjects leaves the rest for another.
        """
        if failure is None:
            return
        unfinished = [s for s in self._planned if not self._file_of(s).exists()]
        if not self._subject and len(unfinished) < len(self._planned):
            return
        for subject in [self._subject] if self._subject else unfinished:
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
            patterns=from_plain(Patterns, self._patterns) if subject == self._subject and self._patterns else None,
            ranks=ranks,
            launch=self._launch_name,
            **known,
        )
        write_atomically(
            self._file_of(subject), json.dumps(self._redactor.plain(to_plain(measurement)), indent=1) + "\n"
        )


def _maybe(kind: type[Record], data: Any) -> Record | None:
    return None if data is None else from_plain(kind, data)


def write_atomically(file: Path, text: str) -> None:
    """Write a file so that a reader finds all of it or none."""
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f".{file.name}.{os.getpid()}")
    partial.write_text(text)
    partial.replace(file)
