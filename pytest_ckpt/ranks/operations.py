"""Saves, loads and deletes of one subject (a model, and how it is saved).

All ranks perform an operation together. The operation ends when the slowest rank is done.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, cast, get_args

from pytest_ckpt.facts.events import OperationDone, OperationStarted, StepDone
from pytest_ckpt.facts.file_rules import OF_LAYOUT, FileRule
from pytest_ckpt.facts.measurement import Operation, OperationKind
from pytest_ckpt.facts.proofs import CommitProof, Durability, DurabilityProof, Fault, Integrity, Observer
from pytest_ckpt.facts.subject import OperationRef
from pytest_ckpt.facts.targets import Role
from pytest_ckpt.ranks.across_hosts import AcrossHosts
from pytest_ckpt.ranks.checkpoints import Checkpoints
from pytest_ckpt.ranks.client_proof import ClockWatch
from pytest_ckpt.ranks.engines.protocol import MAXIMUM_FAULTS_OF_RANK, Clock, Comparison, Loader, expect
from pytest_ckpt.ranks.process.group import longest_seconds
from pytest_ckpt.ranks.process.host_load import HostLoadWatch
from pytest_ckpt.ranks.strategies.protocol import leads
from pytest_ckpt.support.errors import ReplacedError
from pytest_ckpt.support.host_state import ProcessorWait

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_ckpt.facts.events import Event
    from pytest_ckpt.facts.subject import Action, Scenario, Stage, StepKind, Subject
    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.ranks.process.host_cache import Files, HostCache
    from pytest_ckpt.ranks.strategies.protocol import RankSave, Strategy
    from pytest_ckpt.ranks.training import TrainingSteps
    from pytest_ckpt.sizing.deltas import DeltaRule
    from pytest_ckpt.sizing.models import RankLayout
    from pytest_ckpt.targets.protocol import Store, StoreOfPaths


_FROM_STRONG_TO_WEAK: tuple[Observer, ...] = get_args(Observer)


@dataclass(frozen=True, kw_only=True, slots=True)
class RankOperation:
    """One operation as one rank measured it, on the rank's own monotonic clock.

    ``seconds`` is the time from the barrier before a step until this rank was done, summed over all steps. A save has
    one step, which ends when the rank's bytes are durable. ``directory_seconds`` is the additional time in which this
    rank made file names durable; 0 on ranks that do not do this.

    A rank that commits has two more times. ``commit_seconds`` is the time of the commit only. ``committed_seconds`` is
    the time from the barrier until the checkpoint was committed. Two times of a save also start at the barrier:
    ``returned_seconds`` ends when the job could continue, ``staged_seconds`` ends when the job could change its state.
    ``copying_seconds`` is the part of these two times in which the state was copied in memory.

    ``resident`` describes the files before a load: (bytes in the page cache, all bytes). ``stalled_seconds`` is
    the time for which a load waited for its own comparison instead of the storage: the mean wait of its readers.
    ``starved_seconds`` is the time in which a thread was ready to run but no CPU was free.
    """

    seconds: float
    phases: dict[str, float]
    bytes: int
    directory_seconds: float = 0.0
    commit_seconds: float = 0.0
    committed_seconds: float = 0.0
    returned_seconds: float | None = None
    staged_seconds: float | None = None
    copying_seconds: float = 0.0
    resident: tuple[int, int] | None = None
    stalled_seconds: float = 0.0
    starved_seconds: float | None = None


def combine(kind: OperationKind, index: int, checkpoint: int, ranks: Sequence[RankOperation]) -> Operation:
    """Return one operation that combines the measurements of all ranks. ``ranks`` is in rank order.

    The time of the slowest rank counts. Rank 0 waits for the slowest rank before the commit, so the time on rank 0's
    clock covers the complete save. To compute the stalls of a load, each rank's stalls are subtracted from its time.
    The stalls of the load are the load's time minus the largest of these differences.
    """
    rank_seconds = tuple(o.seconds for o in ranks)
    slowest = max(range(len(ranks)), key=rank_seconds.__getitem__)
    commit, directory = ranks[0].commit_seconds, max(o.directory_seconds for o in ranks)
    stored = rank_seconds[slowest] + directory
    seconds = max(stored + commit, *(of_rank.committed_seconds for of_rank in ranks))
    phases = {name: spent for name, spent in ranks[slowest].phases.items() if name != "commit"}
    if directory:
        phases["directory"] = directory
    if kind == "save":
        phases |= {"coordination": seconds - commit - stored, "commit": commit}
    known = [o.resident for o in ranks if o.resident is not None]
    whole = len(known) == len(ranks)
    starved = [o.starved_seconds for o in ranks]
    return Operation(
        kind=kind,
        index=index,
        checkpoint=checkpoint,
        seconds=seconds,
        slowest_rank=slowest,
        rank0_seconds=rank_seconds[0],
        rank_seconds=rank_seconds,
        phases=phases,
        bytes=sum(o.bytes for o in ranks),
        resident_bytes=sum(r[0] for r in known) if whole else None,
        mapped_bytes=sum(r[1] for r in known) if whole else None,
        returned_seconds=_last(o.returned_seconds for o in ranks),
        staged_seconds=_last(o.staged_seconds for o in ranks),
        copying_seconds=_copying(ranks),
        stored_seconds=stored if kind == "save" else None,
        stalled_seconds=seconds - max(o.seconds - o.stalled_seconds for o in ranks) if kind == "load" else None,
        starved_seconds=None
        if None in starved
        else rank_seconds[slowest]
        - max(s - min(s, waited or 0.0) for s, waited in zip(rank_seconds, starved, strict=True)),
    )


def _copying(ranks: Sequence[RankOperation]) -> float | None:
    """Return the time in seconds by which copying the state delayed the job.

    The delay is measured until the job could continue and could change its state. Return None if a rank did not record
    these times, for example for a load.
    """
    blocked = [_last((o.returned_seconds, o.staged_seconds)) for o in ranks]
    last = _last(blocked)
    without = _last(None if b is None else b - o.copying_seconds for b, o in zip(blocked, ranks, strict=True))
    return None if last is None or without is None else last - without


def _last(seconds: Iterable[float | None]) -> float | None:
    """Return the largest of ``seconds``, the time when the last rank reached a point.

    ``seconds`` contains one time per rank, None if the rank did not reach the point. If any time is None, return None.
    """
    reached = list(seconds)
    return None if None in reached else max(s for s in reached if s is not None)


def summed(
    pairs: Sequence[tuple[DurabilityProof | None, CommitProof | None]], *, saves: int, commits: int
) -> Durability:
    """Return the counts of files and directories that became durable in ``saves`` saves and ``commits`` commits.

    ``pairs`` contains (proof of files and their names, proof of the commit) for every save on every rank.
    """
    proofs = [durability for durability, _ in pairs if durability]
    # If a save ended with names pending, the directory of each such rank must still be synced.
    pending = sum(d.names_pending for d in proofs)
    of_commits = [commit for _, commit in pairs if commit]
    directories: list[DurabilityProof | CommitProof] = [*proofs, *of_commits]
    return Durability(
        files=sum(d.files_attempted for d in proofs),
        files_synced=sum(d.files_returned for d in proofs),
        directories=pending + sum(f.directories_attempted for f in directories),
        directories_synced=sum(f.directories_returned for f in directories),
        saves=saves,
        commits=commits,
        observed=max((d.observed for d in proofs), key=_FROM_STRONG_TO_WEAK.index, default="unseen"),
        commit_methods=tuple(dict.fromkeys(c.method for c in of_commits)),
        acknowledged=tuple(sorted({word for d in proofs for word in d.acknowledged})),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Loaded:
    """The result of a load over all ranks. Only rank 0 has the complete result."""

    operation: Operation | None
    bytes_checked: int
    fault_count: int
    faults: list[Fault]
    rank_bytes: tuple[int, ...]

    def integrity(self, expected_bytes: int) -> Integrity:
        """Return the result of this load's comparison.

        ``expected_bytes`` is the number of bytes that the load had to compare.
        """
        return Integrity(
            bytes_expected=expected_bytes,
            bytes_checked=self.bytes_checked,
            fault_count=self.fault_count,
            faults=tuple(self.faults),
        )


class Operations(Checkpoints):
    """The operations of all ranks on a subject's checkpoints in ``store``.

    ``stages`` is {purpose: seconds that this rank has spent}. If ``is_local``, the store is in a local tier. Operations
    with role ``counted`` are the saves and loads that count as the subject's results. Other roles belong to additional
    measurements.
    """

    def __init__(
        self,
        group: Group,
        activity: Activity,
        subject: Subject,
        shard: RankLayout,
        store: Store,
        *,
        rule: FileRule = OF_LAYOUT,
        deltas: DeltaRule | None = None,
        is_local: bool = False,
    ) -> None:
        super().__init__(subject, shard, store, rule, deltas)
        self.across_hosts = AcrossHosts(group, activity, subject, store, self.stage, is_local=is_local)
        self._group = group
        self._activity = activity
        self._saved: list[RankSave] = []
        self._commits = 0
        self.stages: dict[str, float] = {}
        # The start and the end of the last save, on this rank's monotonic clock.
        self.span = (0.0, 0.0)
        self.clock_watch = ClockWatch(group.rank, group.host)
        self.host_load = HostLoadWatch(group)

    def save(
        self,
        strategy: Strategy,
        checkpoint: int,
        *,
        role: Role = "counted",
        meanwhile: Callable[[threading.Event], None] | None = None,
        at: OperationRef | None = None,
        content: int = 0,
        is_saving_rank: bool = True,
        stage: str = "probes",
        is_reported: bool = False,
        training: TrainingSteps | None = None,
    ) -> Operation | None:
        """Save a checkpoint, and wait until the save has ended. Return the operation on rank 0, and None elsewhere.

        Each rank with ``is_saving_rank`` saves its own files. If ``role`` is not ``counted``, ``at`` identifies the
        save, and the save's time is added to the stage ``stage``. ``meanwhile`` runs concurrently on this rank. Its
        argument is an event that is set when the save has ended. ``content`` is the number from which the content is
        generated, by default ``checkpoint``. If ``is_reported``, rank 0 reports the start of the save. ``training``
        runs during the save, as soon as the job may continue.
        """
        at, counted = at or OperationRef(subject=self.subject, action="save", index=checkpoint), role == "counted"
        with self.stage("content", at.at("content")):
            if is_saving_rank:
                strategy.engine.fill(content or checkpoint)
        ref = self.new_ref(checkpoint, role)
        if counted:
            self._stays()
        self.across_hosts.begin(ref)
        background = BackgroundThread(meanwhile) if meanwhile else None
        load_began = self.host_load.begin()
        self._start(at, is_reported=counted or is_reported)
        self.clock_watch.begin()
        wait = ProcessorWait()
        wait.begin()
        start = time.perf_counter()
        if background:
            background.start()
        pending = strategy.save(ref, is_saving_rank=is_saving_rank)
        if training:
            training.run_during(pending)
        with self._activity.wait():
            saved = pending.wait()
        self.span, timing = (start, time.perf_counter()), saved.timing
        wait.end()
        self.clock_watch.end(f"save {checkpoint}")
        self.host_load.end(load_began, f"save {checkpoint}")
        if counted:
            self._stays()
        if background:
            background.finish()
        self._entries[checkpoint] = saved.entries
        own = RankOperation(
            seconds=timing.stored_seconds or 0.0,
            phases=timing.phases,
            bytes=self._bytes(checkpoint) if is_saving_rank else 0,
            directory_seconds=timing.names_seconds,
            commit_seconds=timing.phases.get("commit", 0.0),
            committed_seconds=timing.committed_seconds or 0.0,
            returned_seconds=timing.returned_seconds,
            staged_seconds=timing.staged_seconds,
            copying_seconds=timing.copying_seconds,
            # Waits for a CPU are not counted if threads do other work during the save, nor after the bytes were stored.
            starved_seconds=None
            if training or meanwhile
            else wait.seconds(beyond=self.span[1] - start - (timing.stored_seconds or 0.0)),
        )
        if counted:
            self._saved.append(saved)
            self._commits += self._group.rank == 0 and self._store.is_committed(ref)
        done = self._finish("save", checkpoint, checkpoint, own, counted=counted, stage=stage)
        self.across_hosts.end(ref)
        return done

    def load(
        self,
        engine: Loader,
        cache: HostCache,
        number: int,
        checkpoint: int,
        *,
        counted: bool = True,
        scenario: Scenario = "",
        names: Iterable[str] | None = None,
    ) -> Loaded:
        """Load a checkpoint in the steps of ``engine``. Every byte is compared, during a step or after it.

        ``number`` is the number of the load in reports. ``names`` are the files that the engine reads, by default this
        rank's own files.
        """
        at = OperationRef(subject=self.subject, scenario=scenario, action="load", index=number)
        if counted:
            self._stays()
        with self.stage("residency", at.at("residency")):
            resident = cache.resident(self.files_of_load(checkpoint, names))
            cache.forget_names()
            steps = self._group.largest(engine.load_steps())
            expect(engine, checkpoint)
        clock = Clock(activity=self._activity)
        committed = self._open(checkpoint, clock)
        seconds, loaded_bytes = 0.0, 0
        checks: list[Comparison] = []
        wait = ProcessorWait()
        load_began = self.host_load.begin()
        self.clock_watch.begin()
        for step in range(steps):
            self._start(at, is_reported=counted and step == 0)
            wait.begin()
            start = time.perf_counter()
            left_out = clock.left_out_seconds
            loaded_bytes += engine.load(committed, step, clock)
            seconds += time.perf_counter() - start - (clock.left_out_seconds - left_out)
            wait.end()
            # Comparison of a whole step waits until all ranks have read it; otherwise the storage would serve fewer
            # ranks.
            self._group.wait()
            with self.stage("verify", at.at("verify")):
                checks.append(engine.verify(checkpoint))
        self.clock_watch.end(f"load {number}")
        self.host_load.end(load_began, f"load {number}")
        if counted:
            self._stays()
        own = RankOperation(
            seconds=seconds,
            phases=clock.phases,
            bytes=loaded_bytes,
            resident=resident,
            stalled_seconds=clock.stalled_seconds,
            starved_seconds=wait.seconds(beyond=clock.left_out_seconds),
        )
        operation = self._finish("load", number, checkpoint, own, counted=counted)
        counts = (sum(c.bytes_checked for c in checks), sum(c.fault_count for c in checks))
        local = self.faults(checks, checkpoint)[:MAXIMUM_FAULTS_OF_RANK]
        gathered = self._group.gather((*counts, local, loaded_bytes))
        return Loaded(
            operation=operation,
            bytes_checked=sum(g[0] for g in gathered),
            fault_count=sum(g[1] for g in gathered),
            # Ranks alternate in the list: if only some faults are reported, one rank's faults do not hide the others'.
            faults=[f for turn in zip_longest(*(g[2] for g in gathered)) for f in turn if f],
            rank_bytes=tuple(g[3] for g in gathered),
        )

    def replaced(self) -> str:
        """Return a sentence if the run's directory was replaced; otherwise return an empty text.

        Stores without a check for replacement always return an empty text.
        """
        return cast("StoreOfPaths", self._store).replaced() if hasattr(self._store, "replaced") else ""

    def _stays(self) -> None:
        """Raise ReplacedError if the run's directory was replaced."""
        if reason := self.replaced():
            raise ReplacedError(reason)

    def await_files(self, files: Sequence[Files]) -> None:
        """Wait until this rank sees the files of other ranks that this rank will read next.

        All ranks call this together.
        """
        self.across_hosts.files(files, self._entries)

    def delete(self, checkpoint: int) -> float:
        """Delete a checkpoint.

        Return the time in seconds, by this rank's clock, until all ranks have deleted their files. On a rank that leads
        the store, the time also includes the deletion of the remains, such as directories.
        """
        self._start(OperationRef(subject=self.subject, action="delete", index=checkpoint), is_reported=False)
        start = time.perf_counter()
        self.delete_files_of_rank(checkpoint)
        self._group.wait()
        if leads(self._group, self._store):
            self._store.finish_delete(self.ref(checkpoint))
        return time.perf_counter() - start

    def delete_files_of_rank(self, checkpoint: int) -> None:
        """Delete those files of a checkpoint that this rank saved."""
        self._store.delete(self.ref(checkpoint), self.own_names(checkpoint))

    def finish_delete(self, checkpoints: Iterable[int], *, of_all: bool = False) -> None:
        """Remove the remains of deleted checkpoints, such as directories.

        If ``of_all``, also remove all other remains of the subject. The subject must have no checkpoints in this case.
        """
        self._group.wait()
        if leads(self._group, self._store):
            for checkpoint in checkpoints:
                self._store.finish_delete(self.ref(checkpoint))
            if of_all:
                self._store.clear(self.subject.slug)
        self._group.wait()

    def durability(self) -> Durability | None:
        """Return on rank 0 the counts of files, directories and commits that became durable. Return None elsewhere.

        Only saves that count as the subject's results are included.
        """
        gathered = self._group.gather([(s.durability, s.commit) for s in self._saved])
        if self._group.rank != 0:
            return None
        pairs = [pair for of_rank in gathered for pair in of_rank]
        return summed(pairs, saves=len(self._saved), commits=self._commits)

    def added_facts(self) -> dict[str, str]:
        """Return a description of the calls that pytest-ckpt adds to the engine's calls in every save.

        If there are no added calls, the dictionary is empty. All ranks call this method together.
        """
        seconds = max((saved.timing.names_seconds for saved in self._saved), default=0.0)
        longest = longest_seconds(self._group, seconds)
        if not longest:
            return {}
        return {
            "directory": "fsync by one rank of each host after the last file of the host, added by pytest-ckpt in "
            f"every save: {longest * 1000:.1f} ms at most"
        }

    @contextmanager
    def stage(self, spent_on: str, at: OperationRef | None) -> Iterator[None]:
        """Add the duration of the ``with`` block, in seconds on this rank's clock, to the stage ``spent_on``.

        If ``at`` is given, it becomes this rank's current operation.
        """
        if at:
            self._activity.begin(at)
        start = time.perf_counter()
        yield
        self._spent(spent_on, time.perf_counter() - start)

    def all(self, stage: Stage, scenario: Scenario = "", level: float = 0.0) -> OperationRef:
        """Return the reference of a stage that concerns all operations, such as a drop of caches."""
        return OperationRef(subject=self.subject, scenario=scenario, stage=stage, level=level)

    def one(self, scenario: Scenario, action: Action, index: int, level: float = 0.0) -> OperationRef:
        """Return the reference of an operation of a scenario."""
        return OperationRef(subject=self.subject, scenario=scenario, action=action, index=index, level=level)

    def send(self, event: Event) -> None:
        """Send an event to the controller if this is rank 0."""
        if self._group.rank == 0:
            self._activity.report(event)

    def step(self, kind: StepKind, index: int, seconds: float) -> None:
        """Report the end of a step of an additional measurement, such as a pattern, if this is rank 0."""
        self.send(StepDone(subject=self.subject, kind=kind, index=index, step_seconds=seconds))

    def _start(self, at: OperationRef, *, is_reported: bool) -> None:
        self._activity.begin(at)
        if is_reported:
            self.send(OperationStarted(operation=at))
        with self.stage("wait", None):
            self._group.start_together()

    def _finish(
        self,
        kind: OperationKind,
        index: int,
        checkpoint: int,
        own: RankOperation,
        *,
        counted: bool,
        stage: str = "probes",
    ) -> Operation | None:
        """Gather the times of all ranks. Return the operation on rank 0, and None elsewhere.

        If ``counted``, rank 0 also reports the operation to the controller.
        """
        all_own = self._group.gather(own)
        if self._group.rank != 0:
            return None
        operation = combine(kind, index, checkpoint, all_own)
        self._spent(f"{kind}s" if counted else stage, operation.seconds)
        if counted:
            self.send(OperationDone(subject=self.subject, operation=operation))
        return operation

    def faults(self, checks: Iterable[Comparison], checkpoint: int) -> list[Fault]:
        """Return the faults in ``checks``, with this rank's number and host.

        ``checks`` are this rank's comparisons of a checkpoint.
        """
        return [
            Fault(
                kind=f.kind,
                rank=self._group.rank,
                host=self._group.host,
                checkpoint=checkpoint,
                file=f.file,
                tensor=f.tensor,
                offset=f.offset,
                bytes=f.bytes,
                detail=f.detail,
            )
            for check in checks
            for f in check.faults
        ]

    def _spent(self, stage: str, seconds: float) -> None:
        self.stages[stage] = self.stages.get(stage, 0.0) + seconds


class BackgroundThread(threading.Thread):
    """A thread that runs a function during an operation. `finish` raises the function's error."""

    def __init__(self, act: Callable[[threading.Event], None]) -> None:
        super().__init__()
        self._act = act
        self._over = threading.Event()
        self._error: BaseException | None = None

    def run(self) -> None:
        """Call the function, and store its error for `finish`."""
        try:
            self._act(self._over)
        except BaseException as error:  # it is raised by finish
            self._error = error

    def finish(self) -> None:
        """Signal that the operation has ended, wait for the function, and raise its error."""
        self._over.set()
        self.join()
        if self._error:
            raise self._error
