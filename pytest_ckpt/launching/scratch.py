"""The directory of a launch for the launcher's sockets and segments, and the process that keeps it.

``python -m pytest_ckpt.launching.scratch CONTROLLER LAUNCHER DIRECTORY`` is that process, a child of the controller. It
removes the directory when controller and launcher are gone: a controller that is killed cannot do so itself.
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

# The number of the controller follows, for whoever looks there, and a dot: versions of this package that know no lock
# put a dash there, and neither they nor this one remove what the other keeps.
_BEGINS = "ckpt-"
_MEMORY = Path("/dev/shm")
_POLL_SECONDS = 0.05
# A launcher that has lost its controller is told to end; one that does not is killed.
_LAUNCHER_SECONDS = 3.0
# Ranks that are just being killed may still make a segment.
_REMOVE_SECONDS = 10.0


class ScratchDirectory:
    """A directory for the launcher's sockets and segments, made now; those that nobody lived to remove are removed.

    Whoever keeps it holds a lock on it, which ends with the last process that does: the number of a process in its name
    says nothing where processes have numbers of their own, as in containers that share this memory.
    """

    def __init__(self) -> None:
        # Memory-backed, so that segments never touch a disk; a short name, as sockets need one.
        home = _MEMORY if os.access(_MEMORY, os.W_OK) else Path(tempfile.gettempdir())
        for left in home.glob(f"{_BEGINS}*.*"):
            if left.stem.removeprefix(_BEGINS).isdigit():
                _remove_unless_kept(left)
        while True:
            self.path = tempfile.mkdtemp(prefix=f"{_BEGINS}{os.getpid()}.", dir=home)
            #: Open on the directory, and holds the lock.
            self.descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
            with contextlib.suppress(OSError):
                _lock(self.descriptor)
            # Before it was locked, somebody else may have found and removed it.
            if Path(self.path).exists():
                break
            os.close(self.descriptor)

    def remove(self) -> None:
        """Remove the directory, and keep it no more."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self.descriptor)


def _remove_unless_kept(directory: Path) -> None:
    """Remove a directory of this user's that no process holds a lock on; not one whose file system knows no locks."""
    with contextlib.suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            if os.fstat(descriptor).st_uid == os.geteuid():
                _lock(descriptor)
                shutil.rmtree(directory, ignore_errors=True)
        finally:
            os.close(descriptor)


def _lock(descriptor: int) -> None:
    """Lock a directory for as long as it is open. Raises OSError where somebody else does, or none can be had."""
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


class ScratchKeeper:
    """The process that keeps a directory, as the controller has it. ``remove`` when the launcher has ended."""

    def __init__(self, directory: ScratchDirectory, launcher: int) -> None:
        self._directory = directory
        words = [sys.executable, "-S", "-m", __name__, str(os.getpid()), str(launcher), directory.path]
        # A session of its own, without the mark of the run: Ctrl-C and what ends the run's processes leave it.
        self._process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env=os.environ | {"PYTHONPATH": str(PACKAGE_HOME)},
            start_new_session=True,
            # The lock is its own, too: it outlives the controller.
            pass_fds=(directory.descriptor,),
        )

    def remove(self) -> None:
        """Remove the directory, and end the process."""
        self._directory.remove()
        self._process.kill()
        self._process.wait()


def _began(process: int) -> str:
    """Return when a process began, which tells it from another one of its number; empty for one that has ended."""
    with contextlib.suppress(OSError):
        state, *more = Path("/proc", str(process), "stat").read_text().rpartition(")")[2].split()
        return more[18] if state != "Z" else ""
    return ""


def main() -> int:
    """Wait for the end of the controller, see to that of the launcher, and remove the directory."""
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
