"""The interface for vendors' plugins: the records and functions that plugins import. Pure, without I/O.

`requirement` is the decorator for a plugin's function that judges a run. The function receives `Measurement` with its
`Operation`, `ClusterLimits` and `Settings`, and returns a `Decision`. Hooks of a plugin return records such as
`EngineSpec` and `Section`. A `TargetSpec` adds a type of target; the code of the target follows the protocols of
`pytest_ckpt.targets.protocol`.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from pytest_ckpt.facts.engines import EngineSpec, MemoryRule
from pytest_ckpt.facts.environment import PluginFacts
from pytest_ckpt.facts.file_rules import FileRule
from pytest_ckpt.facts.measurement import Measurement, Operation
from pytest_ckpt.facts.proofs import CommitProof
from pytest_ckpt.facts.settings import Settings
from pytest_ckpt.facts.targets import Access, AreaRef, Capacity, CheckpointRef, TargetFacts, TargetSpec
from pytest_ckpt.facts.verdict import Severity
from pytest_ckpt.judging.decision import Decision
from pytest_ckpt.judging.given import Operations
from pytest_ckpt.judging.requirement import Requirement, requirement, requirement_of
from pytest_ckpt.sizing.limits import ClusterLimits

__all__ = [
    "Access", "AreaRef", "Capacity", "CheckpointRef", "ClusterLimits", "CommitProof", "Decision", "EngineSpec",
    "FileRule", "Measurement", "MemoryRule", "Operation", "Operations", "PluginFacts", "Section", "Settings",
    "TargetFacts", "TargetSpec", "error_text", "read_facts", "read_requirement", "read_section", "requirement",
]  # fmt: skip

_ID = re.compile(r"[A-Z][A-Z0-9-]*")
# The outcomes that a plugin's requirement may return. Only the buyer can waive a requirement.
_ANSWERS = ("met", "failed", "not run")


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """A section that a plugin adds to the certificate: paragraphs, then a table.

    All fields are plain text, not HTML.
    """

    title: str
    paragraphs: Sequence[str] = ()
    head: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()


def read_requirement(stated: object, plugin: str) -> Requirement:
    """Check a plugin's requirement ``stated``, and return it as a row of the catalog of requirements.

    The function in the row calls the plugin's function with copies of the facts. If the plugin's function raises an
    error, the outcome is "not run". If the requirement is invalid, ValueError is raised.
    """
    row = requirement_of(stated)
    if row is None or row.function is None:
        raise ValueError(f"{stated!r} is not a function with the decorator pytest_ckpt.vendors.requirement")
    if not isinstance(row.id, str) or not _ID.fullmatch(row.id):
        raise ValueError(f"the id {row.id!r} is not of capital letters, digits and hyphens, such as ACME-WARMUP")
    for name in ("title", "source", "next_step"):
        if not isinstance(getattr(row, name), str):
            raise ValueError(f"the {name} of {row.id} is {getattr(row, name)!r}, and a text is expected")
    if not row.title.strip():
        raise ValueError(f"{row.id} has no title")
    if row.severity not in get_args(Severity):
        raise ValueError(f"the severity of {row.id} is {row.severity!r}, and required or advisory is expected")
    if not all(isinstance(unit, str) for unit in row.units):
        raise ValueError(f"the units of {row.id} are {row.units!r}, and texts are expected")
    if not row.text:
        raise ValueError(f"{row.id} has no docstring, and the certificate prints it for the buyer")
    if "observation" in inspect.signature(row.function).parameters:
        raise ValueError(f"{row.id} requires an observation, but a plugin has no checks")
    # A plugin's requirement is always judged on saves and loads, whatever suite it declares.
    return dataclasses.replace(
        row, plugin=plugin, suite="performance", function=_guarded(row.function, row.units, plugin)
    )


def read_section(stated: object) -> dict[str, Any]:
    """Check a plugin's section, and return it as plain types. Raises ValueError if the section is invalid."""
    if not isinstance(stated, Section):
        raise ValueError(f"{stated!r} is no pytest_ckpt.vendors.Section")
    if not isinstance(stated.title, str) or not stated.title.strip():
        raise ValueError(f"the title of a section is {stated.title!r}, and a text is expected")
    where = f"of the section '{stated.title}'"
    head = _texts(stated.head, f"the head {where}")
    if isinstance(stated.rows, str) or not isinstance(stated.rows, Sequence):
        raise ValueError(f"the rows {where} are {stated.rows!r}, and a list of rows is expected")
    rows = [_texts(row, f"row {number} {where}") for number, row in enumerate(stated.rows, 1)]
    for number, row in enumerate(rows, 1):
        if len(row) != len(head or rows[0]):
            raise ValueError(f"row {number} {where} has {len(row)} cells, and {len(head or rows[0])} are expected")
    return {
        "title": stated.title,
        "paragraphs": _texts(stated.paragraphs, f"the paragraphs {where}"),
        "head": head,
        "rows": rows,
    }


def read_facts(stated: object) -> dict[str, str]:
    """Check a plugin's facts about the environment, and return {name: value}. Raises ValueError if they are invalid."""
    if not isinstance(stated, Mapping):
        raise ValueError(f"{stated!r} is not a mapping of names to texts")
    for name, value in stated.items():
        if not isinstance(name, str) or not name.strip():
            raise ValueError(f"the name of a fact is {name!r}, and a text is expected")
        if not isinstance(value, str):
            raise ValueError(f"the fact '{name}' is {value!r}, and a text is expected")
    return dict(stated)


def error_text(error: BaseException) -> str:
    """Return the type and the message of an exception in one line."""
    message = " ".join(str(error).split())
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def _texts(stated: object, what: str) -> list[str]:
    if isinstance(stated, str) or not isinstance(stated, Sequence) or not all(isinstance(t, str) for t in stated):
        raise ValueError(f"{what} are {stated!r}, and a list of texts is expected")
    return list(stated)


def _guarded(function: Callable[..., Decision], units: tuple[str, ...], plugin: str) -> Callable[..., Decision]:
    """Return a function that calls a plugin's function with copies of the facts, and checks the returned decision.

    If the plugin's function raises an error or returns an invalid decision, the outcome is "not run".
    """

    @functools.wraps(function)
    def guarded(**facts: object) -> Decision:
        try:
            return _checked(function(**copy.deepcopy(facts)), units)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # also what pytest's own skip and fail raise
            because = f"The judge of plugin {plugin} gave no decision: {error_text(error)}"
            return Decision(outcome="not run", reason="hook failed", because=f"{because.rstrip('.')}.")

    return guarded


def _checked(stated: object, units: tuple[str, ...]) -> Decision:
    """Check a plugin's decision, and return it for the report. Raises ValueError if the decision is invalid."""
    if not isinstance(stated, Decision):
        raise ValueError(f"it returned {stated!r}, and a pytest_ckpt.vendors.Decision is expected")
    if stated.outcome not in _ANSWERS:
        raise ValueError(f"the outcome is {stated.outcome!r}, and one of {', '.join(_ANSWERS)} is expected")
    if not isinstance(stated.because, str) or not stated.because.strip():
        raise ValueError(f"because is {stated.because!r}, and a sentence is expected")
    for name in ("measured", "limit"):
        value = getattr(stated, name)
        if value is not None and (
            isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value)
        ):
            raise ValueError(f"{name} is {value!r}, and a finite number or None is expected")
    if stated.unit and stated.unit not in units:
        raise ValueError(f"the unit is {stated.unit!r}, and the requirement states {', '.join(units) or 'none'}")
    return dataclasses.replace(
        stated,
        reason="plugin",
        unit=stated.unit or next(iter(units), ""),
        detail=tuple(_texts(stated.detail, "the lines of detail")),
    )
