"""By how much steps of training take longer beside saves. Pure; same numbers give the same answer."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ckpt.analysis.statistics import MINIMUM, Resample, interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ckpt.facts.strategy_results import StepBatch, StepsOfSave, Training

_RESAMPLES = 1_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Slowdown:
    """By what share steps beside saves took longer than those alone, with its 95 % interval; None: too few for one."""

    share: float
    low: float | None
    high: float | None


def slowdown(training: Training) -> Slowdown | None:
    """Return the slowdown over all saves: the sum of what steps took beyond the median of those alone, as a share.

    None where no step went on beside a save. The interval is a percentile bootstrap: within each save, the steps alone
    and the batches of steps beside it are resampled from a fixed seed (Efron and Tibshirani, An Introduction to the
    Bootstrap, chapter 13).
    """
    saves = [save for save in training.saves if save.beside]
    if not saves:
        return None
    share = _share([(save.alone_seconds, save.beside) for save in saves])
    if sum(len(save.beside) for save in saves) < MINIMUM:
        return Slowdown(share=share, low=None, high=None)
    low, high = interval(lambda again: _share([_resampled(save, again) for save in saves]), _RESAMPLES)
    return Slowdown(share=share, low=low, high=high)


def _resampled(save: StepsOfSave, again: Resample) -> tuple[float, Sequence[StepBatch]]:
    return statistics.median(again((*save.before_seconds, *save.after_seconds))), again(save.beside)


def _share(saves: Sequence[tuple[float, Sequence[StepBatch]]]) -> float:
    alone = sum(each * batch.steps for each, beside in saves for batch in beside)
    return sum(batch.seconds for _, beside in saves for batch in beside) / alone - 1
