"""Saves, loads and deletes of one subject, each done by all ranks together, from a barrier to the slowest rank."""

from __future__ import annotations

import os
import stat
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ckpt.facts.events import OperationDone, OperationStarted
from pytest_ckpt.facts.measurement import Operation
from pytest_ckpt.facts.proofs import Durability, Fault
from pytest_ckpt.facts.subject import OperationRef
from pytest_ckpt.ranks.engines.protocol import Check, Clock, Engine, Loader
from pytest_ckpt.ranks.process.activity import write_event
from pytest_ckpt.ranks.process.job import checkpoint_name, partial_name
from pytest_ckpt.ranks.timing import Own, combine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from pytest_ckpt.facts.events import Event
    from pytest_ckpt.facts.measurement import OperationKind
    from pytest_ckpt.facts.subject import Action, Scenario, Stage, Subject
    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.ranks.process.host_cache import HostCache
    from pytest_ckpt.sizing.models import RankLayout, ShardFile

_MOST_FAULTS_OF_RANK = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Loaded:
    """What a load gave on all ranks; rank 0 knows it, the others hold nothing."""

    operation: Operation | None
    bytes_checked: int
    fault_count: int
    faults: list[Fault]
    rank_bytes: tuple[int, ...]


class Operations:
    """What all ranks do with the checkpoints in ``folder``; ``stages`` adds up this rank's seconds by their purpose.

    An operation that is not ``counted`` is none of the subject's saves and loads: it answers a question beside them.
    """

    def __init__(self, group: Group, activity: Activity, subject: Subject, shard: RankLayout, folder: Path) -> None:
        self._group = group
        self._activity = activity
        self.subject = subject
        self._shard = shard
        self._folder = folder
        self._saved: list[Own] = []
        self.stages: dict[str, float] = {}
        # When the last save began and was committed, on this rank's monotonic clock.
        self.span = (0.0, 0.0)

    def save(
        self,
        engine: Engine,
        checkpoint: int,
        *,
        counted: bool = True,
        meanwhile: Callable[[threading.Event], None] | None = None,
        at: OperationRef | None = None,
        content: int = 0,
        takes_part: bool = True,
        stage: str = "probes",
    ) -> Operation | None:
        """Save a checkpoint: every rank that takes part its files, then rank 0 commits.

        ``at`` names the save where it is none of the subject's own. ``meanwhile`` runs beside it on this rank;
        its event is set when the save is over. ``content`` is the number of the content where it is not the
        checkpoint's. The time of a save that is not counted belongs to ``stage``.
        """
        at = at or OperationRef(subject=self.subject, action="save", index=checkpoint)
        with self.stage("content", at.at("content")):
            if takes_part:
                engine.fill(content or checkpoint)
        partial, final = self._folder / partial_name(checkpoint), self._folder / checkpoint_name(checkpoint)
        clock = Clock(activity=self._activity)
        beside = _Beside(meanwhile) if meanwhile else None
        self._start(at, tell=counted or stage == "endurance")
        start = time.perf_counter()
        if beside:
            beside.start()
        if takes_part:
            with clock.phase("open", partial.name):
                make_folder(partial)
            engine.save(partial, clock)
            with clock.phase("directory", partial.name):
                _sync_directory(partial)
        own_seconds = time.perf_counter() - start
        self._group.wait()
        commit_start = time.perf_counter()
        synced = 1
        if self._group.rank == 0:
            with self._activity.in_phase("commit", final.name):
                partial.rename(final)
                _sync_directory(self._folder)
            synced = 2
        end = time.perf_counter()
        self.span = (start, end)
        if beside:
            beside.finish()
        own = Own(
            steps=(own_seconds,),
            phases=clock.phases,
            bytes=self._shard.bytes if takes_part else 0,
            files=clock.files,
            files_synced=clock.files_synced,
            directories=synced,
            directories_synced=synced,
            commit_seconds=end - commit_start,
            committed_seconds=end - start,
            is_committed=final.is_dir() and not partial.exists(),
        )
        if counted:
            self._saved.append(own)
        return self._finish("save", checkpoint, checkpoint, own, counted=counted, stage=stage)

    def load(
        self,
        engine: Loader,
        cache: HostCache,
        number: int,
        checkpoint: int,
        *,
        counted: bool = True,
        scenario: Scenario = "",
        files: Iterable[ShardFile] | None = None,
    ) -> Loaded:
        """Load a checkpoint as load ``number``, in the engine's steps; between them every byte is compared.

        ``files`` are those that the engine reads where they are not this rank's own.
        """
        at = OperationRef(subject=self.subject, scenario=scenario, action="load", index=number)
        with self.stage("residency", at.at("residency")):
            resident = cache.resident(self.paths(checkpoint, files))
            steps = self._group.largest(engine.load_steps())
        folder = self._folder / checkpoint_name(checkpoint)
        clock = Clock(activity=self._activity)
        seconds, loaded_bytes = [], 0
        checks: list[Check] = []
        for step in range(steps):
            self._start(at, tell=counted and step == 0)
            start = time.perf_counter()
            loaded_bytes += engine.load(folder, step, clock)
            seconds.append(time.perf_counter() - start)
            # Nobody compares while somebody still reads: that would leave the storage to fewer ranks.
            self._group.wait()
            with self.stage("verify", at.at("verify")):
                checks.append(engine.verify(checkpoint))
        own = Own(steps=tuple(seconds), phases=clock.phases, bytes=loaded_bytes, resident=resident)
        operation = self._finish("load", number, checkpoint, own, counted=counted)
        counts = (sum(c.bytes_checked for c in checks), sum(c.fault_count for c in checks))
        local = self._faults(checks, checkpoint)[:_MOST_FAULTS_OF_RANK]
        gathered = self._group.gather((*counts, local, loaded_bytes))
        return Loaded(
            operation=operation,
            bytes_checked=sum(g[0] for g in gathered),
            fault_count=sum(g[1] for g in gathered),
            faults=[fault for g in gathered for fault in g[2]],
            rank_bytes=tuple(g[3] for g in gathered),
        )

    def paths(self, checkpoint: int, files: Iterable[ShardFile] | None = None) -> list[Path]:
        """Return where files of a checkpoint lie: this rank's own, or others."""
        folder = self._folder / checkpoint_name(checkpoint)
        return [folder / file.name for file in (self._shard.files if files is None else files)]

    def delete(self, checkpoint: int) -> float:
        """Delete a checkpoint; return the seconds until all ranks were done, by rank 0's clock."""
        self._start(OperationRef(subject=self.subject, action="delete", index=checkpoint), tell=False)
        start = time.perf_counter()
        self.unlink(checkpoint)
        self._group.wait()
        if self._group.rank == 0:
            (self._folder / checkpoint_name(checkpoint)).rmdir()
        return time.perf_counter() - start

    def unlink(self, checkpoint: int, *, is_partial: bool = False) -> None:
        """Remove this rank's own files of a checkpoint, through no symbolic link."""
        name = partial_name(checkpoint) if is_partial else checkpoint_name(checkpoint)
        folder = os.open(self._folder / name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            for file in self._shard.files:
                os.unlink(file.name, dir_fd=folder)
        finally:
            os.close(folder)

    def remove_folders(self, checkpoints: Iterable[int], *, also_own: bool) -> None:
        """Remove the empty folders of checkpoints on rank 0, and with ``also_own`` the subject's own."""
        self._group.wait()
        if self._group.rank == 0:
            for checkpoint in checkpoints:
                (self._folder / checkpoint_name(checkpoint)).rmdir()
            if also_own:
                self._folder.rmdir()
        self._group.wait()

    def durability(self) -> Durability | None:
        """Add up, on rank 0, the durable calls of all counted saves."""
        names = ("files", "files_synced", "directories", "directories_synced")
        gathered = self._group.gather([sum(getattr(own, name) for own in self._saved) for name in names])
        if self._group.rank != 0:
            return None
        files, files_synced, directories, directories_synced = (sum(column) for column in zip(*gathered, strict=True))
        return Durability(
            files=files,
            files_synced=files_synced,
            directories=directories,
            directories_synced=directories_synced,
            saves=len(self._saved),
            commits=sum(own.is_committed for own in self._saved),
        )

    @contextmanager
    def stage(self, spent_on: str, at: OperationRef | None) -> Iterator[None]:
        """Add the seconds inside, on this rank's clock, to a stage of the measurement; ``at`` is what the rank does."""
        if at:
            self._activity.begin(at)
        start = time.perf_counter()
        yield
        self._spent(spent_on, time.perf_counter() - start)

    def all(self, stage: Stage, scenario: Scenario = "", level: float = 0.0) -> OperationRef:
        """Return the reference of a stage that is of no single operation."""
        return OperationRef(subject=self.subject, scenario=scenario, stage=stage, level=level)

    def one(self, scenario: Scenario, action: Action, index: int, level: float = 0.0) -> OperationRef:
        """Return the reference of an operation of a scenario."""
        return OperationRef(subject=self.subject, scenario=scenario, action=action, index=index, level=level)

    def tell(self, event: Event) -> None:
        """Let rank 0 tell the controller."""
        if self._group.rank == 0:
            write_event(1, event)

    def _start(self, at: OperationRef, *, tell: bool) -> None:
        self._activity.begin(at)
        if tell:
            self.tell(OperationStarted(operation=at))
        with self.stage("wait", None):
            self._group.start_together()

    def _finish(
        self, kind: OperationKind, index: int, checkpoint: int, own: Own, *, counted: bool, stage: str = "probes"
    ) -> Operation | None:
        """Gather the operation's times; on rank 0, tell and return it."""
        all_own = self._group.gather(own)
        if self._group.rank != 0:
            return None
        operation = combine(kind, index, checkpoint, all_own)
        self._spent(f"{kind}s" if counted else stage, operation.seconds)
        if counted:
            self.tell(OperationDone(subject=self.subject, operation=operation))
        return operation

    def _faults(self, checks: Iterable[Check], checkpoint: int) -> list[Fault]:
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


class _Beside(threading.Thread):
    """Does something beside an operation; its error is raised where the operation waits for it."""

    def __init__(self, act: Callable[[threading.Event], None]) -> None:
        super().__init__()
        self._act = act
        self._over = threading.Event()
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._act(self._over)
        except BaseException as error:  # it is raised by finish
            self._error = error

    def finish(self) -> None:
        """Say that it is over, wait for the end and raise the error that was met."""
        self._over.set()
        self.join()
        if self._error:
            raise self._error


def make_folder(folder: Path) -> None:
    """Make a folder that another rank may have made already; a symbolic link in its place is not one."""
    try:
        folder.mkdir()
    except FileExistsError:
        if not stat.S_ISDIR(folder.lstat().st_mode):
            raise


def _sync_directory(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
