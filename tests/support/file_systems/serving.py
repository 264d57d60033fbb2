"""What all file systems here are mounted with: programs that must succeed, daemons that end with the test."""

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
"""An address of the loopback interface of this namespace: some servers refuse 127.0.0.1."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Mounted:
    """A file system that is mounted: at ``first``, and for a second client at ``second``.

    ``small`` is a volume of the same kind that may be filled. ``kill_server`` takes away what holds the data: a server
    dies with SIGKILL, or the client is unmounted from below its users.
    """

    first: Path
    second: Path | None = None
    small: Path | None = None
    kill_server: Callable[[], None] | None = None


def run(*words: str | Path, **how: str) -> str:
    """Run a program that must succeed, and return what it said; ``stdin`` is its input."""
    done = subprocess.run(
        [str(word) for word in words], input=how.get("stdin", ""), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise OSError(f"{' '.join(map(str, words))} failed: {done.stdout.strip()} {done.stderr.strip()}")
    return done.stdout.strip()


def gluster(*words: str) -> subprocess.CompletedProcess[str]:
    """Ask the daemon of GlusterFS something."""
    return subprocess.run(["gluster", "--mode=script", *words], capture_output=True, text=True, check=False)


def glusterd_answers() -> bool:
    """Whether the daemon of GlusterFS takes commands: it listens before."""
    return gluster("volume", "list").returncode == 0


def made(directory: Path) -> Path:
    """Make a directory that may be there, with those above it."""
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def until(condition: Callable[[], object], what: str, process: subprocess.Popen[bytes] | None, log: Path) -> None:
    """Wait for something that a daemon does; OSError with its words when it ends before, or does not do it."""
    end = time.monotonic() + _READY_SECONDS
    while not condition():
        ended = process is not None and process.poll() is not None
        if (ended and not condition()) or time.monotonic() > end:
            output = log.read_text(errors="replace")[-2000:] if log.exists() else ""
            raise OSError(f"not so: {what}{'; it has ended' if ended else ''}: {output}")
        time.sleep(_POLL_SECONDS)


@contextlib.contextmanager
def daemon(log: Path, *words: str | Path, ready: Callable[[], object]) -> Iterator[subprocess.Popen[bytes]]:
    """Keep a program running that does not put itself into the background; SIGKILL ends it."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            [str(word) for word in words],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        until(ready, f"{words[0]} is ready", process, log)
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.wait()


@contextlib.contextmanager
def client(point: Path, *words: str | Path) -> Iterator[subprocess.Popen[bytes]]:
    """Keep a FUSE client mounted that stays in the foreground."""
    made(point)
    with daemon(point.with_name(f"{point.name}.log"), *words, ready=lambda: is_mounted(point)) as process:
        try:
            yield process
        finally:
            unmount(point)


def is_mounted(point: Path) -> bool:
    """Whether something is mounted there, without touching it."""
    return any(line.split(" ")[4] == str(point) for line in Path("/proc/self/mountinfo").read_text().splitlines())


def unmount(point: Path) -> None:
    """Unmount, whoever still uses it; where nothing is mounted, do nothing."""
    subprocess.run(["umount", "--lazy", str(point)], capture_output=True, check=False)


@contextlib.contextmanager
def mounted(point: Path, *words: str | Path) -> Iterator[Path]:
    """Mount a file system of the kernel with these words of mount(8); unmount it behind."""
    run("mount", *words, made(point))
    try:
        yield point
    finally:
        unmount(point)


def image(path: Path, mebibytes: int) -> Path:
    """Make a sparse file to hold a volume."""
    with path.open("wb") as file:
        file.truncate(mebibytes << 20)
    return path


@contextlib.contextmanager
def loop_device(file: Path) -> Iterator[str]:
    """Make a device of an image; once it is used, ``forget`` has the kernel free it with its last user."""
    device = run("losetup", "--find", "--show", file)
    try:
        yield device
    finally:
        with contextlib.suppress(OSError):
            forget(device)


def forget(device: str) -> None:
    """Have the kernel free a loop device as soon as nobody uses it any more, whatever becomes of this process."""
    run("losetup", "--detach", device)


def listening(port: int) -> bool:
    """Whether something listens at a port of this namespace."""
    wanted = f":{port:04X} "
    tables = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
    lines = [line for table in tables if table.exists() for line in table.read_text().splitlines()]
    return any(wanted in line and line.split()[3] == "0A" for line in lines)


def missing(programs: tuple[str, ...]) -> list[str]:
    """Return which programs are not installed."""
    path = os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/sbin"
    return [program for program in programs if not shutil.which(program, path=path)]
