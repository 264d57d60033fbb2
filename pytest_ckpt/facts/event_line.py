"""The line that carries an event, and the one event of the checks: their processes import no other.

A run starts a process for each check, and the kinds of events of ranks would cost it more than the check itself.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pytest_ckpt.facts.codec import to_plain

MARK = "@ckpt "
CALL = "call"


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """A check is about to make this call on this path."""

    call: str
    path: str


def plain_of(kind: str, event: Any) -> dict[str, Any]:
    """Return an event of this kind as the JSON object of a line."""
    return {"event": kind, **to_plain(event)}


def line_of(kind: str, event: Any) -> str:
    """Return an event of this kind as the line, with its end, that a process writes."""
    return MARK + json.dumps(plain_of(kind, event), separators=(",", ":")) + "\n"


def line_of_call(call: str, path: str) -> str:
    """Return the line of a call that a check is about to make."""
    return line_of(CALL, Call(call=call, path=path))
