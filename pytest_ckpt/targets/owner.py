"""The owner of a run's area: the record that its controller wrote, and whether this controller is still running."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Any

from pytest_ckpt.support.processes import boot_id

OWNER = "OWNER.json"
"""The name of the owner's record in an area."""


def owner_of(run_id: str) -> dict[str, Any]:
    """Return the owner's record of a run's area, with this process as the controller of the run."""
    pid = os.getpid()
    return {"run": run_id, "host": socket.gethostname(), "pid": pid, "process_began": process_began(pid)}


def is_alive(owner: Mapping[str, Any]) -> bool:
    """Return whether the controller in an owner's record is running on this host.

    Raises KeyError or TypeError for an invalid record.
    """
    return bool(owner["host"] == socket.gethostname() and process_began(owner["pid"]) == owner["process_began"])


def host_elsewhere(owner: Mapping[str, Any]) -> str:
    """Return the host of the controller in an owner's record; empty if it is this host.

    `is_alive` cannot check a controller on another host. Raises KeyError or TypeError for an invalid record.
    """
    host = str(owner["host"])
    return "" if host == socket.gethostname() else host


def process_began(pid: int) -> str | None:
    """Return the start of a process as text: seconds since boot and the boot id. None if the process does not exist.

    The time of day is not used, because it changes when the clock is set.
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
