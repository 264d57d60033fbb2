"""Simulates training runs from measured times: the time that each run spends on saves, lost work and restores.

Pure: the same seed gives the same numbers. A simulated run consists of periods between failures. Each period except the
first begins with a restore. Training cycles follow. A cycle lasts one interval and ends with a save. A failure loses
the work since the last save that survives the failure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Seconds = NDArray[np.float64]

Kind = Literal["exponential", "weibull", "bursts"]
_BURST_SHARE_OF_MEAN = 1 / 50


@dataclass(frozen=True, kw_only=True, slots=True)
class FailureArrivals:
    """The distribution of the times between failures.

    The mean of each distribution is the cluster's mean time between failures.

    ``exponential``: failures are independent. ``weibull``: ``shape`` is the shape parameter; below 1, failures come in
    clusters. ``bursts``: the share ``shape`` of the failures follows soon after the previous failure, on average after
    a fiftieth of the mean time between failures.
    """

    kind: Kind = "exponential"
    shape: float = 1.0

    def draw(self, mean_seconds: float, runs: int, chance: np.random.RandomState) -> Seconds:
        """Return the seconds until the next failure of each of ``runs`` simulated runs.

        ``mean_seconds`` is the mean time between failures. ``chance`` is the generator of random numbers.
        """
        if self.kind == "weibull":
            return chance.weibull(self.shape, runs) * (mean_seconds / math.gamma(1 + 1 / self.shape))
        if self.kind == "bursts":
            short = mean_seconds * _BURST_SHARE_OF_MEAN
            long = (mean_seconds - self.shape * short) / (1 - self.shape)
            return chance.exponential(1.0, runs) * np.where(chance.random_sample(runs) < self.shape, short, long)
        return chance.exponential(mean_seconds, runs)


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredTimes:
    """The measured times of one workload, scaled to full size: seconds, one value for each operation.

    ``lost_seconds``: the training time that a save costs. ``background_seconds``: the time from the moment when
    training continues until the save is committed; with a local tier, until the save is drained (copied) to the target.
    ``load_seconds``: the time of a load. One of ``every`` saves reaches the target. ``target_share`` is the share of
    failures that destroy all local copies.
    """

    lost_seconds: tuple[float, ...]
    background_seconds: tuple[float, ...]
    load_seconds: tuple[float, ...]
    every: int = 1
    target_share: float = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class SimulatedRuns:
    """The results of simulated training runs; each array has one element for each run.

    ``goodput`` (useful training), ``saving``, ``lost_work`` and ``restoring`` are shares of the run's time; their sum
    is 1. ``failures`` is the number of failures. ``met_save`` is the number of failures during a save.
    """

    goodput: Seconds
    saving: Seconds
    lost_work: Seconds
    restoring: Seconds
    failures: NDArray[np.int64]
    met_save: NDArray[np.int64]


def simulate_runs(
    times: MeasuredTimes,
    *,
    interval_seconds: float,
    mttf_seconds: float,
    restart_seconds: float,
    seconds: float,
    runs: int,
    arrivals: FailureArrivals,
    seed: int,
) -> SimulatedRuns:
    """Simulate ``runs`` training runs of ``seconds`` each.

    Each interval of ``interval_seconds`` contains training and one save, which is shorter than the interval.
    ``mttf_seconds`` is the mean time between failures. After a failure, the run restores for ``restart_seconds`` plus a
    measured load time, chosen at random. The total time of the saves between two failures is drawn from a normal
    distribution (central limit theorem).
    """
    # Numpy guarantees the stream of this generator: the same seed gives the same numbers in every version.
    chance = np.random.RandomState(seed)
    lost, background, loads = (np.array(t) for t in (times.lost_seconds, times.background_seconds, times.load_seconds))
    interval, usual = interval_seconds, float(lost.mean())
    clock, saving, lost_work, restoring, undrained = (np.zeros(runs) for _ in range(5))
    failures, met_save = np.zeros(runs, dtype=np.int64), np.zeros(runs, dtype=np.int64)
    restore = np.zeros(runs)
    while (left := seconds - clock).max() > 0:
        gap = arrivals.draw(mttf_seconds, runs, chance)
        fails = gap < left
        gap = np.minimum(gap, left)
        clock += gap
        spent = np.minimum(gap, restore)
        restoring += spent
        trained = gap - spent
        cycles = np.floor(trained / interval)
        scatter = np.sqrt(cycles) * lost.std() * chance.standard_normal(runs)
        of_saves = np.clip(cycles * usual + scatter, cycles * lost.min(), cycles * lost.max())
        saving += of_saves
        until = chance.choice(background, runs)
        reached = np.floor((undrained + np.floor(np.maximum(trained - until, 0) / interval)) / times.every)
        # A checkpoint is on the target only after the first drain of this period has ended.
        drained = np.where(trained >= until, reached * times.every, 0)
        only_target = chance.random_sample(runs) < times.target_share
        kept = np.where(only_target, drained, undrained + cycles)
        lost_saves = np.where(fails, undrained + cycles - kept, 0)
        phase = trained - cycles * interval
        lost_work += np.where(fails, phase, 0) + lost_saves * (interval - usual)
        is_saving = phase >= interval - chance.choice(lost, runs)
        is_written = (cycles > 0) & (phase < until) & (times.every == 1)
        met_save += fails & (trained > 0) & (is_saving | is_written)
        failures += fails
        undrained = np.where(fails & only_target, 0, undrained + cycles - drained)
        restore = chance.choice(loads, runs) + restart_seconds
    # Lost work is computed with the mean time of a save. If all work is lost, it may exceed the available time.
    lost_work = np.minimum(lost_work, seconds - saving - restoring)
    return SimulatedRuns(
        goodput=1 - (saving + lost_work + restoring) / seconds,
        saving=saving / seconds,
        lost_work=lost_work / seconds,
        restoring=restoring / seconds,
        failures=failures,
        met_save=met_save,
    )


def quantiles(values: Seconds) -> tuple[float, float, float]:
    """Return (median, 5 % quantile, 95 % quantile) of the values."""
    low, middle, high = np.quantile(values, (0.05, 0.5, 0.95))
    return float(middle), float(low), float(high)


def share_of(part: NDArray[np.int64], whole: NDArray[np.int64]) -> float:
    """Return the sum of ``part`` divided by the sum of ``whole``; 0 if the sum of ``whole`` is 0."""
    return float(part.sum() / whole.sum()) if whole.sum() else 0.0
