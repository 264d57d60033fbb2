"""The storage that clusters require to train a model, and published tables of storage performance. Pure functions.

``pytest-ckpt size`` prints these values, each with its formula. The values are derived from the limits of a run
(`pytest_ckpt.sizing.limits`), not measured.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_ckpt.facts.strategies import STRATEGIES
from pytest_ckpt.sizing.drains import drain_rule, with_drains
from pytest_ckpt.sizing.limits import (
    ClusterLimits,
    demand,
    limits_of,
    sufficient_up_to_accelerators,
)
from pytest_ckpt.sizing.models import layout
from pytest_ckpt.sizing.reading import BYTES_A_PARAMETER
from pytest_ckpt.sizing.reliability import daly_interval_seconds, effective_training_time_ratio, young_interval_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_ckpt.facts.models import Model
    from pytest_ckpt.facts.settings import Settings
    from pytest_ckpt.facts.strategies import StrategySpec
    from pytest_ckpt.sizing.models import Layout


_DAYS_A_YEAR = 365
# Strategies whose demand follows from the cluster only. Three kinds are left out: deltas depend on the share of changed
# pages; the compressed size depends on a job's data (before compression it equals a sync save); and a saving process
# has the same demand as a saving thread.
SIZED = tuple(s for s in STRATEGIES if not (s.saves_deltas or s.compresses or s.own_process))

FORMULAS = {
    "interval_seconds": "I = MTTF / k: time between two failures of the cluster / checkpoints per failure",
    "save_limit_seconds": "b I: share of the training time that saving may cost, of an interval",
    "load_limit_seconds": "c MTTF: share of the time between two failures that a restore may take",
    "sync": "S / (b I): S are the bytes of a checkpoint; the job is blocked until it is committed; "
    "compressed: the same, in bytes before the codec",
    "async": "S / (I min(1, k b)): committed before the next is due, and the work at risk costs no more than a "
    "save by sync",
    "tiered": "S / D: every n-th save is drained in D <= min(n I, (b I) k / p - (n - 1) I / 2), p the share of "
    "failures that only the target survives",
    "load_bytes_per_second": "S / (c MTTF): one copy of the model",
    "load_all_bytes_per_second": "copies S / (c MTTF): all data-parallel copies read concurrently; an upper bound if "
    "the optimizer is sharded across the copies (ZeRO-1)",
    "node_bytes_per_second": "sync / writing nodes of 8 accelerators",
    "accelerator_bytes_per_second": "sync / writing accelerators: one copy of the model writes",
    "checkpoints_per_day": "86,400 s / I",
    "bytes_per_day": "S x checkpoints a day; sustained: / 86,400 s; a year: x 365",
    "capacity_bytes": "(newest kept + daily kept) x S x copies kept",
    "raw_capacity_bytes": "capacity x (1 + overhead of erasure coding)",
    "drive_writes_per_day": "bytes a day x write amplification / usable capacity; erasure coding enlarges both alike",
    "goodput": "1 - T_save / I - (I / 2 + T_load) / MTTF: share of time spent training if a save and a load "
    "take exactly their limit, or the stated time; async and tiered at their limits give the same value",
    "young_seconds": "sqrt(2 T_save MTTF): the interval that costs least, to first order (Young 1974)",
    "daly_seconds": "the same to higher order (Daly 2006, equation 37)",
}
"""The formula of each value by field name, in the symbols of docs/limits.md."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RetentionDemand:
    """The number of checkpoints to retain, and the properties of the storage that retains them.

    The ``newest`` checkpoints are retained. In addition, one checkpoint of each of ``daily`` days is retained. Each of
    these checkpoints has ``copies`` copies. ``usable_bytes`` is the usable capacity; None: exactly the bytes of these
    checkpoints. ``save_seconds`` and ``load_seconds`` are the assumed times of a blocking save and of a load; None:
    exactly the limits.
    """

    newest: int
    daily: int
    copies: int
    usable_bytes: int | None
    write_amplification: float
    erasure_overhead: float
    save_seconds: float | None = None
    load_seconds: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Rate:
    """The rate at which the target must store the saves of one strategy.

    ``within_seconds`` is the longest permitted time of a save.
    """

    strategy: str
    within_seconds: float
    bytes_per_second: float


@dataclass(frozen=True, kw_only=True, slots=True)
class SizeRow:
    """The demand of one model and one cluster on the storage, in bytes, seconds, and bytes a second.

    Rates are for the whole cluster, except ``node_bytes_per_second`` and ``accelerator_bytes_per_second``.
    """

    model: str
    accelerators: int
    parameters: int
    checkpoint_bytes: int
    weights_bytes: int
    writers: int
    nodes: int
    copies: int
    mttf_seconds: float
    interval_seconds: float
    save_limit_seconds: float
    load_limit_seconds: float
    checkpoints_per_day: float
    rates: tuple[Rate, ...]
    node_bytes_per_second: float
    accelerator_bytes_per_second: float
    load_bytes_per_second: float
    load_all_bytes_per_second: float
    bytes_per_day: float
    bytes_per_year: float
    sustained_bytes_per_second: float
    capacity_bytes: int
    raw_capacity_bytes: float
    drive_writes_per_day: float
    goodput: float
    young_seconds: float
    daly_seconds: float


def size_rows(models: Sequence[Model], clusters: Sequence[Settings], keeping: RetentionDemand) -> list[SizeRow]:
    """Return a row for each model on each cluster.

    Each `Settings` contains the size of a cluster and the rules for its limits.
    """
    return [_row(model, settings, limits_of(settings), keeping) for model in models for settings in clusters]


@dataclass(frozen=True, kw_only=True, slots=True)
class TableRow:
    """One row of a published table: the rates of a storage for a number of accelerators and a performance level.

    Rates are for the whole storage, in decimal bytes a second.
    """

    what: str
    accelerators: int
    level: str
    read_bytes_per_second: float
    write_bytes_per_second: float


@dataclass(frozen=True, kw_only=True, slots=True)
class StorageTable:
    """A published table of storage performance, with its source."""

    name: str
    title: str
    source: str
    rows: tuple[TableRow, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class TableDemand:
    """A row of a published table, and the demand of one model on the storage for the row's number of accelerators.

    The row's rates meet the limits of sync saves and of loads up to ``sufficient_up_to_accelerators``.
    """

    model: str
    what: str
    accelerators: int
    level: str
    write_bytes_per_second: float
    needed_write_bytes_per_second: float
    read_bytes_per_second: float
    needed_read_bytes_per_second: float
    sufficient_up_to_accelerators: int


def served(table: StorageTable, models: Sequence[Model], settings: Settings) -> Iterator[TableDemand]:
    """Compare every row of a table with every model; yield one `TableDemand` for each pair.

    ``settings`` contain the rules for the limits. For each pair, the cluster has the row's number of accelerators.
    """
    for model in models:
        whole = layout(model, mode="full")
        for row in table.rows:
            limits = limits_of(replace(settings, cluster=row.accelerators))
            asks = demand(whole, limits)
            saves = sufficient_up_to_accelerators("save", whole.bytes / row.write_bytes_per_second, limits)
            loads = sufficient_up_to_accelerators("load", whole.bytes / row.read_bytes_per_second, limits)
            yield TableDemand(
                model=model.name,
                what=row.what,
                accelerators=row.accelerators,
                level=row.level,
                write_bytes_per_second=row.write_bytes_per_second,
                needed_write_bytes_per_second=asks.cluster_save_bytes_per_second,
                read_bytes_per_second=row.read_bytes_per_second,
                needed_read_bytes_per_second=asks.load_bytes_per_second,
                sufficient_up_to_accelerators=min(saves, loads),
            )


def _row(model: Model, settings: Settings, limits: ClusterLimits, keeping: RetentionDemand) -> SizeRow:
    whole = layout(model, mode="full", processes=model.processes, scale=1.0)
    asks = demand(whole, limits)
    capacity = (keeping.newest + keeping.daily) * keeping.copies * asks.cluster_bytes
    saves = keeping.save_seconds or limits.save_limit_seconds
    return SizeRow(
        model=model.name,
        accelerators=limits.accelerators,
        parameters=model.parameters,
        checkpoint_bytes=asks.cluster_bytes,
        weights_bytes=BYTES_A_PARAMETER * model.parameters,
        writers=asks.writers,
        nodes=asks.nodes,
        copies=asks.copies,
        mttf_seconds=limits.mttf_seconds,
        interval_seconds=limits.interval_seconds,
        save_limit_seconds=limits.save_limit_seconds,
        load_limit_seconds=limits.load_limit_seconds,
        checkpoints_per_day=limits.checkpoints_per_day,
        rates=tuple(_rate(strategy, whole, settings, limits) for strategy in SIZED),
        node_bytes_per_second=asks.per_node_bytes_per_second,
        accelerator_bytes_per_second=asks.per_writer_bytes_per_second,
        load_bytes_per_second=asks.load_bytes_per_second,
        load_all_bytes_per_second=asks.copies * asks.load_bytes_per_second,
        bytes_per_day=asks.bytes_per_day,
        bytes_per_year=asks.bytes_per_day * _DAYS_A_YEAR,
        sustained_bytes_per_second=asks.sustained_bytes_per_second,
        capacity_bytes=capacity,
        raw_capacity_bytes=capacity * (1 + keeping.erasure_overhead),
        drive_writes_per_day=asks.bytes_per_day * keeping.write_amplification / (keeping.usable_bytes or capacity),
        goodput=effective_training_time_ratio(
            save_seconds=saves,
            load_seconds=keeping.load_seconds or limits.load_limit_seconds,
            interval_seconds=limits.interval_seconds,
            mttf_seconds=limits.mttf_seconds,
        ),
        young_seconds=young_interval_seconds(saves, limits.mttf_seconds),
        daly_seconds=daly_interval_seconds(saves, limits.mttf_seconds),
    )


def _rate(strategy: StrategySpec, whole: Layout, settings: Settings, limits: ClusterLimits) -> Rate:
    asks = with_drains(demand(whole, limits, strategy), limits, strategy, drain_rule(settings, strategy))
    return Rate(
        strategy=strategy.name,
        within_seconds=asks.save_limit_seconds,
        bytes_per_second=asks.cluster_save_bytes_per_second,
    )
