"""The owner's record in a run's area (directory or prefix). It identifies the process of the run's controller.

With the record, other runs find out whether this controller is still running.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Any

from pytest_ckpt.support.processes import boot_id

OWNER = "OWNER.json"
"""The name of the owner's record in an area."""


def owner_of(run_id: str) -> dict[str, Any]:
    """Return an owner's record for a run's area; it names the current process as the run's controller."""
    pid = os.getpid()
    return {"run": run_id, "host": socket.gethostname(), "pid": pid, "process_began": process_began(pid)}


def is_alive(owner: Mapping[str, Any]) -> bool:
    """Return whether the controller in an owner's record is running on this host.

    An invalid record raises KeyError or TypeError.
    """
    return bool(owner["host"] == socket.gethostname() and process_began(owner["pid"]) == owner["process_began"])


def host_elsewhere(owner: Mapping[str, Any]) -> str:
    """Return the host of the controller in an owner's record; return an empty text if it is this host.

    `is_alive` cannot check a controller on another host. An invalid record raises KeyError or TypeError.
    """
    host = str(owner["host"])
    return "" if host == socket.gethostname() else host


def process_began(pid: int) -> str | None:
    """Return the start of a process as text: seconds since boot, and the boot id.

    The result is None if the process does not exist. The text contains no time of day, because setting the clock would
    change it.
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
