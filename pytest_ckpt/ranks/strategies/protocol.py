"""The protocol of a save strategy: when the job may continue and change its state, and which rank commits."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, cast

from pytest_ckpt.facts.proofs import CommitProof, DurabilityProof, Entry, SaveTiming
from pytest_ckpt.facts.targets import CheckpointRef
from pytest_ckpt.support.references import load

if TYPE_CHECKING:
    from pytest_ckpt.ranks.engines.protocol import Clock, Engine
    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.ranks.process.job import EngineOptions
    from pytest_ckpt.targets.protocol import Draft, Store, StoreOfPaths


@dataclass(frozen=True, kw_only=True, slots=True)
class RankSave:
    """The result of one rank's save: the times of its stages, its files, and two proofs.

    ``durability`` is the proof that the files are durable; None on a rank that wrote no files and fsynced no directory.
    ``commit`` is the proof of the commit; None on ranks that do not commit.
    """

    timing: SaveTiming
    entries: tuple[Entry, ...] = ()
    durability: DurabilityProof | None = None
    commit: CommitProof | None = None


class Pending(Protocol):
    """A save that may still be running."""

    def poll(self) -> RankSave | None:
        """Return the save's result; None while the save runs. If the save failed, raises its error."""

    def wait(self) -> RankSave:
        """Wait until the save has ended, and return its result. If the save failed, raises its error."""


class Strategy(Protocol):
    """The protocol of a strategy, which saves the content of its ``engine``.

    All ranks create the strategy together, before their first save.
    """

    engine: Engine

    def save(self, ref: CheckpointRef, *, is_saving_rank: bool = True) -> Pending:
        """Save a checkpoint, and return as soon as the job may continue. All ranks call this together.

        If ``is_saving_rank`` is false, this rank writes no files and waits with the other ranks.
        """

    def facts(self) -> dict[str, str]:
        """Return the strategy's facts for the report."""

    def may_change_state(self, pending: Pending) -> bool:
        """Return whether the job may change the state that is being saved."""

    def release(self) -> None:
        """Wait for saves that are still running, and free threads and copies."""


class StrategyFactory(Protocol):
    """A function that creates a strategy. All ranks call the function together."""

    def __call__(
        self,
        *,
        engine: Engine,
        store: Store,
        group: Group,
        activity: Activity,
        options: EngineOptions,
        tier: Store | None = None,
    ) -> Strategy:
        """Return a new strategy, without writing anything.

        ``options`` are the engine's options. A strategy uses some of these options, such as the number of threads for a
        copy. ``tier`` is the run's area in a local tier; None without a local tier.
        """


def strategy_of(reference: str) -> StrategyFactory:
    """Import and return the function with the name ``reference``, in the form ``module:name``."""
    return cast("StrategyFactory", load(reference))


def write_files(engine: Engine, store: Store, ref: CheckpointRef, clock: Clock) -> RankSave:
    """Write this rank's files of a checkpoint, and make them durable.

    Return the files, the proof that they are durable, and the times so far. If the engine's library commits the
    checkpoint, this call includes the commit. If not, `await_durable_names` must be called to make the files' names
    durable.
    """
    draft = store.begin(ref, clock)
    return part_of(draft, clock, engine.save(draft, clock))


def part_of(draft: Draft, clock: Clock, commit: CommitProof | None = None) -> RankSave:
    """Return the record of the files that this rank has written to ``draft``. Call this after the files are durable.

    A draft contains the files of one rank before the commit. ``commit`` is the proof that the engine's library has
    committed the checkpoint; None if the library has not committed.
    """
    entries, durability = draft.written()
    timing = SaveTiming(phases=clock.phases)
    return RankSave(timing=timing, entries=tuple(entries), durability=durability, commit=commit)


def leads(group: Group, store: Store) -> bool:
    """Return whether this rank commits and deletes checkpoints in a store.

    In a local tier, one rank of each host commits and deletes. On the target, rank 0 commits and deletes.
    """
    return group.leads_host if store.of_each_host else group.rank == 0


def save_and_commit(
    engine: Engine, store: Store, group: Group, ref: CheckpointRef, clock: Clock, *, start: float, is_saving_rank: bool
) -> RankSave:
    """Write this rank's files, wait for all ranks, and commit. Return the result and the times of these stages.

    The times are counted from ``start``. If ``is_saving_rank`` is false, this rank writes no files.
    """

    def write() -> RankSave:
        return write_files(engine, store, ref, clock)

    return store_and_commit(write, store, group, ref, clock, start=start, is_saving_rank=is_saving_rank)


def store_and_commit(
    write: Callable[[], RankSave],
    store: Store,
    group: Group,
    ref: CheckpointRef,
    clock: Clock,
    *,
    start: float,
    is_saving_rank: bool,
) -> RankSave:
    """Call ``write``, make the files' names durable, wait for all ranks, and commit.

    Return the result and the times. ``write`` makes this rank's files durable. If the engine's library commits in
    ``write``, the names are already durable. The times are counted from ``start``. If ``is_saving_rank`` is false, this
    rank writes no files.
    """
    nothing = SaveTiming(phases=clock.phases)
    saved = write() if is_saving_rank else RankSave(timing=nothing)
    stored = time.perf_counter() - start
    saved = await_durable_names(saved, store, group, ref, clock)
    entries = all_have_written(group, store, saved.entries)
    commit_start = time.perf_counter()
    commit = saved.commit
    if leads(group, store) and commit is None:
        commit = store.commit(ref, entries, clock)
    end = time.perf_counter()
    clock.phases["commit"] = end - commit_start
    timing = replace(
        saved.timing,
        stored_seconds=stored,
        committed_seconds=end - start if leads(group, store) else None,
        stored_bytes=sum(entry.bytes for entry in saved.entries),
    )
    return replace(saved, timing=timing, commit=commit)


def await_durable_names(saved: RankSave, store: Store, group: Group, ref: CheckpointRef, clock: Clock) -> RankSave:
    """Wait until all ranks of this host have fsynced their files, then let the host's leader fsync the directory.

    Return ``saved``. On the leader, the proof and the time of the directory's fsync are added. The fsync of a directory
    covers all names that processes of the same client have created. So one fsync per host is necessary and sufficient.
    """
    pending = saved.durability is not None and saved.durability.names_pending
    if group.host_sum(pending) and group.leads_host:
        start = time.perf_counter()
        names = cast("StoreOfPaths", store).sync_names(ref, clock)
        proof = saved.durability or DurabilityProof(
            files_attempted=0, files_returned=0, directories_attempted=0, directories_returned=0
        )
        saved = replace(
            saved,
            timing=replace(saved.timing, names_seconds=time.perf_counter() - start),
            durability=replace(
                proof,
                directories_attempted=proof.directories_attempted + names.directories_attempted,
                directories_returned=proof.directories_returned + names.directories_returned,
            ),
        )
    if saved.durability is None:
        return saved
    return replace(saved, durability=replace(saved.durability, names_pending=False))


def all_have_written(group: Group, store: Store, entries: Sequence[Entry]) -> list[Entry]:
    """Wait until all ranks have written their files. ``entries`` describe the files of this rank.

    If the store requires the entries of all ranks, return these entries on rank 0. In all other cases, return an empty
    list.
    """
    if store.wants_entries:
        return [entry for of_rank in group.gather(tuple(entries)) for entry in of_rank]
    group.wait()
    return []
