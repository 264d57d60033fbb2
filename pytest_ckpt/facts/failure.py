"""Why a measurement or a check ended early."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FailureKind = Literal["error", "killed", "hung", "launch", "interrupted", "hook"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """Why a measurement ended early: which rank on which host, in which operation, phase and file.

    ``lane`` is the piece of work of the rank where it does several at once; empty for what its operations are.
    ``hook``: a plugin's hook failed, which ``message`` names.
    """

    kind: FailureKind
    message: str
    rank: int | None = None
    host: str = ""
    operation: str = ""
    phase: str = ""
    file: str = ""
    errno: str = ""
    stack: str = ""
    lane: str = ""
