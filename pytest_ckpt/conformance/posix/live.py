"""LIVE: no call that a checkpoint makes blocks for long."""

from __future__ import annotations

import os
import statistics
import time
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ckpt.conformance.content import random_bytes
from pytest_ckpt.conformance.posix.checkpoints import write_all
from pytest_ckpt.support.units import format_seconds
from pytest_ckpt.targets.posix.commit import Commit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pytest_ckpt.conformance.context import CheckContext, Findings

_ROUNDS = 100
_FILES = 2
_FILE_BYTES = 1 << 20


def calls(context: CheckContext, findings: Findings) -> None:
    """Save, query, load and remove small checkpoints, and measure the time of each call."""
    clock = _Clock(context)
    data = [random_bytes(_FILE_BYTES, context.seed, index) for index in range(_FILES)]
    context.note_commit(findings)
    for number in range(context.count(_ROUNDS, minimum=3)):
        _save(context.directory, number, data, clock, context.commit)
        _point_to(context, findings, f"checkpoint-{number}", clock)
        _load_and_remove(context.directory / f"checkpoint-{number}", clock)
    findings.trials = sum(map(len, clock.seconds.values()))
    findings.measured, slowest = max((max(seconds), call) for call, seconds in clock.seconds.items())
    findings.facts["longest call"] = f"{slowest} of {clock.longest_path[slowest]}"
    for call, seconds in clock.seconds.items():
        median, longest = format_seconds(statistics.median(seconds)), format_seconds(max(seconds))
        findings.facts[call] = f"median {median}, longest {longest} of {len(seconds)}"


class _Clock:
    """Measures each call in seconds, by kind of call."""

    def __init__(self, context: CheckContext) -> None:
        self._context = context
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self.longest_path: dict[str, Path] = {}

    @contextmanager
    def call(self, name: str, path: Path) -> Iterator[None]:
        """Measure the ``with`` block as one call of the kind ``name``."""
        self._context.report_call(name, str(path))
        began = time.perf_counter()
        yield
        seconds = time.perf_counter() - began
        if seconds > max(self.seconds[name], default=0.0):
            self.longest_path[name] = path
        self.seconds[name].append(seconds)


@dataclass(frozen=True, slots=True)
class _TimedCommitCalls:
    """The calls of a commit, each timed separately."""

    clock: _Clock

    def rename(self, old: Path, new: Path) -> None:
        with self.clock.call("rename directory", new):
            old.rename(new)

    def write_new(self, path: Path, data: bytes) -> None:
        _write_new(path, data, self.clock, "write marker")

    def sync_directory(self, directory: Path) -> None:
        _sync(directory, self.clock)


def _save(directory: Path, number: int, data: list[bytes], clock: _Clock, commit: Commit) -> None:
    final = directory / f"checkpoint-{number}"
    draft = commit.draft_of(final)
    with clock.call("mkdir", draft):
        draft.mkdir()
    for index, content in enumerate(data):
        _write_new(draft / f"shard-{index}", content, clock, "write 1 MiB")
    _sync(draft, clock)
    commit.perform(final, _TimedCommitCalls(clock))


def _point_to(context: CheckContext, findings: Findings, checkpoint: str, clock: _Clock) -> None:
    pointer, new = context.directory / "latest", context.directory / "latest.new"
    new.write_text(checkpoint)
    with clock.call("rename over a file", pointer):
        context.rename_file(new, pointer, findings)


def _write_new(path: Path, content: bytes, clock: _Clock, write: str) -> None:
    with clock.call("open to create", path):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        with clock.call(write, path):
            write_all(descriptor, content)
        with clock.call("fsync", path):
            os.fsync(descriptor)
    finally:
        with clock.call("close", path):
            os.close(descriptor)


def _sync(directory: Path, clock: _Clock) -> None:
    with clock.call("open directory", directory):
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with clock.call("fsync directory", directory):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _load_and_remove(directory: Path, clock: _Clock) -> None:
    with clock.call("list", directory):
        paths = list(directory.iterdir())
    with clock.call("stat of a name that is not there", directory / "none"):
        (directory / "none").exists()
    for path in paths:
        with clock.call("stat", path):
            path.stat()
        with clock.call("open to read", path):
            descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            with clock.call("read 1 MiB", path):
                os.read(descriptor, _FILE_BYTES)
        finally:
            os.close(descriptor)
        with clock.call("unlink", path):
            path.unlink()
    with clock.call("rmdir", directory):
        directory.rmdir()
    with clock.call("statvfs", directory.parent):
        os.statvfs(directory.parent)
