"""Failover: a component of the storage is broken at random moments of saves and loads, and mended after each.

A launch of its own, after all others: the storage may rebuild for long, and nothing else is to be measured then. Rank 0
asks the controller for the commands. For each moment: operations one after the other, until the break command has
returned; the mend command; a save while the storage rebuilds. Every checkpoint that was committed is loaded, and every
byte of it compared.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from pytest_ckpt.facts.events import PatternMeasured
from pytest_ckpt.facts.failover import (
    BREAKS,
    BrokenKind,
    CommandRun,
    Failover,
    FailoverOperation,
    FailoverTrial,
)
from pytest_ckpt.ranks.content.generator import Content, content_seed
from pytest_ckpt.ranks.engines.factory import engine_maker
from pytest_ckpt.ranks.operations import Operations
from pytest_ckpt.ranks.process.commands import Asked, AskLater
from pytest_ckpt.ranks.process.host_cache import HostCache
from pytest_ckpt.ranks.process.job import OF_FAILOVER, EngineOptions
from pytest_ckpt.ranks.scenarios.operations_that_may_fail import OperationsThatMayFail, Tried
from pytest_ckpt.sizing.models import layout
from pytest_ckpt.support.references import load

if TYPE_CHECKING:
    from pytest_ckpt.facts.subject import OperationRef
    from pytest_ckpt.facts.targets import AreaRef
    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.ranks.process.job import Task
    from pytest_ckpt.targets.protocol import Store

# Neither the first nor the last tenth: there an operation has hardly begun, or may be over before the command runs.
_EARLIEST, _LATEST = 0.1, 0.9


class FailoverRun:
    """Runs one task; rank 0 tells all that is known after each moment."""

    def __init__(self, group: Group, activity: Activity, task: Task, area: AreaRef, options: EngineOptions) -> None:
        self._group, self._activity, self._task = group, activity, task
        self._store: Store = load(area.opener)(area)
        shards = layout(task.model, mode=task.mode, processes=task.processes, scale=task.scale)
        self._bytes, self._shard = shards.bytes, shards.rank(group.rank)
        self._do = Operations(group, activity, task.subject, self._shard, self._store)
        seed = content_seed(task.seed, f"{task.subject}/failover")
        self._engine = engine_maker(task.make)(
            shard=self._shard,
            content=Content(seed, compressible=task.compressible),
            group=group,
            activity=activity,
            options=options,
        )
        # The same on all ranks.
        self._random = random.Random(f"{task.seed}/{task.subject}/failover")
        self._free, self._whole = (task.operations + OF_FAILOVER + n for n in range(2))
        self._count = 0
        self._undisturbed: tuple[FailoverOperation, ...] = ()
        self._trials: list[FailoverTrial] = []

    def run(self) -> None:
        """Save and load undisturbed, then with something broken; remove what was written."""
        task = self._task
        with self._do.stage("prepare", self._do.all("prepare", "failover")):
            self._store.prepare(task.subject.slug)
            self._group.wait()
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
            names=tuple(file.name for file in self._shard.files),
        )
        saved = self._save()
        loaded = self._load_whole()
        self._undisturbed = (saved.told, loaded.told)
        self._hold(saved)
        self._hold(loaded)
        not_run = ""
        for kind in BREAKS:
            not_run = self._broken(kind, (saved if kind == "save" else loaded).told.seconds)
            self._tell(not_run)
            if not_run:
                break
        at = self._do.all("remove", "failover")
        left = [error for number in (self._whole, self._free) if (error := self._try.discard(number, at))]
        if left and not not_run:
            raise OSError(0, f"nothing is broken, and what was saved cannot be deleted: {left[0]}")
        if not left and not task.keep and self._leads:
            self._store.clear(task.subject.slug)
        self._group.wait()

    def _broken(self, kind: BrokenKind, usual_seconds: float) -> str:
        """Break something in one operation of a kind, mend it and save; return why there is no use in going on."""
        share = self._random.uniform(_EARLIEST, _LATEST)
        told: list[FailoverOperation] = []
        asked: Asked | None = None
        later: AskLater | None = None
        moment = 0.0
        pending = False
        while True:
            later = AskLater(self._task.subject, share * usual_seconds) if not asked and self._leads else None
            tried = self._save(later) if kind == "save" else self._load_whole(later)
            if later and (asked := later.finish()):
                moment = later.seconds_into
            is_asked = bool(self._group.share(asked is not None))
            if not is_asked and not tried.failed:
                # It was over before its moment: another one, and sooner.
                share /= 2
                self._after(kind)
                continue
            told.append(tried.told)
            pending = tried.failed or (kind == "save" and self._load_whole().failed)
            is_in_it = asked is not None and asked.heard_at is not None and asked.heard_at <= tried.ended
            if tried.failed or pending or self._group.share(is_in_it):
                break
        if not is_asked:
            # Nothing was broken: an error is no way to fail that a failover would excuse.
            self._hold(tried)
        broke = self._heard(asked)
        mended = self._ask_mend()
        not_run = "" if broke.is_good else broke.sentence
        not_run = not_run or ("" if mended.is_good else mended.sentence)
        if not mended.is_good:
            self._add(kind, moment, broke, told, mended)
            return not_run
        in_error = kind == "save" and tried.failed and self._try.is_committed(self._free)
        # First the save, while the storage rebuilds; then what was committed before, where nobody could look at it yet.
        before = self._whole
        after = self._save().told
        lost = self._try.load(before, self._next("load")).told.error if pending else ""
        if not after.error and not lost:
            lost = self._load_whole().told.error
        self._add(kind, moment, broke, told, mended, after=after, in_error=in_error, lost=lost)
        return not_run

    @property
    def _leads(self) -> bool:
        return self._group.rank == 0

    def _save(self, later: AskLater | None = None) -> Tried:
        """Save under the number that is free; where that succeeds, what was whole before is free."""
        tried = self._try.save(self._free, self._next("save"), later)
        if not tried.failed:
            self._free, self._whole = self._whole, self._free
        return tried

    def _load_whole(self, later: AskLater | None = None) -> Tried:
        """Load the newest checkpoint that was committed, and compare it."""
        return self._try.load(self._whole, self._next("load"), later)

    def _after(self, kind: BrokenKind) -> None:
        """Look at what an undisturbed save left, as at every other."""
        if kind == "save":
            self._hold(self._load_whole())

    def _next(self, action: BrokenKind) -> OperationRef:
        self._count += 1
        return self._do.one("failover", action, self._count)

    def _hold(self, tried: Tried) -> None:
        """Raise the error of an operation in which nothing was broken."""
        if tried.failed:
            raise OSError(0, f"nothing was broken, and a {tried.told.kind} failed: {tried.told.error}")

    def _heard(self, asked: Asked | None) -> CommandRun:
        with self._activity.wait():
            run = asked.wait() if asked else None
        shared: CommandRun = self._group.share(run)
        return shared

    def _ask_mend(self) -> CommandRun:
        return self._heard(Asked(self._task.subject, "mend") if self._leads else None)

    def _add(
        self,
        kind: BrokenKind,
        moment: float,
        broke: CommandRun,
        told: list[FailoverOperation],
        mended: CommandRun,
        *,
        after: FailoverOperation | None = None,
        in_error: bool = False,
        lost: str = "",
    ) -> None:
        self._trials.append(
            FailoverTrial(
                kind=kind,
                moment_seconds=moment,
                broke=broke,
                operations=tuple(told),
                mended=mended,
                after=after,
                committed_in_error=in_error,
                lost=lost,
            )
        )

    def _tell(self, not_run: str) -> None:
        compared = self._try.compared
        found = Failover(
            break_command="",
            mend_command="",
            undisturbed=self._undisturbed,
            trials=tuple(self._trials),
            integrity=compared.integrity,
            resident_fraction=compared.resident,
            is_declared_cold=self._cache.is_declared_cold,
            not_run=not_run,
        )
        self._do.send(PatternMeasured(subject=self._task.subject, name="failover", found=found))
