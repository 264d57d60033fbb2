"""Published tables of what storage should deliver, beside what checkpoints ask of it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_ckpt.sizing.cluster import limits_of
from pytest_ckpt.sizing.limits import demand, largest_cluster_for_load, largest_cluster_for_save
from pytest_ckpt.sizing.models import layout

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_ckpt.facts.models import Model
    from pytest_ckpt.facts.settings import Settings


@dataclass(frozen=True, kw_only=True, slots=True)
class TableRow:
    """Storage for so many accelerators, at one level of a table. Rates are decimal bytes a second, of all of it."""

    what: str
    accelerators: int
    level: str
    read_bytes_per_second: float
    write_bytes_per_second: float


@dataclass(frozen=True, kw_only=True, slots=True)
class StorageTable:
    """A table with its source."""

    name: str
    title: str
    source: str
    rows: tuple[TableRow, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Served:
    """A row of a table, beside what checkpoints of a model ask on a cluster of the row's size.

    ``serves_accelerators`` is the largest cluster whose limits the row's rates meet, for saves by sync and for loads.
    """

    model: str
    what: str
    accelerators: int
    level: str
    write_bytes_per_second: float
    asked_write_bytes_per_second: float
    read_bytes_per_second: float
    asked_read_bytes_per_second: float
    serves_accelerators: int


def served(table: StorageTable, models: Sequence[Model], settings: Settings) -> Iterator[Served]:
    """Yield each row of a table for each model; the settings say the rules."""
    for model in models:
        whole = layout(model, mode="full")
        for row in table.rows:
            limits = limits_of(replace(settings, cluster=row.accelerators))
            asks = demand(whole, limits)
            saves = largest_cluster_for_save(whole.bytes / row.write_bytes_per_second, limits)
            loads = largest_cluster_for_load(whole.bytes / row.read_bytes_per_second, limits)
            yield Served(
                model=model.name,
                what=row.what,
                accelerators=row.accelerators,
                level=row.level,
                write_bytes_per_second=row.write_bytes_per_second,
                asked_write_bytes_per_second=asks.cluster_save_bytes_per_second,
                read_bytes_per_second=row.read_bytes_per_second,
                asked_read_bytes_per_second=asks.load_bytes_per_second,
                serves_accelerators=min(saves, loads),
            )
