"""The context in which scenarios run, after a subject's own saves and loads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

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
    """The data of one subject, and functions that create strategies and engines for the subject.

    ``own`` are the subject's saves that are still on the target. ``found`` collects results that do not belong to a
    pattern (an additional measurement). ``local`` and ``tier`` are None if there is no local tier.

    ``strategy`` creates a strategy for this rank's files. Its arguments select constant data (``constant``), other
    content (``aside``) or saves without the codec (``plain``). ``saver`` creates a strategy that saves full checkpoints
    of any shard to any store. ``engine`` and ``loader`` create engines.

    ``drop`` drops the cached data of the files that this rank will read next. ``drop_own`` drops them only if the
    task's policy requires it; it is for files that this rank has not read before.
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
    saver: Callable[[RankLayout, Store], Strategy]
    engine: Callable[..., Engine]
    loader: Callable[[RankLayout, EngineOptions], Loader]
    drop: Callable[[Sequence[Files]], None]
    drop_own: Callable[[Sequence[Files]], None]
