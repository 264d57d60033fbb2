"""Crashes: training is killed during a background save, and then the newest committed checkpoint must load.

Only committed checkpoints may load, and each committed checkpoint must be complete. Each rank forks a process that
simulates its training process. Without a local tier, the process copies its state, and changes the state while it
writes the copy. With a local tier, the process drains (copies) a save to the target. The ranks kill the processes at a
random moment and inspect the remaining files. The checkpoints are small versions of the subject's checkpoints, in a
separate area.

During each save that will be killed, the second-newest committed checkpoint is deleted, as by a retention rule. So only
the newest committed checkpoint remains. A fast save may commit before the processes are killed. So in every second
save, no rank commits, and the kill certainly comes before the commit.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import random
import threading
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from pytest_ckpt.facts.events import PatternMeasured
from pytest_ckpt.facts.strategy_results import Crashes, Kill, Reached
from pytest_ckpt.ranks.engines.factory import content_of, create_engine
from pytest_ckpt.ranks.engines.protocol import Clock, staging
from pytest_ckpt.ranks.operations import BackgroundThread, Operations
from pytest_ckpt.ranks.process.activity import Activity
from pytest_ckpt.ranks.process.forked import ForkedProcess, complete_collective
from pytest_ckpt.ranks.scenarios.failing_operations import ComparisonTotals
from pytest_ckpt.ranks.strategies.protocol import await_durable_names, write_files
from pytest_ckpt.ranks.strategies.sync import SyncStrategy
from pytest_ckpt.ranks.strategies.tiered import Copies
from pytest_ckpt.ranks.training import change_all
from pytest_ckpt.sizing.files import passing_names
from pytest_ckpt.sizing.patterns import PATTERNS
from pytest_ckpt.support.references import load
from pytest_ckpt.support.units import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_ckpt.facts.subject import OperationRef
    from pytest_ckpt.facts.targets import AreaRef, CheckpointRef
    from pytest_ckpt.ranks.engines.protocol import Engine
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.ranks.process.host_cache import Files, HostCache
    from pytest_ckpt.ranks.process.job import EngineOptions, Task
    from pytest_ckpt.ranks.scenarios.context import ScenarioContext
    from pytest_ckpt.ranks.strategies.protocol import RankSave
    from pytest_ckpt.targets.protocol import Store

_BY_LIST = "The target commits by a list of all ranks' objects, which killed processes cannot hand on."
# Bytes per rank: enough for a kill in the middle of a save, and few enough for many kills.
_RANK_BYTES = 8 << 20
# Ranks exchange values at every poll, which uses cores of the saving processes, so the interval is a fiftieth of a
# save.
_SHORTEST_POLL_SECONDS, _LONGEST_POLL_SECONDS, _POLLS_OF_A_SAVE = 0.001, 0.005, 50
# Some kills come after the save has ended: a committed checkpoint must be complete then, too.
_LATEST = 1.15
COPIED, WRITTEN, COMMITTED = "c", "w", "d"
WRITE, COMMIT = "W", "C"


def measure_crashes(
    group: Group,
    activity: Activity,
    task: Task,
    area: AreaRef,
    options: EngineOptions,
    cache: HostCache,
    drop: Callable[[Sequence[Files]], None],
    local: AreaRef | None,
) -> None:
    """Save a small version of the subject's checkpoint, and kill the save.

    Saves are repeated and killed as often as the task requires.
    """
    assert task.crashes
    whole = task.layout()
    share = min(1.0, _RANK_BYTES * whole.processes / whole.bytes)
    small = task.layout(task.scale * share)
    shard = small.rank(group.rank)
    store: Store = load(area.opener)(area)
    do = Operations(group, activity, task.subject, shard, store, rule=task.files)
    if store.wants_entries:
        do.send(PatternMeasured(subject=task.subject, name="crashes", not_run=_BY_LIST))
        store.close()
        return
    content = content_of(task, shard, aside="crashes")

    def make() -> Engine:
        return create_engine(task, shard, content, group, activity, replace(options, stages=False))

    def make_staging(among: Group) -> Engine:
        return create_engine(task, shard, content, among, Activity(), replace(options, stages=True))

    background: InBackground = ByCopy(make=make_staging)
    if local:
        tier: Store = load(local.opener)(local)
        background = ByDrain(
            group=group,
            activity=activity,
            do=Operations(group, activity, task.subject, shard, tier, rule=task.files, is_local=True),
            tier=tier,
            make=make,
            options=options,
            attach=lambda: load(local.opener)(local),
        )
    CrashScenario(
        group=group,
        do=do,
        cache=cache,
        store=store,
        background=background,
        make=make,
        attach=lambda: load(area.opener)(area),
        drop=drop,
        random=random.Random(f"{task.seed}/{task.subject}/crashes"),
        after=task.operations,
        bytes=small.bytes,
        planned=task.crashes.kills,
        passing=passing_names(shard, task.files),
    ).measure()
    store.close()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Cut:
    """The result of a save that was killed after ``seconds``, by rank 0's clock.

    ``committed_seconds`` is the time until the commit; infinite if no commit was reported. ``reached`` is the last step
    that all processes reached.
    """

    seconds: float
    committed_seconds: float
    reached: Reached


@dataclass(kw_only=True, slots=True)
class CrashScenario:
    """Starts saves, each with a separate number, and kills them. ``bytes`` is the size of a save over all ranks.

    ``background`` defines how a save is begun and written. ``make()`` returns a new engine for loads. ``attach()``
    opens the area again, for a forked process. ``drop`` drops caches in the same way as before every load. ``random``
    returns the same numbers on all ranks. ``planned`` is the number of saves to kill. ``passing`` are names that this
    rank's files have only during a save.
    """

    group: Group
    do: Operations
    cache: HostCache
    store: Store
    background: InBackground
    make: Callable[[], Engine]
    attach: Callable[[], Store]
    drop: Callable[[Sequence[Files]], None]
    random: random.Random
    after: int
    bytes: int
    planned: int
    passing: Sequence[str] = ()
    _compared: ComparisonTotals = field(default_factory=ComparisonTotals)
    _usual: float = math.inf

    def measure(self) -> None:
        """Kill each planned save, and load the newest committed checkpoint after each kill. Then report all results.

        If a committed checkpoint cannot be loaded correctly, no other save is killed.
        """
        numbers = itertools.count(self.after + PATTERNS["crashes"].first)
        newest, older = next(numbers), 0
        kills: list[Kill] = []
        self._save(self.do.new_ref(newest, "crash"), None)
        for index in range(1, self.planned + 1):
            start = time.perf_counter()
            if not older:
                newest, older = next(numbers), newest
                self._save(self.do.new_ref(newest, "crash"), None)
            number = next(numbers)
            ref = self.do.new_ref(number, "crash")
            # A save may be faster than ranks can decide to kill it. So every second one is killed before its commit.
            withholds = index % 2 == 1
            latest = self._usual if withholds else _LATEST * self._usual
            saved = self._save(ref, self.random.uniform(0.0, latest), older, withholds=withholds)
            is_committed = bool(self.group.share(self.group.rank == 0 and self.store.is_committed(ref)))
            newest, older = (number, newest) if is_committed else (newest, 0)
            lost = self._load(newest)
            if not is_committed:
                self._delete(number)
            kills.append(
                Kill(
                    moment_seconds=saved.seconds,
                    reached=saved.reached,
                    is_committed=is_committed,
                    lost=lost,
                    deletes_older=True,
                    is_commit_withheld=withholds,
                )
            )
            self.do.step("crashes", index, time.perf_counter() - start)
            if lost:
                break
        self._report(kills)
        for number in filter(None, (older, newest)):
            self._delete(number)

    def _report(self, kills: Sequence[Kill]) -> None:
        found = Crashes(
            planned=self.planned,
            bytes=self.bytes,
            usual_seconds=self._usual,
            kills=tuple(kills),
            integrity=self._compared.integrity,
        )
        self.do.send(PatternMeasured(subject=self.do.subject, name="crashes", found=found))

    def _save(self, ref: CheckpointRef, moment: float | None, older: int = 0, *, withholds: bool = False) -> _Cut:
        """Save in forked processes, then kill them.

        Return, on all ranks, the time of the kill and the last step that all processes reached. The kill comes
        ``moment`` seconds after all processes have copied. If ``moment`` is None, the kill comes after the commit. If
        ``withholds``, the save is not committed. If ``older`` is not 0, the checkpoint with this number is deleted
        during the save.
        """
        at = self.do.one("crashes", "save", ref.number)
        self.background.before(ref, at)
        with self.do.stage("crashes", at):
            child = ForkedProcess(self.group, lambda send, receive, group: self._child(ref, send, receive, group))
            retention = BackgroundThread(lambda _over: self._delete_files(older)) if older else None
            try:
                self._until_copied(child)
                # All processes must begin to write together; otherwise some would be done before the last one has
                # copied.
                child.send(WRITE)
                if retention:
                    retention.start()
                seconds, committed = self._until_over(child, moment, withholds=withholds)
            finally:
                child.kill()
            if retention:
                retention.finish()
                self._finish_delete(older)
        self.background.after(ref)
        letters = self.group.gather(child.sent)
        reached: Reached = "copied"
        if letters and all(WRITTEN in of_rank for of_rank in letters):
            reached = "committed" if COMMITTED in letters[0] else "written"
        cut: _Cut = self.group.share(_Cut(seconds=seconds, committed_seconds=committed, reached=reached))
        # The first save is slow: kills timed by its duration would come after the end of the others.
        self._usual = min(self._usual, cut.committed_seconds)
        return cut

    def _pause(self) -> None:
        time.sleep(min(_LONGEST_POLL_SECONDS, max(_SHORTEST_POLL_SECONDS, self._usual / _POLLS_OF_A_SAVE)))

    def _until_copied(self, child: ForkedProcess) -> None:
        while self.group.any_of(COPIED not in child.poll()):
            self._raise_error(child)
            complete_collective(self.group, child)
            self._pause()

    def _until_over(self, child: ForkedProcess, moment: float | None, *, withholds: bool) -> tuple[float, float]:
        """Wait until the moment of the kill. Return (seconds until the kill, seconds until the commit).

        The kill is due ``moment`` seconds after the call; if ``moment`` is None, it is due when the commit is reported.
        The commit is requested when all ranks have written, except if ``withholds``. If no commit is reported, the
        seconds until the commit are infinite. When one rank detects that the kill is due, all ranks return together.
        """
        start, committed = time.perf_counter(), math.inf
        leads, is_requested = self.group.rank == 0, False
        while True:
            child.poll()
            self._raise_error(child)
            complete_collective(self.group, child)
            if not withholds and not is_requested and not self.group.any_of(WRITTEN not in child.sent):
                is_requested = True
                if leads:
                    child.send(COMMIT)
            seconds = time.perf_counter() - start
            if COMMITTED in child.sent:
                committed = min(committed, seconds)
            is_over = math.isfinite(committed) if moment is None else leads and seconds >= moment
            if self.group.any_of(is_over):
                return seconds, committed
            self._pause()

    def _child(self, ref: CheckpointRef, send: Callable[[str], None], receive: Callable[[], str], group: Group) -> None:
        """In the forked process, save this rank's files.

        The process waits for a request before it writes. It waits for another request before it commits.
        """
        store, clock = self.attach(), Clock(activity=Activity())
        write = self.background.begin(ref, store, clock, group)
        send(COPIED)
        if receive() != WRITE:
            return
        saved = await_durable_names(write(), store, group, ref, clock)
        send(WRITTEN)
        if self.group.rank == 0 and receive() == COMMIT:
            store.commit(ref, saved.entries, clock)
            send(COMMITTED)
        # A process that has saved continues its training until it is killed.
        receive()

    def _raise_error(self, child: ForkedProcess) -> None:
        if child.error:
            raise OSError(0, f"a save in a separate process failed: {child.error}")

    def _load(self, number: int) -> str:
        """Load the committed checkpoint ``number``, and compare its bytes. Return the error; empty if there is none."""
        missing = sum(self.group.share(self.group.gather(self._missing(number))))
        if missing:
            return f"{counted(missing, 'file is', 'files are')} missing"
        engine = self.make()
        self.drop([self.do.files(number)])
        compared = self._compared
        compared.expected += self.bytes
        loaded = self.do.load(engine, self.cache, number, number, counted=False, scenario="crashes")
        engine.release()
        compared.checked += loaded.bytes_checked
        compared.fault_count += loaded.fault_count
        compared.faults += loaded.faults
        lost = ""
        if self.group.rank == 0 and (loaded.fault_count or loaded.bytes_checked != self.bytes):
            lost = f"{loaded.bytes_checked} of {self.bytes} bytes came back, {loaded.fault_count} of its places wrong"
        return str(self.group.share(lost))

    def _missing(self, number: int) -> int:
        """Return how many of this rank's files are missing in checkpoint ``number``."""
        store, missing = self.store, 0
        committed = store.open(self.do.ref(number), Clock(activity=Activity()))
        for name in self.do.files(number).names:
            try:
                committed.source(name).close()
            except FileNotFoundError:
                missing += 1
        return missing

    def _delete(self, number: int) -> None:
        """Remove the files and the directory of a checkpoint.

        Files that do not exist are ignored, because a save may have been killed early.
        """
        for name in (*self.do.own_names(number), *self.passing):
            with contextlib.suppress(FileNotFoundError):
                self.store.delete(self.do.ref(number), (name,))
        self._finish_delete(number)

    def _delete_files(self, number: int) -> None:
        self.do.delete_files_of_rank(number)

    def _finish_delete(self, number: int) -> None:
        self.group.wait()
        if self.group.rank == 0:
            with contextlib.suppress(FileNotFoundError):
                self.store.finish_delete(self.do.ref(number))
        self.group.wait()


class InBackground(Protocol):
    """The protocol of a background save that will be killed."""

    def before(self, ref: CheckpointRef, at: OperationRef) -> None:
        """Do work that blocks the job, before the process is forked. All ranks call this together."""

    def begin(self, ref: CheckpointRef, store: Store, clock: Clock, group: Group) -> Callable[[], RankSave]:
        """In the forked process, do the work that blocks the job. Return a function that writes this rank's files.

        The function writes the files to ``store``. ``group`` contains the forked processes of all ranks.
        """

    def after(self, ref: CheckpointRef) -> None:
        """Clean up after the process has ended. All ranks call this together."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ByCopy:
    """A background save from a copy: the process changes its state while it writes the copy.

    ``make(group)`` returns an engine for a process of the group. The engine must copy the state before it saves.
    """

    make: Callable[[Group], Engine]

    def before(self, ref: CheckpointRef, at: OperationRef) -> None:
        """Do nothing: the forked process creates its own state in `begin`."""

    def begin(self, ref: CheckpointRef, store: Store, clock: Clock, group: Group) -> Callable[[], RankSave]:
        """Copy the state and begin to change it. Return a function that writes the copy."""
        engine = self.make(group)
        state = staging(engine)
        engine.fill(ref.number)
        state.stage()
        threading.Thread(target=change_all, args=(state.state(),), daemon=True).start()
        return lambda: write_files(engine, store, ref, clock)

    def after(self, ref: CheckpointRef) -> None:
        """Do nothing, because the process leaves no files."""


@dataclass(kw_only=True, slots=True)
class ByDrain:
    """A background save from the local tier to the target.

    The ranks save to the local tier, and the forked process drains this save to the target. ``do`` performs operations
    in the local tier. ``make()`` returns an engine. ``attach()`` opens the local tier again, for a forked process.
    """

    group: Group
    activity: Activity
    do: Operations
    tier: Store
    make: Callable[[], Engine]
    options: EngineOptions
    attach: Callable[[], Store]
    _names: tuple[str, ...] = field(default=())

    def before(self, ref: CheckpointRef, at: OperationRef) -> None:
        """Save to the local tier."""
        engine = self.make()
        saves = SyncStrategy(engine=engine, store=self.tier, group=self.group, activity=self.activity)
        self.do.save(saves, ref.number, role="crash", at=at, stage="crashes")
        engine.release()
        self._names = self.do.own_names(ref.number)

    def begin(self, ref: CheckpointRef, store: Store, clock: Clock, group: Group) -> Callable[[], RankSave]:
        """Return a function that drains this rank's files to ``store``."""
        copies = Copies(store, self.attach(), self.options)
        return lambda: copies.copy(ref, self._names, clock)

    def after(self, ref: CheckpointRef) -> None:
        """Delete the copy in the local tier."""
        self.do.delete(ref.number)


def measure(at: ScenarioContext) -> None:
    """Run this scenario for a subject."""
    measure_crashes(at.group, at.activity, at.task, at.area, at.options, at.cache, at.drop, at.local)
