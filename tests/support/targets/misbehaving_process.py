"""The process of a faulty target. It serves its mounts until its standard input ends.

Usage: ``python -m tests.support.targets.misbehaving_process DIRECTORY MOUNTPOINT [SECOND]``. Needs root and /dev/fuse.
"""

from __future__ import annotations

import argparse
import ctypes
import faulthandler
import json
import os
import resource
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.targets import (
    fuse_faults_data,
    fuse_faults_durable,
    fuse_faults_errors,
    fuse_faults_names,
    fuse_faults_time,
)
from tests.support.targets.fuse_channel import unmount
from tests.support.targets.fuse_faults import FAULTS, Faulty
from tests.support.targets.fuse_messages import OPEN_DIRECT_IO, OPEN_KEEP_CACHE
from tests.support.targets.fuse_passthrough import Passthrough
from tests.support.targets.fuse_protocol import Session

# The modules whose import adds faults to the table.
SUBJECTS = (fuse_faults_data, fuse_faults_names, fuse_faults_durable, fuse_faults_errors, fuse_faults_time)
_PR_SET_PDEATHSIG = 1
_PR_SET_IO_FLUSHER = 57
_HIGHEST_PRIORITY = -20
# The signal on which the process prints the stacks of its threads.
PRINT_STACKS = signal.SIGUSR2


class _Server:
    """The mounts of one backing directory, and the commands that enable and disable faults of these mounts."""

    def __init__(
        self, files: type[Passthrough], directory: Path, points: list[Path], open_flags: int, cache_seconds: float
    ) -> None:
        self._files, self._directory, self._points = files, directory, points
        self._open_flags, self._cache_seconds = open_flags, cache_seconds
        self._failures: list[str] = []
        self._lock = threading.Lock()
        self._mount(Faulty(files(directory)))

    def _mount(self, faulty: Faulty) -> None:
        self._faulty = faulty
        self._sessions: list[Session] = []
        for client, point in enumerate(self._points):
            session = Session(faulty.run, faulty.fs.nodes, point, client, self._open_flags, self._cache_seconds)
            session.peers = self._sessions
            self._sessions.append(session)

    def _unmount(self) -> None:
        for session in self._sessions:
            session.unmount()
        self._faulty.switch_off()  # blocked and delayed calls continue
        for session in self._sessions:
            session.end()
            self._failures += session.failures

    def fault(self, name: str, parameters: dict[str, Any]) -> None:
        if name not in FAULTS:
            raise ValueError(f"there is no fault {name!r}")
        self._faulty.switch_on(name, parameters, self._sessions)
        self._invalidate()

    def clear(self) -> None:
        self._faulty.switch_off()
        self._invalidate()

    def record(self) -> None:
        self._faulty.operations = {}

    def operations(self) -> dict[str, list[str]]:
        return {directory: sorted(names) for directory, names in list((self._faulty.operations or {}).items())}

    def release(self) -> None:
        for fault in self._faulty.active:
            fault.release()

    def drop_caches(self) -> None:
        for fault in self._faulty.active:
            fault.drop_caches()

    def hits(self, name: str) -> int:
        now = sum(fault.hits for fault in self._faulty.active if fault.name == name)
        return now + self._faulty.hits.get(name, 0)

    def failures(self) -> list[str]:
        return self._failures + [one for session in self._sessions for one in session.failures]

    def power_cut(self) -> None:
        if any(fault.ignores_power_cut for fault in self._faulty.active):
            return
        active = self._faulty.active
        self._unmount()
        self._faulty.fs.cut()
        hits, operations = self._faulty.hits, self._faulty.operations
        self._mount(Faulty(self._files(self._directory)))
        self._faulty.hits, self._faulty.operations = hits, operations
        for fault in active:
            self.fault(fault.name, fault.parameters)
            self._faulty.active[-1].hits = fault.hits

    def _invalidate(self) -> None:
        for session in self._sessions:
            session.invalidate()

    def end(self) -> None:
        self._unmount()
        self._faulty.fs.close()

    def listen(self, listener: socket.socket) -> None:
        """Answer commands from the socket, one after another."""
        while True:
            channel, _ = listener.accept()
            with channel, channel.makefile() as lines:
                for line in lines:
                    channel.sendall(json.dumps(self._reply(json.loads(line))).encode() + b"\n")

    def _reply(self, asked: dict[str, Any]) -> dict[str, Any]:
        what = asked.pop("what")
        if what not in (
            "fault",
            "clear",
            "release",
            "power_cut",
            "drop_caches",
            "hits",
            "record",
            "operations",
            "failures",
        ):
            return {"error": f"nobody can be asked for {what!r}"}
        try:
            with self._lock:
                return {"value": getattr(self, what)(**asked)}
        except Exception as error:
            return {"error": f"{type(error).__name__}: {error}"}


def _guard(points: list[Path]) -> Callable[[], None]:
    """Start a process that unmounts if this process dies. Return a function that ends the guard without an unmount."""
    reading, writing = os.pipe()
    if guard := os.fork():
        os.close(reading)

        def send_away() -> None:
            os.write(writing, b".")
            os.waitpid(guard, 0)

        return send_away
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2, writing):
        os.dup2(null, descriptor)
    if not os.read(reading, 1):
        for point in points:
            unmount(point)
    os._exit(0)


def _serve(
    files: type[Passthrough], directory: Path, points: list[Path], open_flags: int, cache_seconds: float
) -> None:
    parent = os.getppid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    # The kernel sends the signal when the thread that started this process ends; its process may continue.
    signal.signal(signal.SIGUSR1, lambda *_: os.getppid() == parent or sys.exit(1))
    faulthandler.register(PRINT_STACKS)
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGUSR1)
    # This process performs the kernel's writeback. If memory is low, the kernel must not make it wait for writeback.
    libc.prctl(_PR_SET_IO_FLUSHER, 1, 0, 0, 0)
    _, maximum = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (maximum, maximum))
    os.umask(0)
    # Threads that share the interpreter lock need twice as much CPU time on two cores as on one.
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[os.getpid() % len(cores)]})
    send_away = _guard(points)
    name = f"pytest-ckpt-misbehaving-{os.getpid()}-{secrets.token_hex(4)}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{name}")
        listener.listen()
        server = _Server(files, directory, points, open_flags, cache_seconds)
        try:
            threading.Thread(target=server.listen, args=(listener,), daemon=True).start()
            print(json.dumps(name), flush=True)
            sys.stdin.buffer.read()
        finally:
            server.end()
            send_away()
    # Only threads of this process still wait; no client is served any more.
    os._exit(0)


def _main() -> None:
    parser = argparse.ArgumentParser(description="Mount a target until standard input ends.")
    parser.add_argument("--direct-io", action="store_true", help="bypass the page cache of the kernel")
    parser.add_argument("--keep-cache", action="store_true", help="keep what is cached when a file is opened")
    parser.add_argument(
        "--cache-seconds", type=float, default=0, help="how long the kernel believes names and attributes"
    )
    parser.add_argument("--compact", action="store_true", help="store checkpoints in little memory")
    parser.add_argument("directory", type=Path)
    parser.add_argument("mountpoint", type=Path, nargs="+")
    arguments = parser.parse_args()
    # An array has processors of its own: the work of other processes on this host does not make it slower.
    os.setpriority(os.PRIO_PROCESS, 0, _HIGHEST_PRIORITY)
    flags = (OPEN_DIRECT_IO if arguments.direct_io else 0) | (OPEN_KEEP_CACHE if arguments.keep_cache else 0)
    files: type[Passthrough] = Passthrough
    if arguments.compact:
        from tests.support.targets.fuse_compact import Compact  # noqa: PLC0415 - needs numpy, which other targets do not

        files = Compact
    _serve(
        files,
        arguments.directory.resolve(),
        [point.resolve() for point in arguments.mountpoint],
        flags,
        arguments.cache_seconds,
    )


if __name__ == "__main__":
    _main()
