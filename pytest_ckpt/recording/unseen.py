"""What was written below the folder of a job and that no recorded call wrote: by processes that strace did not see."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ckpt.recording.files import JobFiles
from pytest_ckpt.recording.threads import Threads
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.support.units import counted

if TYPE_CHECKING:
    from pytest_ckpt.recording.strace_log import TracedCall

States = Mapping[str, tuple[int, int, int]]
"""Of regular files by path: inode, size in bytes and time of the last change in nanoseconds."""


def states_below(folder: str) -> States:
    """Return the state of every regular file below a folder that has one name."""
    found = {}
    for above, _, names in os.walk(folder):
        for name in names:
            path = f"{above}/{name}"
            # A file may go while others are looked at.
            with contextlib.suppress(OSError):
                about = os.lstat(path)
                if stat.S_ISREG(about.st_mode) and about.st_nlink == 1:
                    found[path] = (about.st_ino, about.st_size, about.st_mtime_ns)
    return found


def refuse_unseen(calls: Iterable[TracedCall], under: str, before: States, after: States) -> None:
    """Raise UsageError where files have come or changed that no call made."""
    listed = list(calls)
    files = JobFiles(under=under, process=Threads(listed).process)
    for call in listed:
        files.take(call)
    changed = {path for path, state in after.items() if before.get(path) != state}
    if unseen := sorted(changed - set(files.numbers)) if not files.moved_in else []:
        raise UsageError(
            f"{counted(len(unseen), 'file was', 'files were')} written below --under that no recorded call made, "
            f"{Path(unseen[0]).name} first: by processes on other hosts, by some that the job did not begin, or in a "
            "file that was there before.",
            "Run all ranks on this host, as processes of this command, and save into an empty folder. A job on several "
            "hosts cannot be recorded: record as many of its ranks as this host holds; a replay repeats them.",
        )
