"""Whose a run's area is: what its controller writes there, and whether that controller still runs."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Any

from pytest_ckpt.support.processes import boot_id

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


def process_began(pid: int) -> str | None:
    """Return when a process of this host began, in seconds after which boot, or None when there is none.

    The time of day would not do: when somebody sets the clock, all times of day move that are counted from the boot.
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
