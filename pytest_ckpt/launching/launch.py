"""One launch of ranks: started, listened to, ended; its command, environment, logs and exit kept."""

from __future__ import annotations

import collections
import dataclasses
import json
import select
import selectors
import shutil
import socket
import time
from typing import TYPE_CHECKING, Any

from pytest_ckpt.facts.codec import to_plain
from pytest_ckpt.facts.events import Beat, Event, Failed, Hello, Ready, event_from_plain, event_to_plain, from_line
from pytest_ckpt.facts.failure import Failure
from pytest_ckpt.launching.kept_log import KeptLogs, keep_command
from pytest_ckpt.launching.pace import allowances_of
from pytest_ckpt.launching.rank_watchdog import RankWatchdog
from pytest_ckpt.launching.scratch import ScratchFolder
from pytest_ckpt.launching.started_ranks import StartedRanks, listener_of, started
from pytest_ckpt.ranks.process.controller import END, LEAVE, NEXT, WAITING
from pytest_ckpt.support import waits
from pytest_ckpt.support.processes import blocked_sentence
from pytest_ckpt.support.units import counted
from pytest_ckpt.wire.frames import CONTROLLER
from pytest_ckpt.wire.listener import ENDED

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_ckpt.launching.launcher import Launcher
    from pytest_ckpt.ranks.process.job import Job
    from pytest_ckpt.support.redaction import Redactor

    OnEvent = Callable[[Event], None]

_TICK_SECONDS = 0.25
# A launcher may fail to start anything: its daemons miss each other, a socket is taken. Nothing was measured by then.
_TRIES = 3
# One that is silent takes the deadline each time. Over hosts a firewall may be why, or the queue of a scheduler.
_SILENT_TRIES_ON_THIS_HOST = 2
# More than any launcher says of how it ended.
_MAXIMUM_SAID = 10_000
_LEAVE_SECONDS = 10.0


class Launch:
    """Starts the ranks of a job and reports what they tell. ``folder`` is created and keeps the evidence.

    Ranks of a job that is followed stay, and take the next job that is run with as many.
    """

    def __init__(self, launcher: Launcher, run_id: str, folder: Path, redactor: Redactor) -> None:
        self._launcher = launcher
        self._run_id = run_id
        self._folder = folder
        self._redactor = redactor
        self._logs: KeptLogs | None = None
        self._launcher_says: collections.deque[str] = collections.deque(maxlen=_MAXIMUM_SAID)
        self._ranks: StartedRanks | None = None
        self._tries = 0
        self._all_have_the_job = False

    @property
    def waiting(self) -> int:
        """How many ranks wait for another job."""
        return len(self._ranks.waiting) if self._ranks else 0

    def run(
        self,
        job: Job,
        listener: OnEvent,
        tick: Callable[[], None] = lambda: None,
        say: Callable[[str], None] = lambda text: None,
    ) -> Failure | None:
        """Run the job to its end. Return None when all of it was done, else why it ended.

        ``listener`` hears every event of rank 0, ``tick`` is called several times a second. A launcher that ends before
        any rank has reported is tried again, twice at most; one that is silent until the deadline, once, where all is
        on this host; and ranks that waited and do not go on are started again. ``say`` is told of it, and the
        launcher's log. A KeyboardInterrupt is let through when no rank is left.
        """
        if not self._logs:
            self._logs = KeptLogs(self._folder, job.processes)
            self._logs.log("launcher")
        if self._ranks:
            failure = self._go_on(job, listener, tick)
            if failure is None or self._all_have_the_job:
                return failure
            self._tell(f"Ranks that waited for this do not go on ({failure.message}); they are started again.", say)
        self._tries = 0
        while True:
            self._tries += 1
            watch = _watch(job)
            self._start(job.processes)
            failure = self._followed(job, watch, listener, tick)
            if failure is None or not watch.may_be_tried_again(failure):
                return failure
            if self._tries == self._most_tries(watch):
                tried = f" (tried {counted(self._tries, 'time')})" if self._tries > 1 else ""
                return dataclasses.replace(failure, message=failure.message + tried)
            self._tell(f"The launcher started no rank ({failure.message}); trying again.", say)

    def _most_tries(self, watch: RankWatchdog) -> int:
        silent = _SILENT_TRIES_ON_THIS_HOST if self._launcher.stays_here else 1
        return silent if watch.is_silent else _TRIES

    def answer(self, word: Any) -> None:
        """Tell rank 0 something while it works; a rank that is gone hears nothing."""
        if self._ranks and self._ranks.rank_0:
            self._ranks.rank_0.send(word)

    def move_to(self, folder: Path) -> None:
        """Keep the evidence in another folder from now on, with what there is of it."""
        folder.parent.mkdir(exist_ok=True)
        shutil.move(self._folder, folder)
        self._folder = folder
        if self._logs:
            self._logs.are_now_in(folder)

    def end(self) -> None:
        """End ranks that wait: they are asked to, then made to. Nothing happens where none do."""
        ranks = self._ranks
        if ranks is None:
            return
        for rank in ranks.waiting:
            rank.send(LEAVE)
        until = time.monotonic() + _LEAVE_SECONDS
        try:
            while ranks.process.poll() is None and time.monotonic() < until:
                select.select([ranks.callers.fileno(), *ranks.streams], [], [], _TICK_SECONDS)
                for rank, word in ranks.callers.take():
                    if word == END:
                        rank.send(END)
                for stream in tuple(ranks.streams):
                    for line in ranks.read(stream):
                        self._log("launcher", self._redactor.text(line))
        finally:
            self._end()

    def _start(self, processes: int) -> None:
        self._launcher_says.clear()
        scratch = ScratchFolder() if self._launcher.needs_scratch else None
        try:
            callers = listener_of(self._launcher, processes)
            command = self._launcher.command(processes)
            environment = self._launcher.environment(self._run_id, scratch.path if scratch else "")
            told = environment | {CONTROLLER: callers.environment[CONTROLLER]}
            keep_command(self._folder, self._redactor, command, told)
            self._ranks = started(command, environment, callers, scratch)
        except BaseException:
            if scratch:
                scratch.remove()
            raise

    def _go_on(self, job: Job, listener: OnEvent, tick: Callable[[], None]) -> Failure | None:
        """Run a job on the ranks that wait."""
        assert self._ranks
        self._all_have_the_job = False
        watch = _watch(job)
        while self._hear(self._ranks, job, watch, listener):
            pass
        if len(self._ranks.waiting) < job.processes:
            self._end(is_whole=False)
            return Failure(kind="launch", message="some of them are gone")
        for rank in self._ranks.waiting:
            rank.send(NEXT)
        self._ranks.waiting.clear()
        return self._followed(job, watch, listener, tick)

    def _followed(self, job: Job, watch: RankWatchdog, listener: OnEvent, tick: Callable[[], None]) -> Failure | None:
        """Follow the ranks until they have ended, or wait for another job; end what is left otherwise."""
        assert self._ranks
        try:
            with waits.waiting(watch.waits_for):
                failure = self._follow(self._ranks, job, watch, listener, tick)
        except BaseException:
            self._end(is_whole=False)
            raise
        finally:
            self._flush_logs()
        if failure is None and self.waiting:
            return None
        stuck = self._end(is_whole=failure is None)
        if failure and stuck:
            stack = "\n".join(filter(None, [failure.stack, blocked_sentence(stuck)]))
            failure = dataclasses.replace(failure, stack=stack)
        return failure

    def _end(self, *, is_whole: bool = True) -> list[int]:
        """End what is left of the ranks, and keep how they ended; ``is_whole``: all of them, by themselves."""
        ranks, self._ranks = self._ranks, None
        if ranks is None:
            return []
        try:
            return ranks.end(self._run_id)
        finally:
            self._flush_logs()
            seconds = time.monotonic() - ranks.began
            ended = {"exit_code": ranks.process.poll(), "is_whole": is_whole, "seconds": seconds, "tries": self._tries}
            (self._folder / "exit.json").write_text(json.dumps(ended) + "\n")

    def _follow(
        self, ranks: StartedRanks, job: Job, watch: RankWatchdog, listener: OnEvent, tick: Callable[[], None]
    ) -> Failure | None:
        with selectors.DefaultSelector() as selector:
            for source in (ranks.callers.fileno(), *ranks.streams):
                selector.register(source, selectors.EVENT_READ)
            looked = 0.0
            while ranks.streams:
                for key, _ in selector.select(_TICK_SECONDS):
                    if key.fd == ranks.callers.fileno():
                        self._hear(ranks, job, watch, listener)
                        continue
                    self._take_lines(ranks.read(key.fd), watch)
                    if key.fd not in ranks.streams:
                        selector.unregister(key.fileobj)
                if job.is_followed and len(ranks.waiting) == job.processes:
                    return None
                # Not after each word of thousands of ranks: both look at all of them.
                if time.monotonic() - looked > _TICK_SECONDS:
                    looked = time.monotonic()
                    self._flush_logs()
                    tick()
                    waits.look()
                    if hung := watch.hung():
                        return hung
            # What ranks told before they ended may still be on its way through this host.
            while self._hear(ranks, job, watch, listener):
                pass
        ranks.waiting.clear()
        return watch.ended(ranks.process.wait(), "\n".join(self._launcher_says))

    def _hear(self, ranks: StartedRanks, job: Job, watch: RankWatchdog, listener: OnEvent) -> bool:
        """Take in what ranks have told on their connections; return whether there was anything."""
        words = ranks.callers.take()
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
                    watch.gone(number, rank.ended)
            else:
                try:
                    event = event_from_plain(word)
                except ValueError as error:
                    # Another version of this package: what it cannot say is missed, and decides.
                    self._log("launcher", self._redactor.text(f"a rank told something that is not known: {error}"))
                    continue
                if isinstance(event, Hello) and event.rank is not None:
                    ranks.numbers[rank] = event.rank
                if isinstance(event, Hello) and event.rank == 0:
                    ranks.rank_0 = rank
                    rank.send(to_plain(job))
                self._take(event, watch, listener)
        return bool(words)

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
            found = json.dumps(self._redactor.plain(event_to_plain(event)))
            self._log(f"rank-{event.rank}", found)
        else:
            if isinstance(event, Ready):
                self._all_have_the_job = True
            listener(event)

    def _tell(self, text: str, say: Callable[[str], None]) -> None:
        self._log("launcher", self._redactor.text(text))
        say(self._redactor.text(text))

    def _log(self, name: str, line: str) -> None:
        if self._logs:
            self._logs.write(name, line)

    def _flush_logs(self) -> None:
        if self._logs:
            self._logs.flush()


def _watch(job: Job) -> RankWatchdog:
    return RankWatchdog(job.processes, job.deadline_seconds, socket.gethostname(), allowances_of(job))
