"""The line format of events, and the only event of checks.

The module is separate so that the process of a check imports only this event. A run starts a process for each check,
and importing all events of ranks would take longer than the check itself.
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
    """Return an event of this kind as a JSON object."""
    return {"event": kind, **to_plain(event)}


def line_of(kind: str, event: Any) -> str:
    """Return an event of this kind as a line, including its line end."""
    return MARK + json.dumps(plain_of(kind, event), separators=(",", ":")) + "\n"


def line_of_call(call: str, path: str) -> str:
    """Return the line for a call that a check is about to make."""
    return line_of(CALL, Call(call=call, path=path))
