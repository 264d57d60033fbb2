"""Saves and loads in a separate launch, while the controller runs commands that change the storage.

Rank 0 requests each command.

Failover: a command injects a fault at a random moment of a save or load. Operations run one after the other until the
fault command has returned. Then another command repairs the storage, and a save runs while the storage rebuilds. Every
committed checkpoint is loaded, and every byte is compared. If a commit ended with an error, the checkpoint may exist,
because only the answer of the storage may have been lost. After the repair, a query shows whether the checkpoint
exists. This launch comes last, because the storage may rebuild for a long time, which would disturb other measurements.

Upgrade: saves and loads run in turns while a command restarts or upgrades the storage. The storage must continue to
serve.

Snapshots: a snapshot is taken in the middle of a save. The clone of the snapshot must contain either no commit of the
save, or a complete checkpoint. The duration of the save is compared with an earlier save without a snapshot. The
earlier checkpoint is loaded from the clone and compared. If the save is committed in the clone, its checkpoint is also
loaded and compared.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, cast

from pytest_ckpt.facts.commands import BREAKS, PAIRS, Failover, FailoverTrial, Snapshots, SnapshotTrial, Upgrade
from pytest_ckpt.facts.events import PatternMeasured
from pytest_ckpt.ranks.engines.factory import content_of, create_engine
from pytest_ckpt.ranks.operations import Operations
from pytest_ckpt.ranks.process.controller import DelayedRequest, RequestedCommand
from pytest_ckpt.ranks.process.host_cache import HostCache
from pytest_ckpt.ranks.scenarios.failing_operations import OperationsThatMayFail, TrialResult
from pytest_ckpt.sizing.files import files_of
from pytest_ckpt.sizing.patterns import PATTERNS
from pytest_ckpt.support.references import load

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from pytest_ckpt.facts.commands import Command, CommandRun, OperationTrial, TriedKind
    from pytest_ckpt.facts.subject import OperationRef, Pattern
    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.ranks.process.controller import Controller
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.ranks.process.job import Job, Task
    from pytest_ckpt.targets.protocol import Store, StoreOfPaths

# A command is requested neither in the first tenth of an operation, which has hardly begun, nor in the last tenth,
# which may end before the command runs.
_EARLIEST, _LATEST = 0.1, 0.9


class RunWithCommands(ABC):
    """The base class of launches in which commands run.

    A launch uses two checkpoint numbers in turns: one for the newest complete checkpoint, the other for the next save.
    """

    def __init__(
        self, group: Group, activity: Activity, task: Task, job: Job, name: Pattern, controller: Controller
    ) -> None:
        self._group, self._activity, self._task, self._area = group, activity, task, job.area
        self._controller = controller
        self._name: Pattern = name
        self._store: Store = load(job.area.opener)(job.area)
        shards = task.layout()
        self._bytes, self._shard = shards.bytes, shards.rank(group.rank)
        self._do = Operations(group, activity, task.subject, self._shard, self._store, rule=task.files)
        content = content_of(task, self._shard, aside=name)
        self._engine = create_engine(task, self._shard, content, group, activity, job.options)
        # The random numbers are the same on all ranks.
        self._random = random.Random(f"{task.seed}/{task.subject}/{name}")
        # Each of these launches has two separate numbers, because each save of a run has a unique name.
        first = task.operations + PATTERNS[name].first
        self._free, self._whole = first, first + 1
        self._count = 0

    def run(self) -> None:
        """Perform the measurement of the launch, then remove the written files."""
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
            raise OSError(0, f"no fault is injected, but a saved checkpoint cannot be deleted: {left[0]}")
        if not left and not task.keep and self._leads:
            self._store.clear(task.subject.slug)
        self._group.wait()

    @abstractmethod
    def _measure(self) -> bool:
        """Save, load and report the results. Return whether the storage is in its original state."""

    def _watched(self) -> AbstractContextManager[None]:
        """Return a context manager that records how busy the hosts are during its ``with`` block.

        The load is recorded for each operation and for the complete block.
        """
        return self._do.host_load.spanning(self._name)

    @property
    def _leads(self) -> bool:
        return self._group.rank == 0

    def _share(self) -> float:
        """Return a random fraction of an operation's duration. A command is requested after this fraction.

        The fraction is equal on all ranks.
        """
        return self._random.uniform(_EARLIEST, _LATEST)

    def _later(self, command: Command, seconds: float) -> DelayedRequest | None:
        return DelayedRequest(self._controller, self._task.subject, command, seconds) if self._leads else None

    def _save(self, later: DelayedRequest | None = None) -> TrialResult:
        """Save under the free checkpoint number.

        If the save succeeds, the number of the previous checkpoint becomes free. ``later`` requests a command some time
        after the save has started.
        """
        tried = self._try.save(self._free, self._next("save"), later)
        if not tried.failed:
            self._free, self._whole = self._whole, self._free
        return tried

    def _load_and_compare(self, later: DelayedRequest | None = None) -> TrialResult:
        """Load the newest committed checkpoint, and compare every byte.

        ``later`` requests a command some time after the load has started.
        """
        return self._try.load(self._whole, self._next("load"), later)

    def _next(self, action: TriedKind) -> OperationRef:
        self._count += 1
        return self._do.one(self._name, action, self._count)

    def _require_success(self, tried: TrialResult) -> TrialResult:
        """Return ``tried``, the result of an operation without an injected fault.

        If the operation failed, raises OSError.
        """
        if tried.failed:
            raise OSError(0, f"no fault was injected, but a {tried.operation.kind} failed: {tried.operation.error}")
        return tried

    def _is_any(self, *, seen: bool) -> bool:
        """Return rank 0's value of ``seen``, on all ranks."""
        return bool(self._group.share(seen))

    def _await_command(self, request: RequestedCommand | None) -> CommandRun:
        """Wait until a command that rank 0 requested has ended. Return the command's result, on all ranks.

        ``request`` is the requested command on rank 0.
        """
        with self._activity.wait():
            run = request.wait() if request else None
        shared: CommandRun = self._group.share(run)
        return shared

    def _run_command(self, command: Command) -> CommandRun:
        return self._await_command(
            RequestedCommand(self._controller, self._task.subject, command) if self._leads else None
        )


class FailoverRun(RunWithCommands):
    """The failover launch of one task. After each fault, rank 0 reports all results so far."""

    def _measure(self) -> bool:
        """Save and load without a fault. Then inject one fault during a save and one fault during a load."""
        with self._watched():
            saved, loaded = self._require_success(self._save()), self._require_success(self._load_and_compare())
        self._undisturbed = (saved.operation, loaded.operation)
        self._trials: list[FailoverTrial] = []
        not_run = ""
        for kind in BREAKS:
            with self._watched():
                not_run = self._broken(kind, (saved if kind == "save" else loaded).operation.seconds)
            self._report(not_run)
            if not_run:
                break
        return not not_run

    def _broken(self, kind: TriedKind, usual_seconds: float) -> str:
        """Inject a fault during an operation of kind ``kind``, repair the storage, and save again.

        Return the reason why the launch cannot continue; empty if it can continue. ``usual_seconds`` is the duration of
        an operation of this kind without a fault.
        """
        share = self._share()
        listed: list[OperationTrial] = []
        request: RequestedCommand | None = None
        later: DelayedRequest | None = None
        moment = 0.0
        pending = False
        while True:
            later = None if request else self._later("fault", share * usual_seconds)
            tried = self._save(later) if kind == "save" else self._load_and_compare(later)
            if later and (request := later.finish()):
                moment = later.seconds_into
            is_requested = bool(self._group.share(request is not None))
            if not is_requested and not tried.failed:
                # The operation ended before the command's moment: repeat it with an earlier moment.
                share /= 2
                self._after(kind)
                continue
            listed.append(tried.operation)
            pending = tried.failed or (kind == "save" and self._load_and_compare().failed)
            is_in_it = request is not None and request.received_at is not None and request.received_at <= tried.ended
            if tried.failed or pending or self._group.share(is_in_it):
                break
        if not is_requested:
            # No fault was injected, so a failover does not excuse an error.
            self._require_success(tried)
        fault_run = self._await_command(request)
        repaired = self._run_command("repair")
        not_run = "" if fault_run.is_good else fault_run.sentence
        not_run = not_run or ("" if repaired.is_good else repaired.sentence)
        if not repaired.is_good:
            self._add(kind, moment, fault_run, listed, repaired)
            return not_run
        is_there = kind == "save" and tried.failed and self._try.is_committed(self._free)
        answer_lost = is_there and tried.failed_in_commit
        if answer_lost:
            # The checkpoint counts as committed and is loaded like any other: it must contain every byte of this save.
            self._free, self._whole = self._whole, self._free
        # First the save, while the storage rebuilds; then the previously committed checkpoint, if it could not be
        # loaded yet.
        before = self._whole
        after = self._save().operation
        lost = self._try.load(before, self._next("load")).operation.error if pending else ""
        if not after.error and not lost:
            lost = self._load_and_compare().operation.error
        self._add(
            kind,
            moment,
            fault_run,
            listed,
            repaired,
            after=after,
            in_error=is_there and not answer_lost,
            answer_lost=answer_lost,
            lost=lost,
        )
        return not_run

    def _after(self, kind: TriedKind) -> None:
        """Load the checkpoint of a save that ended before the fault was injected. If ``kind`` is a load, do nothing."""
        if kind == "save":
            self._require_success(self._load_and_compare())

    def _add(
        self,
        kind: TriedKind,
        moment: float,
        fault: CommandRun,
        stated: list[OperationTrial],
        repaired: CommandRun,
        *,
        after: OperationTrial | None = None,
        in_error: bool = False,
        answer_lost: bool = False,
        lost: str = "",
    ) -> None:
        self._trials.append(
            FailoverTrial(
                kind=kind,
                moment_seconds=moment,
                fault=fault,
                operations=tuple(stated),
                repaired=repaired,
                after=after,
                committed_in_error=in_error,
                commit_answer_lost=answer_lost,
                lost=lost,
            )
        )

    def _report(self, not_run: str) -> None:
        compared = self._try.compared
        found = Failover(
            fault_command="",
            repair_command="",
            undisturbed=self._undisturbed,
            trials=tuple(self._trials),
            integrity=compared.integrity,
            resident_fraction=compared.resident,
            is_declared_cold=self._cache.is_declared_cold,
            not_run=not_run,
            host_loads=self._do.host_load.gathered(),
        )
        self._do.send(PatternMeasured(subject=self._task.subject, name=self._name, found=found))


class UpgradeRun(RunWithCommands):
    """The upgrade launch of one task. Rank 0 reports the results at the end."""

    def _measure(self) -> bool:
        """Save and load undisturbed. Then save and load in turns while the command runs.

        The turns end with the first load after the command has returned, or when an operation fails.
        """
        with self._watched():
            saved, loaded = self._require_success(self._save()), self._require_success(self._load_and_compare())
            share, moment = self._share(), 0.0
            listed: list[OperationTrial] = []
            request: RequestedCommand | None = None
            while True:
                is_save = len(listed) % 2 == 0
                later = None if request else self._later("upgrade", share * saved.operation.seconds)
                tried = self._save(later) if is_save else self._load_and_compare(later)
                if later and (request := later.finish()):
                    moment = later.seconds_into
                if not self._is_any(seen=request is not None):
                    # The save was over before the command's moment: repeat it with an earlier moment.
                    self._require_success(tried)
                    self._require_success(self._load_and_compare())
                    share /= 2
                    continue
                listed.append(tried.operation)
                has_ended = self._is_any(seen=request is not None and request.received_at is not None)
                if tried.failed or (has_ended and not is_save):
                    break
            run = self._await_command(request)
            lost = self._load_and_compare().operation.error if listed[-1].error else ""
        compared = self._try.compared
        found = Upgrade(
            command="",
            undisturbed=(saved.operation, loaded.operation),
            moment_seconds=moment,
            operations=tuple(listed),
            run=run,
            lost=lost,
            integrity=compared.integrity,
            resident_fraction=compared.resident,
            is_declared_cold=self._cache.is_declared_cold,
            host_loads=self._do.host_load.gathered(),
        )
        self._do.send(PatternMeasured(subject=self._task.subject, name=self._name, found=found))
        return run.is_good and not lost


class SnapshotRun(RunWithCommands):
    """The snapshot launch of one task. After each snapshot, rank 0 reports all results so far."""

    def _measure(self) -> bool:
        """Save without a snapshot and with a snapshot, in turns."""
        # The first save replaces no checkpoint, so it is not used for comparison.
        self._require_success(self._save())
        trials: list[SnapshotTrial] = []
        not_run = ""
        while len(trials) < PAIRS and not not_run:
            with self._watched():
                trials.append(self._pair())
            bad = next((run for run in (trials[-1].taken, trials[-1].removed) if run and not run.is_good), None)
            not_run = bad.sentence if bad else ""
            found = Snapshots(
                command="",
                remove_command="",
                trials=tuple(trials),
                integrity=self._try.compared.integrity,
                not_run=not_run,
                host_loads=self._do.host_load.gathered(),
            )
            self._do.send(PatternMeasured(subject=self._task.subject, name=self._name, found=found))
        return not not_run

    def _pair(self) -> SnapshotTrial:
        """Save without a snapshot, save with a snapshot, and compare the content of the snapshot."""
        share = self._share()
        while True:
            alone = self._require_success(self._save())
            before = self._whole
            later = self._later("snapshot", share * alone.operation.seconds)
            saved_during = self._save(later)
            request = later.finish() if later else None
            if self._is_any(seen=request is not None):
                break
            # The save ended before the command's moment: repeat the pair with an earlier moment.
            self._require_success(saved_during)
            share /= 2
        taken = self._await_command(request)
        is_before = (
            request is not None and request.received_at is not None and request.received_at < saved_during.written
        )
        is_before_commit = self._is_any(seen=is_before)
        is_committed, lost, not_judged, removed = False, "", "", None
        if not saved_during.failed:
            lost = self._load_and_compare().operation.error
        if taken.is_good:
            store, not_judged = self._clone(taken)
            if store:
                is_committed, wrong = self._inspect_clone(store, before, saved_during)
                lost = lost or wrong
            removed = self._run_command("remove") if taken.output else None
        return SnapshotTrial(
            plain=alone.operation,
            snapshotted=saved_during.operation,
            moment_seconds=later.seconds_into if later else 0.0,
            taken=taken,
            is_before_commit=is_before_commit,
            is_committed=is_committed,
            lost=lost,
            not_judged=not_judged,
            removed=removed,
        )

    def _clone(self, taken: CommandRun) -> tuple[Store | None, str]:
        """Return (run's area in the clone, empty text) on all ranks. The area is the run's own directory or prefix.

        If the area is not accessible on a host, return (None, reason) on all ranks. ``taken`` is the result of the
        command that took the snapshot.
        """
        with self._activity.in_phase("open"):
            clone, reason = cast("StoreOfPaths", self._store).clone(taken.output)
        whys = self._group.gather(f"{reason} (on {self._group.host})" if reason else "")
        shared: str = self._group.share(next(filter(None, whys), "") if self._leads else "")
        if shared:
            return None, f"The output of the snapshot command, {taken.output!r}, {shared}."
        return clone, ""

    def _inspect_clone(self, clone: Store, before: int, saved_during: TrialResult) -> tuple[bool, str]:
        """Return (whether the save during the snapshot is committed in the clone, error of loads from the clone).

        The checkpoint ``before``, which was saved before the snapshot, is always loaded. The checkpoint of the save
        during the snapshot is loaded if it is committed in the clone. If no load has an error, the text is empty.
        """
        # If the save failed, it is under the free number, and the previous checkpoint is still the complete one.
        number = self._free if saved_during.failed else self._whole
        is_committed = self._try.is_committed(number, clone)
        error = self._try.load(before, self._next("load"), clone=clone).operation.error
        wrong = f"the checkpoint from before the snapshot, from its clone: {error}" if error else ""
        if is_committed:
            error = self._try.load(number, self._next("load"), clone=clone).operation.error
            wrong = wrong or (f"the checkpoint that the clone shows as committed: {error}" if error else "")
        return is_committed, wrong
