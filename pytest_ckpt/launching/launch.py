"""One launch of ranks: start, communication and end. The command, environment, logs and exit status are stored.

A log has a maximum size. If a log is full, lines in its middle are removed.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import os
import select
import selectors
import shlex
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_ckpt.facts.codec import to_plain
from pytest_ckpt.facts.events import Beat, Event, Failed, Hello, Ready, event_from_plain, event_to_plain, from_line
from pytest_ckpt.facts.failure import Failure
from pytest_ckpt.launching.rank_watchdog import RankWatchdog, allowances_of
from pytest_ckpt.launching.recorder import write_atomically
from pytest_ckpt.launching.scratch import ScratchDirectory, ScratchKeeper
from pytest_ckpt.ranks.process.controller import END, LEAVE, NEXT, WAITING
from pytest_ckpt.support import waits
from pytest_ckpt.support.die_with_parent import tied_to_this_process
from pytest_ckpt.support.processes import blocked_sentence, end_launch
from pytest_ckpt.support.units import counted
from pytest_ckpt.wire.frames import CONTROLLER
from pytest_ckpt.wire.listener import ENDED, Connection, Listener

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pytest_ckpt.launching.launcher import Launcher
    from pytest_ckpt.ranks.process.job import Job
    from pytest_ckpt.sizing.plan import PlannedCheckpoint
    from pytest_ckpt.support.redaction import Redactor

    OnEvent = Callable[[Event], None]

_ALL_BYTES, _MINIMUM_BYTES, _MAXIMUM_BYTES = 64 << 20, 16 << 10, 4 << 20

_READ_BYTES = 1 << 16

_TICK_SECONDS = 0.25
# A launcher may fail before it starts any rank: its daemons do not connect, or a socket is in use. No measurement has
# begun then.
_TRIES = 3
# A silent launcher uses the whole deadline each time. With several hosts, a firewall or a scheduler's queue may be the
# cause.
_SILENT_TRIES_ON_THIS_HOST = 2
# Longer than the last output of any launcher.
_MAXIMUM_SAID = 10_000
_LEAVE_SECONDS = 10.0


def bytes_of_log(processes: int) -> int:
    """Return the maximum size of one log in bytes, for a launch with ``processes`` ranks.

    The logs of the launcher and of all ranks share 64 MiB. The maximum of one log is at least 16 KiB and at most 4 MiB.
    """
    return max(_MINIMUM_BYTES, min(_MAXIMUM_BYTES, _ALL_BYTES // (processes + 1)))


class BoundedLog:
    """Appends lines to a file of limited size. If the file is full, lines in its middle are removed and counted.

    Lines are buffered until `flush`, because thousands of ranks write short lines many times a second.
    """

    def __init__(self, file: Path, maximum_bytes: int) -> None:
        self._file = file
        self._maximum = maximum_bytes
        self._left_out = 0
        self._buffered: list[str] = []
        file.touch()

    def is_now(self, file: Path) -> None:
        """Set the path of the log to ``file``, after the log file was moved to this path."""
        self._file = file

    def write(self, line: str) -> None:
        """Append a line. ``line`` has no line end."""
        self._buffered.append(line + "\n")

    def flush(self) -> None:
        """Write the buffered lines. If the file is then too large, shorten the file."""
        if not self._buffered:
            return
        with self._file.open("a", encoding="utf-8", errors="backslashreplace") as log:
            log.write("".join(self._buffered))
            is_full = log.tell() > self._maximum
        self._buffered.clear()
        if is_full:
            self._shorten()

    def _shorten(self) -> None:
        """Shorten the log to its first and its last part, with a notice between these parts.

        Each part is a quarter of the maximum size.
        """
        lines = self._file.read_text(encoding="utf-8").splitlines(keepends=True)
        if self._left_out:
            # Remove the previous notice. It follows the first lines, which have not changed since then.
            lines.pop(len(_first(lines, self._maximum // 4)))
        head = _first(lines, self._maximum // 4)
        tail = _first(lines[:0:-1], self._maximum // 4)[::-1]
        self._left_out += len(lines) - len(head) - len(tail)
        text = f"… {counted(self._left_out, 'line was', 'lines were')} left out here …\n"
        write_atomically(self._file, "".join([*head, text, *tail]))


class LaunchLogs:
    """The logs of one launch, one file per name, in the new directory ``directory``."""

    def __init__(self, directory: Path, processes: int) -> None:
        directory.mkdir(parents=True)
        self._directory = directory
        self._maximum = bytes_of_log(processes)
        self._logs: dict[str, BoundedLog] = {}

    def write(self, name: str, line: str) -> None:
        """Append a line to the log ``name``. ``line`` has no line end."""
        self.log(name).write(line)

    def log(self, name: str) -> BoundedLog:
        """Return the log ``name``. The first call creates the file."""
        if name not in self._logs:
            self._logs[name] = BoundedLog(self._directory / f"{name}.log", self._maximum)
        return self._logs[name]

    def flush(self) -> None:
        """Write the buffered lines to the files."""
        for log in self._logs.values():
            log.flush()

    def are_now_in(self, directory: Path) -> None:
        """Set the directory of the logs to ``directory``, after the log files were moved to this directory."""
        self._directory = directory
        for name, log in self._logs.items():
            log.is_now(directory / f"{name}.log")


def _first(lines: list[str], maximum_bytes: int) -> list[str]:
    """Return as many of the first ``lines`` as fit into ``maximum_bytes``, but at least one line."""
    size, count = 0, 0
    for line in lines:
        size += len(line.encode())
        if size > maximum_bytes and count:
            break
        count += 1
    return lines[:count]


def store_command(directory: Path, redactor: Redactor, command: list[str], environment: Mapping[str, str]) -> None:
    """Write the launcher's command, and the changes of its environment, to two files in ``directory``.

    The second file contains added and changed variables, and the names of removed variables. Unchanged variables are
    not stored, because they may contain secrets.
    """
    (directory / "command").write_text(shlex.join(redactor.plain(command)) + "\n")
    added = sorted(k for k, v in environment.items() if os.environ.get(k) != v)
    removed = sorted(k for k in os.environ if k not in environment)
    lines = [f"{k}={redactor.text(environment[k])}" for k in added] + [f"unset {k}" for k in removed]
    (directory / "environment").write_text("\n".join(lines) + "\n")


@dataclass(kw_only=True, slots=True)
class StartedRanks:
    """A started launch. ``numbers`` maps a connection to the number of the rank that opened it.

    ``waiting`` contains the connections of ranks that wait for a job.
    """

    process: subprocess.Popen[bytes]
    callers: Listener
    keeper: ScratchKeeper | None
    streams: set[int]
    began: float
    rank_0: Connection | None = None
    numbers: dict[Connection, int] = field(default_factory=dict)
    waiting: dict[Connection, None] = field(default_factory=dict)
    _lines: dict[int, bytes] = field(default_factory=dict)

    def read(self, stream: int) -> list[str]:
        """Return the new complete lines from ``stream``, a descriptor of the launcher's output.

        At the end of the output, an unfinished line counts as a line.
        """
        try:
            data = os.read(stream, _READ_BYTES)
        except BlockingIOError:
            return []
        if not data:
            self.streams.discard(stream)
            rest = self._lines.pop(stream, b"")
            return [rest.decode(errors="replace")] if rest else []
        *lines, self._lines[stream] = (self._lines.get(stream, b"") + data).split(b"\n")
        return [line.decode(errors="replace") for line in lines]

    def end(self, run_id: str) -> list[int]:
        """End the remaining processes of the launch. Return the ids of processes that could not be ended."""
        try:
            stuck = end_launch(self.process, run_id)
            for stream in (self.process.stdout, self.process.stderr):
                if stream:
                    with contextlib.suppress(OSError):
                        stream.close()
        finally:
            self.callers.close()
            if self.keeper:
                self.keeper.remove()
        return stuck


def listener_of(launcher: Launcher, processes: int) -> Listener:
    """Return the listener to which the ranks of a launch connect."""
    return Listener(only_this_host=launcher.stays_here, callers=processes, ports=launcher.ports)


def started(
    command: list[str], environment: dict[str, str], callers: Listener, scratch: ScratchDirectory | None
) -> StartedRanks:
    """Start a launcher whose ranks connect to ``callers``, and return the started launch.

    ``scratch`` is the launcher's directory for sockets and segments, which is removed at the end. If the launcher needs
    no such directory, ``scratch`` is None.
    """
    process = subprocess.Popen(
        tied_to_this_process(command),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment | callers.environment,
        start_new_session=True,
    )
    try:
        keeper = ScratchKeeper(scratch, process.pid) if scratch else None
    except BaseException:
        process.kill()
        process.wait()
        raise
    streams = {stream.fileno() for stream in (process.stdout, process.stderr) if stream}
    for stream in streams:
        os.set_blocking(stream, False)
    return StartedRanks(process=process, callers=callers, keeper=keeper, streams=streams, began=time.monotonic())


class Launch:
    """Starts the ranks of a job and forwards their reports to the caller.

    ``directory`` is created for logs and reports. If a job states that another job follows, its ranks wait for the next
    call of `run`.
    """

    def __init__(self, launcher: Launcher, run_id: str, directory: Path, redactor: Redactor) -> None:
        self._launcher = launcher
        self._run_id = run_id
        self._directory = directory
        self._redactor = redactor
        self._logs: LaunchLogs | None = None
        self._launcher_says: collections.deque[str] = collections.deque(maxlen=_MAXIMUM_SAID)
        self._ranks: StartedRanks | None = None
        self._tries = 0
        self._all_have_the_job = False

    @property
    def waiting(self) -> int:
        """The number of ranks that wait for another job."""
        return len(self._ranks.waiting) if self._ranks else 0

    def run(
        self,
        job: Job,
        listener: OnEvent,
        tick: Callable[[], None] = lambda: None,
        say: Callable[[str], None] = lambda text: None,
        checkpoints: Sequence[PlannedCheckpoint] = (),
    ) -> Failure | None:
        """Run the job to its end. Return None if it was completed, else the failure that ended it.

        - ``listener``: receives every event of rank 0.
        - ``tick``: called several times a second.
        - ``say``: receives a sentence on each restart of the ranks. The launcher's log contains the same sentence.
        - ``checkpoints``: the checkpoints that the job measures. If an operation on a checkpoint takes many times its
          limit, the job is ended.

        The ranks are started again in these cases:

        - The launcher ends before any rank has reported: at most twice.
        - No rank reports before the deadline, and all ranks are on this host: once.
        - Ranks that wait since the previous job do not continue: new ranks are started.

        A KeyboardInterrupt is raised only after all ranks have ended.
        """
        if not self._logs:
            self._logs = LaunchLogs(self._directory, job.processes)
            self._logs.log("launcher")
        if self._ranks:
            failure = self._continue(job, checkpoints, listener, tick)
            if failure is None or self._all_have_the_job:
                return failure
            self._print_and_log(
                f"Ranks that waited for this do not continue ({failure.message}); they are started again.", say
            )
        self._tries = 0
        while True:
            self._tries += 1
            watch = _watch(job, checkpoints)
            self._start(job.processes)
            failure = self._followed(job, watch, listener, tick)
            if failure is None or not watch.may_be_tried_again(failure):
                return failure
            if self._tries == self._most_tries(watch):
                tried = f" (tried {counted(self._tries, 'time')})" if self._tries > 1 else ""
                return dataclasses.replace(failure, message=failure.message + tried)
            self._print_and_log(f"The launcher started no rank ({failure.message}); trying again.", say)

    def _most_tries(self, watch: RankWatchdog) -> int:
        silent = _SILENT_TRIES_ON_THIS_HOST if self._launcher.stays_here else 1
        return silent if watch.is_silent else _TRIES

    def answer(self, word: Any) -> None:
        """Send the message ``word`` to rank 0 during its job. If the rank has ended, do nothing."""
        if self._ranks and self._ranks.rank_0:
            self._ranks.rank_0.send(word)

    def move_to(self, directory: Path) -> None:
        """Move the files of the launch to ``directory``, and write later files to this directory."""
        directory.parent.mkdir(exist_ok=True)
        shutil.move(self._directory, directory)
        self._directory = directory
        if self._logs:
            self._logs.are_now_in(directory)

    def end(self) -> None:
        """End the ranks that wait for a job, first by a message, then by a signal.

        If no ranks wait, do nothing.
        """
        ranks = self._ranks
        if ranks is None:
            return
        for rank in ranks.waiting:
            rank.send(LEAVE)
        until = time.monotonic() + _LEAVE_SECONDS
        try:
            while ranks.process.poll() is None and time.monotonic() < until:
                select.select([ranks.callers.fileno(), *ranks.streams], [], [], _TICK_SECONDS)
                for rank, word in ranks.callers.take_messages():
                    if word == END:
                        rank.send(END)
                for stream in tuple(ranks.streams):
                    for line in ranks.read(stream):
                        self._log("launcher", self._redactor.text(line))
        finally:
            self._end()

    def _start(self, processes: int) -> None:
        self._launcher_says.clear()
        scratch = ScratchDirectory() if self._launcher.needs_scratch else None
        try:
            callers = listener_of(self._launcher, processes)
            command = self._launcher.command(processes)
            environment = self._launcher.environment(self._run_id, scratch.path if scratch else "")
            shown = environment | {CONTROLLER: callers.environment[CONTROLLER]}
            store_command(self._directory, self._redactor, command, shown)
            self._ranks = started(command, environment, callers, scratch)
        except BaseException:
            if scratch:
                scratch.remove()
            raise

    def _continue(
        self, job: Job, checkpoints: Sequence[PlannedCheckpoint], listener: OnEvent, tick: Callable[[], None]
    ) -> Failure | None:
        """Run a job on the waiting ranks. Return None if the job was completed, else the failure that ended the job."""
        assert self._ranks
        self._all_have_the_job = False
        watch = _watch(job, checkpoints)
        while self._receive(self._ranks, job, watch, listener):
            pass
        if len(self._ranks.waiting) < job.processes:
            self._end(is_complete=False)
            return Failure(kind="launch", message="some of them are gone")
        for rank in self._ranks.waiting:
            rank.send(NEXT)
        self._ranks.waiting.clear()
        return self._followed(job, watch, listener, tick)

    def _followed(self, job: Job, watch: RankWatchdog, listener: OnEvent, tick: Callable[[], None]) -> Failure | None:
        """Follow the ranks until the job is over. Return None if it was completed, else the failure that ended it.

        If the ranks do not wait for another job, their remaining processes are ended.
        """
        assert self._ranks
        try:
            with waits.waiting(watch.waits_for):
                failure = self._follow(self._ranks, job, watch, listener, tick)
        except BaseException:
            self._end(is_complete=False)
            raise
        finally:
            self._flush_logs()
        if failure is None and self.waiting:
            return None
        stuck = self._end(is_complete=failure is None)
        if failure and stuck:
            stack = "\n".join(filter(None, [failure.stack, blocked_sentence(stuck)]))
            failure = dataclasses.replace(failure, stack=stack)
        return failure

    def _end(self, *, is_complete: bool = True) -> list[int]:
        """End the remaining ranks, and record how they ended. Return the ids of processes that could not be ended.

        ``is_complete``: all ranks ended by themselves.
        """
        ranks, self._ranks = self._ranks, None
        if ranks is None:
            return []
        try:
            return ranks.end(self._run_id)
        finally:
            self._flush_logs()
            seconds = time.monotonic() - ranks.began
            ended = {
                "exit_code": ranks.process.poll(),
                "is_complete": is_complete,
                "seconds": seconds,
                "tries": self._tries,
            }
            (self._directory / "exit.json").write_text(json.dumps(ended) + "\n")

    def _follow(
        self, ranks: StartedRanks, job: Job, watch: RankWatchdog, listener: OnEvent, tick: Callable[[], None]
    ) -> Failure | None:
        with selectors.DefaultSelector() as selector:
            for source in (ranks.callers.fileno(), *ranks.streams):
                selector.register(source, selectors.EVENT_READ)
            checked_at = 0.0
            while ranks.streams:
                for key, _ in selector.select(_TICK_SECONDS):
                    if key.fd == ranks.callers.fileno():
                        self._receive(ranks, job, watch, listener)
                        continue
                    self._process_lines(ranks.read(key.fd), watch)
                    if key.fd not in ranks.streams:
                        selector.unregister(key.fileobj)
                if job.is_followed and len(ranks.waiting) == job.processes:
                    return None
                # Not after each message: both functions process all of thousands of ranks.
                if time.monotonic() - checked_at > _TICK_SECONDS:
                    checked_at = time.monotonic()
                    self._flush_logs()
                    tick()
                    waits.print_if_due()
                    if hung := watch.hung():
                        return hung
            # Messages that ranks sent before they ended may still be in this host's buffers.
            while self._receive(ranks, job, watch, listener):
                pass
        ranks.waiting.clear()
        return watch.ended(ranks.process.wait(), "\n".join(self._launcher_says))

    def _receive(self, ranks: StartedRanks, job: Job, watch: RankWatchdog, listener: OnEvent) -> bool:
        """Process new messages from ranks. Return whether there were new messages."""
        words = ranks.callers.take_messages()
        for rank, word in words:
            if word == END:
                watch.confirm(rank)
                ranks.numbers.pop(rank, None)
                rank.send(END)
            elif word == WAITING:
                ranks.waiting[rank] = None
            elif word is ENDED:
                ranks.waiting.pop(rank, None)
                if (number := ranks.numbers.pop(rank, None)) is not None:
                    watch.add_exit(number, rank.ended)
            else:
                try:
                    event = event_from_plain(word)
                except ValueError as error:
                    # The rank has another version of this package. If the launch requires the ignored message, it
                    # counts as missing.
                    self._log("launcher", self._redactor.text(f"a rank sent an unknown message: {error}"))
                    continue
                if isinstance(event, Hello) and event.rank is not None:
                    ranks.numbers[rank] = event.rank
                if isinstance(event, Hello) and event.rank == 0:
                    ranks.rank_0 = rank
                    rank.send(to_plain(job))
                self._process_event(event, watch, listener)
        return bool(words)

    def _process_lines(self, lines: list[str], watch: RankWatchdog) -> None:
        """Process lines of the launcher's output.

        Some lines are output of libraries, some are events of ranks without a connection.
        """
        for line in lines:
            _, event = from_line(line)
            if isinstance(event, Hello | Beat | Failed):
                self._process_event(event, watch, lambda event: None)
            else:
                self._launcher_says.append(line)
                self._log("launcher", self._redactor.text(line))

    def _process_event(self, event: Event, watch: RankWatchdog, listener: OnEvent) -> None:
        if isinstance(event, Hello | Beat | Failed):
            watch.record(event)
            line = json.dumps(self._redactor.plain(event_to_plain(event)))
            self._log(f"rank-{event.rank}", line)
        else:
            if isinstance(event, Ready):
                self._all_have_the_job = True
            listener(event)

    def _print_and_log(self, text: str, say: Callable[[str], None]) -> None:
        self._log("launcher", self._redactor.text(text))
        say(self._redactor.text(text))

    def _log(self, name: str, line: str) -> None:
        if self._logs:
            self._logs.write(name, line)

    def _flush_logs(self) -> None:
        if self._logs:
            self._logs.flush()


def _watch(job: Job, checkpoints: Sequence[PlannedCheckpoint]) -> RankWatchdog:
    allowances = allowances_of(checkpoints, job.deadline_seconds)
    return RankWatchdog(job.processes, job.deadline_seconds, socket.gethostname(), allowances)
