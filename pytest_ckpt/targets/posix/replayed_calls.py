"""Makes the calls of a pattern in a folder: each with its place and length, as they are at this size."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from pytest_ckpt.facts.pattern import Step
from pytest_ckpt.sizing.files import ReplayedFile
from pytest_ckpt.targets.protocol import Buffer, Phases

_FLAGS = {
    "create": os.O_RDWR | os.O_CREAT | os.O_TRUNC,
    "create new": os.O_RDWR | os.O_CREAT | os.O_EXCL,
    "truncate and open": os.O_RDWR | os.O_TRUNC,
    "open": os.O_RDWR,
    "open to read": os.O_RDONLY,
}
_PIECE_BYTES = 64 << 20


class PosixCalls:
    """The files of one save in ``folder``; ``data`` is what each is to hold, by its number.

    Lanes call it side by side, no two of them on one file.
    """

    def __init__(
        self, folder: Path, files: Mapping[int, ReplayedFile], data: Mapping[int, Buffer], phases: Phases
    ) -> None:
        self._folder, self._files, self._data, self._phases = folder, files, data, phases
        self._renames = {number: file.renames for number, file in files.items()}
        # Of one file a job may have several descriptors: what is open for reading alone is the first to be closed.
        self._open: dict[int, list[int]] = {number: [] for number in files}
        self._to_read: dict[int, list[int]] = {number: [] for number in files}
        self._make: Mapping[str, Callable[[Step, ReplayedFile], None]] = {
            **dict.fromkeys(_FLAGS, self._begin),
            "write": self._write,
            "read": self._read,
            "allocate": lambda step, file: os.posix_fallocate(
                self._top(step), file.at(step.offset), max(file.at(step.offset + step.bytes) - file.at(step.offset), 1)
            ),
            "set size": lambda step, file: os.ftruncate(self._top(step), file.at(step.bytes)),
            "fsync": lambda step, _: os.fsync(self._top(step)),
            "fdatasync": lambda step, _: os.fdatasync(self._top(step)),
            "close": lambda step, _: os.close((self._to_read[step.file] or self._open[step.file]).pop()),
            "rename": self._rename,
            "unlink": lambda step, _: self._path(step.file).unlink(),
        }

    def make(self, step: Step) -> None:
        """Make the calls of a step."""
        if step.call == "fsync folder":
            self._sync_folder()
        else:
            self._make[step.call](step, self._files[step.file])

    def close(self) -> None:
        """Close what the job left open."""
        for handles in (*self._open.values(), *self._to_read.values()):
            while handles:
                os.close(handles.pop())

    def _path(self, number: int) -> Path:
        return self._folder / self._files[number].name_before(self._renames[number])

    def _top(self, step: Step) -> int:
        return (self._open[step.file] or self._to_read[step.file])[-1]

    def _begin(self, step: Step, _: ReplayedFile) -> None:
        flags = _FLAGS[step.call] | os.O_CLOEXEC | os.O_NOFOLLOW
        opened = self._to_read if step.call == "open to read" else self._open
        opened[step.file].append(os.open(self._path(step.file), flags, 0o644))

    def _write(self, step: Step, file: ReplayedFile) -> None:
        descriptor, data = self._top(step), memoryview(self._data[step.file])
        for number in range(step.count):
            at, stop = (file.at(step.offset + n * step.bytes) for n in (number, number + 1))
            while True:
                done = os.pwrite(descriptor, data[at : min(stop, at + _PIECE_BYTES)], at)
                if not done and at < stop:
                    raise OSError(errno.EIO, f"write: 0 bytes of {stop - at} were taken", str(self._path(step.file)))
                self._phases.moved(done)
                at += done
                if at >= stop:
                    break

    def _read(self, step: Step, file: ReplayedFile) -> None:
        descriptor = self._top(step)
        for number in range(step.count):
            at, stop = (file.at(step.offset + n * step.bytes) for n in (number, number + 1))
            into = memoryview(bytearray(stop - at))
            # At the end of a file a job, too, reads less than it asked for; before it, a short read goes on.
            while into and (done := os.preadv(descriptor, [into], at)):
                into, at = into[done:], at + done

    def _rename(self, step: Step, file: ReplayedFile) -> None:
        left = self._renames[step.file] - 1
        self._path(step.file).rename(self._folder / file.name_before(left))
        self._renames[step.file] = left

    def _sync_folder(self) -> None:
        descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
