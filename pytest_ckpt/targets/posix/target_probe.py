"""Touching a target from a process of its own, so that one that does not answer holds nobody else.

A call into storage that hangs cannot be interrupted, and a process that is in one cannot be killed until the storage
answers. So whoever wants to know something of a target asks a child, waits for a time, and goes on without it.
"""

from __future__ import annotations

import json
import mmap
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.support.resources import PACKAGE_HOME
from pytest_ckpt.targets.posix.mounts import mount_of
from pytest_ckpt.targets.posix.run_folder import check_target

# Of `O_DIRECT`; that of the residency gauge is its own.
_FILE = "pytest-ckpt-doctor-"


class NoAnswerError(Exception):
    """The target did not answer in time; ``pid`` is the process that waits for it, in a call that cannot be ended."""

    def __init__(self, pid: int, seconds: float) -> None:
        super().__init__(f"the target did not answer for {seconds:g} s; process {pid} waits for it and cannot be ended")
        self.pid = pid


def ask(step: str, folder: Path, seconds: float) -> dict[str, Any]:
    """Return what a child found out about a folder: ``look``, ``residency`` or ``direct``.

    A table with ``error`` says what the folder refused, with ``remedy`` where there is one. Raises NoAnswerError.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest_ckpt.targets.posix.target_probe", step],
        cwd=PACKAGE_HOME,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        said, complaint = process.communicate(os.fsencode(folder), timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        # Whenever the storage lets go of it, it must not stay as a zombie.
        threading.Thread(target=process.communicate, daemon=True).start()
        raise NoAnswerError(process.pid, seconds) from None
    if process.returncode:
        last = (complaint.decode(errors="replace").strip().splitlines() or [f"exit code {process.returncode}"])[-1]
        return {"error": f"it could not be tried: {last}", "remedy": ""}
    found: dict[str, Any] = json.loads(said)
    return found


def look(folder: Path) -> dict[str, Any]:
    """Return on which mount a target is, and its free bytes."""
    check_target(folder)
    mount = mount_of(folder.resolve())
    seen = os.statvfs(folder)
    return {
        "file_system": mount.file_system,
        "mount_point": mount.mount_point,
        "is_local": mount.is_local,
        "free_bytes": seen.f_bavail * seen.f_frsize,
    }


def residency(folder: Path) -> dict[str, Any]:
    """Return the call that counts cached pages there, None where none does."""
    from pytest_ckpt.targets.posix.residency import find_gauge  # noqa: PLC0415 - numpy only when it is needed

    return {"gauge": find_gauge(folder)}


def direct(folder: Path) -> dict[str, Any]:
    """Write a page past the page cache."""
    file = folder / f"{_FILE}{os.getpid()}"
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_DIRECT, 0o600)
        try:
            with mmap.mmap(-1, mmap.PAGESIZE) as page:
                page.write(b"\xa5" * mmap.PAGESIZE)
                os.pwrite(descriptor, page, 0)
        finally:
            os.close(descriptor)
    finally:
        file.unlink(missing_ok=True)
    return {}


_STEPS: dict[str, Callable[[Path], dict[str, Any]]] = {"look": look, "residency": residency, "direct": direct}


def main() -> None:
    """Do one step in the folder that standard input names; print what was found as JSON."""
    folder = Path(os.fsdecode(sys.stdin.buffer.read()))
    try:
        found = _STEPS[sys.argv[1]](folder)
    except UsageError as error:
        found = {"error": error.what, "remedy": error.remedy}
    except OSError as error:
        found = {"error": f"{folder}: {error.strerror}", "remedy": ""}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
