"""Tiers: saves to the local tier without and during drains, then restores of the newest complete checkpoint.

A drain copies a checkpoint from the local tier to the target. With several hosts, a second part follows: each host
sends copies of its files to a partner host. The last host loses its local tier, its partner sends the copies back, and
all ranks load from their local tiers. The copies travel over the network between the ranks, as in jobs, and never reach
the storage under test.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from pytest_ckpt.facts.events import PatternMeasured
from pytest_ckpt.facts.proofs import SaveTiming
from pytest_ckpt.facts.strategy_results import NodeLoss, Tier, TierRestore, Tiers
from pytest_ckpt.ranks.checkpoints import size_of_file
from pytest_ckpt.ranks.engines.protocol import Clock
from pytest_ckpt.ranks.engines.stream.buffers import Buffers
from pytest_ckpt.ranks.operations import Operations
from pytest_ckpt.ranks.process.host_cache import HostCache
from pytest_ckpt.ranks.strategies.protocol import RankSave, await_durable_names, leads, part_of
from pytest_ckpt.ranks.strategies.sync import SyncStrategy
from pytest_ckpt.ranks.strategies.tiered import Drains, read_piece, write_piece
from pytest_ckpt.sizing.drains import PARTNER_PIECE_BYTES
from pytest_ckpt.sizing.patterns import PATTERNS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pytest_ckpt.facts.subject import Action, OperationRef
    from pytest_ckpt.ranks.content import Bytes
    from pytest_ckpt.ranks.engines.protocol import Engine
    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.ranks.process.host_cache import Files
    from pytest_ckpt.ranks.process.job import EngineOptions, Task
    from pytest_ckpt.ranks.scenarios.context import ScenarioContext
    from pytest_ckpt.ranks.strategies.asynchronous import InFlight
    from pytest_ckpt.sizing.models import RankLayout
    from pytest_ckpt.targets.protocol import Draft, Store

# Whether each save runs during a drain. The order makes drift affect both kinds equally. After the last save, one
# checkpoint is on the target and a newer one is not.
_DURING_A_DRAIN = (False, True, True, False, False, True)
# The offset of the numbers of checkpoints with copies on other hosts; these numbers are higher than all above.
_COPIES = 8
# The offset of a copy's number from the number of its checkpoint.
_TO_COPY = 4

FileSizes = tuple[tuple[str, int], ...]
"""The names of files and their sizes in bytes."""


@dataclass(kw_only=True, slots=True)
class TierScenario:
    """Saves checkpoints to the local tier, drains them to the target, and restores them.

    ``bytes`` is the size of a checkpoint over all ranks. ``do`` performs the subject's operations on the target.
    ``cache`` is the host's cache of files on the target. ``drop`` drops the cached data of files on the target that
    will be read next.
    """

    group: Group
    activity: Activity
    do: Operations
    cache: HostCache
    store: Store
    tier: Store
    engine: Engine
    shard: RankLayout
    task: Task
    options: EngineOptions
    bytes: int
    drop: Callable[[Sequence[Files]], None]
    _local: Operations = field(init=False)
    # This rank's files with their sizes after the save.
    _sizes: dict[int, Mapping[str, int | None]] = field(default_factory=dict)
    _seconds: dict[bool, list[float]] = field(default_factory=lambda: {False: [], True: []})
    _drained: list[float] = field(default_factory=list)

    def measure(self) -> None:
        """Save and drain in turns, restore, damage the newest checkpoint, restore again, and remove all checkpoints."""
        start = time.perf_counter()
        task = self.task
        self._local = Operations(
            self.group, self.activity, task.subject, self.shard, self.tier, rule=task.files, is_local=True
        )
        on_target, newest = self._save_in_turns()
        near = HostCache(self.group, self.activity, self.tier, task.subject.slug)
        whole = self._restore(1, "local", newest, near)
        # One rank loses its part of the newest checkpoint. The restore must not combine the other ranks' parts of it
        # with another checkpoint.
        is_struck = self.group.rank == task.processes - 1
        if is_struck:
            self._local.delete_files_of_rank(newest)
        self.group.wait()
        torn = self._restore(2, "target", on_target, near)
        if not is_struck:
            self._local.delete_files_of_rank(newest)
        self._local.finish_delete([newest])
        node_loss = self._lose_a_host(near) if self.group.spans_hosts else None
        self.engine.release()
        self._delete_drained(on_target)
        found = Tiers(
            bytes=self.bytes,
            undisturbed_seconds=tuple(self._seconds[False]),
            during_drain_seconds=tuple(self._seconds[True]),
            drain_seconds=tuple(self._drained),
            complete=whole,
            incomplete=torn,
            node_loss=node_loss,
        )
        self.do.send(PatternMeasured(subject=task.subject, name="tiers", found=found))
        self.do.step("tiers", 1, time.perf_counter() - start)

    def _lose_a_host(self, near: HostCache) -> NodeLoss:
        return PartnerScenario(
            group=self.group,
            activity=self.activity,
            do=self._local,
            cache=near,
            tier=self.tier,
            engine=self.engine,
            after=self.task.operations,
            bytes=self.bytes,
        ).measure()

    def _save_in_turns(self) -> tuple[int, int]:
        """Save to the local tier, in some turns without a drain and in other turns during a drain.

        Return (number of the last drained checkpoint, number of the newest checkpoint). The newest checkpoint is not
        drained. At the end, the local tier contains only the newest checkpoint, and the target contains only the last
        drained one.
        """
        saves = SyncStrategy(engine=self.engine, store=self.tier, group=self.group, activity=self.activity)
        drains = Drains(self.store, self.tier, self.group, self.activity, self.options)
        newest = self.task.operations + PATTERNS["tiers"].first
        self._save(saves, newest)
        on_target = 0
        for number, is_during_drain in enumerate(_DURING_A_DRAIN, start=newest + 1):
            before, newest = newest, number
            seconds = self._save(saves, number, (drains, before) if is_during_drain else None)
            self._seconds[is_during_drain] += [seconds] if seconds is not None else []
            if is_during_drain:
                if on_target:
                    self._delete_drained(on_target)
                on_target = before
            self._local.delete(before)
        drains.release()
        return on_target, newest

    def _save(self, saves: SyncStrategy, number: int, drained: tuple[Drains, int] | None = None) -> float | None:
        """Save checkpoint ``number`` to the local tier. Return the seconds of the save on rank 0, and None elsewhere.

        ``drained`` is (drains, number of another checkpoint). If it is given, this other checkpoint is drained
        concurrently.
        """
        at = self.do.one("tiers", "save", number - self.task.operations - PATTERNS["tiers"].first + 1)
        pending: list[InFlight] = []

        def drain(_over: threading.Event) -> None:
            if drained:
                drains, before = drained
                ref, names = self.do.new_ref(before, "tier"), tuple(self._sizes[before])
                pending.append(drains.begin(ref, names, start=time.perf_counter()))

        operation = self._local.save(saves, number, role="tier", at=at, stage="tiers", meanwhile=drain)
        for each in pending:
            with self.activity.wait():
                timing = each.wait().timing
            # A drain ends when rank 0 has committed.
            self._drained += [timing.committed_seconds] if timing.committed_seconds is not None else []
        ref = self._local.ref(number)
        self._sizes[number] = {
            name: size_of_file(self.tier, ref, name, self.activity) for name in self._local.own_names(number)
        }
        return operation.seconds if operation else None

    def _delete_drained(self, number: int) -> None:
        self.store.delete(self.do.ref(number), tuple(self._sizes[number]))
        self.do.finish_delete([number])

    def _restore(
        self, index: int, expected_tier: Literal["local", "target"], expected: int, near: HostCache
    ) -> TierRestore:
        """Choose the newest complete checkpoint. If it is the expected checkpoint, load it. Return the result.

        The choice is expected to be checkpoint ``expected`` in tier ``expected_tier``. ``near`` is the host's cache of
        files in the local tier.
        """
        self.activity.begin(self.do.one("tiers", "load", index))
        tier, number = self._newest_complete()
        integrity, seconds = None, 0.0
        if (tier, number) == (expected_tier, expected):
            is_local = tier == "local"
            do, cache = (self._local, near) if is_local else (self.do, self.cache)
            names = self._names_of_load(number)
            if not is_local:
                self.drop([self.do.files(number, names)])
            loaded = do.load(self.engine, cache, index, number, counted=False, scenario="tiers", names=names)
            seconds = loaded.operation.seconds if loaded.operation else 0.0
            integrity = loaded.integrity(self.bytes)
        return TierRestore(
            expected_tier=expected_tier,
            expected=expected,
            tier=tier,
            number=number,
            seconds=seconds,
            integrity=integrity,
        )

    def _names_of_load(self, number: int) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self._sizes[number], *self.task.files.shared)))

    def _newest_complete(self) -> tuple[Tier, int]:
        """Return (tier, number) of the newest complete checkpoint of this scenario, on all ranks.

        A checkpoint is complete in a tier if every rank has its files there. If both tiers contain the newest complete
        checkpoint, return the local tier. If there is no complete checkpoint, return ("", 0).
        """
        slug = self.task.subject.slug
        tiers: tuple[tuple[Tier, Store], ...] = (("local", self.tier), ("target", self.store))
        # Lower numbers are the subject's own checkpoints, which are older.
        committed = [
            (number, tier)
            for tier, store in tiers
            for number in store.committed(slug)
            if number >= self.task.operations + PATTERNS["tiers"].first
        ]
        candidates: list[tuple[int, Tier]] = self.group.share(sorted(committed, key=lambda each: (-each[0], each[1])))
        for number, tier in candidates:
            if not self.group.any_of(not self._has_files_of_rank(dict(tiers)[tier], number)):
                return tier, number
        return "", 0

    def _has_files_of_rank(self, store: Store, number: int) -> bool:
        """Return whether this rank's files of a checkpoint exist with their original sizes."""
        ref, sizes = self.do.ref(number), self._sizes.get(number, {})
        there = (size_of_file(store, ref, name, self.activity) == size for name, size in sizes.items())
        return bool(sizes) and all(there)


class _Piece(NamedTuple):
    """A piece of a file of ``size`` bytes: ``length`` bytes from ``offset`` on."""

    name: str
    size: int
    offset: int
    length: int


class PartnerTransfer(NamedTuple):
    """The transfer of rank ``owner``'s files, from rank ``source`` to rank ``to`` on another host."""

    owner: int
    source: int
    to: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Hosts:
    """The names of the hosts, and the ranks of each host in the same order.

    Each host's partner is the next host. The partner of the last host is the first host.
    """

    names: tuple[str, ...]
    ranks: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, group: Group) -> Hosts:
        """Return the hosts of a launch, on all ranks."""
        by_leader: dict[int, list[int]] = {}
        names: dict[int, str] = {}
        leaders = group.share(group.gather((group.from_host_leader(group.rank), group.host)))
        for rank, (leader, name) in enumerate(leaders):
            by_leader.setdefault(leader, []).append(rank)
            names[leader] = name
        return cls(names=tuple(names.values()), ranks=tuple(map(tuple, by_leader.values())))

    def to_partners(self) -> list[PartnerTransfer]:
        """Return one transfer per rank: from the rank to a rank of the partner host."""
        return [
            PartnerTransfer(owner=owner, source=owner, to=partners[place % len(partners)])
            for owners, partners in zip(self.ranks, (*self.ranks[1:], self.ranks[0]), strict=True)
            for place, owner in enumerate(owners)
        ]


@dataclass(kw_only=True, slots=True)
class PartnerScenario:
    """Saves two checkpoints to the local tiers, and copies them to partner hosts.

    Then the last host loses its files. ``bytes`` is the size of a checkpoint over all ranks. ``do`` performs operations
    in the local tier. ``cache`` is the host's cache of files in the local tier. Numbers of checkpoints are larger than
    ``after``.
    """

    group: Group
    activity: Activity
    do: Operations
    cache: HostCache
    tier: Store
    engine: Engine
    after: int
    bytes: int
    _hosts: Hosts = field(init=False)
    _sizes: tuple[FileSizes, ...] = ()
    _buffers: dict[PartnerTransfer, Bytes] = field(default_factory=dict)

    def measure(self) -> NodeLoss:
        """Save and copy two checkpoints, delete the files of one host, send the files back to this host, and load.

        Finally remove all checkpoints.
        """
        do, self._hosts = self.do, Hosts.of(self.group)
        saves = SyncStrategy(engine=self.engine, store=self.tier, group=self.group, activity=self.activity)
        older = self.after + PATTERNS["tiers"].first + _COPIES
        newest = older + 1
        copies, seconds = self._hosts.to_partners(), 0.0
        # With only one checkpoint, a copy that is never renewed could not be detected.
        for number in (older, newest):
            do.save(saves, number, role="tier", at=self._at("save", number), stage="tiers")
            self._sizes = self._sizes_of(number)
            seconds = self._move(copies, number, number + _TO_COPY)
        do.delete(older)
        self._delete_copies(copies, older)
        lost = self._hosts.ranks[-1]
        self._lose(lost, copies, newest)
        back = [
            PartnerTransfer(owner=transfer.owner, source=transfer.to, to=transfer.source)
            for transfer in copies
            if transfer.owner in lost
        ]
        missing = self._missing(back, newest + _TO_COPY)
        returned, load_seconds, integrity = 0.0, 0.0, None
        if not missing:
            returned = self._move(back, newest + _TO_COPY, newest)
            loaded = do.load(self.engine, self.cache, 3, newest, counted=False, scenario="tiers")
            load_seconds = loaded.operation.seconds if loaded.operation else 0.0
            integrity = loaded.integrity(self.bytes)
        self._clean(copies, lost, newest, came_back=not missing)
        return NodeLoss(
            hosts=len(self._hosts.names),
            lost=self._hosts.names[-1],
            partner=self._hosts.names[0],
            copied_bytes=self._bytes_of(copies),
            copy_seconds=seconds,
            returned_bytes=0 if missing else self._bytes_of(back),
            return_seconds=returned,
            load_seconds=load_seconds,
            missing=missing,
            integrity=integrity,
        )

    def _at(self, action: Action, number: int) -> OperationRef:
        return self.do.one("tiers", action, number - self.after - PATTERNS["tiers"].first + 1)

    def _sizes_of(self, number: int) -> tuple[FileSizes, ...]:
        """Return, on all ranks, the names and sizes of each rank's files of checkpoint ``number``.

        The files are in the rank's local tier.
        """
        ref = self.do.ref(number)
        sizes = [(name, size_of_file(self.tier, ref, name, self.activity) or 0) for name in self.do.own_names(number)]
        return tuple(self.group.share(self.group.gather(tuple(sizes))))

    def _move(self, transfers: Sequence[PartnerTransfer], number: int, new: int) -> float:
        """Transfer files of checkpoint ``number``, and commit the received files as checkpoint ``new``.

        Return the seconds on this rank's clock.
        """
        mine, group = self.group.rank, self.group
        self._buffers.clear()
        self.activity.begin(self._at("save", new))
        clock = Clock(activity=self.activity)
        group.start_together()
        start = time.perf_counter()
        receives = self._is_here([transfer.to for transfer in transfers])
        draft = self.tier.begin(self.do.new_ref(new, "tier"), clock) if receives else None
        outgoing = [self._read(transfer, number, clock) for transfer in transfers if transfer.source == mine]
        incoming = {
            transfer: self._write(transfer, draft, clock) for transfer in transfers if transfer.to == mine and draft
        }
        for files in incoming.values():
            next(files)
        for turn in range(max(len(self._pieces(transfer.owner)) for transfer in transfers)):
            sent = [piece for piece in (next(pieces, None) for pieces in outgoing) if piece]
            arriving = [
                (transfer, self._buffer(transfer)[: pieces[turn].length])
                for transfer in incoming
                if turn < len(pieces := self._pieces(transfer.owner))
            ]
            group.exchange(sent, [(transfer.source, data) for transfer, data in arriving])
            for transfer, _ in arriving:
                next(incoming[transfer])
        saved = part_of(draft, clock) if draft else RankSave(timing=SaveTiming())
        await_durable_names(saved, self.tier, group, self.do.ref(new), clock)
        group.wait()
        if receives and leads(group, self.tier):
            self.tier.commit(self.do.ref(new), (), clock)
        group.wait()
        return time.perf_counter() - start

    def _read(self, transfer: PartnerTransfer, number: int, clock: Clock) -> Iterator[tuple[int, Bytes]]:
        """Yield (receiving rank, piece) for each piece, in the order of the files."""
        store, buffer = self.tier, self._buffer(transfer)
        committed = store.open(self.do.ref(number), clock)
        source, opened = None, ""
        try:
            for piece in self._pieces(transfer.owner):
                if piece.name != opened:
                    if source:
                        source.close()
                    source, opened = committed.source(piece.name), piece.name
                assert source is not None
                read_piece(source, piece.offset, buffer[: piece.length], piece.name, clock)
                yield transfer.to, buffer[: piece.length]
        finally:
            if source:
                source.close()

    def _write(self, transfer: PartnerTransfer, draft: Draft, clock: Clock) -> Iterator[None]:
        """Write the pieces of the files in order.

        The generator yields before each piece. The caller resumes it when the bytes of the piece are in the buffer.
        """
        buffer, sink = self._buffer(transfer), None
        yield
        for piece in self._pieces(transfer.owner):
            if not piece.offset:
                sink = draft.create(piece.name, piece.size)
            assert sink is not None
            write_piece(sink, piece.offset, piece.length, buffer, piece.name, clock)
            if piece.offset + piece.length == piece.size:
                sink.finish()
            yield

    def _pieces(self, rank: int) -> list[_Piece]:
        return [
            _Piece(name, size, offset, min(PARTNER_PIECE_BYTES, size - offset))
            for name, size in self._sizes[rank]
            for offset in range(0, size, PARTNER_PIECE_BYTES)
        ]

    def _buffer(self, transfer: PartnerTransfer) -> Bytes:
        if transfer not in self._buffers:
            self._buffers[transfer] = Buffers(1, PARTNER_PIECE_BYTES).slots[0]
        return self._buffers[transfer]

    def _missing(self, back: Sequence[PartnerTransfer], number: int) -> int:
        """Return, on all ranks, how many files cannot be sent back because they are missing or have a wrong size.

        ``back`` are the transfers that send files back. The files are counted on the ranks that must send them.
        """
        ref = self.do.ref(number)
        wrong = sum(
            size_of_file(self.tier, ref, name, self.activity) != size
            for transfer in back
            if transfer.source == self.group.rank
            for name, size in self._sizes[transfer.owner]
        )
        return sum(self.group.share(self.group.gather(wrong)))

    def _lose(self, lost: Sequence[int], copies: Sequence[PartnerTransfer], newest: int) -> None:
        """Delete all files of checkpoint ``newest`` in the local tier of one host. ``lost`` are the ranks of this host.

        Both the host's own files and the copies that it received from other hosts are deleted. ``copies`` are all
        transfers to partner hosts.
        """
        if self.group.rank in lost:
            self.do.delete_files_of_rank(newest)
        self._delete_copies([transfer for transfer in copies if transfer.to in lost], newest)
        self._remove_directory(newest, on=lost)

    def _delete_copies(self, copies: Sequence[PartnerTransfer], number: int) -> None:
        """Delete copies of checkpoint ``number`` on the hosts that store the copies."""
        ref = self.do.ref(number + _TO_COPY)
        for transfer in copies:
            if transfer.to == self.group.rank:
                self.tier.delete(ref, [name for name, _ in self._sizes[transfer.owner]])
        self._remove_directory(number + _TO_COPY, on=[transfer.to for transfer in copies])

    def _remove_directory(self, number: int, *, on: Sequence[int]) -> None:
        """Remove the remains of a checkpoint, such as directories, on the hosts of the ranks ``on``."""
        self.group.wait()
        if leads(self.group, self.tier) and self._is_here(on):
            self.tier.finish_delete(self.do.ref(number))
        self.group.wait()

    def _is_here(self, ranks: Sequence[int]) -> bool:
        """Return whether one of these ranks is on this host."""
        return any(set(ranks) & set(of_host) for of_host in self._hosts.ranks if self.group.rank in of_host)

    def _clean(self, copies: Sequence[PartnerTransfer], lost: Sequence[int], newest: int, *, came_back: bool) -> None:
        there = [rank for rank in range(self.group.size) if came_back or rank not in lost]
        if self.group.rank in there:
            self.do.delete_files_of_rank(newest)
        self._remove_directory(newest, on=there)
        self._delete_copies([transfer for transfer in copies if transfer.to not in lost], newest)

    def _bytes_of(self, transfers: Sequence[PartnerTransfer]) -> int:
        return sum(size for transfer in transfers for _, size in self._sizes[transfer.owner])


def measure(at: ScenarioContext) -> None:
    """Run this scenario for a subject."""
    assert at.tier is not None
    TierScenario(
        group=at.group,
        activity=at.activity,
        do=at.do,
        cache=at.cache,
        store=at.store,
        tier=at.tier,
        engine=at.engine(aside="tiers"),
        shard=at.shard,
        task=at.task,
        options=at.options,
        bytes=at.layout.bytes,
        drop=at.drop,
    ).measure()
