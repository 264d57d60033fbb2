"""The ramp: a search for the smallest number of requests in flight that is nearly as fast as the best number.

The ramp runs before a subject's first save. Scratch checkpoints are saved and loaded with several numbers of requests
in flight, in descending and then ascending order. All ranks take part. Each step saves a scratch checkpoint, evicts it
from this client's cache, reads it once and deletes it. These saves and loads are not results of the subject, but wrong
bytes in these loads are counted.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pytest_ckpt.facts.request_depth import RampStep, RequestDepth
from pytest_ckpt.facts.subject import OperationRef
from pytest_ckpt.ranks.engines.factory import content_of, create_engine
from pytest_ckpt.ranks.engines.protocol import expect_parts
from pytest_ckpt.ranks.operations import Operations
from pytest_ckpt.ranks.strategies.sync import SyncStrategy
from pytest_ckpt.sizing.ramp import MAXIMUM_SECONDS, OF_RAMP, RAMP, knee
from pytest_ckpt.support.units import counted

if TYPE_CHECKING:
    from pytest_ckpt.facts.proofs import Fault
    from pytest_ckpt.ranks.content import Content
    from pytest_ckpt.ranks.engines.protocol import Engine
    from pytest_ckpt.ranks.operations import Loaded
    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.ranks.process.host_cache import HostCache
    from pytest_ckpt.ranks.process.job import EngineOptions, Task
    from pytest_ckpt.sizing.models import RankLayout
    from pytest_ckpt.sizing.ramp import PlannedRamp
    from pytest_ckpt.targets.protocol import Store


@dataclass(kw_only=True, slots=True)
class Ramp:
    """Finds the number of requests in flight for the measured saves and loads.

    ``store`` is separate from the subject's store. Therefore requests of the ramp are not counted as requests of the
    subject. ``fault_count`` and ``faults`` describe the wrong bytes in loads of scratch checkpoints.
    """

    group: Group
    activity: Activity
    cache: HostCache
    store: Store
    task: Task
    ramp: PlannedRamp
    options: EngineOptions
    fault_count: int = 0
    faults: list[Fault] = field(default_factory=list)

    def run(self) -> RequestDepth:
        """Return the chosen number of requests in flight, and the measured rates for every number that was tried."""
        layout = self.task.layout(self.ramp.scale)
        shard = layout.rank(self.group.rank)
        do = Operations(self.group, self.activity, self.task.subject, shard, self.store, rule=self.task.files)
        started, steps, because = time.perf_counter(), dict[int, RampStep](), ""
        content = content_of(self.task, shard, aside=RAMP)
        # The largest number comes first: if time ends early, storage with a high latency is not tried only with few
        # requests, which would show a low rate.
        tries = [*reversed(self.ramp.depths), *self.ramp.depths]
        for number, depth in enumerate(tries):
            seconds: float = self.group.share(time.perf_counter() - started)
            if seconds > MAXIMUM_SECONDS:
                because = f"ended after {number} of {counted(len(tries), 'try', 'tries')}"
                break
            step = self._step(do, shard, content, depth, self.task.operations + OF_RAMP + number, layout.bytes)
            steps[depth] = step.faster(steps.get(depth))
        seconds = self.group.share(time.perf_counter() - started)
        return RequestDepth(
            requests=knee(steps.values()),
            origin="ramp",
            steps=tuple(steps[depth] for depth in sorted(steps)),
            step_bytes=layout.bytes,
            seconds=seconds,
            because=because,
        )

    def _step(
        self, do: Operations, shard: RankLayout, content: Content, depth: int, number: int, step_bytes: int
    ) -> RampStep:
        """Save and load a scratch checkpoint with ``depth`` requests in flight. Return the same rates on every rank.

        ``number`` is the number of the scratch checkpoint, ``step_bytes`` its size over all ranks.
        """
        options = replace(self.options, depth=depth)
        engine = create_engine(self.task, shard, content, self.group, self.activity, options, plain=True)
        expect_parts(engine, self.store)
        strategy = SyncStrategy(engine=engine, store=self.store, group=self.group, activity=self.activity)
        at = OperationRef(subject=self.task.subject, scenario=RAMP, action="save", index=depth)
        saved = do.save(strategy, number, role=RAMP, at=at, stage=RAMP)
        loaded = self._load(do, engine, depth, number)
        engine.release()
        do.delete(number)
        self.fault_count += loaded.fault_count
        self.faults += loaded.faults
        measured = None
        if saved and loaded.operation:
            measured = RampStep(
                depth=depth,
                save_bytes_per_second=step_bytes / (saved.stored_seconds or saved.seconds),
                load_bytes_per_second=step_bytes / loaded.operation.seconds,
            )
        step: RampStep = self.group.share(measured)
        return step

    def _load(self, do: Operations, engine: Engine, depth: int, number: int) -> Loaded:
        """Evict the scratch checkpoint from this client's cache, as far as possible, then load it."""
        files = [do.files(number)]
        do.await_files(files)
        if not self.cache.is_declared_cold:
            for of in files:
                self.store.evict(of.ref, of.names)
        self.group.wait()
        return do.load(engine, self.cache, depth, number, counted=False, scenario=RAMP)
