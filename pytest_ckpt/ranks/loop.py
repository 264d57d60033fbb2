"""Runs the measurement of one subject (a model, and how it is saved) on all ranks.

The measurement consists of saves, drops of caches, loads, and additional scenarios.
"""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pytest_ckpt.facts.engines import STREAM
from pytest_ckpt.facts.events import (
    CeilingsMeasured,
    DepthChosen,
    DurabilityCounted,
    IntegrityCompared,
    MeasurementDone,
    MeasurementStarted,
    PatternMeasured,
)
from pytest_ckpt.facts.file_rules import AS_RECORDED
from pytest_ckpt.facts.host_load import DATA_PAIRS, OWN_OPERATIONS
from pytest_ckpt.facts.measurement import DataEffect, RankFacts, Retention
from pytest_ckpt.facts.proofs import CacheReading, CanaryReads, Fault, Integrity, MovedBytes
from pytest_ckpt.facts.request_depth import RequestDepth
from pytest_ckpt.facts.requests import together
from pytest_ckpt.ranks.client_ceiling import CeilingSearch
from pytest_ckpt.ranks.client_proof import ClientProof
from pytest_ckpt.ranks.content import Content
from pytest_ckpt.ranks.engines.chained import ChainedEngine
from pytest_ckpt.ranks.engines.factory import content_of, create_engine
from pytest_ckpt.ranks.engines.protocol import Engine, Loader, expect_parts, joined_facts
from pytest_ckpt.ranks.engines.whole_state import threads_of
from pytest_ckpt.ranks.operations import Loaded, Operations
from pytest_ckpt.ranks.process.host_cache import Files, HostCache, cache_facts
from pytest_ckpt.ranks.process.job import EngineOptions
from pytest_ckpt.ranks.scenarios.alternating_pairs import measure_data_of
from pytest_ckpt.ranks.scenarios.canaries import Canaries
from pytest_ckpt.ranks.scenarios.context import ScenarioContext
from pytest_ckpt.ranks.scenarios.retention import SavesRetained
from pytest_ckpt.ranks.strategies.protocol import Strategy, strategy_of
from pytest_ckpt.ranks.training import TrainingSteps
from pytest_ckpt.sizing.caches import minimum_moved
from pytest_ckpt.sizing.models import RankLayout
from pytest_ckpt.sizing.patterns import PATTERNS
from pytest_ckpt.sizing.ramp import RAMP
from pytest_ckpt.sizing.reading import shifted
from pytest_ckpt.sizing.record import MAXIMUM_FAULTS
from pytest_ckpt.sizing.stream_buffers import USUAL_DEPTH
from pytest_ckpt.support.errors import ReplacedError
from pytest_ckpt.support.processes import boot_id
from pytest_ckpt.support.references import load

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_ckpt.facts.subject import Pattern
    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.ranks.process.job import Job, Task
    from pytest_ckpt.sizing.models import Layout
    from pytest_ckpt.sizing.ramp import PlannedRamp
    from pytest_ckpt.targets.protocol import Store


@dataclass(frozen=True, kw_only=True, slots=True)
class CountedLoads:
    """Performs the loads that count as the subject's results.

    If there are more loads than checkpoints, checkpoints are loaded repeatedly. ``loader`` creates a loader for another
    rank's shard; None if ranks cannot load other shards. ``drop`` drops the cached data of the files that this rank
    will read next. ``take_in`` is called with the result of every load. If ``lends_memory``, a rank has enough memory
    for a shard that is larger than its own. If ``knows_bytes``, files have the sizes of the layout. Then the number of
    bytes that passed through a cache is known.
    """

    group: Group
    do: Operations
    cache: HostCache
    layout: Layout
    loader: Callable[[RankLayout], Loader] | None
    lends_memory: bool
    knows_bytes: bool
    drop: Callable[[Sequence[Files]], None]
    take_in: Callable[[Loaded], None]

    def measure(self, engine: Loader, kept: Sequence[int], count: int) -> tuple[bool, tuple[MovedBytes, ...]]:
        """Load ``count`` times. Return (whether hosts loaded other hosts' files, bytes that each host moved).

        ``kept`` are the numbers of the checkpoints on the target. If possible, each rank loads files that only another
        host has written and read, because the rank's own host has not cached these files. If a load reads a chain of
        deltas, return (False, ()).

        The moved bytes of a host are the minimum that the host saved and loaded between two uses of a checkpoint. Rank
        0 returns them if two conditions are met. First, a count of cached pages cannot prove that loads are uncached.
        Second, the files have the sizes of the layout. In all other cases, the tuple is empty.
        """
        order = [kept[number % len(kept)] for number in range(count)]
        wants_another = self.cache.wants_proof or self.group.spans_hosts
        swapped = self._of_another_host() if wants_another and len(kept) == count else None
        names = self.do.names_of_loads([swapped]) if swapped else None
        # Files that were read once may be in the cache. So if files are read repeatedly, caches are dropped before each
        # load. The same is done if a file of this host is below the target, because the kernel reads ahead there,
        # beyond the end of the loaded files.
        has_chains = any(len(self.do.files_of_load(each)) > 1 for each in kept)
        reads_ahead = self.group.any_of(bool(self.cache.storage and self.cache.storage.files))
        again = has_chains or len(kept) < count or reads_ahead
        reader = self.loader(swapped) if self.loader and swapped else engine
        for number, checkpoint in enumerate(order, start=1):
            if number == 1:
                self.drop([self.do.files(each, names) for each in kept])
            elif again:
                self.drop(self.do.files_of_load(checkpoint, names))
            self.take_in(self.do.load(reader, self.cache, number, checkpoint, names=names))
        reader.release()
        # The volume that passes caches between two reads of the same bytes is only known if all loads read the same
        # amount.
        if has_chains:
            return False, ()
        if not self.knows_bytes or not self.cache.wants_proof:
            return swapped is not None, ()
        moved = self.cache.moved(self.layout.rank(self.group.rank).bytes, minimum_moved(kept, order))
        return swapped is not None, tuple({each.host: each for each in self.group.gather(moved)}.values())

    def _of_another_host(self) -> RankLayout | None:
        """Return the shard of another host that this rank loads. Return None if this rank loads its own shard.

        Either all ranks load shards of other hosts, or all ranks load their own shards. Containers of one kernel count
        as one host here, because they may share a client of the storage.
        """
        hosts: list[str] = self.group.share(self.group.gather(boot_id()))
        reading = shifted(self.layout, hosts)
        fits = self.lends_memory or len(set(self.layout.rank_bytes)) == 1
        if reading.not_run or not fits or self.loader is None:
            return None
        shards = [pieces[0].shard for pieces in reading.pieces]
        if any(hosts[shard.rank] == host for shard, host in zip(shards, hosts, strict=True)):
            return None
        return shards[self.group.rank]


_RESIDENT_WITHOUT_DROP = 0.01


class MeasurementLoop:
    """Runs the measurement of one task. Rank 0 sends every result to the controller as soon as the result is known.

    ``depth`` is the number of requests that engine ``stream`` keeps in flight. It is None until the number is known.
    """

    def __init__(self, group: Group, activity: Activity, task: Task, job: Job) -> None:
        self._group = group
        self._activity = activity
        self._task = task
        rule = task.files
        self._options = job.options
        if rule.pattern:
            is_paced = rule.pattern.pace == AS_RECORDED
            self._options = replace(job.options, pattern=rule.pattern.text, pauses=is_paced)
        self.depth = job.depth
        self._second = job.second
        self._area = job.area
        self._store: Store = load(job.area.opener)(job.area)
        # If a launch has several strategies, only the strategies with tiers have a local tier.
        self._local = job.local if task.tiers else None
        self._tier: Store | None = load(self._local.opener)(self._local) if self._local else None
        self._layout = task.layout()
        self._shard = self._layout.rank(group.rank)
        self._do = Operations(
            group, activity, task.subject, self._shard, self._store, rule=task.files, deltas=task.deltas
        )
        self._own = SavesRetained(self._do, retain=task.retain)
        self._expected_bytes = task.loaded_bytes(self._layout)
        self._found = LoopResults()

    def run(self) -> None:
        """Measure saves and loads, and compare the loaded bytes. If the task does not keep the files, remove them.

        If the run's directory was replaced, raises ReplacedError instead of any other error.
        """
        try:
            self._measure()
        except Exception as error:
            if reason := self._do.replaced():
                raise ReplacedError(reason) from error
            raise

    def _measure(self) -> None:
        task, do = self._task, self._do
        do.send(MeasurementStarted(subject=task.subject))
        self._activity.begin(do.all("prepare"))
        if self._tier:
            self._tier.prepare(task.subject.slug)
        do.across_hosts.prepare()
        self._try_clients()
        with do.stage("prepare", do.all("prepare")):
            if task.stages:
                self._options = replace(self._options, copy_threads=threads_of(self._group))
            strategy = self._strategy()
            cache = self._cache()
        engine = strategy.engine
        proof = ClientProof(
            group=self._group,
            activity=self._activity,
            store=self._store,
            subject=task.subject.slug,
            clock=do.clock_watch,
        )
        proof.try_fsync("before the saves")
        training = self._training(engine)
        with do.host_load.spanning(OWN_OPERATIONS):
            self._found.retention = self._own.save_all(strategy, task.operations, training)
        strategy.release()
        if training:
            do.send(PatternMeasured(subject=task.subject, name="training", found=training.results()))
            # It keeps a reference to the engine.
            del training
        engine.release()
        proof.try_fsync("after the saves")
        if durability := do.durability():
            do.send(DurabilityCounted(subject=task.subject, durability=durability))
        self._measure_loads(engine, cache)
        facts = self._engine_facts(strategy)
        requests = together(self._group.gather(self._store.requests()))
        # The engine's memory must be free before another engine replaces it.
        del engine, strategy
        bench = self._bench(cache)
        if task.data_pairs:
            with do.host_load.spanning(DATA_PAIRS):
                measure_data_of(bench)
        self._measure_patterns(bench, lasts=False)
        # If cached pages are not counted, timed reads may prove that loads were cold. If pages are counted only in
        # part, timed reads by another client may show that loads were not cold.
        is_comparable = self._second is not None or self._group.spans_hosts
        if not self._found.by_other_hosts and (cache.is_blind or (cache.is_counted_in_part and is_comparable)):
            self._time_canaries(cache)
        self._measure_patterns(bench, lasts=True)
        probes = self._group.gather(cache.probe)
        storages = self._group.gather(cache.storage if self._group.leads_host else None)
        names_dropped = self._group.gather(cache.names_dropped)
        ranks = self._group.gather(self._rank_facts())
        if not task.keep:
            self._own.delete_all(of_subject=True)
        client_proofs = proof.joined()
        host_loads = do.host_load.gathered()
        results = self._found
        readings = tuple(results.readings.values())
        do.send(
            MeasurementDone(
                subject=task.subject,
                cache=cache_facts(
                    task.drop_caches,
                    results.drops,
                    readings,
                    probes,
                    results.worst_resident,
                    is_declared_cold=cache.is_declared_cold,
                    by_other_hosts=results.by_other_hosts,
                    canaries=results.canaries,
                    moved=results.moved,
                    client_cache_bytes=task.client_cache_bytes,
                    storages=[storage for storage in storages if storage],
                    names_dropped=None if None in names_dropped else all(names_dropped),
                ),
                ranks=tuple(ranks),
                engine_facts=facts,
                requests=requests,
                retention=results.retention,
                data=results.data,
                client_proofs=client_proofs,
                host_loads=host_loads,
                stages=do.stages,
            )
        )

    def _measure_loads(self, engine: Engine, cache: HostCache) -> None:
        """Load the checkpoints that were kept, and compare their bytes."""
        task, do = self._task, self._do
        with do.host_load.spanning(OWN_OPERATIONS):
            self._found.by_other_hosts, self._found.moved = CountedLoads(
                group=self._group,
                do=do,
                cache=cache,
                layout=self._layout,
                loader=None if task.is_collective or task.deltas else lambda shard: self._loader(shard, self._options),
                lends_memory="neighbour" in task.patterns,
                knows_bytes=not task.codec,
                drop=lambda files: self._drop(cache, files),
                take_in=self._add_loaded,
            ).measure(engine, self._own.kept, task.operations)

    def _engine_facts(self, strategy: Strategy) -> dict[str, str]:
        """Return the descriptions of the engine and the strategy, combined from all ranks."""
        depth = {"depth": self.depth.sentence} if self.depth and self._task.engine == STREAM else {}
        facts = strategy.engine.facts() | depth | self._do.added_facts() | strategy.facts()
        return joined_facts(self._group.gather(facts))

    def _cache(self) -> HostCache:
        return HostCache(self._group, self._activity, self._store, self._task.subject.slug, self._task.drop_caches)

    def _try_clients(self) -> None:
        """Choose the number of requests in flight, then measure the client ceilings with this number.

        Client ceilings are the rates that the client reaches without storage.
        """
        self._choose_depth()
        self._find_ceilings()

    def _choose_depth(self) -> None:
        """Set the number of requests in flight.

        If the job contains a number, use it. If not, use the result of a ramp, or the default if there is no ramp.
        """
        ramp = self._task.ramp
        if self._task.engine != STREAM:
            return
        if ramp and self.depth is None:
            self.depth = (
                self._ramped(ramp)
                if ramp.depths
                else RequestDepth(requests=USUAL_DEPTH, origin="default", because=ramp.because)
            )
        assert self.depth, "the plan has a ramp unless the number is set, and then the job states it"
        self._options = replace(self._options, depth=self.depth.requests)
        self._do.send(DepthChosen(subject=self._task.subject, depth=self.depth))

    def _find_ceilings(self) -> None:
        """Measure the client ceilings (rates without storage) if the engine generates content while it writes."""
        if self._task.engine != STREAM or self._task.stages or self._task.codec:
            return
        search = CeilingSearch(
            group=self._group,
            activity=self._activity,
            store=self._store,
            task=self._task,
            shard=self._shard,
            options=self._options,
        )
        with self._do.stage("client ceiling", self._do.all("client ceiling")):
            ceilings = search.run()
        self._do.send(CeilingsMeasured(subject=self._task.subject, ceilings=ceilings))

    def _ramped(self, ramp: PlannedRamp) -> RequestDepth:
        """Run a ramp, which tries several numbers of requests in flight.

        Return the chosen number and the rates of the ramp. Wrong bytes in loads of the ramp are added to the results.
        """
        from pytest_ckpt.ranks.ramp import Ramp  # noqa: PLC0415 - it takes memory, and most rehearsals have no ramp

        # A separate store, so that the requests of the ramp are not counted as the subject's own.
        store: Store = load(self._area.opener)(self._area)
        search = Ramp(
            group=self._group,
            activity=self._activity,
            cache=self._cache(),
            store=store,
            task=self._task,
            ramp=ramp,
            options=self._options,
        )
        with self._do.stage(RAMP, None):
            depth = search.run()
        store.close()
        self._found.fault_count += search.fault_count
        self._found.faults += search.faults
        return depth

    def _measure_patterns(self, bench: ScenarioContext, *, lasts: bool) -> None:
        """Measure the task's patterns. A pattern is an additional measurement, such as saves during crashes.

        If ``lasts``, measure only the patterns that last for hours. If not, measure only the other patterns.
        """
        of_scenario: dict[str, list[Pattern]] = {}
        for row in (PATTERNS[name] for name in self._task.patterns):
            if row.lasts is lasts:
                # A scenario may measure several patterns together.
                of_scenario.setdefault(row.scenario, []).append(row.name)
        for scenario, names in of_scenario.items():
            with self._do.host_load.spanning(*names):
                load(scenario)(bench)

    def _bench(self, cache: HostCache) -> ScenarioContext:
        return ScenarioContext(
            group=self._group,
            activity=self._activity,
            do=self._do,
            cache=cache,
            task=self._task,
            layout=self._layout,
            shard=self._shard,
            options=self._options,
            area=self._area,
            store=self._store,
            local=self._local,
            tier=self._tier,
            own=self._own,
            found=self._found,
            strategy=self._strategy,
            saver=self._saver,
            engine=self._engine,
            loader=self._loader,
            drop=lambda files: self._drop(cache, files, again=True),
            drop_own=lambda files: self._drop(cache, files),
        )

    def _strategy(self, *, constant: bool = False, aside: str = "", plain: bool = False) -> Strategy:
        """Return the strategy that saves this rank's own files.

        If ``constant``, all pages of the content are equal. If ``aside`` is not empty, the content differs from the
        subject's content. If ``plain``, files are saved without the task's codec.
        """
        return self._saving(self._engine(constant=constant, aside=aside, plain=plain), self._store)

    def _saver(self, shard: RankLayout, store: Store) -> Strategy:
        """Return a strategy that saves full checkpoints of ``shard`` to ``store``.

        The content differs from the content of the subject's own checkpoints.
        """
        content = content_of(self._task, shard, aside="contention")
        return self._saving(self._create_engine(shard, content, self._saving_options(), is_full=True), store)

    def _saving(self, engine: Engine, store: Store) -> Strategy:
        make = strategy_of(self._task.strategy)
        return make(
            engine=engine,
            store=store,
            group=self._group,
            activity=self._activity,
            options=self._options,
            tier=self._tier,
        )

    def _engine(self, *, constant: bool = False, aside: str = "", plain: bool = False) -> Engine:
        """Return the engine of this rank's own files. The parameters are those of `_strategy`."""
        content = content_of(self._task, self._shard, constant=constant, aside=aside)
        return self._create_engine(self._shard, content, self._saving_options(), plain=plain)

    def _saving_options(self) -> EngineOptions:
        return replace(self._options, stages=self._task.stages, by_process=self._task.by_process)

    def _training(self, engine: Engine) -> TrainingSteps | None:
        """Return the simulated training steps that run during saves. Return None if saves block training."""
        task = self._task.training
        if task is None:
            return None
        return TrainingSteps(
            self._group, self._activity, engine, step_seconds=task.step_seconds, cpu_share=task.cpu_share
        )

    def _loader(self, shard: RankLayout, options: EngineOptions) -> Loader:
        """Return a loader of a shard. This rank or another rank has written the shard."""
        return self._create_engine(shard, content_of(self._task, shard), options)

    def _create_engine(
        self, shard: RankLayout, content: Content, options: EngineOptions, *, plain: bool = False, is_full: bool = False
    ) -> Engine:
        """Return the engine of a shard. If ``is_full``, all its saves are full, even if the task saves deltas."""
        engine = create_engine(self._task, shard, content, self._group, self._activity, options, plain=plain)
        expect_parts(engine, self._store)
        if (rule := self._task.deltas) and not is_full:
            return ChainedEngine(engine, shard, content, rule, options)
        return engine

    def _time_canaries(self, cache: HostCache) -> None:
        """Save extra checkpoints and time reads of their parts, because some cached pages cannot be counted.

        The kept checkpoints are deleted first, to free space. If files must remain on the target
        (``--ckpt-keep-files``), no extra checkpoints are saved.
        """
        task, do, kept = self._task, self._do, tuple(self._own.kept)
        second: Store | None = load(self._second.opener)(self._second) if self._second else None
        self._found.canaries = Canaries(
            group=self._group,
            activity=self._activity,
            do=do,
            layout=self._layout,
            strategy=self._strategy(aside="canaries", plain=True),
            store=self._store,
            second=second,
            drop=lambda files: self._drop(cache, files, again=True),
            after=task.operations,
            maximum=0 if task.keep else len(kept),
            files=task.files,
            judged=() if task.deltas or task.codec else kept,
            make_room=(lambda: None) if task.keep else lambda: self._own.delete_all(of_subject=False),
        ).measure()
        if second:
            second.close()

    def _add_loaded(self, loaded: Loaded) -> None:
        integrity = self._found.add(loaded, self._expected_bytes)
        self._do.send(IntegrityCompared(subject=self._task.subject, integrity=integrity))

    def _drop(self, cache: HostCache, files: Sequence[Files], *, again: bool = False) -> None:
        """Drop the cached data of the files that this rank will read next, if the task's policy requires it.

        If ``again``, this rank may have read the files before. The data are then dropped with every policy except
        ``never``.
        """
        task, results = self._task, self._found
        self._do.await_files(files)
        with self._do.stage("drop caches", self._do.all("drop caches")):
            readings = cache.readings(self._shard.bytes, task.full_saves)
            method = ""
            if task.drop_caches != "never":
                is_cached = cache.caches_more_than(_RESIDENT_WITHOUT_DROP, files)
                # If the same checkpoints are read repeatedly, or a codec has made them smaller, the rule's sum of
                # written bytes is not meaningful.
                changes = bool(task.retain or task.deltas or task.codec)
                must_drop = is_cached or any(r.requires_drop for r in readings) or changes or again
                if self._group.any_of(must_drop or task.drop_caches != "auto"):
                    method = cache.drop(task.drop_caches, files)
            gathered = self._group.gather((method, readings))
        results.drops += [w for w, _ in gathered if w]
        results.readings |= {(r.host, r.rule): r for _, of_rank in gathered for r in of_rank}

    def _rank_facts(self) -> RankFacts:
        peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return RankFacts(
            rank=self._group.rank, host=self._group.host, pid=os.getpid(), peak_memory_bytes=peak_kib * 1024
        )


@dataclass(slots=True)
class LoopResults:
    """The results of a measurement so far. On rank 0, they cover all ranks."""

    bytes_checked: int = 0
    fault_count: int = 0
    faults: list[Fault] = field(default_factory=list)
    worst_resident: float | None = None
    drops: list[str] = field(default_factory=list)
    readings: dict[tuple[str, str], CacheReading] = field(default_factory=dict)
    retention: Retention | None = None
    data: DataEffect | None = None
    by_other_hosts: bool = False
    moved: tuple[MovedBytes, ...] = ()
    canaries: tuple[CanaryReads, ...] = ()

    def add(self, loaded: Loaded, expected_bytes: int) -> Integrity:
        """Add the result of a load that counts as the subject's result. Return the sum of all comparisons so far.

        ``expected_bytes`` is the number of bytes that all loads together must compare.
        """
        if loaded.operation and loaded.operation.mapped_bytes:
            resident = (loaded.operation.resident_bytes or 0) / loaded.operation.mapped_bytes
            self.worst_resident = max(self.worst_resident or 0.0, resident)
        self.bytes_checked += loaded.bytes_checked
        self.fault_count += loaded.fault_count
        self.faults = (self.faults + loaded.faults)[:MAXIMUM_FAULTS]
        return Integrity(
            bytes_expected=expected_bytes,
            bytes_checked=self.bytes_checked,
            fault_count=self.fault_count,
            faults=tuple(self.faults),
        )
