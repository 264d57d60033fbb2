"""Runs a job under strace, into a log that holds no data and is removed."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pytest_ckpt.recording.files import CALLS
from pytest_ckpt.recording.strace_log import BIRTHS, MOVES, TracedCall, read_log
from pytest_ckpt.support.errors import UsageError

_MAXIMUM_SAID = 300

_TRACED = sorted(CALLS | BIRTHS | MOVES)


def trace(words: Sequence[str]) -> list[TracedCall]:
    """Run a command and return its calls. Raises UsageError where strace cannot, or the command fails."""
    strace = shutil.which("strace")
    if strace is None:
        raise UsageError(
            "strace is not installed, and a recording is what it sees.",
            "Install it (apt-get install strace), or record elsewhere and give its log with --from.",
        )
    if shutil.which(words[0]) is None:
        raise UsageError(f"The command {words[0]} is not there.", "Write behind -- what starts the job.")
    with tempfile.TemporaryDirectory(prefix="pytest-ckpt-record-") as folder:
        log = Path(folder) / "log"
        calls = ",".join(f"?{name}" for name in _TRACED)
        # Without -s 0 the log would hold the first bytes of what is written.
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
                f"The job ended {how}, and what it did is no pattern of a save. It said: {output[-_MAXIMUM_SAID:]}",
                "Run it once without pytest-ckpt record, until it ends with 0.",
            )
        return calls_of(log)


def calls_of(log: Path) -> list[TracedCall]:
    """Return the calls in a log. Raises UsageError where it is none, or has been cut."""
    try:
        with log.open(encoding="utf-8", errors="surrogateescape") as lines:
            return read_log(lines)
    except ValueError as error:
        raise UsageError(
            f"The log of strace cannot be used: {error}.",
            f"Record again with: strace -f -y -ttt -s 0 -e trace={','.join(_TRACED)} -o LOG COMMAND",
        ) from None


def _can_filter(strace: str) -> bool:
    """Whether this strace lets the kernel pick the calls, so that others cost the job nothing (5.3 and later)."""
    shown = subprocess.run([strace, "--help"], capture_output=True, text=True, check=False).stdout
    return "seccomp-bpf" in shown
