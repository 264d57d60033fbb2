"""The program of two ranks in tests of the interfaces between engines, stores and strategies.

Run it with ``python -m`` under mpiexec. Rank 0 prints one line of JSON. The environment variable ``SEAM_AREA`` is the
area (the directory of the run) as JSON. With ``SEAM_HANG``, rank 1 blocks in the first write of its second save.
"""

from __future__ import annotations

import json
import os
import threading

from pytest_ckpt.facts.codec import from_plain, to_plain
from pytest_ckpt.facts.subject import Subject
from pytest_ckpt.facts.targets import AreaRef
from pytest_ckpt.ranks.content import Content
from pytest_ckpt.ranks.engines.stream.engine import StreamEngine
from pytest_ckpt.ranks.operations import Operations
from pytest_ckpt.ranks.process.activity import Activity
from pytest_ckpt.ranks.process.host_cache import HostCache
from pytest_ckpt.ranks.process.job import EngineOptions
from pytest_ckpt.ranks.process.mpi_group import MpiGroup
from pytest_ckpt.ranks.strategies.sync import SyncStrategy
from pytest_ckpt.sizing.models import layout
from pytest_ckpt.support.references import load
from tests.support.late_strategy import LateStrategy
from tests.support.self_committing_engine import SelfCommittingEngine

LAYOUT = layout("llama3-8b", mode="open", processes=2, scale=1e-4)
STRATEGIES = {"sync": SyncStrategy, "late": LateStrategy}
SAVES = 2


class HangingEngine(StreamEngine):
    """An engine that blocks forever in the first write of its second save."""

    saves = 0

    def save(self, draft, clock):
        self.saves += 1
        super().save(draft, clock)

    def _write(self, *request):
        if self.saves == SAVES:
            threading.Event().wait()
        super()._write(*request)


def main():
    activity = Activity()
    group = MpiGroup(activity)
    activity.introduce(group.rank)
    activity.report_every(0.1)
    area = from_plain(AreaRef, json.loads(os.environ["SEAM_AREA"]))
    if os.environ.get("SEAM_HANG"):
        kind = HangingEngine if group.rank == 1 else StreamEngine
        engine = kind(LAYOUT.rank(group.rank), Content(7), activity, EngineOptions())
        measure(area, group, activity, "late", engine, "hanging")
        return
    found = {}
    for strategy in STRATEGIES:
        own = SelfCommittingEngine(rank=group.rank, content=Content(7), group=group.duplicate(activity.lane("engine")))
        found[f"own {strategy}"] = measure(area, group, activity, strategy, own, f"own{strategy}")
        stream = StreamEngine(LAYOUT.rank(group.rank), Content(7), activity, EngineOptions())
        found[f"stream {strategy}"] = measure(area, group, activity, strategy, stream, f"stream{strategy}")
    if group.rank == 0:
        print("FOUND " + json.dumps(found), flush=True)
    activity.stop()
    group.leave()


def measure(area, group, activity, strategy_name, engine, model):
    """Save, load and delete two checkpoints; return the results."""
    store = load(area.opener)(area)
    subject = Subject(model=model, mode="test")
    do = Operations(group, activity, subject, LAYOUT.rank(group.rank), store)
    store.prepare(subject.slug)
    group.wait()
    strategy = STRATEGIES[strategy_name](engine=engine, store=store, group=group, activity=activity)
    cache = HostCache(group, activity, store, subject.slug)
    operations, faults, files = [], 0, []
    for number in range(1, SAVES + 1):
        operations.append(do.save(strategy, number))
        loaded = do.load(engine, cache, number, number)
        faults += loaded.fault_count
        operations.append(loaded.operation)
        files.append([len(names) for names in group.gather(do.files(number).names)])
    committed = list(store.committed(subject.slug))
    strategy.release()
    engine.release()
    durability = do.durability()
    for number in range(1, SAVES + 1):
        do.delete(number)
    do.finish_delete([], of_all=True)
    return {
        "operations": to_plain(operations),
        "faults": faults,
        "files": files,
        "committed": committed,
        "durability": to_plain(durability),
    }


if __name__ == "__main__":
    main()
