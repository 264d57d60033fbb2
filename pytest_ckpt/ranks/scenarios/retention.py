"""Retention: after each of the subject's saves, old checkpoints are deleted.

After all these saves, one more save runs during a deletion.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from pytest_ckpt.facts.measurement import Operation, Retention
from pytest_ckpt.ranks.process.job import DURING_DELETION

if TYPE_CHECKING:
    from pytest_ckpt.ranks.operations import Operations
    from pytest_ckpt.ranks.strategies.protocol import Strategy
    from pytest_ckpt.ranks.training import TrainingSteps


class SavesRetained:
    """Performs the subject's saves and deletes.

    ``retain`` is the number of newest checkpoints to keep; 0 keeps all. ``kept`` are the numbers of the checkpoints on
    the target. ``saves`` contains the result of each save, on rank 0 only.
    """

    def __init__(self, do: Operations, *, retain: int) -> None:
        self._do = do
        self._retain = retain
        self._deletes: list[float] = []
        self.kept: list[int] = []
        self.saves: list[Operation] = []

    @property
    def newest_full(self) -> int:
        """The number of the newest kept checkpoint that is not a delta."""
        return next(number for number in reversed(self.kept) if not self._do.is_delta(number))

    @property
    def usual_seconds(self) -> float:
        """The median duration of the saves, in seconds. Only rank 0 knows it."""
        return statistics.median([o.seconds for o in self.saves] or [0.0])

    def save_all(self, strategy: Strategy, count: int, training: TrainingSteps | None = None) -> Retention | None:
        """Save checkpoints 1 to ``count``.

        After each save, delete the oldest checkpoint if there are more than ``retain``. If ``retain`` checkpoints are
        left at the end, save one more checkpoint while the oldest one is deleted. Then return the cost of deletions on
        rank 0, and None elsewhere. If nothing is deleted, return None. Steps of ``training`` run during saves 1 to
        ``count``. After each of these saves, some steps run undisturbed.
        """
        if training:
            with self._do.stage("content", self._do.all("content")):
                strategy.engine.fill(1)
            with self._do.stage("training", self._do.all("training")):
                training.begin()
        for checkpoint in range(1, count + 1):
            operation = self._do.save(strategy, checkpoint, training=training)
            if training:
                with self._do.stage("training", self._do.all("training")):
                    training.end_save(checkpoint)
            self.kept.append(checkpoint)
            if operation:
                self.saves.append(operation)
            if self._retain and len(self.kept) > self._retain:
                self._deletes.append(self._do.delete(self.kept.pop(0)))
        if self._retain and len(self.kept) == self._retain:
            return self._save_while_deleting(strategy, count + DURING_DELETION)
        return None

    def delete_all(self, *, of_subject: bool) -> None:
        """Delete the kept checkpoints. If ``of_subject``, also delete all other files of the subject."""
        with self._do.stage("remove", self._do.all("remove")):
            for checkpoint in self.kept:
                self._do.delete_files_of_rank(checkpoint)
            self._do.finish_delete(self.kept, of_all=of_subject)
        self.kept = []

    def _save_while_deleting(self, strategy: Strategy, checkpoint: int) -> Retention | None:
        """Save ``checkpoint`` while the oldest checkpoint is deleted.

        Return the cost of deletions on rank 0, None elsewhere.
        """
        do, oldest = self._do, self.kept.pop(0)
        operation = do.save(
            strategy, checkpoint, role="beside deletion", meanwhile=lambda _over: do.delete_files_of_rank(oldest)
        )
        self.kept.append(checkpoint)
        do.finish_delete([oldest])
        if not operation:
            return None
        do.step("retention", 1, operation.seconds)
        return Retention(
            kept=self._retain,
            delete_seconds=tuple(self._deletes),
            save_seconds=self.usual_seconds,
            save_while_deleting_seconds=operation.seconds,
        )
