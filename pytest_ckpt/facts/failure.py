"""Why a measurement or a check ended early."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pytest_ckpt.facts.bounds import Count
from pytest_ckpt.facts.subject import OperationRef

FailureKind = Literal["error", "killed", "hung", "too slow", "launch", "interrupted", "hook", "replaced"]

Phase = Literal[
    "",
    "start",
    "import",
    "stage",
    "open",
    "write",
    "read",
    "fsync",
    "close",
    "directory",
    "pause",
    "commit",
    "name of another host",
    "fsync canary",
    "residency probe",
    "fadvise",
    "drop_caches",
    "drop command",
    "start of the reader",
    "read of samples",
]
"""The activity of a rank within an operation; an engine reports it in these words. Empty between two phases."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """Why a measurement ended early: which rank on which host, in which operation, phase and file.

    ``operation`` is None if ranks were between operations. ``lane`` is the piece of work of a rank that does several at
    once; empty for its operations themselves. ``too slow``: it moved bytes, but would have taken many times its limit.
    ``hook``: a plugin's hook failed, which ``message`` names. ``replaced``: the run's directory was no longer the one
    that the run had made.
    """

    kind: FailureKind
    message: str
    rank: Count | None = None
    host: str = ""
    operation: OperationRef | None = None
    phase: Phase = ""
    file: str = ""
    errno: str = ""
    stack: str = ""
    lane: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockedCall:
    """A call of a check that did not return within the deadline, on ``path``; ``stack`` is the kernel's view of it."""

    call: str
    path: str
    host: str
    message: str
    stack: str = ""
