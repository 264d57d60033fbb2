"""Whose a run's area is: what its controller writes there, and whether that controller still runs."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Any

OWNER = "OWNER.json"
"""The name under which an area says whose it is."""


def owner_of(run_id: str) -> dict[str, Any]:
    """Return what says that an area is of a run, and that this process is its controller."""
    pid = os.getpid()
    return {"run": run_id, "host": socket.gethostname(), "pid": pid, "process_began": process_began(pid)}


def is_alive(owner: Mapping[str, Any]) -> bool:
    """Whether the controller that an area names still runs on this host. Raises KeyError and TypeError for no owner."""
    return bool(owner["host"] == socket.gethostname() and process_began(owner["pid"]) == owner["process_began"])


def host_elsewhere(owner: Mapping[str, Any]) -> str:
    """Return the host of the controller that an area names where it is another one: `is_alive` says nothing of it.

    Empty for this host. Raises KeyError and TypeError for no owner.
    """
    host = str(owner["host"])
    return "" if host == socket.gethostname() else host


def process_began(pid: int) -> float | None:
    """Return when a process of this host began, in seconds since the epoch, or None when there is none."""
    import psutil  # noqa: PLC0415 - the process that only removes does not need it

    try:
        return float(psutil.Process(pid).create_time())
    except psutil.Error:
        return None
