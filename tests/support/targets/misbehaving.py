"""A target for tests that is healthy until faults are enabled: a FUSE file system in a separate process.

    with misbehaving(tmp_path, second=True) as target:
        target.fault("rename of a file is not atomic")
        …
        target.clear()

The process is ``misbehaving_process``. Needs root and /dev/fuse.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support import CHECKOUT
from tests.support.machine import Mounts, need_fuse, patience
from tests.support.targets.fuse_channel import unmount
from tests.support.targets.fuse_faults import FAULTS, Fault
from tests.support.targets.misbehaving_process import PRINT_STACKS

__all__ = ["FAULTS", "Fault", "Target", "misbehaving"]

# Works from any directory and in any environment.
_COMMAND = ["env", f"PYTHONPATH={CHECKOUT}", sys.executable, "-m", "tests.support.targets.misbehaving_process"]
_LIGHT = """
import socket, sys
channel = socket.socket(socket.AF_UNIX)
channel.connect(chr(0) + sys.argv[1])
channel.sendall(sys.argv[2].encode() + bytes([10]))
answer = channel.makefile().readline()
sys.exit(answer if "error" in answer else 0)
"""
_UNTIL_HIT = """
import json, socket, sys, time
while True:
    with socket.socket(socket.AF_UNIX) as channel:
        channel.connect(chr(0) + sys.argv[1])
        channel.sendall(sys.argv[2].encode() + bytes([10]))
        if json.loads(channel.makefile().readline())["value"]:
            break
    time.sleep(0.02)
"""
_END_SECONDS = 30


@dataclass(slots=True)
class Target:
    """A mounted target. Its methods return when their effect is complete."""

    path: Path
    second: Path | None
    backing: Path
    name: str
    pid: int
    is_killed: bool = False

    @property
    def power_cut_command(self) -> list[str]:
        """A command line that cuts the power of this target, for use by another process."""
        return self._light("power_cut")

    @property
    def drop_command(self) -> list[str]:
        """A command line that drops the caches of clients, for use by another process."""
        return self._light("drop_caches")

    def fault_command(self, name: str, **parameters: Any) -> list[str]:
        """Return a command line that enables a fault, for use by another process."""
        return self._light("fault", name=name, parameters=parameters)

    def until_hit_command(self, name: str) -> list[str]:
        """Return a command line that waits until a fault has had an effect."""
        asked = json.dumps({"what": "hits", "name": name})
        return [sys.executable, "-I", "-S", "-c", _UNTIL_HIT, self.name, asked]

    @property
    def clear_command(self) -> list[str]:
        """A command line that disables all faults, for use by another process."""
        return self._light("clear")

    def _light(self, what: str, /, **arguments: Any) -> list[str]:
        """Return a command line that sends a request to the target.

        The command imports no module of the project, so that it runs quickly.
        """
        asked = json.dumps({"what": what, **arguments})
        return [sys.executable, "-I", "-S", "-c", _LIGHT, self.name, asked]

    def fault(self, name: str, **parameters: Any) -> None:
        """Enable a fault. Other enabled faults stay enabled."""
        self._ask("fault", name=name, parameters=parameters)

    def clear(self) -> None:
        """Disable all faults. Blocked calls continue."""
        self._ask("clear")

    def release(self) -> None:
        """Let blocked calls continue. The fault stays enabled for later calls."""
        self._ask("release")

    def power_cut(self) -> None:
        """Cut the power: discard data that are not durable. Open files on the mounts become unusable."""
        self._ask("power_cut")

    def print_stacks(self) -> None:
        """Make the serving process print the stacks of its threads, even if it does not answer requests."""
        os.kill(self.pid, PRINT_STACKS)

    def empty(self) -> None:
        """Remove all files, and fsync the removal, so that a power cut does not restore them."""
        for path in self.path.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        os.fsync(fd)
        os.close(fd)

    def hits(self, name: str) -> int:
        """Return how often a fault has had an effect since it was last enabled. The fault may be disabled now."""
        return int(self._ask("hits", name=name))

    def record(self) -> None:
        """Start to record the requested operations."""
        self._ask("record")

    def operations(self) -> dict[str, set[str]]:
        """Return {top-level directory: requested operations} since `record`."""
        return {directory: set(names) for directory, names in self._ask("operations").items()}

    def failures(self) -> list[str]:
        """Return the tracebacks of internal errors of the serving process. Simulated faults are not included."""
        return list(self._ask("failures"))

    def kill(self) -> None:
        """Kill the serving process. Every call on the mount then fails with ENOTCONN."""
        self.is_killed = True
        os.kill(self.pid, signal.SIGKILL)

    def _ask(self, what: str, /, **arguments: Any) -> Any:
        return _ask(self.name, what, **arguments)


@contextlib.contextmanager
def with_small_volume(create_home: Callable[[str], Path]) -> Iterator[tuple[Target, Target]]:
    """Mount a target with two clients, and also a small target; yield (target, small target)."""
    need_fuse()
    mounts = Mounts(create_home)
    try:
        with (
            misbehaving(create_home("two-clients"), second=True) as target,
            misbehaving(create_home("small"), backing=mounts("tmpfs", 96)) as small,
        ):
            yield target, small
    finally:
        mounts.unmount_all()


@contextlib.contextmanager
def misbehaving(
    directory: Path,
    *,
    second: bool = False,
    backing: Path | None = None,
    direct_io: bool = False,
    keep_cache: bool = False,
    cache_seconds: float = 0,
    compact: bool = False,
) -> Iterator[Target]:
    """Mount a target at ``directory/mount`` and yield the target.

    If ``second`` is true, the target is also mounted at ``directory/second``. At the end of the block the target is
    always unmounted.

    - ``backing``: the directory that stores the files (default: ``directory/backing``)
    - ``direct_io``: bypass the kernel's page cache
    - ``keep_cache``: keep cached pages when a file is opened
    - ``cache_seconds``: time for which the kernel caches names and attributes
    - ``compact``: store checkpoints in little memory; power cuts are then not supported
    """
    points = [directory / "mount", *([directory / "second"] if second else [])]
    store = backing or directory / "backing"
    for path in (*points, store):
        path.mkdir(exist_ok=True)
    settings = ["--cache-seconds", str(cache_seconds), *(["--direct-io"] if direct_io else [])]
    settings += ["--keep-cache"] if keep_cache else []
    settings += ["--compact"] if compact else []
    words = [*_COMMAND, *settings, str(store), *map(str, points)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        try:
            output = process.stdout.readline()
            if not output:
                raise OSError(f"no FUSE file system could be mounted at {points[0]}: see its standard error")
            target = Target(points[0], points[1] if second else None, store / "files", json.loads(output), process.pid)
            yield target
            if not target.is_killed and (failures := target.failures()):
                raise AssertionError("the target itself has failed:\n" + "\n".join(failures))
        except BaseException:
            process.send_signal(PRINT_STACKS)
            raise
        finally:
            process.stdin.close()  # the process then unmounts and ends
            try:
                process.wait(patience(_END_SECONDS))
            finally:
                # Unmount first: calls that the server no longer answers then get an error, including its own calls.
                for point in points:
                    unmount(point)
                process.kill()


def _ask(name: str, what: str, /, **arguments: Any) -> Any:
    with socket.socket(socket.AF_UNIX) as channel:
        channel.connect(f"\0{name}")
        channel.sendall(json.dumps({"what": what, **arguments}).encode() + b"\n")
        with channel.makefile() as answers:
            answer = json.loads(answers.readline())
    if "error" in answer:
        raise ValueError(answer["error"])
    return answer["value"]
