"""Derives the time limits of a cluster from its size, and the demands on storage from these limits.

All functions are pure.

    interval   = MTTF / k          k checkpoints per failure
    save limit = b interval        b share of time that saving may cost
    load limit = c MTTF            c share of the time between failures that loading may cost
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from pytest_ckpt.facts.bounds import Text
from pytest_ckpt.facts.codec import to_plain
from pytest_ckpt.facts.options import OPTIONS
from pytest_ckpt.facts.settings import Settings
from pytest_ckpt.facts.strategies import STRATEGIES, StrategySpec
from pytest_ckpt.sizing.reliability import ACCELERATORS_PER_NODE, SECONDS_PER_DAY, parse_failure_model
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.support.units import counted, format_count, format_percent, format_seconds

if TYPE_CHECKING:
    from pytest_ckpt.facts.measurement import OperationKind
    from pytest_ckpt.facts.settings import Assurance
    from pytest_ckpt.sizing.models import Layout
    from pytest_ckpt.sizing.reliability import FailureModel


InputOrigin = Literal["published", "set by the operator", "default of this program"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Publication:
    """A publication that states a value or a rule."""

    title: str
    publisher: str
    year: int

    @property
    def citation(self) -> str:
        """The publisher, the title and the year."""
        return f"{self.publisher}, {self.title}, {self.year}"


@dataclass(frozen=True, kw_only=True, slots=True)
class LimitInput:
    """One input of the limits: an option, its value as text, and its origin.

    ``source`` cites the publication that states the value; empty if the value is not published.
    """

    option: Text
    value: str
    origin: InputOrigin
    source: str

    @property
    def mark(self) -> str:
        """The origin as text, with the citation of a published value."""
        return f"{self.origin} ({self.source})" if self.source else self.origin

    @property
    def sentence(self) -> str:
        """The input and its origin as a sentence."""
        return f"{self.option} {self.value}: {self.mark}."


_LLAMA_3 = Publication(title="The Llama 3 Herd of Models", publisher="Meta", year=2024)
_CHECKPOINTING = "article on the checkpointing workload of MLPerf Storage v2.0"
_ARTICLE = Publication(title=_CHECKPOINTING, publisher="MLCommons", year=2025)
_GUIDANCE = Publication(title=f"{_CHECKPOINTING}, after guidance of NVIDIA", publisher="MLCommons", year=2025)

DEFAULTS: Mapping[str, Publication | None] = {
    "cluster": None,
    "failures": _LLAMA_3,
    "checkpoints_per_failure": _ARTICLE,
    "save_budget": _GUIDANCE,
    "load_budget": None,
    "target_share": None,
    "preemption_notice": None,
    "serving_limit": None,
    "consolidate_limit": None,
    "vendor_max_rate": None,
    "loader_rate": None,
}
"""The options from which limits are derived, by key, each with the publication that states its default.

None: this program chose the default.
"""

_OPTIONS = {option.key: option for option in OPTIONS}


def limit_inputs(settings: Settings) -> tuple[LimitInput, ...]:
    """Return the inputs of a run's limits, in the order of the derivation. Unset inputs are left out."""
    # The default of such a limit is used only if the run performs the measurement that it limits.
    idle = {
        "target_share": not settings.has_tiers,
        "consolidate_limit": not settings.includes_serving,
        "loader_rate": not settings.includes_contention,
    }
    values = {origin.option: origin.value for origin in settings.origins}
    found = []
    for key, publication in DEFAULTS.items():
        option = _OPTIONS[key]
        is_set, value = settings.is_set(option.flag), values.get(option.flag, "")
        if not value or (idle.get(key) and not is_set):
            continue
        is_published = publication is not None and not is_set
        found.append(
            LimitInput(
                option=option.usual_flag,
                value=value,
                origin="set by the operator" if is_set else "published" if is_published else "default of this program",
                source=publication.citation if publication and is_published else "",
            )
        )
    return tuple(found)


@dataclass(frozen=True, kw_only=True, slots=True)
class StatedLimits:
    """Limits that the user's options state, at full size; 0 if not stated.

    ``save_bytes_per_second`` and ``load_bytes_per_second`` are the maximum rates that the vendor declares.
    ``assurance`` contains a share of all saves and loads, and the confidence with which this share must meet the
    limits. If ``assurance`` is None, only the measured saves and loads must meet the limits.
    """

    notice_seconds: float = 0.0
    serving_seconds: float = 0.0
    consolidate_seconds: float = 0.0
    save_bytes_per_second: float = 0.0
    load_bytes_per_second: float = 0.0
    assurance: Assurance | None = None

    def bytes_per_second(self, kind: OperationKind) -> float:
        """Return the declared maximum rate of saves or of loads, in bytes a second; 0 if not declared."""
        return self.save_bytes_per_second if kind == "save" else self.load_bytes_per_second


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterLimits:
    """The permitted times of a save and of a load for a cluster of ``accelerators``.

    ``save_budget`` and ``load_budget`` are shares from 0 to 1. ``reasons`` are pairs: the name of a field, and a
    sentence on the origin of its value. ``stated`` are limits that the user states. ``inputs`` are the values from
    which limits are derived; empty if no settings were resolved. Limits do not use ``failures_per_day_in_slots``, the
    number of slots per day with a failure, for slots of one interval (`FailureModel.failures_per_day_in_slots`).
    """

    accelerators: int
    failures: FailureModel
    failures_per_day: float
    mttf_seconds: float
    checkpoints_per_failure: int
    checkpoints_per_day: float
    interval_seconds: float
    failures_per_day_in_slots: float
    save_budget: float
    load_budget: float
    save_limit_seconds: float
    load_limit_seconds: float
    reasons: tuple[tuple[str, str], ...]
    stated: StatedLimits = StatedLimits()
    inputs: tuple[LimitInput, ...] = ()

    def save_seconds(self, strategy: StrategySpec) -> float:
        """Return the maximum time of a save at full size, from its start until it is committed.

        A save that stops the job must meet the save limit. A background save of B seconds must meet two conditions.
        First, it is committed before the next save is due. Second, its work at risk costs at most as much as a blocking
        save: B / k <= b interval. (The requirement LOST-WORK also counts other lost time.)
        """
        # Full saves between deltas block the job, too.
        if strategy.blocks or strategy.saves_deltas:
            return self.save_limit_seconds
        return self.interval_seconds * min(1.0, self.checkpoints_per_failure * self.save_budget)

    def reason(self, quantity: str) -> str:
        """Return the sentence on the origin of a field's value. Raises KeyError if the field has no such sentence."""
        return dict(self.reasons)[quantity]

    def to_plain(self) -> dict[str, Any]:
        """Return the ``cluster`` object of plans and reports, in plain JSON types."""
        return {
            "accelerators": self.accelerators,
            "failure_model": self.failures.spec,
            "failures_per_day": self.failures_per_day,
            "mttf_seconds": self.mttf_seconds,
            "checkpoints_per_failure": self.checkpoints_per_failure,
            "checkpoints_per_day": self.checkpoints_per_day,
            "interval_seconds": self.interval_seconds,
            "failures_per_day_in_slots": self.failures_per_day_in_slots,
            "save_budget": self.save_budget,
            "load_budget": self.load_budget,
            "save_limit_seconds": self.save_limit_seconds,
            "load_limit_seconds": self.load_limit_seconds,
            "reasons": dict(self.reasons),
            "inputs": [to_plain(given) for given in self.inputs],
        }


def cluster_limits(
    accelerators: int,
    *,
    failures: FailureModel,
    save_budget: float = 0.05,
    load_budget: float = 0.01,
    checkpoints_per_failure: int = 20,
) -> ClusterLimits:
    """Derive the limits of a cluster.

    Raises UsageError if ``accelerators`` or ``checkpoints_per_failure`` is below 1. Also raises UsageError if a budget
    is not above 0, or is above 1.
    """
    if accelerators < 1:
        raise UsageError(f"a cluster of {accelerators} accelerators", "give one accelerator or more, such as 16000")
    if checkpoints_per_failure < 1:
        raise UsageError(f"{checkpoints_per_failure} checkpoints per failure", "give one or more; 20 is usual")
    for name, share, usual in (("save budget", save_budget, "5%"), ("load budget", load_budget, "1%")):
        if not 0 < share <= 1:
            raise UsageError(
                f"a {name} of {format_percent(share)}", f"give more than 0 and at most 100%; {usual} is usual"
            )
    mttf = failures.mttf_seconds(accelerators)
    limits = ClusterLimits(
        accelerators=accelerators,
        failures=failures,
        failures_per_day=failures.failures_per_day(accelerators),
        mttf_seconds=mttf,
        checkpoints_per_failure=checkpoints_per_failure,
        checkpoints_per_day=SECONDS_PER_DAY * checkpoints_per_failure / mttf,
        interval_seconds=mttf / checkpoints_per_failure,
        failures_per_day_in_slots=failures.failures_per_day_in_slots(accelerators, mttf / checkpoints_per_failure),
        save_budget=save_budget,
        load_budget=load_budget,
        save_limit_seconds=_save_limit_seconds(mttf, save_budget, checkpoints_per_failure),
        load_limit_seconds=_load_limit_seconds(mttf, load_budget),
        reasons=(),
    )
    return _with_reasons(limits)


def sufficient_up_to_accelerators(kind: OperationKind, seconds: float, limits: ClusterLimits) -> int:
    """Return the largest cluster whose limit a save or load of ``seconds`` meets; 0: no cluster.

    T is ``seconds``, the time at full size. ``limits`` contains b, c and k, and the failures of one accelerator per day
    (r1). For a save, the result is floor(b 86,400 / (k r1 T)). For a load, it is floor(c 86,400 / (r1 T)). Raises
    ValueError if T is not finite or not above zero.
    """
    if not (seconds > 0 and math.isfinite(seconds)):
        raise ValueError(f"{seconds} s is not a valid time of a save or load")

    def limit_of(accelerators: int) -> float:
        mttf = limits.failures.mttf_seconds(accelerators)
        if kind == "save":
            return _save_limit_seconds(mttf, limits.save_budget, limits.checkpoints_per_failure)
        return _load_limit_seconds(mttf, limits.load_budget)

    accelerators = int(limit_of(1) / seconds)
    # The quotient may be rounded to the other side of a whole number: a time equal to the limit of N certifies N.
    if limit_of(accelerators + 1) >= seconds:
        return accelerators + 1
    if accelerators and limit_of(accelerators) < seconds:
        return accelerators - 1
    return accelerators


@dataclass(frozen=True, kw_only=True, slots=True)
class Demand:
    """The rates and times that the limits require of the storage for one layout. Rates are decimal bytes a second.

    ``save_limit_seconds`` and ``load_limit_seconds`` apply to the bytes that the run moves. These limits are
    proportional to the scale, so the rates are the same at every scale. ``save_bytes_per_second`` and
    ``load_bytes_per_second`` are for the ranks of this layout. The other rates are for the checkpoint of the whole
    cluster, even if this layout is a subset (one node's part).

    ``writers`` processes on ``nodes`` nodes of eight accelerators write the whole checkpoint. The cluster has
    ``copies`` copies of the model. A save writes one copy. After a failure, all copies load.
    """

    layout: str
    save_limit_seconds: float
    load_limit_seconds: float
    save_bytes_per_second: float
    load_bytes_per_second: float
    cluster_bytes: int
    bytes_per_day: float
    sustained_bytes_per_second: float
    cluster_save_bytes_per_second: float
    writers: int
    nodes: int
    per_writer_bytes_per_second: float
    per_node_bytes_per_second: float
    copies: int
    restore_all_bytes_per_second: float


def demand(layout: Layout, limits: ClusterLimits, strategy: StrategySpec = STRATEGIES[0]) -> Demand:
    """Return the demand of a cluster's limits on the storage, for one layout and one strategy."""
    share = layout.bytes / layout.full_bytes
    writers = layout.cluster_processes
    save_seconds = limits.save_seconds(strategy)
    save_rate, blocking_rate = (layout.cluster_bytes / s for s in (save_seconds, limits.save_limit_seconds))
    copies = max(1, limits.accelerators // layout.model.processes_per_copy)
    return Demand(
        layout=layout.name,
        save_limit_seconds=save_seconds * share,
        load_limit_seconds=limits.load_limit_seconds * share,
        save_bytes_per_second=layout.full_bytes / save_seconds,
        load_bytes_per_second=layout.full_bytes / limits.load_limit_seconds,
        cluster_bytes=layout.cluster_bytes,
        bytes_per_day=bytes_per_day(layout.cluster_bytes, limits.checkpoints_per_day),
        sustained_bytes_per_second=sustained_bytes_per_second(layout.cluster_bytes, limits.checkpoints_per_day),
        cluster_save_bytes_per_second=save_rate,
        writers=writers,
        nodes=math.ceil(writers / ACCELERATORS_PER_NODE),
        per_writer_bytes_per_second=per_writer_bytes_per_second(save_rate, writers),
        per_node_bytes_per_second=per_node_bytes_per_second(save_rate, writers),
        copies=copies,
        restore_all_bytes_per_second=restore_all_bytes_per_second(copies, blocking_rate),
    )


def bytes_per_day(checkpoint_bytes: float, checkpoints_per_day: float) -> float:
    """Return the bytes of all checkpoints that are written in a day."""
    return checkpoint_bytes * checkpoints_per_day


def sustained_bytes_per_second(checkpoint_bytes: float, checkpoints_per_day: float) -> float:
    """Return the average rate at which the checkpoints of a day are written, in bytes a second."""
    return bytes_per_day(checkpoint_bytes, checkpoints_per_day) / SECONDS_PER_DAY


def per_writer_bytes_per_second(bytes_per_second: float, writers: int) -> float:
    """Return the rate per writing process."""
    return bytes_per_second / writers


def per_node_bytes_per_second(bytes_per_second: float, writers: int) -> float:
    """Return the rate of a node with eight writing processes.

    If the cluster has fewer than eight writers, return the rate of all writers together.
    """
    return per_writer_bytes_per_second(bytes_per_second, writers) * min(writers, ACCELERATORS_PER_NODE)


def restore_all_bytes_per_second(copies: int, write_bytes_per_second: float) -> float:
    """Return the required rate if all data-parallel copies restore concurrently in the time of one save.

    A save writes one copy, and each of the ``copies`` copies reads this whole copy: ``copies`` x write rate. With
    ZeRO-1, the result is an upper bound, because each copy reads only its own part of the optimizer.
    """
    return copies * write_bytes_per_second


def limits_of(settings: Settings) -> ClusterLimits:
    """Return the limits that settings define.

    Raises UsageError if the cluster size is missing or no limit can be derived.
    """
    if settings.cluster is None:
        raise UsageError(
            "--cluster is missing: how many accelerators has the cluster that the storage is meant for?",
            "Set the size of the cluster, such as --cluster=16000; the limits are derived from it.",
        )
    derived = cluster_limits(
        settings.cluster,
        failures=parse_failure_model(settings.failures),
        save_budget=settings.save_budget,
        load_budget=settings.load_budget,
        checkpoints_per_failure=settings.checkpoints_per_failure,
    )
    save_ceiling, load_ceiling = settings.vendor_max_rates
    stated = StatedLimits(
        notice_seconds=settings.preemption_notice_seconds,
        serving_seconds=settings.serving_limit_seconds,
        consolidate_seconds=settings.consolidate_limit_seconds,
        save_bytes_per_second=save_ceiling,
        load_bytes_per_second=load_ceiling,
        assurance=settings.assurance,
    )
    return replace(derived, stated=stated, inputs=limit_inputs(settings))


def _save_limit_seconds(mttf_seconds: float, save_budget: float, checkpoints_per_failure: int) -> float:
    return save_budget * (mttf_seconds / checkpoints_per_failure)


def _load_limit_seconds(mttf_seconds: float, load_budget: float) -> float:
    return load_budget * mttf_seconds


def _with_reasons(limits: ClusterLimits) -> ClusterLimits:
    k = format_count(limits.checkpoints_per_failure)
    rate = f"{limits.failures_per_day:.4g}"
    mttf = format_seconds(limits.mttf_seconds, digits=4)
    interval = format_seconds(limits.interval_seconds)
    save_budget, restore = format_percent(limits.save_budget), format_percent(limits.load_budget)
    in_slot = limits.failures.slot_failure_probability(limits.accelerators, limits.interval_seconds)
    below = 1 - limits.failures_per_day_in_slots / limits.failures_per_day
    reasons = (
        ("accelerators", f"The storage is meant for a cluster of {counted(limits.accelerators, 'accelerator')}."),
        (
            "failures_per_day",
            f"{limits.failures.because}: {limits.failures.failures_per_accelerator_day:.4g} failures a day and "
            f"accelerator, times {counted(limits.accelerators, 'accelerator')} = {rate} a day.",
        ),
        ("mttf_seconds", f"86,400 s / {rate} failures a day = {mttf} between two failures."),
        (
            "checkpoints_per_failure",
            f"{k} checkpoints between two failures: a failure then costs, on average, "
            f"half an interval of work, {format_percent(1 / (2 * limits.checkpoints_per_failure))} of the time.",
        ),
        (
            "checkpoints_per_day",
            f"{rate} failures a day x {k} checkpoints per failure = "
            f"{limits.checkpoints_per_day:,.4g} checkpoints a day.",
        ),
        ("interval_seconds", f"{mttf} between two failures / {k} checkpoints = one checkpoint every {interval}."),
        (
            "failures_per_day_in_slots",
            f"The other form of the same model, 1 - R^N with R = exp(-r1 t): in a slot of one interval, {interval}, "
            f"the cluster fails with a probability of {format_percent(in_slot)}, so "
            f"{limits.failures_per_day_in_slots:.4g} slots a day see a failure. That is {format_percent(below)} below "
            f"{rate}, since several failures in one slot count once; the limits follow from the first form.",
        ),
        ("save_budget", f"Saving may cost {save_budget} of the training time."),
        ("load_budget", f"Loading may cost {restore} of the time between two failures."),
        (
            "save_limit_seconds",
            f"One checkpoint every {interval}: {interval} x {save_budget} = "
            f"{format_seconds(limits.save_limit_seconds)} per save.",
        ),
        (
            "load_limit_seconds",
            f"One load per failure, so every {mttf}: {mttf} x {restore} = "
            f"{format_seconds(limits.load_limit_seconds)} per load.",
        ),
    )
    return replace(limits, reasons=reasons)
