"""Endurance: saves for hours, and saves on a nearly full volume."""

from __future__ import annotations

import errno
import math
import time
from typing import TYPE_CHECKING, cast

import numpy as np

from pytest_ckpt.analysis.statistics import MAXIMUM_ROUNDS, WINDOW_ROUNDS, steady_round
from pytest_ckpt.facts.events import PatternMeasured
from pytest_ckpt.facts.measurement import Endurance, FillLevel, NearFull
from pytest_ckpt.facts.targets import NEEDS
from pytest_ckpt.ranks.content import PAGE_BYTES, Content, TensorKey, content_seed
from pytest_ckpt.sizing.near_full import LEVELS, ballast_name, unavailable_reason
from pytest_ckpt.sizing.patterns import PATTERNS, SAVES_OF_A_LEVEL
from pytest_ckpt.sizing.record import FACTS_OF_ENDURANCE, MAXIMUM_ENDURANCE_SAVES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_ckpt.facts.subject import OperationRef, Pattern
    from pytest_ckpt.ranks.operations import Operations
    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.ranks.scenarios.context import ScenarioContext
    from pytest_ckpt.ranks.strategies.protocol import Strategy
    from pytest_ckpt.targets.protocol import Store, StoreOnVolume

_KEPT = 2
# The largest number of a checkpoint's content, and the maximum size of a tensor in bytes.
_CONTENTS, _TENSOR_BYTES = 4095, 1 << 40
_PIECE_BYTES = 4 << 20
_FULL = (errno.ENOSPC, errno.EDQUOT)


class LongRun:
    """Measures the patterns ``endurance`` and ``near_full``. Rank 0 reports the results.

    ``strategy`` must save to ``store``. Every save has different content. The numbers of the saved checkpoints are
    larger than ``after``.
    """

    def __init__(
        self,
        group: Group,
        activity: Activity,
        do: Operations,
        *,
        strategy: Strategy,
        store: Store,
        after: int,
    ) -> None:
        self._group = group
        self._activity = activity
        self._do = do
        self._strategy = strategy
        self._store = store
        self._subject = do.subject.slug
        self._numbers = [after + PATTERNS["endurance"].first + n for n in range(_KEPT + 1)]
        self._content = 0

    def endure(self, requested_seconds: float) -> None:
        """Save repeatedly for ``requested_seconds``. During this time, keep only the newest two checkpoints.

        If ``requested_seconds`` is 0, saves end when their durations are steady or a maximum number of saves is
        reached. If not, saves start at intervals of at least ``requested_seconds`` / `MAXIMUM_ENDURANCE_SAVES`.
        """
        began = time.perf_counter()
        every, reports_every = requested_seconds / MAXIMUM_ENDURANCE_SAVES, requested_seconds / FACTS_OF_ENDURANCE
        reported_at = -math.inf
        at: list[float] = []
        seconds: list[float] = []
        kept: list[int] = []
        is_due = True
        while is_due:
            number = self._numbers[len(at) % len(self._numbers)]
            self._wait_until(began + at[-1] + every if at else began)
            at.append(time.perf_counter() - began)
            is_reported = at[-1] - reported_at >= reports_every
            seconds.append(self._save(self._do.one("endurance", "save", len(at)), number, is_reported=is_reported))
            if is_reported:
                reported_at = at[-1]
                self._do.step("endurance", len(at), seconds[-1])
            kept.append(number)
            if len(kept) > _KEPT:
                self._delete(kept.pop(0))
            elapsed = time.perf_counter() - began
            is_due = self._group.share(self._group.rank == 0 and _continues(seconds, elapsed, requested_seconds))
        whole = time.perf_counter() - began
        for number in kept:
            self._delete(number)
        if self._group.rank == 0:
            found = Endurance(
                requested_seconds=requested_seconds,
                seconds=whole,
                kept=_KEPT,
                start_seconds=tuple(at),
                save_seconds=tuple(seconds),
            )
            self._send("endurance", found)

    def near_full(self, content: Content, one_checkpoint_bytes: int) -> None:
        """Save on the volume as it is. Then fill the volume with ballast to each level, and save at each level.

        Ballast is data that only occupies space, and cannot be compressed or deduplicated. Finally the ballast is
        removed, even after an error.
        """
        if not NEEDS["near_full"] <= self._store.capabilities:
            self._send("near_full", None, "The target has no volume that could be filled.")
            return
        store = cast("StoreOnVolume", self._store)
        volume = self._group.share(store.volume(self._subject))
        if reason := unavailable_reason(volume, one_checkpoint_bytes):
            self._send("near_full", None, f"The volume was not filled: {reason}.")
            return
        levels = [self._level(store, 0.0, 0)]
        try:
            for level in LEVELS:
                written = self._fill(store, content, level)
                if written is None:
                    refusal = f"The volume took no more bytes before {level:.0%} of it were in use: a quota, perhaps."
                    self._send("near_full", None, refusal)
                    return
                levels.append(self._level(store, level, written))
        finally:
            for level in LEVELS:
                store.delete_ballast(self._subject, ballast_name(level, self._group.rank))
        self._group.wait()
        found = NearFull(capacity_bytes=volume.capacity_bytes, levels=tuple(levels))
        self._send("near_full", found)

    def _send(self, name: Pattern, found: object, not_run: str = "") -> None:
        self._do.send(PatternMeasured(subject=self._do.subject, name=name, found=found, not_run=not_run))

    def _level(self, store: StoreOnVolume, level: float, ballast_bytes: int) -> FillLevel:
        used = self._group.share(store.volume(self._subject)).used
        seconds = []
        for number in range(1, SAVES_OF_A_LEVEL + 1):
            at = self._do.one("near_full", "save", number, level)
            seconds.append(self._save(at, self._numbers[0], is_reported=True))
            self._do.step("near_full", number, seconds[-1])
            self._delete(self._numbers[0])
        return FillLevel(requested=level, used=used, ballast_bytes=ballast_bytes, save_seconds=tuple(seconds))

    def _fill(self, store: StoreOnVolume, content: Content, level: float) -> int | None:
        """Write ballast until the used share of the volume is ``level``.

        Return the bytes of ballast written by all ranks. If the volume refuses bytes, return None. The ballast is
        really written, because reserved space would not fill a volume.
        """
        wanted = self._group.share(store.volume(self._subject).ballast_bytes(level))
        share = -(-wanted // self._group.size // PAGE_BYTES) * PAGE_BYTES
        name = ballast_name(level, self._group.rank)
        with self._do.stage("ballast", self._do.all("ballast", "near_full", level)):
            with self._activity.in_phase("write", name):
                is_complete = self._write(store, name, content, share, int(level * 100))
            refused = self._group.any_of(not is_complete)
        return None if refused else share * self._group.size

    def _write(self, store: StoreOnVolume, name: str, content: Content, size: int, mark: int) -> bool:
        try:
            store.write_ballast(self._subject, name, self._ballast(content, size, mark))
        except OSError as error:
            if error.errno in _FULL:
                return False
            raise
        return True

    def _ballast(self, content: Content, size: int, mark: int) -> Iterator[memoryview]:
        """Yield ``size`` bytes of ballast in pieces. All pieces use the same memory.

        A piece counts as written when the next piece is requested.
        """
        piece = np.empty(_PIECE_BYTES, dtype=np.uint8)
        for done in range(0, size, _PIECE_BYTES):
            part = piece[: min(_PIECE_BYTES, size - done)]
            place = TensorKey(checkpoint=mark, rank=self._group.rank, tensor=done // _TENSOR_BYTES)
            content.fill(part, place, done % _TENSOR_BYTES)
            yield part.data
            self._activity.bytes_done += len(part)

    def _wait_until(self, moment: float) -> None:
        """Wait until this rank's clock reads ``moment``."""
        if (left := moment - time.perf_counter()) > 0:
            with self._activity.wait():
                time.sleep(left)

    def _save(self, at: OperationRef, number: int, *, is_reported: bool) -> float:
        self._content = self._content % _CONTENTS + 1
        operation = self._do.save(
            self._strategy,
            number,
            role="endurance",
            at=at,
            content=self._content,
            stage="endurance",
            is_reported=is_reported,
        )
        return operation.seconds if operation else 0.0

    def _delete(self, number: int) -> None:
        with self._do.stage("remove", self._do.all("remove", "endurance")):
            self._do.delete_files_of_rank(number)
            self._do.finish_delete([number])


def _continues(seconds: list[float], elapsed: float, minimum_seconds: float) -> bool:
    """Return whether another save follows.

    ``seconds`` are the durations of the saves so far; only rank 0 knows them. ``elapsed`` is the time in seconds since
    the first save. ``minimum_seconds`` is the requested time in seconds.
    """
    if len(seconds) < WINDOW_ROUNDS or elapsed < minimum_seconds:
        return True
    return not minimum_seconds and steady_round(seconds) is None and len(seconds) < MAXIMUM_ROUNDS


def measure(at: ScenarioContext) -> None:
    """Delete checkpoints that are no longer needed, then measure endurance.

    If planned, also measure saves on a nearly full volume.
    """
    task, do = at.task, at.do
    assert task.endurance
    if not task.keep:
        at.own.delete_all(of_subject=False)
    strategy = at.strategy(aside="endurance")
    run = LongRun(at.group, at.activity, do, strategy=strategy, store=at.store, after=task.operations)
    run.endure(task.endurance.duration_seconds)
    if task.near_full:
        run.near_full(Content(content_seed(task.seed, f"{task.subject}/ballast")), task.near_full.checkpoint_bytes)
    else:
        reason = "Filling the volume was not requested: --ckpt-suite=endurance:near-full requests it."
        do.send(PatternMeasured(subject=task.subject, name="near_full", not_run=reason))
    strategy.release()
    strategy.engine.release()
