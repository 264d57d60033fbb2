"""Runs a job under strace, and detects writes that strace has missed.

The log is temporary and contains no file content.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pytest_ckpt.recording.files import CALLS, JobFiles
from pytest_ckpt.recording.strace_log import BIRTHS, MOVES, Threads, TracedCall, read_log
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.support.units import counted

_MAXIMUM_SAID = 300

_TRACED = sorted(CALLS | BIRTHS | MOVES)

States = Mapping[str, tuple[int, int, int]]
"""The state of regular files by path: inode, size in bytes, and time of the last change in nanoseconds."""


def trace(words: Sequence[str]) -> list[TracedCall]:
    """Run the command ``words`` under strace, and return its calls.

    Raises UsageError if strace does not work or the command fails.
    """
    strace = shutil.which("strace")
    if strace is None:
        raise UsageError(
            "strace is not installed, and a recording is what it sees.",
            "Install it (apt-get install strace), or record elsewhere and give its log with --from.",
        )
    if shutil.which(words[0]) is None:
        raise UsageError(f"The command {words[0]} is not there.", "Write the command that starts the job after --.")
    with tempfile.TemporaryDirectory(prefix="pytest-ckpt-record-") as directory:
        log = Path(directory) / "log"
        calls = ",".join(f"?{name}" for name in _TRACED)
        # Without -s 0 the log would contain the first bytes of the written data.
        options = ["-f", "-y", "-ttt", "-s", "0", "-e", f"trace={calls}", "-o", str(log)]
        if _can_filter(strace):
            options.append("--seccomp-bpf")
        done = subprocess.run(
            [strace, *options, *words], stderr=subprocess.PIPE, text=True, errors="replace", check=False
        )
        output = done.stderr.strip()
        if "ptrace" in output and "ermitted" in output:
            raise UsageError(
                "strace may not trace a process here (ptrace is not permitted).",
                "Run in a container with --cap-add=SYS_PTRACE, or set kernel.yama.ptrace_scope below 3.",
            )
        if done.returncode:
            how = f"by {signal.Signals(-done.returncode).name}" if done.returncode < 0 else f"with {done.returncode}"
            raise UsageError(
                f"The job ended {how}, so its calls are not a pattern of a save. Its output: {output[-_MAXIMUM_SAID:]}",
                "Run it once without pytest-ckpt record, until it ends with 0.",
            )
        return calls_of(log)


def calls_of(log: Path) -> list[TracedCall]:
    """Return the calls in a log. Raises UsageError if the file is not a complete strace log."""
    try:
        with log.open(encoding="utf-8", errors="surrogateescape") as lines:
            return read_log(lines)
    except ValueError as error:
        raise UsageError(
            f"The log of strace cannot be used: {error}.",
            f"Record again with: strace -f -y -ttt -s 0 -e trace={','.join(_TRACED)} -o LOG COMMAND",
        ) from None


def _can_filter(strace: str) -> bool:
    """Return whether this strace filters calls in the kernel, so that untraced calls are not slowed down.

    strace 5.3 and later can filter in the kernel.
    """
    shown = subprocess.run([strace, "--help"], capture_output=True, text=True, check=False).stdout
    return "seccomp-bpf" in shown


def states_below(directory: str) -> States:
    """Return the state of every regular file below a directory, except files with several hard links."""
    found = {}
    for above, _, names in os.walk(directory):
        for name in names:
            path = f"{above}/{name}"
            # A file may disappear while others are inspected.
            with contextlib.suppress(OSError):
                about = os.lstat(path)
                if stat.S_ISREG(about.st_mode) and about.st_nlink == 1:
                    found[path] = (about.st_ino, about.st_size, about.st_mtime_ns)
    return found


def refuse_unseen(calls: Iterable[TracedCall], under: str, before: States, after: States) -> None:
    """Raise UsageError if files below ``under`` were created, changed or extended without a recorded call.

    ``before`` and ``after`` are the states of the files before and after the job.
    """
    listed = list(calls)
    files = JobFiles(under=under, process=Threads(listed).process)
    for call in listed:
        files.record(call)
    changed = {path for path, state in after.items() if before.get(path) != state}
    if unseen := sorted(changed - set(files.numbers)) if not files.moved_in else []:
        raise UsageError(
            f"{counted(len(unseen), 'file was', 'files were')} written below --under that no recorded call made, "
            f"{Path(unseen[0]).name} first: by processes on other hosts, by some that the job did not begin, or in a "
            "file that was there before.",
            "Run all ranks on this host, as processes of this command, and save into an empty directory. A job on "
            "several hosts cannot be recorded: record as many of its ranks as fit on this host; a replay repeats them.",
        )
    for path, number in files.numbers.items():
        if path in after and after[path][1] != files.sizes[number]:
            raise UsageError(
                f"{Path(path).name} has {counted(after[path][1], 'byte')}, and the recorded calls explain "
                f"{counted(files.sizes[number], 'byte')}: the job wrote it in a way that calls do not show (io_uring, "
                "libaio), or a process wrote to it that the job did not begin.",
                "Let the job write by calls such as write and pwrite, if it can. Such a file cannot be recorded.",
            )
