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
from typing import TYPE_CHECKING, Any

from pytest_ckpt.facts.codec import to_plain
from pytest_ckpt.facts.events import Beat, Event, Failed, Hello, event_from_plain, event_to_plain, from_line
from pytest_ckpt.launching.kept_log import KeptLog, bytes_of_log
from pytest_ckpt.launching.pace import allowances_of
from pytest_ckpt.launching.rank_watchdog import RankWatchdog
from pytest_ckpt.ranks.process.controller import END
from pytest_ckpt.support.die_with_parent import tied_to_this_process
from pytest_ckpt.support.processes import end_launch
from pytest_ckpt.wire.frames import CONTROLLER
from pytest_ckpt.wire.listener import ENDED, Connection, Listener

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_ckpt.facts.failure import Failure
    from pytest_ckpt.launching.launcher import Launcher
    from pytest_ckpt.ranks.process.job import Job
    from pytest_ckpt.support.redaction import Redactor

    OnEvent = Callable[[Event], None]

_TICK_SECONDS = 0.25
_READ_BYTES = 1 << 16
# A launcher may fail to start anything: its daemons miss each other, a socket is taken. Nothing was measured by then.
_TRIES = 3
# More than any launcher says of how it ended.
_MAXIMUM_SAID = 10_000


class Launch:
    """Starts the ranks of one job and reports what they tell. ``folder`` is created and keeps the evidence."""

    def __init__(self, launcher: Launcher, run_id: str, folder: Path, redactor: Redactor) -> None:
        self._launcher = launcher
        self._run_id = run_id
        self._folder = folder
        self._redactor = redactor
        self._lines: dict[int, bytes] = {}
        self._numbers: dict[Connection, int] = {}
        self._logs: dict[str, KeptLog] = {}
        self._log_bytes = 0
        self._launcher_says: collections.deque[str] = collections.deque(maxlen=_MAXIMUM_SAID)
        self._rank_0: Connection | None = None

    def run(
        self,
        job: Job,
        listener: OnEvent,
        tick: Callable[[], None] = lambda: None,
        say: Callable[[str], None] = lambda text: None,
    ) -> Failure | None:
        """Run the job to its end. Return None when all of it was done, else why it ended.

        ``listener`` hears every event of rank 0, ``tick`` is called several times a second. A launcher that ends before
        any rank has reported is tried again, twice at most; ``say`` is told of it, and the launcher's log. A
        KeyboardInterrupt is let through when no rank is left.
        """
        self._folder.mkdir(parents=True)
        self._log_bytes = bytes_of_log(job.processes)
        self._logs = {"launcher": KeptLog(self._folder / "launcher.log", self._log_bytes)}
        tries = 0
        while True:
            tries += 1
            watch = RankWatchdog(job.processes, job.deadline_seconds, socket.gethostname(), allowances_of(job))
            failure = self._run_once(job, watch, listener, tick, tries)
            if failure is None or not watch.may_be_tried_again(failure):
                return failure
            if tries == _TRIES:
                return dataclasses.replace(failure, message=f"{failure.message} (tried {tries} times)")
            text = f"The launcher ended before any rank started ({failure.message}); trying again."
            self._log("launcher", self._redactor.text(text))
            say(self._redactor.text(text))

    def answer(self, word: Any) -> None:
        """Tell rank 0 something while it works; a rank that is gone hears nothing."""
        if self._rank_0:
            self._rank_0.send(word)

    def _run_once(
        self,
        job: Job,
        watch: RankWatchdog,
        listener: OnEvent,
        tick: Callable[[], None],
        tries: int,
    ) -> Failure | None:
        self._lines, self._numbers = {}, {}
        self._launcher_says.clear()
        scratch = _make_scratch()
        began = time.monotonic()
        exit_code: int | None = None
        callers = Listener(only_this_host=self._launcher.stays_here, callers=job.processes, ports=self._launcher.ports)
        try:
            command = self._launcher.command(job.processes)
            environment = self._launcher.environment(self._run_id, scratch)
            self._keep(command, environment | {CONTROLLER: callers.environment[CONTROLLER]})
            process = subprocess.Popen(
                tied_to_this_process(command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment | callers.environment,
                start_new_session=True,
            )
            try:
                failure = self._follow(process, callers, job, watch, listener, tick)
            finally:
                self._rank_0 = None
                stuck = end_launch(process, self._run_id)
                for stream in (process.stdout, process.stderr):
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
            callers.close()
            shutil.rmtree(scratch, ignore_errors=True)
            ended = {"exit_code": exit_code, "seconds": time.monotonic() - began, "tries": tries}
            (self._folder / "exit.json").write_text(json.dumps(ended) + "\n")

    def _follow(
        self,
        process: subprocess.Popen[bytes],
        callers: Listener,
        job: Job,
        watch: RankWatchdog,
        listener: OnEvent,
        tick: Callable[[], None],
    ) -> Failure | None:
        assert process.stdout
        assert process.stderr
        with contextlib.ExitStack() as stack:
            selector = stack.enter_context(selectors.DefaultSelector())
            selector.register(callers, selectors.EVENT_READ)
            streams = {process.stdout.fileno(), process.stderr.fileno()}
            for stream in streams:
                os.set_blocking(stream, False)
                selector.register(stream, selectors.EVENT_READ)
            looked = 0.0
            while streams:
                for key, _ in selector.select(_TICK_SECONDS):
                    if key.fileobj is callers:
                        self._hear(callers, job, watch, listener)
                    elif (lines := self._read(key.fd)) is None:
                        selector.unregister(key.fileobj)
                        streams.remove(key.fd)
                    else:
                        self._take_lines(lines, watch)
                # Not after each word of thousands of ranks: both look at all of them.
                if time.monotonic() - looked > _TICK_SECONDS:
                    looked = time.monotonic()
                    tick()
                    if hung := watch.hung():
                        return hung
            # What ranks told before they ended may still be on its way through this host.
            while self._hear(callers, job, watch, listener):
                pass
        return watch.ended(process.wait(), "\n".join(self._launcher_says))

    def _hear(self, callers: Listener, job: Job, watch: RankWatchdog, listener: OnEvent) -> bool:
        """Take in what ranks have told on their connections; return whether there was anything."""
        heard = callers.take()
        for rank, word in heard:
            if word == END:
                watch.confirm(rank)
                self._numbers.pop(rank, None)
                rank.send(END)
            elif word is ENDED:
                if (number := self._numbers.pop(rank, None)) is not None:
                    watch.gone(number)
            else:
                try:
                    event = event_from_plain(word)
                except ValueError as error:
                    # Another version of this package: what it cannot say is missed, and decides.
                    self._log("launcher", self._redactor.text(f"a rank told something that is not known: {error}"))
                    continue
                if isinstance(event, Hello) and event.rank is not None:
                    self._numbers[rank] = event.rank
                if isinstance(event, Hello) and event.rank == 0:
                    self._rank_0 = rank
                    rank.send(to_plain(job))
                self._take(event, watch, listener)
        return bool(heard)

    def _take_lines(self, lines: list[str], watch: RankWatchdog) -> None:
        """Take in what launcher and libraries print, and ranks that have no connection."""
        for line in lines:
            _, event = from_line(line)
            if isinstance(event, Hello | Beat | Failed):
                self._take(event, watch, lambda event: None)
            else:
                self._launcher_says.append(line)
                self._log("launcher", self._redactor.text(line))

    def _take(self, event: Event, watch: RankWatchdog, listener: OnEvent) -> None:
        if isinstance(event, Hello | Beat | Failed):
            watch.take(event)
            told = json.dumps(self._redactor.plain(event_to_plain(event)))
            self._log(f"rank-{event.rank}", told)
        else:
            listener(event)

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
