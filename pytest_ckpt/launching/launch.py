"""One launch of ranks: started, listened to, ended; its command, environment, logs and exit kept."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import os
import selectors
import shlex
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING

from pytest_ckpt.facts.codec import to_plain
from pytest_ckpt.facts.events import Beat, Event, Failed, Hello, event_to_plain, from_line
from pytest_ckpt.launching.kept_log import KeptLog, bytes_of_log
from pytest_ckpt.launching.pace import allowances_of
from pytest_ckpt.launching.rank_watchdog import RankWatchdog
from pytest_ckpt.support.die_with_parent import tied_to_this_process
from pytest_ckpt.support.processes import end_launch

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_ckpt.facts.failure import Failure
    from pytest_ckpt.launching.launcher import Launcher
    from pytest_ckpt.ranks.process.job import Job
    from pytest_ckpt.support.redaction import Redactor

    Listener = Callable[[Event], None]

_TICK_SECONDS = 0.25
_READ_BYTES = 1 << 16
# A launcher may fail to start anything: its daemons miss each other, a socket is taken. Nothing was measured by then.
_TRIES = 3
# More than any launcher says of how it ended.
_MOST_SAID = 10_000


class Launch:
    """Starts the ranks of one job and reports what they tell. ``folder`` is created and keeps the evidence."""

    def __init__(self, launcher: Launcher, run_id: str, folder: Path, redactor: Redactor) -> None:
        self._launcher = launcher
        self._run_id = run_id
        self._folder = folder
        self._redactor = redactor
        self._lines: dict[int, bytes] = {}
        self._logs: dict[str, KeptLog] = {}
        self._log_bytes = 0
        self._launcher_says: collections.deque[str] = collections.deque(maxlen=_MOST_SAID)
        self._to_rank_0: IO[bytes] | None = None

    def run(
        self,
        job: Job,
        listener: Listener,
        tick: Callable[[], None] = lambda: None,
        say: Callable[[str], None] = lambda text: None,
        *,
        answers: bool = False,
    ) -> Failure | None:
        """Run the job to its end. Return None when all of it was done, else why it ended.

        ``listener`` hears every event of rank 0, ``tick`` is called several times a second. A launcher that ends before
        any rank has reported is tried again, twice at most; ``say`` is told of it, and the launcher's log. With
        ``answers`` rank 0 can be told something while it works (`answer`). A KeyboardInterrupt is let through when no
        rank is left.
        """
        self._folder.mkdir(parents=True)
        self._log_bytes = bytes_of_log(job.processes)
        self._logs = {"launcher": KeptLog(self._folder / "launcher.log", self._log_bytes)}
        tries = 0
        while True:
            tries += 1
            watch = RankWatchdog(job.processes, job.deadline_seconds, socket.gethostname(), allowances_of(job))
            failure = self._run_once(job, watch, listener, tick, tries, answers=answers)
            if failure is None or not watch.may_be_tried_again(failure):
                return failure
            if tries == _TRIES:
                return dataclasses.replace(failure, message=f"{failure.message} (tried {tries} times)")
            text = f"The launcher ended before any rank started ({failure.message}); trying again."
            self._log("launcher", self._redactor.text(text))
            say(self._redactor.text(text))

    def answer(self, line: str) -> None:
        """Let rank 0 read a line on its standard input; a rank that is gone reads none."""
        if self._to_rank_0:
            with contextlib.suppress(OSError):
                self._to_rank_0.write(line.encode() + b"\n")
                self._to_rank_0.flush()

    def _run_once(
        self,
        job: Job,
        watch: RankWatchdog,
        listener: Listener,
        tick: Callable[[], None],
        tries: int,
        *,
        answers: bool,
    ) -> Failure | None:
        self._lines = {}
        self._launcher_says.clear()
        scratch = _make_scratch()
        began = time.monotonic()
        exit_code: int | None = None
        try:
            command = self._launcher.command(job.processes)
            environment = self._launcher.environment(self._run_id, scratch)
            self._keep(command, environment)
            process = subprocess.Popen(
                tied_to_this_process(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
                start_new_session=True,
            )
            try:
                self._to_rank_0 = process.stdin if answers else None
                failure = self._follow(process, job, watch, listener, tick)
            finally:
                self._to_rank_0 = None
                stuck = end_launch(process, self._run_id)
                for stream in (process.stdin, process.stdout, process.stderr):
                    if stream:
                        with contextlib.suppress(OSError):
                            stream.close()
                exit_code = process.poll()
            if failure and stuck:
                pids = ", ".join(map(str, stuck))
                said = f"processes {pids} cannot be ended: they are blocked in the kernel until the target answers"
                failure = dataclasses.replace(failure, stack="\n".join(filter(None, [failure.stack, said])))
            return failure
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
            ended = {"exit_code": exit_code, "seconds": time.monotonic() - began, "tries": tries}
            (self._folder / "exit.json").write_text(json.dumps(ended) + "\n")

    def _follow(
        self,
        process: subprocess.Popen[bytes],
        job: Job,
        watch: RankWatchdog,
        listener: Listener,
        tick: Callable[[], None],
    ) -> Failure | None:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write((json.dumps(to_plain(job)) + "\n").encode())
            process.stdin.flush()
            if not self._to_rank_0:
                process.stdin.close()
        with contextlib.ExitStack() as stack:
            selector = stack.enter_context(selectors.DefaultSelector())
            for stream in (process.stdout, process.stderr):
                os.set_blocking(stream.fileno(), False)
                selector.register(stream, selectors.EVENT_READ)
            while selector.get_map():
                for key, _ in selector.select(_TICK_SECONDS):
                    lines = self._read(key.fd)
                    if lines is None:
                        selector.unregister(key.fileobj)
                        continue
                    for line in lines:
                        _, event = from_line(line)
                        if event is None:
                            self._launcher_says.append(line)
                            self._log("launcher", self._redactor.text(line))
                        elif isinstance(event, Hello | Beat | Failed):
                            watch.take(event)
                            told = json.dumps(self._redactor.plain(event_to_plain(event)))
                            self._log(f"rank-{event.rank}", told)
                        else:
                            listener(event)
                tick()
                if hung := watch.hung():
                    return hung
        return watch.ended(process.wait(), "\n".join(self._launcher_says))

    def _log(self, name: str, line: str) -> None:
        if name not in self._logs:
            self._logs[name] = KeptLog(self._folder / f"{name}.log", self._log_bytes)
        self._logs[name].write(line)

    def _read(self, descriptor: int) -> list[str] | None:
        """Return the whole lines that have arrived, or None at the end."""
        try:
            data = os.read(descriptor, _READ_BYTES)
        except BlockingIOError:
            return []
        if not data:
            return None
        *lines, rest = (self._lines.get(descriptor, b"") + data).split(b"\n")
        self._lines[descriptor] = rest
        return [line.decode(errors="replace") for line in lines]

    def _keep(self, command: list[str], environment: dict[str, str]) -> None:
        """Keep the command and what was set for it; the rest of the environment may hold secrets."""
        (self._folder / "command").write_text(shlex.join(self._redactor.plain(command)) + "\n")
        added = sorted(k for k, v in environment.items() if os.environ.get(k) != v)
        removed = sorted(k for k in os.environ if k not in environment)
        lines = [f"{k}={self._redactor.text(environment[k])}" for k in added] + [f"unset {k}" for k in removed]
        (self._folder / "environment").write_text("\n".join(lines) + "\n")


def _make_scratch() -> str:
    """Make a folder for the launcher's sockets and segments; remove those of controllers that were killed."""
    # Memory-backed, so that segments never touch a disk; a short name, as sockets need one.
    home = Path("/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir())
    for left in home.glob("ckpt-*-*"):
        pid = left.name.split("-")[1]
        with contextlib.suppress(OSError):
            if left.lstat().st_uid == os.geteuid() and pid.isdigit() and not Path("/proc", pid).exists():
                shutil.rmtree(left, ignore_errors=True)
    return tempfile.mkdtemp(prefix=f"ckpt-{os.getpid()}-", dir=home)
