"""Functions that mount file systems for tests, and start and stop their daemons."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

_READY_SECONDS = 120.0
_POLL_SECONDS = 0.05
ADDRESS = "10.99.0.1"
"""A loopback address of this namespace, because some servers refuse 127.0.0.1."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Mounted:
    """A file system that is mounted at ``first``, and for a second client at ``second``.

    ``small`` is a small volume of the same kind, which checks may fill. ``kill_server`` is a function that makes the
    data inaccessible. It kills a server, or unmounts the client while it is in use.
    """

    first: Path
    second: Path | None = None
    small: Path | None = None
    kill_server: Callable[[], None] | None = None


def run(*words: str | Path, **how: str) -> str:
    """Run a program with the text ``stdin`` as its input; return its output. Raises OSError if the program fails."""
    done = subprocess.run(
        [str(word) for word in words], input=how.get("stdin", ""), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise OSError(f"{' '.join(map(str, words))} failed: {done.stdout.strip()} {done.stderr.strip()}")
    return done.stdout.strip()


def gluster(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["gluster", "--mode=script", *words], capture_output=True, text=True, check=False)


def glusterd_answers() -> bool:
    """Return true if the daemon of GlusterFS accepts commands.

    The daemon may refuse commands although its port is open.
    """
    return gluster("volume", "list").returncode == 0


def create_directory(directory: Path) -> Path:
    """Create a directory and its parents, unless they exist; return the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def wait_for(condition: Callable[[], object], what: str, process: subprocess.Popen[bytes] | None, log: Path) -> None:
    """Wait until ``condition``, which depends on a daemon, is true. ``what`` describes the condition.

    If the daemon ``process`` ends first, or after a timeout, raises OSError with the end of the daemon's log.
    """
    end = time.monotonic() + _READY_SECONDS
    while not condition():
        ended = process is not None and process.poll() is not None
        if (ended and not condition()) or time.monotonic() > end:
            output = log.read_text(errors="replace")[-2000:] if log.exists() else ""
            raise OSError(f"not so: {what}{'; it has ended' if ended else ''}: {output}")
        time.sleep(_POLL_SECONDS)


@contextlib.contextmanager
def daemon(log: Path, *words: str | Path, ready: Callable[[], object]) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program and yield its process when ``ready`` is true; kill the program when the block ends.

    The program must stay in the foreground.
    """
    with log.open("ab") as output:
        process = subprocess.Popen(
            [str(word) for word in words],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        wait_for(ready, f"{words[0]} is ready", process, log)
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.wait()


@contextlib.contextmanager
def client(point: Path, *words: str | Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start a FUSE client and yield its process when ``point`` is mounted; end the client when the block ends.

    The client must stay in the foreground.
    """
    create_directory(point)
    with daemon(point.with_name(f"{point.name}.log"), *words, ready=lambda: is_mounted(point)) as process:
        try:
            yield process
        finally:
            unmount(point)


def is_mounted(point: Path) -> bool:
    """Return true if a path is a mount point. The function reads the mount table and does not access the path."""
    return any(line.split(" ")[4] == str(point) for line in Path("/proc/self/mountinfo").read_text().splitlines())


def unmount(point: Path) -> None:
    """Unmount a path if it is mounted, even if it is in use."""
    subprocess.run(["umount", "--lazy", str(point)], capture_output=True, check=False)


@contextlib.contextmanager
def mounted(point: Path, *words: str | Path) -> Iterator[Path]:
    """Mount a kernel file system and yield the mount point; unmount when the block ends.

    ``words`` are arguments of mount(8).
    """
    run("mount", *words, create_directory(point))
    try:
        yield point
    finally:
        unmount(point)


def image(path: Path, mebibytes: int) -> Path:
    """Create a sparse file of ``mebibytes`` MiB for a volume; return the file."""
    with path.open("wb") as file:
        file.truncate(mebibytes << 20)
    return path


@contextlib.contextmanager
def loop_device(file: Path) -> Iterator[str]:
    """Create a loop device for an image and yield the path of the device.

    Call `forget` when the device is mounted. The kernel then frees the device when the file system is unmounted.
    """
    device = run("losetup", "--find", "--show", file)
    try:
        yield device
    finally:
        with contextlib.suppress(OSError):
            forget(device)


def forget(device: str) -> None:
    """Let the kernel free a loop device when it is no longer in use, even if this process is killed."""
    run("losetup", "--detach", device)


def listening(port: int) -> bool:
    """Return true if a process listens on a port of this network namespace."""
    wanted = f":{port:04X} "
    tables = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
    lines = [line for table in tables if table.exists() for line in table.read_text().splitlines()]
    return any(wanted in line and line.split()[3] == "0A" for line in lines)


def missing(programs: tuple[str, ...]) -> list[str]:
    path = os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/sbin"
    return [program for program in programs if not shutil.which(program, path=path)]
