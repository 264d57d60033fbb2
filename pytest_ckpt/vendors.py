"""The records and functions that plugins of vendors import. Pure.

`EngineSpec`, `ExtraRequirement` and `Section` are what a plugin makes; `Decision` is what its judges return;
`Measurement` with its `Operation`, `ClusterLimits` and `Settings` are what it is shown. `TargetSpec` is a kind of
target that it brings; its code follows the protocols of `pytest_ckpt.targets.protocol`.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from pytest_ckpt.facts.engines import EngineSpec, FileRule, MemoryRule
from pytest_ckpt.facts.environment import PluginFacts
from pytest_ckpt.facts.measurement import Measurement, Operation
from pytest_ckpt.facts.settings import Settings
from pytest_ckpt.facts.targets import Access, AreaRef, Capacity, CheckpointRef, TargetFacts, TargetSpec
from pytest_ckpt.facts.verdict import Severity
from pytest_ckpt.judging.decision import Decision
from pytest_ckpt.judging.requirement import Requirement
from pytest_ckpt.sizing.limits import ClusterLimits

__all__ = [
    "Access", "AreaRef", "Capacity", "CheckpointRef", "ClusterLimits", "Decision", "EngineSpec", "ExtraRequirement",
    "FileRule", "Measurement", "MemoryRule", "Operation", "PluginFacts", "Section", "Settings", "TargetFacts",
    "TargetSpec", "in_words", "read_facts", "read_requirement", "read_section",
]  # fmt: skip

_ID = re.compile(r"[A-Z][A-Z0-9-]*")
# What a judge may answer: to waive is for the buyer.
_ANSWERS = ("met", "failed", "not run")


@dataclass(frozen=True, kw_only=True, slots=True)
class ExtraRequirement:
    """A requirement of a plugin, judged on every checkpoint that is measured.

    ``id`` is of capital letters, digits and hyphens; begin it with a name of your own, so that it stays unique.
    ``judge`` is a pure function of (measurement, limits); its docstring is printed for the buyer. ``unit`` is that of
    what it measures; in "s" the time stands in JUnit files too. ``source`` says where the limit comes from.
    """

    id: str
    title: str
    judge: Callable[[Measurement, ClusterLimits], Decision]
    severity: Severity = "required"
    unit: str = ""
    source: str = ""

    @property
    def text(self) -> str:
        """The requirement as the certificate prints it."""
        return inspect.cleandoc(self.judge.__doc__ or "")


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """A part of the certificate that a plugin writes: paragraphs, then a table. Everything is text, never HTML."""

    title: str
    paragraphs: Sequence[str] = ()
    head: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()


def read_requirement(said: object, plugin: str) -> Requirement:
    """Return what a plugin asks for as a row of the catalogue. Raises ValueError with a sentence on what is wrong."""
    if not isinstance(said, ExtraRequirement):
        raise ValueError(f"{said!r} is no pytest_ckpt.vendors.ExtraRequirement")
    if not isinstance(said.id, str) or not _ID.fullmatch(said.id):
        raise ValueError(f"the id {said.id!r} is not of capital letters, digits and hyphens, such as ACME-WARMUP")
    for name in ("title", "unit", "source"):
        if not isinstance(getattr(said, name), str):
            raise ValueError(f"the {name} of {said.id} is {getattr(said, name)!r}, and a text is expected")
    if not said.title.strip():
        raise ValueError(f"{said.id} has no title")
    if said.severity not in get_args(Severity):
        raise ValueError(f"the severity of {said.id} is {said.severity!r}, and required or advisory is expected")
    if not callable(said.judge):
        raise ValueError(f"the judge of {said.id} is {said.judge!r}, and a function is expected")
    if not said.text:
        raise ValueError(f"the judge of {said.id} has no docstring, and the certificate prints it for the buyer")
    return Requirement(
        id=said.id,
        title=said.title,
        severity=said.severity,
        source=said.source,
        judge=_guarded(said, plugin),
        plugin=plugin,
        words=said.text,
    )


def read_section(said: object) -> dict[str, Any]:
    """Return a section in plain types. Raises ValueError with a sentence on what is wrong."""
    if not isinstance(said, Section):
        raise ValueError(f"{said!r} is no pytest_ckpt.vendors.Section")
    if not isinstance(said.title, str) or not said.title.strip():
        raise ValueError(f"the title of a section is {said.title!r}, and a text is expected")
    where = f"of the section '{said.title}'"
    head = _texts(said.head, f"the head {where}")
    if isinstance(said.rows, str) or not isinstance(said.rows, Sequence):
        raise ValueError(f"the rows {where} are {said.rows!r}, and a list of rows is expected")
    rows = [_texts(row, f"row {number} {where}") for number, row in enumerate(said.rows, 1)]
    for number, row in enumerate(rows, 1):
        if len(row) != len(head or rows[0]):
            raise ValueError(f"row {number} {where} has {len(row)} cells, and {len(head or rows[0])} are expected")
    return {
        "title": said.title,
        "paragraphs": _texts(said.paragraphs, f"the paragraphs {where}"),
        "head": head,
        "rows": rows,
    }


def read_facts(said: object) -> dict[str, str]:
    """Return facts of the environment. Raises ValueError with a sentence on what is wrong."""
    if not isinstance(said, Mapping):
        raise ValueError(f"{said!r} is no mapping of names to texts")
    for name, value in said.items():
        if not isinstance(name, str) or not name.strip():
            raise ValueError(f"the name of a fact is {name!r}, and a text is expected")
        if not isinstance(value, str):
            raise ValueError(f"the fact '{name}' is {value!r}, and a text is expected")
    return dict(said)


def in_words(error: BaseException) -> str:
    """Return an exception in one line."""
    said = " ".join(str(error).split())
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _texts(said: object, what: str) -> list[str]:
    if isinstance(said, str) or not isinstance(said, Sequence) or not all(isinstance(t, str) for t in said):
        raise ValueError(f"{what} are {said!r}, and a list of texts is expected")
    return list(said)


def _guarded(said: ExtraRequirement, plugin: str) -> Callable[[Measurement, ClusterLimits], Decision]:
    """Return a judge that sees copies, and whose errors decide nothing."""

    def judge(measurement: Measurement, limits: ClusterLimits) -> Decision:
        try:
            return _checked(said.judge(copy.deepcopy(measurement), copy.deepcopy(limits)), said.unit)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # also what pytest's own skip and fail raise
            because = f"The judge of plugin {plugin} gave no decision: {in_words(error)}"
            return Decision(outcome="not run", reason="hook failed", because=f"{because.rstrip('.')}.")

    return judge


def _checked(said: object, unit: str) -> Decision:
    """Return a decision that can be written. Raises ValueError where it cannot."""
    if not isinstance(said, Decision):
        raise ValueError(f"it returned {said!r}, and a pytest_ckpt.vendors.Decision is expected")
    if said.outcome not in _ANSWERS:
        raise ValueError(f"the outcome is {said.outcome!r}, and one of {', '.join(_ANSWERS)} is expected")
    if not isinstance(said.because, str) or not said.because.strip():
        raise ValueError(f"because is {said.because!r}, and a sentence is expected")
    for name in ("measured", "limit"):
        value = getattr(said, name)
        if value is not None and (
            isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value)
        ):
            raise ValueError(f"{name} is {value!r}, and a finite number or None is expected")
    if said.unit not in ("", unit):
        raise ValueError(f"the unit is {said.unit!r}, and that of the requirement is {unit!r}")
    return dataclasses.replace(
        said, reason="plugin", unit=unit, detail=tuple(_texts(said.detail, "the lines of detail"))
    )
