"""A temporary directory for the launcher's sockets and shared-memory segments, and its removal.

A separate process removes the directory after the controller and the launcher have ended, even if the controller was
killed. The process is a child of the controller: ``python -m pytest_ckpt.launching.scratch CONTROLLER LAUNCHER
DIRECTORY``.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pytest_ckpt.support.die_with_parent import die_with_parent
from pytest_ckpt.support.resources import PACKAGE_HOME

# The process id of the controller and a dot follow. Older versions of this package, which do not lock directories, use
# a dash instead of the dot. So neither removes directories of the other.
_BEGINS = "ckpt-"
_MEMORY = Path("/dev/shm")
_POLL_SECONDS = 0.05
# A launcher without a controller receives a signal to end, and is killed if it does not.
_LAUNCHER_SECONDS = 3.0
# Ranks that are being killed may still create a segment.
_REMOVE_SECONDS = 10.0


class ScratchDirectory:
    """A new directory for the launcher's sockets and segments. Abandoned directories of earlier runs are removed.

    A directory is abandoned if no process has a lock on it. The process id in the directory's name cannot show whether
    the process still runs: containers that share /dev/shm may number their processes separately.
    """

    def __init__(self) -> None:
        # In memory, so that segments never use a disk; the name is short because socket paths are limited.
        home = _MEMORY if os.access(_MEMORY, os.W_OK) else Path(tempfile.gettempdir())
        for left in home.glob(f"{_BEGINS}*.*"):
            if left.stem.removeprefix(_BEGINS).isdigit():
                _remove_unless_locked(left)
        while True:
            self.path = tempfile.mkdtemp(prefix=f"{_BEGINS}{os.getpid()}.", dir=home)
            # Until it is locked, another process may regard it as abandoned and remove it. In that case, create another
            # one.
            with contextlib.suppress(FileNotFoundError):
                # The open descriptor of the directory, which keeps the lock.
                self.descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
                with contextlib.suppress(OSError):
                    fcntl.flock(self.descriptor, fcntl.LOCK_EX)
                if Path(self.path).exists():
                    break
                os.close(self.descriptor)

    def remove(self) -> None:
        """Remove the directory, and release the lock on it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self.descriptor)


def _remove_unless_locked(directory: Path) -> None:
    """Remove a directory of this user if no process has locked it and its file system supports locks."""
    with contextlib.suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            if os.fstat(descriptor).st_uid == os.geteuid():
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(directory, ignore_errors=True)
        finally:
            os.close(descriptor)


class ScratchKeeper:
    """Starts the process that removes ``directory`` after the controller has ended."""

    def __init__(self, directory: ScratchDirectory, launcher: int) -> None:
        self._directory = directory
        words = [sys.executable, "-S", "-m", __name__, str(os.getpid()), str(launcher), directory.path]
        # A new session without the mark of the run, so that Ctrl-C and the end of the run's processes do not reach it.
        self._process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env=os.environ | {"PYTHONPATH": str(PACKAGE_HOME)},
            start_new_session=True,
            # The process has its own lock, which outlives the controller.
            pass_fds=(directory.descriptor,),
        )

    def remove(self) -> None:
        """Remove the directory and end the process. This method must be called after the launcher has ended."""
        self._directory.remove()
        self._process.kill()
        self._process.wait()


def _began(process: int) -> str:
    """Return the start time of a process; empty if the process has ended.

    The start time distinguishes the process from a later process with the same id.
    """
    with contextlib.suppress(OSError):
        state, *more = Path("/proc", str(process), "stat").read_text().rpartition(")")[2].split()
        return more[18] if state != "Z" else ""
    return ""


def main() -> int:
    """Wait until the controller has ended; then end the launcher and remove the directory.

    A launcher that does not end within 3 s is killed.
    """
    controller, launcher, directory = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    die_with_parent(signal.SIGTERM)
    began = _began(launcher)
    while os.getppid() == controller:
        signal.sigwait({signal.SIGTERM})
    end = time.monotonic() + _LAUNCHER_SECONDS
    while began and _began(launcher) == began:
        if time.monotonic() > end:
            with contextlib.suppress(ProcessLookupError):
                os.kill(launcher, signal.SIGKILL)
        time.sleep(_POLL_SECONDS)
    end = time.monotonic() + _REMOVE_SECONDS
    while Path(directory).exists() and time.monotonic() < end:
        shutil.rmtree(directory, ignore_errors=True)
        time.sleep(_POLL_SECONDS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
