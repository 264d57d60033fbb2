"""Simulated training. In each step, all ranks change the saved state, sleep, and wait for each other."""

from __future__ import annotations

import bisect
import itertools
import statistics
import time
from typing import TYPE_CHECKING

import numpy as np

from pytest_ckpt.facts.strategy_results import StepBatch, StepsOfSave, Training
from pytest_ckpt.ranks.engines.protocol import state_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ckpt.ranks.content import Bytes
    from pytest_ckpt.ranks.engines.protocol import Engine
    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.ranks.strategies.protocol import Pending

STEPS_ALONE = 20
"""The number of steps before the first save, and after each save; their median is the duration of an
undisturbed step.
"""

PIECE_BYTES = 64 << 10
"""The number of bytes of the state that are changed in one piece."""

_TRIALS = 9
# The steps of a save that takes hours are kept as this many sums.
_MAXIMUM_BATCHES = 32
_FLIP = np.uint8(0xA5)


class TrainingSteps:
    """The simulated training steps of this rank. All ranks perform the steps together. Only rank 0's times are used.

    Each step does a fixed amount of work, which may take longer during a save. The work changes the state in memory. If
    a save still reads the state at this time, the save writes wrong bytes. The comparison of loads detects these bytes.
    """

    def __init__(
        self, group: Group, activity: Activity, engine: Engine, *, step_seconds: float, cpu_share: float
    ) -> None:
        self._group, self._activity, self._engine = group, activity, engine
        self._step_seconds, self._cpu_share = step_seconds, cpu_share
        self._state: Sequence[Bytes] = ()
        self._ends: Sequence[int] = ()
        self._pieces = 0
        self._at = 0
        self._alone: tuple[float, ...] = ()
        self._saves: list[StepsOfSave] = []
        self._during: list[StepBatch] = []

    def begin(self) -> None:
        """Calibrate the work of a step on the state in memory. Then perform the steps before the first save."""
        seconds = []
        # Once, because checkpoints are filled into the same memory, and a step must not search for it.
        self._state = state_of(self._engine)
        self._ends = list(itertools.accumulate(map(len, self._state)))
        with self._activity.wait():
            for _ in range(_TRIALS):
                start = time.perf_counter()
                self._work(1)
                seconds.append(time.perf_counter() - start)
        self._pieces = round(self._step_seconds * self._cpu_share / statistics.median(seconds))
        self._alone = self._undisturbed_steps()

    def run_during(self, pending: Pending) -> None:
        """Perform steps during a save, until the saves of all ranks have ended."""
        batches: list[StepBatch] = []
        with self._activity.wait():
            # Until the last rank may continue, training is blocked; this time is counted separately from slower steps.
            self._group.wait()
            continues = True
            while continues:
                start = time.perf_counter()
                continues = self._step(continues=pending.poll() is None)
                batches.append(StepBatch(steps=1, seconds=time.perf_counter() - start))
                if len(batches) > 2 * _MAXIMUM_BATCHES and len(batches) % 2 == 0:
                    batches = _halved(batches)
        self._during = batches

    def end_save(self, checkpoint: int) -> None:
        """Perform steps after a save. Record the steps before, during and after the save.

        Steps between two saves are recorded for each of the two saves.
        """
        before, self._alone = self._alone, self._undisturbed_steps()
        self._saves.append(
            StepsOfSave(
                checkpoint=checkpoint,
                before_seconds=before,
                during=tuple(self._during),
                after_seconds=self._alone,
            )
        )

    def results(self) -> Training:
        """Return the measured steps."""
        return Training(step_seconds=self._step_seconds, cpu_share=self._cpu_share, saves=tuple(self._saves))

    def _undisturbed_steps(self) -> tuple[float, ...]:
        seconds = []
        with self._activity.wait():
            self._group.wait()
            for _ in range(STEPS_ALONE):
                start = time.perf_counter()
                self._step(continues=True)
                seconds.append(time.perf_counter() - start)
        return tuple(seconds)

    def _step(self, *, continues: bool) -> bool:
        """Perform one step: work, then a sleep in place of the accelerator's work, then a wait for the other ranks.

        Return whether ``continues`` is true on any rank.
        """
        self._work(self._pieces)
        time.sleep(self._step_seconds * (1 - self._cpu_share))
        return self._group.any_of(continues)

    def _work(self, pieces: int) -> None:
        for _ in range(pieces):
            number = bisect.bisect_right(self._ends, self._at)
            start = self._at - (self._ends[number - 1] if number else 0)
            piece = self._state[number][start : start + PIECE_BYTES]
            change(piece)
            self._at = (self._at + len(piece)) % self._ends[-1]


def change(piece: Bytes) -> None:
    """Change every byte of a piece of the state."""
    np.bitwise_xor(piece, _FLIP, out=piece)


def change_all(state: Sequence[Bytes]) -> None:
    """Change the state repeatedly until the process ends."""
    while True:
        for data in state:
            for start in range(0, len(data), PIECE_BYTES):
                change(data[start : start + PIECE_BYTES])
                time.sleep(0.0001)


def _halved(batches: Sequence[StepBatch]) -> list[StepBatch]:
    """Combine each two consecutive batches into one batch. Return the combined batches."""
    return [
        StepBatch(steps=a.steps + b.steps, seconds=a.seconds + b.seconds)
        for a, b in zip(batches[::2], batches[1::2], strict=True)
    ]
