"""The line format of events, and the only event that checks send.

Each check runs in a new process. The process imports only this module, because an import of the events of ranks would
take longer than the check.
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
    """The event that a check sends before it makes the call ``call`` on the path ``path``."""

    call: str
    path: str


def plain_of(kind: str, event: Any) -> dict[str, Any]:
    """Return an event as a JSON object whose field ``event`` is ``kind``."""
    return {"event": kind, **to_plain(event)}


def line_of(kind: str, event: Any) -> str:
    """Return an event of the kind ``kind`` as a line with its line end."""
    return MARK + json.dumps(plain_of(kind, event), separators=(",", ":")) + "\n"


def line_of_call(call: str, path: str) -> str:
    """Return the line of the event `Call`."""
    return line_of(CALL, Call(call=call, path=path))
