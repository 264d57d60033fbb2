"""Requests that all checks can send to the second client: functions that run in its agent.

A failed call raises OSError. ``open_file`` returns a descriptor that remains open in the agent. Later requests use this
descriptor. The ``path`` of these requests is only used in error messages.
"""

from __future__ import annotations

import base64
import errno
import fcntl
import os
import signal
import time
from typing import TYPE_CHECKING, Any

from pytest_ckpt.conformance import content

if TYPE_CHECKING:
    from collections.abc import Callable

READY = "ready"
"""The first message that an agent sends."""


def encoded(data: bytes) -> str:
    """Encode bytes as text for a message."""
    return base64.b64encode(data).decode()


def decoded(text: str) -> bytes:
    """Return the bytes of a text from `encoded`."""
    return base64.b64decode(text)


def stat(path: str) -> dict[str, int]:
    """Return the attributes of a file. A link is not followed."""
    seen = os.lstat(path)
    return {
        "size": seen.st_size,
        "mtime_ns": seen.st_mtime_ns,
        "mode": seen.st_mode,
        "links": seen.st_nlink,
        "inode": seen.st_ino,
    }


def exists(path: str) -> bool:
    """Return whether a name exists. Raises OSError for all errors except ENOENT."""
    try:
        os.lstat(path)
    except FileNotFoundError:
        return False
    return True


def names(path: str) -> list[str]:
    """Return the names in a directory, in the order of the file system."""
    return os.listdir(path)  # noqa: PTH208 - doubled names must stay doubled, and in their order


def read(path: str) -> str:
    """Open a file, read it to its end and close it. Return its bytes, encoded."""
    return encoded(content.read_file(path))


def write(path: str, *, data: str, exclusive: bool = False, append: bool = False, sync: bool = False) -> None:
    """Open a file, write, fsync if requested, and close it. Without ``append``, an existing file is truncated."""
    flags = os.O_WRONLY | os.O_CREAT | (os.O_APPEND if append else os.O_TRUNC) | (os.O_EXCL if exclusive else 0)
    with content.opened(path, flags) as descriptor:
        _write(descriptor, decoded(data), None)
        if sync:
            os.fsync(descriptor)


def make_directory(path: str) -> None:
    """Create a directory."""
    os.mkdir(path)  # noqa: PTH102


def remove(path: str) -> None:
    """Remove a name."""
    os.unlink(path)  # noqa: PTH108


def rename(path: str, *, to: str) -> None:
    """Rename a file or directory. An existing file with the name ``to`` is replaced."""
    os.replace(path, to)  # noqa: PTH105


def open_file(path: str, *, flags: int = os.O_RDONLY) -> int:
    """Open a file and return its descriptor."""
    return os.open(path, flags, 0o644)


def read_at(path: str, *, descriptor: int, length: int, offset: int) -> str:
    """Return ``length`` bytes of an open file, encoded; fewer only at the end of the file."""
    return encoded(content.read_at(descriptor, offset, length))


def write_at(path: str, *, descriptor: int, data: str, offset: int) -> None:
    """Write bytes into an open file."""
    _write(descriptor, decoded(data), offset)


def close_file(path: str, *, descriptor: int) -> None:
    """Close an open file."""
    os.close(descriptor)


def lock(path: str, *, descriptor: int, shared: bool = False) -> bool:
    """Try to get the flock lock of an open file without waiting. Return whether the lock was obtained."""
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def unlock(path: str, *, descriptor: int) -> None:
    """Release the flock lock of an open file."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)


def hold_lock(path: str) -> dict[str, Any]:
    """Start a child process that keeps the exclusive flock lock of a file.

    Return {process: id of the child, held: whether the child got the lock}. The child can be killed while this agent
    continues. The child ends when the agent ends.
    """
    answers, answer = os.pipe()
    until_agent_ends, _ = alive = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(alive[1])
            os.write(answer, b"held" if lock(path, descriptor=os.open(path, os.O_RDWR)) else b"busy")
            os.read(until_agent_ends, 1)
        except OSError as error:
            os.write(answer, str(error.errno).encode())
        finally:
            os._exit(0)
    os.close(answer)
    os.close(until_agent_ends)
    output = os.read(answers, 8)
    os.close(answers)
    if output not in {b"held", b"busy"}:
        os.waitpid(child, 0)
        code = int(output or errno.ECHILD)
        raise OSError(code, os.strerror(code), path)
    return {"process": child, "held": output == b"held"}


def kill(path: str, *, process: int) -> None:
    """Kill a child of this agent and wait until it has ended."""
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)


def wait_until(path: str, *, query: str, wanted: Any, seconds: float, stopped: Callable[[], bool]) -> dict[str, Any]:
    """Query a path repeatedly until the query returns ``wanted``.

    ``query``, a key of ``QUERIES``, selects what is read. If a query fails, its result is the name of the error. The
    queries end after ``seconds``, or when ``stopped`` returns true. Return {agreed: whether ``wanted`` was returned,
    looks: the number of queries, last: the last result}.

    The pause between two queries is 0.5 % of the elapsed time, at least 0.5 ms and at most 20 ms. The pause determines
    the precision of the measured time, and it limits the load on the target.
    """
    began = time.monotonic()
    until = began + seconds
    looks = 0
    while True:
        looks += 1
        try:
            seen = QUERIES[query](path)
        except OSError as error:
            seen = errno.errorcode.get(error.errno or 0, str(error.errno))
        if seen == wanted or time.monotonic() > until or stopped():
            return {"agreed": seen == wanted, "looks": looks, "last": seen}
        time.sleep(min(max((time.monotonic() - began) / 200, 0.0005), 0.02))


QUERIES: dict[str, Callable[[str], Any]] = {
    "exists": exists,
    "size": lambda path: os.lstat(path).st_size,
    "mtime": lambda path: os.lstat(path).st_mtime_ns // 10**9,
    "names": lambda path: sorted(names(path)),
    "data": read,
}


def _write(descriptor: int, data: bytes, offset: int | None) -> None:
    left = memoryview(data)
    while left:
        done = os.write(descriptor, left) if offset is None else os.pwrite(descriptor, left, offset)
        left = left[done:]
        offset = None if offset is None else offset + done
