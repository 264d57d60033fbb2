"""What is measured beside a subject's own saves and loads and takes no hours: one row each, in the order of a run.

A rank imports those that its task asks for, when it comes to them: all are a tenth of a second at its start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pytest_ckpt.ranks.content import Content, content_seed
from pytest_ckpt.ranks.process.job import OF_COMPRESSION, OF_DATA
from pytest_ckpt.sizing.reading import weights_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_ckpt.facts.targets import AreaRef
    from pytest_ckpt.ranks.engines.protocol import Engine, Loader
    from pytest_ckpt.ranks.loop import LoopResults
    from pytest_ckpt.ranks.operations import Operations
    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.ranks.process.host_cache import Files, HostCache
    from pytest_ckpt.ranks.process.job import EngineOptions, Task
    from pytest_ckpt.ranks.scenarios.retention import SavesRetained
    from pytest_ckpt.ranks.strategies.protocol import Strategy
    from pytest_ckpt.sizing.models import Layout, RankLayout
    from pytest_ckpt.targets.protocol import Store


@dataclass(frozen=True, kw_only=True, slots=True)
class ScenarioContext:
    """A subject whose own saves and loads are done, and what can be made for it.

    ``own`` are its saves that are still on the target, ``found`` takes what is no pattern. ``strategy`` makes what
    saves this rank's files, of constant data where it is told so, of other content, ``aside``, or past the codec,
    ``plain``; ``engine`` and ``loader`` make what it works with. ``drop`` empties the caches of what this rank is about
    to read, which may have been read before; ``drop_own`` those of what was not. ``local`` and ``tier`` are None where
    there is no local tier.
    """

    group: Group
    activity: Activity
    do: Operations
    cache: HostCache
    task: Task
    layout: Layout
    shard: RankLayout
    options: EngineOptions
    area: AreaRef
    store: Store
    local: AreaRef | None
    tier: Store | None
    own: SavesRetained
    found: LoopResults
    strategy: Callable[..., Strategy]
    engine: Callable[..., Engine]
    loader: Callable[[RankLayout, EngineOptions], Loader]
    drop: Callable[[Sequence[Files]], None]
    drop_own: Callable[[Sequence[Files]], None]


class Row(NamedTuple):
    """What is measured where a task asks for it."""

    is_asked: Callable[[Task], object]
    measure: Callable[[ScenarioContext], None]


def _data(at: ScenarioContext) -> None:
    from pytest_ckpt.ranks.scenarios.alternating_pairs import AlternatingPairs, measure_data  # noqa: PLC0415

    turns = AlternatingPairs(
        do=at.do,
        cache=at.cache,
        number=at.task.operations + OF_DATA,
        role="data",
        kind="data",
        strategy=lambda constant: at.strategy(constant=constant),
        drop=at.drop_own,
    )
    at.found.data = measure_data(turns, at.task.data_pairs)


def _compression(at: ScenarioContext) -> None:
    from pytest_ckpt.ranks.scenarios.alternating_pairs import AlternatingPairs  # noqa: PLC0415
    from pytest_ckpt.ranks.scenarios.compression import measure_compression  # noqa: PLC0415

    turns = AlternatingPairs(
        do=at.do,
        cache=at.cache,
        number=at.task.operations + OF_COMPRESSION,
        role="compression",
        kind="compression",
        strategy=lambda compressed: at.strategy(aside="compression", plain=not compressed),
        drop=at.drop_own,
    )
    measure_compression(at.group, at.do, at.task, turns, whole_bytes=at.layout.bytes)


def _crashes(at: ScenarioContext) -> None:
    from pytest_ckpt.ranks.scenarios.crashes import measure_crashes  # noqa: PLC0415

    measure_crashes(at.group, at.activity, at.task, at.area, at.options, at.cache, at.drop, at.local)


def _restores(at: ScenarioContext) -> None:
    from pytest_ckpt.ranks.scenarios.restore_patterns import LoadPatterns  # noqa: PLC0415

    LoadPatterns(
        group=at.group,
        do=at.do,
        cache=at.cache,
        layout=at.layout,
        options=at.options,
        loader=None if at.task.is_collective else at.loader,
        drop=at.drop,
    ).measure(at.own.newest_full)


def _interference(at: ScenarioContext) -> None:
    from pytest_ckpt.ranks.scenarios.interference import InterferenceScenario  # noqa: PLC0415

    InterferenceScenario(
        at.group,
        at.activity,
        at.do,
        strategy=at.strategy(aside="contention"),
        store=at.store,
        area=at.area,
        rank_bytes=at.shard.bytes,
        after=at.task.operations,
        drop=at.drop,
        is_collective=at.task.is_collective,
    ).measure(at.own.kept, at.own.usual_seconds)


def _tiers(at: ScenarioContext) -> None:
    from pytest_ckpt.ranks.scenarios.tiers import TierScenario  # noqa: PLC0415

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
        bytes=at.layout.bytes,
        drop=at.drop,
    ).measure()


def _notice(at: ScenarioContext) -> None:
    from pytest_ckpt.ranks.scenarios.notice import measure_notice  # noqa: PLC0415

    strategy = at.strategy(aside="notice")
    measure_notice(at.group, at.activity, at.do, strategy, at.task, whole_bytes=at.layout.bytes)


def _chains(at: ScenarioContext) -> None:
    from pytest_ckpt.ranks.scenarios.chains import measure_chains  # noqa: PLC0415

    strategy = at.strategy(aside="chains")
    measure_chains(at.group, at.activity, at.do, at.store, strategy, at.cache, at.drop, at.task, at.own)


def _serving(at: ScenarioContext) -> None:
    from pytest_ckpt.ranks.scenarios.serving import ServingScenario  # noqa: PLC0415

    task = at.task
    ServingScenario(
        group=at.group,
        activity=at.activity,
        do=at.do,
        cache=at.cache,
        store=at.store,
        content=Content(content_seed(task.seed, f"{task.subject}/serving"), compressible=task.compressible),
        weights=weights_of(at.layout, task.serving_readers),
        task=task,
        drop=at.drop,
    ).measure()


def _scaling(at: ScenarioContext) -> None:
    from pytest_ckpt.ranks.scenarios.scaling import ScalingScenario  # noqa: PLC0415

    ScalingScenario(
        group=at.group,
        do=at.do,
        cache=at.cache,
        strategy=lambda: at.strategy(aside="scaling"),
        task=at.task,
        drop=at.drop,
    ).measure()


ROWS = (
    Row(lambda task: task.data_pairs, _data),
    Row(lambda task: task.kills, _crashes),
    Row(lambda task: task.compares_codec, _compression),
    Row(lambda task: task.contention, _restores),
    Row(lambda task: task.contention, _interference),
    Row(lambda task: task.compares_tiers, _tiers),
    Row(lambda task: task.notice_seconds, _notice),
    Row(lambda task: task.deletes_chain, _chains),
    Row(lambda task: task.serving_readers, _serving),
    Row(lambda task: task.scaling, _scaling),
)
