"""What is killed in the background: small checkpoints, as those of the subject, in an area attached for it alone."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_ckpt.facts.events import PatternMeasured
from pytest_ckpt.ranks.engines.factory import content_of, made_engine
from pytest_ckpt.ranks.operations import Operations
from pytest_ckpt.ranks.process.activity import Activity
from pytest_ckpt.ranks.scenarios.crash_ways import ByCopy, ByDrain, InBackground
from pytest_ckpt.ranks.scenarios.crashes import CrashScenario
from pytest_ckpt.sizing.files import passing_names
from pytest_ckpt.support.references import load

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_ckpt.facts.targets import AreaRef
    from pytest_ckpt.ranks.engines.protocol import Engine
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.ranks.process.host_cache import Files, HostCache
    from pytest_ckpt.ranks.process.job import EngineOptions, Task
    from pytest_ckpt.targets.protocol import Store

_BY_LIST = "The target commits by a list of all ranks' objects, which killed processes cannot hand on."
# Of each rank: enough to be killed in the middle, and little to do it often.
_RANK_BYTES = 8 << 20


def measure_crashes(
    group: Group,
    activity: Activity,
    task: Task,
    area: AreaRef,
    options: EngineOptions,
    cache: HostCache,
    drop: Callable[[Sequence[Files]], None],
    local: AreaRef | None,
) -> None:
    """Kill as many saves as the task says, of a checkpoint that is as its subject's, but small."""
    whole = task.layout()
    share = min(1.0, _RANK_BYTES * whole.processes / whole.bytes)
    small = task.layout(task.scale * share)
    shard = small.rank(group.rank)
    store: Store = load(area.opener)(area)
    do = Operations(group, activity, task.subject, shard, store, rule=task.files)
    if store.wants_entries:
        do.send(PatternMeasured(subject=task.subject, name="crashes", not_run=_BY_LIST))
        store.close()
        return
    content = content_of(task, shard, aside="crashes")

    def make() -> Engine:
        return made_engine(task, shard, content, group, activity, replace(options, stages=False))

    def make_staging(among: Group) -> Engine:
        return made_engine(task, shard, content, among, Activity(), replace(options, stages=True))

    way: InBackground = ByCopy(make=make_staging)
    if local:
        tier: Store = load(local.opener)(local)
        way = ByDrain(
            group=group,
            activity=activity,
            do=Operations(group, activity, task.subject, shard, tier, rule=task.files, is_local=True),
            tier=tier,
            make=make,
            attach=lambda: load(local.opener)(local),
        )
    CrashScenario(
        group=group,
        do=do,
        cache=cache,
        store=store,
        way=way,
        make=make,
        attach=lambda: load(area.opener)(area),
        drop=drop,
        random=random.Random(f"{task.seed}/{task.subject}/crashes"),
        after=task.operations,
        bytes=small.bytes,
        planned=task.kills,
        passing=passing_names(shard, task.files),
    ).measure()
    store.close()
