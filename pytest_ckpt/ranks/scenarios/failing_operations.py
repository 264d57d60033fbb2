"""Saves and loads for which an error of the storage does not end the run.

An OSError is an error of the storage. If one rank has an OSError, all ranks end the operation. Any other error ends the
run. If a rank could not write, the checkpoint is not committed. Each operation reports its longest stall: the time in
which a rank transferred no bytes and completed no call.
"""

from __future__ import annotations

import contextlib
import errno
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from pytest_ckpt.facts.commands import OperationTrial, TriedKind
from pytest_ckpt.facts.proofs import Fault, Integrity
from pytest_ckpt.ranks.engines.protocol import MAXIMUM_FAULTS_OF_RANK, Clock, Comparison, expect
from pytest_ckpt.ranks.process.controller import DelayedRequest
from pytest_ckpt.ranks.strategies.protocol import all_have_written, await_durable_names, write_files

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from pytest_ckpt.facts.proofs import Entry
    from pytest_ckpt.facts.subject import OperationRef
    from pytest_ckpt.facts.targets import CheckpointRef, Role
    from pytest_ckpt.ranks.engines.protocol import Engine
    from pytest_ckpt.ranks.operations import Operations
    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.ranks.process.host_cache import HostCache
    from pytest_ckpt.targets.protocol import Store

_ELSEWHERE = "another rank had the error"
_QUIET_POLL_SECONDS = 0.02


@dataclass(slots=True)
class TrialResult:
    """The result of an operation over all ranks. ``operation`` is equal on all ranks.

    ``ended`` is the end of the operation, and ``written`` is the time just before a save's commit. Both times are on
    this rank's clock. If ``failed_in_commit``, the error may come from the commit. Such an error does not show whether
    the checkpoint is committed.
    """

    operation: OperationTrial
    ended: float
    written: float = 0.0
    failed_in_commit: bool = False

    @property
    def failed(self) -> bool:
        """Whether a rank had an error."""
        return bool(self.operation.error)


@dataclass(slots=True)
class ComparisonTotals:
    """The sums over the comparisons of all loads so far. Only rank 0 has the complete sums.

    ``resident`` is the largest cached fraction before a load; None if a rank could not count cached pages.
    """

    expected: int = 0
    checked: int = 0
    fault_count: int = 0
    faults: list[Fault] = field(default_factory=list)
    resident: float | None = 0.0

    @property
    def integrity(self) -> Integrity:
        """The result of the comparisons of all loads together."""
        return Integrity(
            bytes_expected=self.expected,
            bytes_checked=self.checked,
            fault_count=self.fault_count,
            faults=tuple(self.faults[:MAXIMUM_FAULTS_OF_RANK]),
        )


class OperationsThatMayFail:
    """Saves, loads and deletes checkpoints with one engine. ``compared`` is the sum of the comparisons of all loads."""

    def __init__(
        self,
        *,
        group: Group,
        activity: Activity,
        do: Operations,
        engine: Engine,
        store: Store,
        cache: HostCache,
        policy: str,
        layout_bytes: int,
        names: tuple[str, ...],
        role: Role,
    ) -> None:
        self._group, self._activity, self._do = group, activity, do
        self._engine, self._store, self._cache, self._policy = engine, store, cache, policy
        self._layout_bytes, self._names, self._role = layout_bytes, names, role
        self._refs: dict[int, CheckpointRef] = {}
        self._contents: dict[int, int] = {}
        self._content = 0
        self._commits_itself = False
        self.compared = ComparisonTotals()

    def save(self, number: int, at: OperationRef, later: DelayedRequest | None = None) -> TrialResult:
        """Delete the previous checkpoint with ``number``, then save a checkpoint with new content under this number.

        ``later`` requests a command some time after the save has started. It is given only on rank 0.
        """
        self._content += 1
        error = self.discard(number, at)
        if error:
            return self._tried("save", error, 0.0, SilenceWatch(self._activity))
        with self._do.stage("content", at.at("content")):
            self._engine.fill(self._content)
        ref = self._refs[number] = self._do.new_ref(number, self._role)
        self._contents[number] = self._content
        clock, silence = Clock(activity=self._activity), SilenceWatch(self._activity)
        saved: list[Any] = []
        written = 0.0
        load_began = self._do.host_load.begin()
        self._activity.begin(at)
        self._group.start_together()
        start = time.perf_counter()
        if later:
            later.start()
        with silence:
            error = self._met(lambda: saved.append(write_files(self._engine, self._store, ref, clock)))
            failed = self._group.any_of(bool(error))
            if not failed:
                error = self._met(lambda: await_durable_names(saved[0], self._store, self._group, ref, clock))
                failed = self._group.any_of(bool(error))
            written = time.perf_counter()
            if not failed:
                entries = all_have_written(self._group, self._store, saved[0].entries)
                if self._group.rank == 0 and saved[0].commit is None:
                    error = self._met(lambda: self._commit(ref, entries, clock))
        seconds = time.perf_counter() - start
        tried = self._tried("save", error, seconds, silence)
        self._do.host_load.end(load_began, _name_of(at))
        tried.written = written
        # If the engine's library commits, it is unknown which of its calls is the commit.
        self._commits_itself = self._commits_itself or (not failed and self._group.share(saved[0].commit is not None))
        tried.failed_in_commit = tried.failed and (self._commits_itself or not failed)
        if tried.failed:
            self._engine.release()
        return tried

    def load(
        self, number: int, at: OperationRef, later: DelayedRequest | None = None, *, clone: Store | None = None
    ) -> TrialResult:
        """Drop a checkpoint from the caches, load it from the target or from ``clone``, and compare every byte.

        ``later`` requests a command some time after the load has started. It is given only on rank 0.
        """
        store = clone or self._store
        ref, content = self._refs[number], self._contents[number]
        silence, seconds = SilenceWatch(self._activity), 0.0
        resident: tuple[int, int] | None = None
        with self._do.stage("drop caches", at.at("drop caches")):
            files = self._do.files(number)

            def empty_caches() -> None:
                nonlocal resident
                if self._policy != "never":
                    self._cache.drop(self._policy, [files])
                # A clone has separate files, so its cached pages are not counted.
                resident = (0, 0) if clone else self._cache.resident([files])

            # All ranks drop a cache together, so an error is visible only after this step.
            error = self._met(empty_caches)
            failed = self._group.any_of(bool(error))
        steps = self._group.largest(self._engine.load_steps())
        expect(self._engine, content)
        clock = Clock(activity=self._activity)
        committed: list[Any] = []
        checks: list[Comparison] = []
        load_began = self._do.host_load.begin()
        for step in range(0 if failed else steps):
            self._activity.begin(at)
            self._group.start_together()
            start = time.perf_counter()
            if later and step == 0:
                later.start()

            def read(step: int = step) -> None:
                if not committed:
                    committed.append(store.open(ref, clock))
                self._engine.load(committed[0], step, clock)

            with silence:
                error = self._met(read)
            seconds += time.perf_counter() - start - clock.left_out_seconds
            clock.left_out_seconds = 0.0
            failed = self._group.any_of(bool(error))
            if failed:
                break
            with self._do.stage("verify", at.at("verify")):
                checks.append(self._engine.verify(content))
        tried = self._tried("load", error, seconds, silence)
        self._do.host_load.end(load_began, _name_of(at))
        self._add_checks(checks, number, resident, is_complete=not tried.failed)
        self._engine.release()
        return tried

    def discard(self, number: int, at: OperationRef) -> str:
        """Delete the checkpoint with ``number``, even if it is incomplete.

        If this rank has an error, return this error. If only other ranks have errors, return a remark about this. If
        all ranks succeeded, return an empty text.
        """
        ref = self._refs.get(number)
        if ref is None:
            return ""
        with self._do.stage("remove", at.at("remove")):
            error = self._met(lambda: self._delete(ref))
            failed = self._group.any_of(bool(error))
            if not failed and self._group.rank == 0:
                error = self._met(lambda: self._finish_delete(ref))
            failed = self._group.any_of(bool(error))
        if not failed:
            del self._refs[number]
        return error or (_ELSEWHERE if failed else "")

    def is_committed(self, number: int, clone: Store | None = None) -> bool:
        """Return on all ranks whether a checkpoint is committed, on the target or in ``clone``."""
        ref = self._refs.get(number)
        is_there = ref is not None and self._group.rank == 0 and (clone or self._store).is_committed(ref)
        return bool(self._group.share(is_there))

    def _commit(self, ref: CheckpointRef, entries: list[Entry], clock: Clock) -> None:
        self._store.commit(ref, entries, clock)

    def _delete(self, ref: CheckpointRef) -> None:
        for name in self._names:
            # A failed save may not have begun any of these files.
            with contextlib.suppress(FileNotFoundError):
                self._store.delete(ref, [name])

    def _finish_delete(self, ref: CheckpointRef) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._store.finish_delete(ref)

    def _met(self, act: Callable[[], object]) -> str:
        """Call ``act``. If ``act`` raises OSError, return a description of the error. If not, return an empty text."""
        try:
            act()
        except OSError as error:
            phase, file = self._activity.forgive()
            name = errno.errorcode.get(error.errno or 0, "")
            what = ": ".join(filter(None, (name, error.strerror or str(error))))
            where = f"{phase} of {file}: " if file else f"{phase}: " if phase else ""
            return f"rank {self._group.rank} on {self._group.host}: {where}{what}"
        return ""

    def _tried(self, kind: TriedKind, error: str, seconds: float, silence: SilenceWatch) -> TrialResult:
        """Combine the results of all ranks for one operation. Return the combined result on every rank.

        ``error``, ``seconds`` and ``silence`` are this rank's results. Each rank measures with its own clock, because
        clocks of different hosts cannot be compared.
        """
        gathered = self._group.gather((error, seconds, silence.longest))
        operation = None
        if self._group.rank == 0:
            quietest = max(range(len(gathered)), key=lambda rank: gathered[rank][2])
            operation = OperationTrial(
                kind=kind,
                seconds=max(of_rank[1] for of_rank in gathered),
                longest_stall_seconds=gathered[quietest][2],
                stalled_rank=quietest,
                error=next((e for e, _, _ in gathered if e and e != _ELSEWHERE), ""),
            )
        return TrialResult(operation=cast("OperationTrial", self._group.share(operation)), ended=time.perf_counter())

    def _add_checks(
        self, checks: list[Comparison], number: int, resident: tuple[int, int] | None, *, is_complete: bool
    ) -> None:
        """Add the comparisons of a load, ``checks``, to the totals.

        If the load failed (``is_complete`` is false), add only the faults. ``resident`` is (cached bytes, all bytes)
        before the load.
        """
        faults = self._do.faults(checks, number)
        own = (sum(c.bytes_checked for c in checks), sum(c.fault_count for c in checks), faults, resident)
        gathered, totals = self._group.gather(own), self.compared
        for checked, count, of_rank, _ in gathered:
            totals.checked += checked if is_complete else 0
            totals.fault_count += count
            totals.faults += of_rank[:MAXIMUM_FAULTS_OF_RANK]
        if gathered and is_complete:
            totals.expected += self._layout_bytes
            counts = [of_rank[3] for of_rank in gathered]
            known = [count for count in counts if count is not None]
            share = sum(c[0] for c in known) / max(1, sum(c[1] for c in known))
            is_seen = totals.resident is not None and len(known) == len(counts)
            totals.resident = max(totals.resident or 0.0, share) if is_seen else None


def _name_of(at: OperationRef) -> str:
    return f"{at.action} {at.index}"


class SilenceWatch:
    """Measures this rank's longest time without activity during the ``with`` blocks of this object.

    ``longest`` is this time in seconds. Times in which this rank waits for other ranks are not counted. A load uses one
    ``with`` block for each of its steps.
    """

    def __init__(self, activity: Activity) -> None:
        self._activity = activity
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self.longest = 0.0

    def __enter__(self) -> SilenceWatch:
        """Begin to watch."""
        self._over.clear()
        self._thread = threading.Thread(target=self._watch, name="quiet time", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop watching."""
        self._over.set()
        assert self._thread
        self._thread.join()

    def _watch(self) -> None:
        last_signs, since = self._signs(), time.perf_counter()
        is_over = False
        while not is_over:
            is_over = self._over.wait(_QUIET_POLL_SECONDS)
            signs, now = self._signs(), time.perf_counter()
            if self._activity.waiting:
                since = now
            # The last activity was at most one poll ago, so the time without activity counts up to now.
            self.longest = max(self.longest, now - since)
            if signs != last_signs:
                last_signs, since = signs, now

    def _signs(self) -> tuple[object, ...]:
        return self._activity.phase, self._activity.file, self._activity.bytes_done
