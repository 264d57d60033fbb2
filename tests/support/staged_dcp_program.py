"""The program of four ranks in two pipeline stages with the engine dcp; run it with ``python -m`` under mpiexec.

Ranks 0 and 1 contain the layers of the first stage; ranks 2 and 3 contain the layers of the second stage. Only rank 3
contains the last layer. All ranks contain the optimizer. The ranks save and load twice. The environment variable
``STAGED_AREA`` contains the area (the directory of the run) as JSON. Rank 0 prints one line of JSON.
"""

from __future__ import annotations

import json
import os

from pytest_ckpt.facts.codec import from_plain
from pytest_ckpt.facts.file_rules import FileRule
from pytest_ckpt.facts.subject import Subject
from pytest_ckpt.facts.targets import AreaRef
from pytest_ckpt.ranks.content import Content
from pytest_ckpt.ranks.engines.factory import engine_maker
from pytest_ckpt.ranks.operations import Operations
from pytest_ckpt.ranks.process.activity import Activity
from pytest_ckpt.ranks.process.host_cache import HostCache
from pytest_ckpt.ranks.process.job import EngineOptions
from pytest_ckpt.ranks.process.mpi_group import MpiGroup
from pytest_ckpt.ranks.strategies.sync import SyncStrategy
from pytest_ckpt.sizing.models import RankLayout, ShardFile, Tensor
from pytest_ckpt.support.references import load

SAVES = 2


def shard_of(rank):
    layers = [f"layer_{rank // 2}/0", f"layer_{rank // 2}/1"] + (["layer_2/0"] if rank == 3 else [])
    weights = tuple(Tensor(name=name, dtype="float16", elements=50_000) for name in layers)
    optimizer = (Tensor(name="optimizer/0", dtype="float32", elements=100_001),)
    files = ShardFile(name=f"model_{rank}", tensors=weights), ShardFile(name=f"optimizer_{rank}", tensors=optimizer)
    return RankLayout(rank=rank, files=files)


def main():
    activity = Activity()
    group = MpiGroup(activity)
    activity.introduce(group.rank)
    area = from_plain(AreaRef, json.loads(os.environ["STAGED_AREA"]))
    store, subject, shard = load(area.opener)(area), Subject(model="staged", mode="test"), shard_of(group.rank)
    rule = FileRule(of_rank="__{rank}_0.distcp", shared=(".metadata",))
    do = Operations(group, activity, subject, shard, store, rule=rule)
    store.prepare(subject.slug)
    group.wait()
    make = engine_maker("pytest_ckpt.ranks.engines.dcp:make")
    engine = make(shard=shard, content=Content(7), group=group, activity=activity, options=EngineOptions())
    strategy = SyncStrategy(engine=engine, store=store, group=group, activity=activity)
    cache = HostCache(group, activity, store, subject.slug)
    checked = faults = 0
    for number in range(1, SAVES + 1):
        do.save(strategy, number)
        # A process group that was left is joined again.
        engine.release()
        loaded = do.load(engine, cache, number, number)
        checked, faults = checked + loaded.bytes_checked, faults + loaded.fault_count
    read = group.gather(do.files(SAVES).names)
    wanted = sum(group.gather(shard.bytes))
    engine.release()
    for number in range(1, SAVES + 1):
        do.delete(number)
    do.finish_delete([], of_all=True)
    if group.rank == 0:
        found = {"checked": checked, "wanted": SAVES * wanted, "faults": faults, "read": read}
        print("FOUND " + json.dumps(found), flush=True)
    activity.stop()
    group.leave()


if __name__ == "__main__":
    main()
