"""Failure rates of clusters, and the resulting save intervals.

Accelerators fail independently and at a constant rate (Poisson). So a cluster's rate is proportional to its number of
accelerators. Limits use this linear form. The equivalent form 1 - R^N is also printed.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from pytest_ckpt.support.errors import nearest
from pytest_ckpt.support.units import format_count, parse_duration

SECONDS_PER_DAY = 86_400.0
ACCELERATORS_PER_NODE = 8

_KINDS = ("llama3", "mttf", "node-days", "observed")
_ACCEPTED = (
    "expected llama3, mttf:50000h (mean time to failure of one accelerator), node-days:6.5 (failures per 1,000 days "
    "of an 8-accelerator node) or observed:419/54d@16000 (failures / time @ accelerators)"
)
_COUNT = re.compile(r"\d{1,15}(?:\.\d{1,15})?", re.ASCII)
_OBSERVED = re.compile(r"(\d{1,15})/(\d[^/@]*[a-z])@(\d{1,15})", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class FailureModel:
    """A model of failures at a constant rate.

    ``failures_per_accelerator_day`` is the rate of one accelerator per day: r1 in the formulas. N is the number of
    accelerators. ``spec`` is the text of the option. ``because`` is a sentence on the source of the rate.
    """

    failures_per_accelerator_day: float
    spec: str
    because: str

    def failures_per_day(self, accelerators: int) -> float:
        """Return the mean number of failures per day in a cluster: r1 N."""
        return self.failures_per_accelerator_day * accelerators

    def mttf_seconds(self, accelerators: int) -> float:
        """Return the mean seconds between two failures of a cluster: 86,400 / (r1 N)."""
        return SECONDS_PER_DAY / self.failures_per_day(accelerators)

    def slot_failure_probability(self, accelerators: int, slot_seconds: float) -> float:
        """Return the probability that a cluster fails at least once in a slot: 1 - R^N.

        R = exp(-r1 t) is the probability that one accelerator does not fail in a slot of t seconds.
        """
        return -math.expm1(-self.failures_per_day(accelerators) * slot_seconds / SECONDS_PER_DAY)

    def failures_per_day_in_slots(self, accelerators: int, slot_seconds: float) -> float:
        """Return the number of slots per day with at least one failure: (86,400 / t) (1 - R^N).

        Several failures in one slot count once, so the result is below `failures_per_day`. Both values are nearly equal
        if failures are rare.
        """
        return self.slot_failure_probability(accelerators, slot_seconds) * SECONDS_PER_DAY / slot_seconds


def parse_failure_model(text: str) -> FailureModel:
    """Return the failure model that a text describes.

    Valid forms: ``llama3``, ``mttf:50000h``, ``node-days:6.5``, ``observed:419/54d@16000``. ``llama3`` is 419
    unexpected interruptions of Llama 3 405B in 54 days on 16,000 accelerators. Raises ValueError with the valid forms;
    the caller adds the name of the option.
    """
    spec = text.strip()
    kind, colon, value = spec.partition(":")
    if spec == "llama3":
        rate = _observed_rate(419, 54 * SECONDS_PER_DAY, 16_000)
        because = "Llama 3 405B had 419 unexpected interruptions in 54 days on 16,000 accelerators"
    elif kind == "mttf" and colon:
        rate = SECONDS_PER_DAY / _positive(_duration(value, text), text)
        because = f"one accelerator fails every {value} on average, as given"
    elif kind == "node-days" and _COUNT.fullmatch(value):
        rate = _positive(float(value), text) / (1000 * ACCELERATORS_PER_NODE)
        because = f"{value} failures per 1,000 days of a node of {ACCELERATORS_PER_NODE} accelerators, as given"
    elif kind == "observed" and (match := _OBSERVED.fullmatch(value)):
        failures, accelerators = int(match[1]), int(match[3])
        rate = _observed_rate(failures, _duration(match[2], text), accelerators, text)
        where = f"{format_count(accelerators)} accelerators"
        because = f"{format_count(failures)} failures were observed in {match[2]} on {where}"
    elif kind in _KINDS and colon:
        raise ValueError(f"{text!r} is not understood; {_ACCEPTED}")
    else:
        raise ValueError(f"{text!r} is not a model of failures{nearest(kind, _KINDS)}; {_ACCEPTED}")
    return FailureModel(failures_per_accelerator_day=rate, spec=spec, because=because)


def _observed_rate(failures: int, seconds: float, accelerators: int, text: str = "") -> float:
    device_days = _positive(seconds, text) / SECONDS_PER_DAY * _positive(accelerators, text)
    return _positive(failures, text) / device_days


def _duration(value: str, text: str) -> float:
    try:
        return parse_duration(value)
    except ValueError as error:
        raise ValueError(f"{text!r}: {error}") from None


def _positive(value: float, text: str) -> float:
    if value <= 0:
        raise ValueError(f"{text!r}: a rate of failures needs numbers above zero; {_ACCEPTED}")
    return value


def young_interval_seconds(save_seconds: float, mttf_seconds: float) -> float:
    """Return the optimal seconds between the starts of two saves, to first order: sqrt(2 d M).

    d is the time of a save, M the mean time to failure. Source: J. W. Young, "A first order approximation to the
    optimum checkpoint interval", CACM 17(9), 1974.
    """
    return math.sqrt(2 * save_seconds * mttf_seconds)


def daly_interval_seconds(save_seconds: float, mttf_seconds: float) -> float:
    """Return the optimal seconds of work between two saves, to higher order.

    sqrt(2 d M) (1 + sqrt(d / 2M) / 3 + (d / 2M) / 9) - d for d < 2M, else M. d is the time of a save, M the mean time
    to failure. Source: J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", FGCS
    22(3), 2006, equation 37.
    """
    if save_seconds >= 2 * mttf_seconds:
        return mttf_seconds
    x = save_seconds / (2 * mttf_seconds)
    return young_interval_seconds(save_seconds, mttf_seconds) * (1 + math.sqrt(x) / 3 + x / 9) - save_seconds


def save_overhead(save_seconds: float, interval_seconds: float) -> float:
    """Return the share of time spent on blocking saves: the time of a save / interval."""
    return save_seconds / interval_seconds


def effective_training_time_ratio(
    *,
    save_seconds: float,
    load_seconds: float,
    interval_seconds: float,
    mttf_seconds: float,
    restart_seconds: float = 0.0,
    at_risk_seconds: float = 0.0,
) -> float:
    """Return the share of time spent on training, at least 0; at 0 the cluster makes no progress.

    1 - T_save / interval - (interval / 2 + T_risk + T_load + T_restart) / M

    M is the mean time to failure. Each failure costs, on average, half an interval of work, one load and one restart.
    If training continues before a save is committed, a failure also costs the work during the save
    (``at_risk_seconds``).
    """
    lost_per_failure = interval_seconds / 2 + at_risk_seconds + load_seconds + restart_seconds
    return max(0.0, 1 - save_overhead(save_seconds, interval_seconds) - lost_per_failure / mttf_seconds)
