"""The checkpoints that ranks have saved: their references, and the files that this rank reads or writes.

A delta is a checkpoint that contains only changed pages. A load of a delta reads the delta's chain: the full checkpoint
and all later deltas up to this delta.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from pytest_ckpt.facts.targets import CheckpointRef, Role
from pytest_ckpt.ranks.engines.chained import Chain
from pytest_ckpt.ranks.engines.protocol import Clock
from pytest_ckpt.ranks.process.host_cache import Files
from pytest_ckpt.sizing.files import files_of, names_to_read

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_ckpt.facts.file_rules import FileRule
    from pytest_ckpt.facts.proofs import Entry
    from pytest_ckpt.facts.subject import Subject
    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.sizing.deltas import DeltaRule
    from pytest_ckpt.sizing.models import RankLayout
    from pytest_ckpt.targets.protocol import CommittedCheckpoint, Store


class Checkpoints:
    """The checkpoints of one subject in ``store``. ``shard`` lists the files and tensors that this rank saves.

    ``rule`` names the files of a full checkpoint. ``deltas`` defines which saves are deltas, and the chain of
    checkpoints that a load reads; None without deltas.
    """

    def __init__(
        self, subject: Subject, shard: RankLayout, store: Store, rule: FileRule, deltas: DeltaRule | None
    ) -> None:
        self.subject = subject
        self._shard = shard
        self._store = store
        self._rule = rule
        self._deltas = deltas
        self._refs: dict[int, CheckpointRef] = {}
        self._entries: dict[int, tuple[Entry, ...]] = {}

    def new_ref(self, checkpoint: int, role: Role) -> CheckpointRef:
        """Return a new reference for the next save of checkpoint number ``checkpoint``.

        If a checkpoint has been deleted, its number can be used again. Each save of a number has a different reference.
        """
        before = self._refs.get(checkpoint)
        attempt = before.attempt + 1 if before else 0
        ref = self._refs[checkpoint] = CheckpointRef(
            subject=self.subject.slug, number=checkpoint, role=role, attempt=attempt, commit=self._rule.commit
        )
        return ref

    def ref(self, checkpoint: int) -> CheckpointRef:
        """Return the reference of the last save of checkpoint number ``checkpoint``.

        If another process saved the checkpoint, return the reference of a first save, because such a checkpoint is
        saved only once.
        """
        if checkpoint in self._refs:
            return self._refs[checkpoint]
        return CheckpointRef(subject=self.subject.slug, number=checkpoint, commit=self._rule.commit)

    def files_of_load(self, checkpoint: int, names: Iterable[str] | None = None) -> list[Files]:
        """Return the files that this rank reads to restore a checkpoint.

        The list has one item for each checkpoint of the chain. ``names`` limits the files, as in `files`.
        """
        return [self.files(number, names) for number in self._chain(checkpoint)]

    def files(self, checkpoint: int, names: Iterable[str] | None = None) -> Files:
        """Return the files that this rank reads from one checkpoint: ``names``, or the files that the rank needs.

        A rank needs the files with its own tensors. From a full checkpoint, it also needs the files that all ranks
        share.
        """
        if names is None:
            names = self.own_names(checkpoint)
            if not self.is_delta(checkpoint):
                own = names_to_read(self._shard, self._rule) if self._rule.consolidated else names
                names = dict.fromkeys((*own, *self._rule.shared))
        return Files(ref=self.ref(checkpoint), names=tuple(names))

    def names_of_loads(self, shards: Iterable[RankLayout]) -> tuple[str, ...]:
        """Return the names of the files in a full checkpoint that contain the tensors of ``shards``."""
        return tuple(dict.fromkeys(name for shard in shards for name in names_to_read(shard, self._rule)))

    def own_names(self, checkpoint: int) -> tuple[str, ...]:
        """Return the names of the files that this rank saves in a checkpoint."""
        entries = self._entries.get(checkpoint)
        names = files_of(self._shard, self._rule) if entries is None else entries
        return tuple(file.name for file in names)

    def is_delta(self, checkpoint: int) -> bool:
        """Return whether a checkpoint contains only changed pages."""
        return self._deltas is not None and self._deltas.is_delta(checkpoint)

    def _chain(self, checkpoint: int) -> tuple[int, ...]:
        return self._deltas.chain(checkpoint) if self._deltas else (checkpoint,)

    def _bytes(self, checkpoint: int) -> int:
        """Return the number of tensor bytes that this rank saves in a checkpoint."""
        if self._deltas and self._deltas.is_delta(checkpoint):
            return self._deltas.delta_bytes(self._shard, checkpoint)
        return self._shard.bytes

    def _open(self, checkpoint: int, clock: Clock) -> CommittedCheckpoint:
        numbers = self._chain(checkpoint)
        links = tuple(self._store.open(self.ref(number), clock) for number in numbers)
        return links[0] if len(links) == 1 else Chain(links, numbers)


def size_of_file(store: Store, ref: CheckpointRef, name: str, activity: Activity) -> int | None:
    """Return the size of the file ``name`` of a checkpoint in bytes; None if the file is missing.

    A missing file is not recorded as an error of this rank.
    """
    try:
        source = store.open(ref, Clock(activity=activity)).source(name)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ESTALE):
            raise
        activity.forgive()
        return None
    size = source.size
    source.close()
    return size
