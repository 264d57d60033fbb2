"""Saves and loads in a launch of its own, in which rank 0 has the controller run commands that change the storage."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from pytest_ckpt.ranks.engines.factory import content_of, made_engine
from pytest_ckpt.ranks.operations import Operations
from pytest_ckpt.ranks.process.commands import Asked, AskLater
from pytest_ckpt.ranks.process.host_cache import HostCache
from pytest_ckpt.ranks.process.job import BESIDE_COMMANDS
from pytest_ckpt.ranks.scenarios.operations_that_may_fail import OperationsThatMayFail, Tried
from pytest_ckpt.sizing.files import files_of
from pytest_ckpt.support.references import load

if TYPE_CHECKING:
    from pytest_ckpt.facts.commands import Command, CommandRun, TriedKind
    from pytest_ckpt.facts.subject import OperationRef, OwnPattern
    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.ranks.process.controller import Controller
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.ranks.process.job import Job, Task
    from pytest_ckpt.targets.protocol import Store

# Neither the first nor the last tenth: there an operation has hardly begun, or may be over before the command runs.
_EARLIEST, _LATEST = 0.1, 0.9

_RUNS: dict[OwnPattern, str] = {
    "failover": "pytest_ckpt.ranks.scenarios.failover:FailoverRun",
    "upgrade": "pytest_ckpt.ranks.scenarios.upgrade:UpgradeRun",
    "snapshots": "pytest_ckpt.ranks.scenarios.snapshots:SnapshotRun",
}


def run_with_commands(group: Group, activity: Activity, task: Task, job: Job, controller: Controller) -> None:
    """Run the scenario of a task that measures nothing else; ``controller`` runs the commands."""
    assert task.beside_commands
    run: type[RunWithCommands] = load(_RUNS[task.beside_commands])
    run(group, activity, task, job, task.beside_commands, controller).run()


class RunWithCommands(ABC):
    """Two checkpoints in turns: one that is whole, and one that is free to be written."""

    def __init__(
        self, group: Group, activity: Activity, task: Task, job: Job, name: OwnPattern, controller: Controller
    ) -> None:
        self._group, self._activity, self._task, self._area = group, activity, task, job.area
        self._controller = controller
        self._name: OwnPattern = name
        self._store: Store = load(job.area.opener)(job.area)
        shards = task.layout()
        self._bytes, self._shard = shards.bytes, shards.rank(group.rank)
        self._do = Operations(group, activity, task.subject, self._shard, self._store, rule=task.files)
        content = content_of(task, self._shard, aside=name)
        self._engine = made_engine(task, self._shard, content, group, activity, job.options)
        # The same on all ranks.
        self._random = random.Random(f"{task.seed}/{task.subject}/{name}")
        # Each of these launches has two numbers of its own: no save of a run has the name of another.
        first = task.operations + BESIDE_COMMANDS + 2 * list(_RUNS).index(name)
        self._free, self._whole = first, first + 1
        self._count = 0

    def run(self) -> None:
        """Measure, then remove what was written."""
        task = self._task
        self._activity.begin(self._do.all("prepare", self._name))
        self._do.across_hosts.prepare()
        with self._do.stage("prepare", self._do.all("prepare", self._name)):
            self._cache = HostCache(self._group, self._activity, self._store, task.subject.slug)
        self._try = OperationsThatMayFail(
            group=self._group,
            activity=self._activity,
            do=self._do,
            engine=self._engine,
            store=self._store,
            cache=self._cache,
            policy=task.drop_caches,
            layout_bytes=self._bytes,
            names=tuple(file.name for file in files_of(self._shard, task.files)),
            role=self._name,
        )
        is_well = self._measure()
        at = self._do.all("remove", self._name)
        left = [error for number in (self._whole, self._free) if (error := self._try.discard(number, at))]
        if left and is_well:
            raise OSError(0, f"nothing is broken, and what was saved cannot be deleted: {left[0]}")
        if not left and not task.keep and self._leads:
            self._store.clear(task.subject.slug)
        self._group.wait()

    @abstractmethod
    def _measure(self) -> bool:
        """Save and load; tell what was found. Return whether the storage is as it was before."""

    @property
    def _leads(self) -> bool:
        return self._group.rank == 0

    def _share(self) -> float:
        """Return a random share of an operation, the same on all ranks."""
        return self._random.uniform(_EARLIEST, _LATEST)

    def _later(self, command: Command, seconds: float) -> AskLater | None:
        return AskLater(self._controller, self._task.subject, command, seconds) if self._leads else None

    def _save(self, later: AskLater | None = None) -> Tried:
        """Save under the number that is free; where that succeeds, what was whole before is free."""
        tried = self._try.save(self._free, self._next("save"), later)
        if not tried.failed:
            self._free, self._whole = self._whole, self._free
        return tried

    def _load_whole(self, later: AskLater | None = None) -> Tried:
        """Load the newest checkpoint that was committed, and compare it."""
        return self._try.load(self._whole, self._next("load"), later)

    def _next(self, action: TriedKind) -> OperationRef:
        self._count += 1
        return self._do.one(self._name, action, self._count)

    def _hold(self, tried: Tried) -> Tried:
        """Return an operation in which nothing was changed. Raises its error."""
        if tried.failed:
            raise OSError(0, f"nothing was broken, and a {tried.operation.kind} failed: {tried.operation.error}")
        return tried

    def _is_any(self, *, seen: bool) -> bool:
        """Return on all ranks what rank 0 has seen."""
        return bool(self._group.share(seen))

    def _heard(self, asked: Asked | None) -> CommandRun:
        """Return on all ranks what came of a command that rank 0 has asked for, when it has ended."""
        with self._activity.wait():
            run = asked.wait() if asked else None
        shared: CommandRun = self._group.share(run)
        return shared

    def _run_command(self, command: Command) -> CommandRun:
        return self._heard(Asked(self._controller, self._task.subject, command) if self._leads else None)
