"""The subject of a measurement (what is measured), and the operations on a subject, with their texts and file names."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from pytest_ckpt.facts.bounds import Count, Share

# If the text of a subject names no engine or strategy, as in stored runs, it has these.
DEFAULT_ENGINE, DEFAULT_STRATEGY = "torch", "sync"

Pattern = str
"""The name of a measurement in addition to a subject's own saves and loads: a field of `measurement.Patterns`."""

Scenario = str
"""The pattern that an operation is part of; empty for the subject's own saves and loads."""

StepKind = str
"""The kind of the steps that ranks run in sequence: ``save``, ``load``, ``retention``, ``data``, or a pattern."""

Action = Literal["", "save", "load", "delete", "read"]
"""The current operation of ranks. ``read``: samples are read without a save. Empty between operations."""

Stage = Literal[
    "operation",
    "prepare",
    "client ceiling",
    "content",
    "residency",
    "verify",
    "drop caches",
    "canaries",
    "remove",
    "ballast",
    "training",
]
"""The stage of an operation: the timed part, or a part before or after it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """The identity of a measurement: model, layout, engine and strategy.

    The subject's own saves and loads are the saves and loads outside of all patterns (additional measurements).
    ``processes`` is set only for an open layout. Any other layout defines its number of processes.

    The text of a subject omits defaults: ``llama3-8b-full``, ``llama3-8b-open-16/stream``,
    ``llama3-8b-full/dcp/async``. Files store a subject as this text. If two measurements have the same text, they may
    be compared.
    """

    model: str
    mode: str
    processes: int | None = None
    engine: str = DEFAULT_ENGINE
    strategy: str = DEFAULT_STRATEGY

    def __str__(self) -> str:
        """Return the text of the subject without default values."""
        parts = [self.layout]
        if (self.engine, self.strategy) != (DEFAULT_ENGINE, DEFAULT_STRATEGY):
            parts.append(self.engine)
        if self.strategy != DEFAULT_STRATEGY:
            parts.append(self.strategy)
        return "/".join(parts)

    @property
    def layout(self) -> str:
        """The name of the checkpoint's layout: ``llama3-8b-full``, ``llama3-70b-subset``, ``llama3-8b-open-16``."""
        return f"{self.model}-{self.mode}" + (f"-{self.processes}" if self.processes is not None else "")

    @property
    def slug(self) -> str:
        """The subject's text for file names, without slashes and colons, which some file systems refuse."""
        return str(self).replace("/", "+").replace(":", "-")

    @classmethod
    def from_text(cls, text: str) -> Subject:
        """Return the subject with this text. Raises ValueError if the text is not the text of a subject."""
        layout, *written = text.split("/")
        name, _, last = layout.rpartition("-")
        processes = None
        if last.isdecimal():
            processes = int(last)
            name, _, last = name.rpartition("-")
        engine, strategy = (*written, *(DEFAULT_ENGINE, DEFAULT_STRATEGY)[len(written) :])[:2]
        subject = cls(model=name, mode=last, processes=processes, engine=engine, strategy=strategy)
        if not all((name, last, *written)) or str(subject) != text:
            raise ValueError(
                f"'{text}' is not a subject; expected a name such as llama3-8b-full or llama3-8b-open-16/stream"
            )
        return subject


@dataclass(frozen=True, kw_only=True, slots=True)
class OperationRef:
    """An operation on a subject, or one stage of the operation.

    - ``scenario``: the pattern of the operation; empty for the subject's own saves and loads.
    - ``index``: the number of the operation, from 1; None for a stage that belongs to all operations.
    - ``level``: the share of the volume that ballast fills; 0 without ballast.
    """

    subject: Subject
    scenario: Scenario = ""
    action: Action = ""
    index: Count | None = None
    stage: Stage = "operation"
    level: Share = 0.0

    def __str__(self) -> str:
        """Return the operation as text: ``llama3-8b-full save 2``, ``llama3-8b-full load 3: residency``."""
        words = [str(self.scenario or self.action)]
        if self.index is not None:
            words.append(str(self.index))
        if self.level:
            words.append(f"at {self.level:.0%}")
        what = " ".join(filter(None, words))
        if self.stage != "operation":
            what = f"{what}: {self.stage}" if what else self.stage
        return f"{self.subject} {what}"

    def at(self, stage: Stage) -> OperationRef:
        """Return the same operation at another stage."""
        return replace(self, stage=stage)
