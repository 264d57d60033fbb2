"""The owner of a run's area: a record written by its controller, and whether that controller is still running."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Any

from pytest_ckpt.support.processes import boot_id

OWNER = "OWNER.json"
"""The name of the owner's record in an area."""


def owner_of(run_id: str) -> dict[str, Any]:
    """Return the owner's record of an area: its run, and this process as the run's controller."""
    pid = os.getpid()
    return {"run": run_id, "host": socket.gethostname(), "pid": pid, "process_began": process_began(pid)}


def is_alive(owner: Mapping[str, Any]) -> bool:
    """Return whether the controller in an area's record is still running on this host.

    Raises KeyError and TypeError for an invalid record.
    """
    return bool(owner["host"] == socket.gethostname() and process_began(owner["pid"]) == owner["process_began"])


def host_elsewhere(owner: Mapping[str, Any]) -> str:
    """Return the host of an area's controller if it is another host, where `is_alive` cannot check it.

    Empty for this host. Raises KeyError and TypeError for an invalid record.
    """
    host = str(owner["host"])
    return "" if host == socket.gethostname() else host


def process_began(pid: int) -> str | None:
    """Return the start of a process on this host, as boot id and seconds since boot; None if the process does not
    exist.

    The time of day is not used, because a change of the clock would shift the start times of all processes.
    """
    import psutil  # noqa: PLC0415 - the process that only removes does not need it

    try:
        while True:
            booted = psutil.boot_time()
            began = psutil.Process(pid).create_time()
            if psutil.boot_time() == booted:
                return f"{began - booted:.2f} s after boot {_boot_id()}"
    except psutil.Error:
        return None


def _boot_id() -> str:
    try:
        return boot_id()
    except OSError:
        return "unknown"
