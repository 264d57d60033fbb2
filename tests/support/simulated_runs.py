"""Runs on simulated arrays: converts operation times into the verdicts of requirements.

The plan of a run defines the operations, ranks, bytes and limits. The functions of `suites/` evaluate the times in the
same way as the times of a real run.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pytest_ckpt.analysis.statistics import MAXIMUM_ROUNDS
from pytest_ckpt.config.gate_files import built_in
from pytest_ckpt.config.options import resolve
from pytest_ckpt.facts.measurement import (
    Endurance,
    LoadPattern,
    Measurement,
    Operation,
    OperationKind,
    Patterns,
    RankFacts,
)
from pytest_ckpt.facts.proofs import Durability
from pytest_ckpt.facts.strategy_results import Chains, NodeLoss, StepBatch, StepsOfSave, TierRestore, Tiers, Training
from pytest_ckpt.facts.verdict import Outcome, Verdict
from pytest_ckpt.grading.catalogue import REQUIREMENTS
from pytest_ckpt.judging.reasons import is_default_limit
from pytest_ckpt.judging.verdicts import decide, severity_of
from pytest_ckpt.sizing.drains import drain_limit_seconds
from pytest_ckpt.sizing.limits import ClusterLimits
from pytest_ckpt.sizing.patterns import LOADS_OF_A_PATTERN
from pytest_ckpt.sizing.plan import Plan, PlannedCheckpoint, plan_run
from tests.support import synthetic_measurement
from tests.support.simulated_arrays import TRUTHS, TRUTHS_OF_STEADINESS, Truth

OPTIONS = {
    "ckpt_cluster": "16000",
    "ckpt_model": "llama3-8b",
    "ckpt_ranks": "8",
    "ckpt_strategy": "sync,async,incremental,tiered",
    "ckpt_changed_pages": "10%",
    "ckpt_local_tier": "/mnt/nvme",
}
GATES = built_in("posix-shared")

NOT_SIMULATED = {
    "NEIGHBOUR": "two jobs share the array: the scheduler decides, not a distribution of times",
    "MIXED": "saves and readers share the array: the scheduler decides, not a distribution of times",
}
"""Requirements with a time limit that the study omits although a gate table requires them, with the reason."""

_STEP_SECONDS = 0.1
# A save that returns early stops the job for this share of the save limit.
_SHORT_STOP = 0.01
_TIME_UNITS = frozenset({"s", "rounds"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Timed:
    """One operation: its time in seconds, and the time of each rank."""

    seconds: float
    ranks: tuple[float, ...]


Series = Sequence[Timed]


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One row of the acceptance study: one requirement, or several requirements that a run must meet together.

    A run has one or more series of operations:

    - ``limits``: the limit of each series, in seconds
    - ``operations``: the number of operations in each series
    - ``measured``: returns the measurement of a run with these series
    - ``deciding``: the number of operations that decide the verdict (0: all)
    """

    name: str
    requirements: tuple[str, ...]
    limits: tuple[float, ...]
    operations: tuple[int, ...]
    measured: Callable[[Sequence[Series]], Measurement]
    truths: tuple[Truth, ...] = TRUTHS
    deciding: int = 0

    @property
    def trials(self) -> int:
        """The number of operations that decide the verdict."""
        return self.deciding or sum(self.operations)

    def verdicts(self, series: Sequence[Series]) -> dict[str, Verdict]:
        """Return the verdict of each requirement."""
        measurement, limits = self.measured(series), plan().limits
        return {name: decide(REQUIREMENTS[name], measurement, limits, GATES) for name in self.requirements}

    def outcomes(self, series: Sequence[Series]) -> dict[str, Outcome]:
        """Return the outcome of each requirement."""
        return {name: verdict.outcome for name, verdict in self.verdicts(series).items()}


@functools.cache
def plan(ranks: int = 8) -> Plan:
    """Return the plan of the simulated run with the given number of ranks.

    If ``ranks`` is not 8, the model is sharded in mode open.
    """
    mode = {} if ranks == 8 else {"ckpt_mode": "open"}
    return plan_run(resolve(OPTIONS | {"ckpt_ranks": str(ranks)} | mode, {}), None)


def planned_by(strategy: str, ranks: int = 8) -> PlannedCheckpoint:
    """Return the planned checkpoint of this save strategy."""
    return next(each for each in plan(ranks).checkpoints if each.strategy.name == strategy)


def timed_requirements() -> set[str]:
    """Return the ids of all requirements with a time limit that is derived from the cluster.

    Only requirements with the severity ``required`` for shared storage are included.
    """
    return {
        row.id
        for row in REQUIREMENTS.values()
        if row.is_measured
        and _TIME_UNITS.intersection(row.units)
        and severity_of(row, "", GATES) == "required"
        and not is_default_limit(row.id, "", GATES)
    }


def rows(ranks: int = 8, hosts: tuple[str, ...] = ("n1",)) -> tuple[Row, ...]:
    """Return all rows of the acceptance study, for a run with this number of ranks on these hosts."""
    limits = plan(ranks).limits
    sync, background, deltas, tiered = (_run(name, ranks, hosts) for name in ("sync", "async", "incremental", "tiered"))
    n, pattern = sync.base.operations_planned, LOADS_OF_A_PATTERN
    save, load = limits.save_limit_seconds, limits.load_limit_seconds
    stop = _SHORT_STOP * save
    return (
        Row(name="SAVE", requirements=("SAVE",), limits=(save,), operations=(n,),
            measured=lambda s: sync.measured(saves=s[0])),
        Row(name="LOAD", requirements=("LOAD",), limits=(load,), operations=(n,),
            measured=lambda s: sync.measured(loads=s[0])),
        Row(name="SHIFTED", requirements=("SHIFTED",), limits=(load,), operations=(pattern,),
            measured=lambda s: sync.measured(patterns=Patterns(shifted=sync.pattern(s[0])))),
        Row(name="RESHAPED", requirements=("RESHAPED",), limits=(load, load), operations=(pattern, pattern),
            measured=lambda s: sync.measured(
                patterns=Patterns(joined=sync.pattern(s[0]), split=sync.pattern(s[1])))),
        Row(name=CERTIFICATE, requirements=("SAVE", "LOAD", "SHIFTED", "RESHAPED"),
            limits=(save, load, load, load, load), operations=(n, n, pattern, pattern, pattern),
            measured=lambda s: sync.measured(saves=s[0], loads=s[1], patterns=Patterns(
                shifted=sync.pattern(s[2]), joined=sync.pattern(s[3]), split=sync.pattern(s[4])))),
        Row(name="BLOCKING", requirements=("BLOCKING",), limits=(save,), operations=(n,),
            measured=lambda s: _saved_in_background(background, s[0], stops=s[0])),
        Row(name="BACKGROUND", requirements=("BACKGROUND",), limits=(limits.interval_seconds,), operations=(n,),
            measured=lambda s: _saved_in_background(background, s[0], stops=_constant(stop, s[0]))),
        # Half of the cost blocks the job, half is work at risk.
        Row(name="LOST-WORK", requirements=("LOST-WORK",), limits=(save,), operations=(n,),
            measured=lambda s: _saved_in_background(
                background, _times(0.5 + 0.5 * limits.checkpoints_per_failure, s[0]), stops=_times(0.5, s[0]))),
        # Each restore reads more than the previous one; the longest chain decides.
        Row(name="CHAIN", requirements=("CHAIN",), limits=(load,), operations=(n,), deciding=1,
            measured=lambda s: _chain(deltas, s[0])),
        Row(name="DRAIN", requirements=("DRAIN",), limits=(_drain_limit(tiered, limits, stop),), operations=(n,),
            measured=lambda s: _saved_in_background(
                tiered, [_later(each, stop) for each in s[0]], stops=_constant(stop, s[0]), tiers=_tiers(tiered))),
        Row(name="NODE-LOSS", requirements=("NODE-LOSS",), limits=(load,), operations=(1,),
            measured=lambda s: tiered.measured(patterns=Patterns(tiers=_tiers(tiered, lost=s[0][0].seconds)))),
        Row(name="STEADY", requirements=("STEADY",), limits=(save,), operations=(MAXIMUM_ROUNDS,),
            measured=lambda s: sync.measured(patterns=Patterns(endurance=_endurance(s[0]))),
            truths=TRUTHS_OF_STEADINESS),
    )  # fmt: skip


CERTIFICATE = "SAVE, LOAD, SHIFTED and RESHAPED"
"""The timed rows of a run with synchronous saves; a certificate requires all."""


def _operation(kind: OperationKind, index: int, timed: Timed, size: int) -> Operation:
    return Operation(
        kind=kind,
        index=index,
        checkpoint=index,
        seconds=timed.seconds,
        slowest_rank=max(range(len(timed.ranks)), key=timed.ranks.__getitem__),
        rank0_seconds=timed.ranks[0],
        rank_seconds=timed.ranks,
        phases={"write" if kind == "save" else "read": timed.seconds},
        bytes=size,
        mapped_bytes=None if kind == "save" else size,
        resident_bytes=None if kind == "save" else 0,
    )


def _operations(kind: OperationKind, series: Series, size: int) -> tuple[Operation, ...]:
    return tuple(_operation(kind, index, timed, size) for index, timed in enumerate(series, 1))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Run:
    """Creates measurements of runs with one save strategy. ``base`` contains the common fields of the measurements."""

    base: Measurement

    def measured(
        self,
        *,
        saves: Series = (),
        loads: Series = (),
        patterns: Patterns | None = None,
        operations: tuple[Operation, ...] = (),
    ) -> Measurement:
        size = self.base.bytes
        done = operations or (*_operations("save", saves, size), *_operations("load", loads, size))
        return dataclasses.replace(self.base, operations=done, patterns=patterns)

    def pattern(self, series: Series) -> LoadPattern:
        return LoadPattern(
            reads="ranks read what others wrote",
            rank_bytes=self.base.rank_bytes,
            operations=_operations("load", series, self.base.bytes),
            integrity=synthetic_measurement.compared(self.base.bytes * len(series)),
        )


@functools.cache
def _run(strategy: str, ranks: int, hosts: tuple[str, ...]) -> _Run:
    planned = planned_by(strategy, ranks)
    shards = planned.layout
    base = synthetic_measurement.measurement(
        size=shards.bytes,
        operations=(),
        subject=planned.subject,
        model=shards.model.name,
        mode=shards.mode,
        processes=shards.processes,
        hosts=hosts,
        engine=planned.engine.name,
        scale=1.0,
        full_bytes=shards.full_bytes,
        rank_bytes=(shards.bytes // shards.processes,) * shards.processes,
        operations_planned=planned.operations,
        integrity=synthetic_measurement.compared(shards.bytes * planned.operations),
        durability=Durability(files=8, files_synced=8, directories=1, directories_synced=1, saves=1, commits=1),
        ranks=tuple(
            RankFacts(rank=r, host=hosts[r * len(hosts) // shards.processes], pid=100 + r)
            for r in range(shards.processes)
        ),
        save_bytes=planned.save_bytes,
        load_bytes=planned.load_bytes,
        drains=planned.drains,
    )
    return _Run(base=base)


def _times(factor: float, series: Series) -> list[Timed]:
    return [Timed(seconds=factor * t.seconds, ranks=tuple(factor * each for each in t.ranks)) for t in series]


def _later(timed: Timed, seconds: float) -> Timed:
    return Timed(seconds=timed.seconds + seconds, ranks=tuple(each + seconds for each in timed.ranks))


def _constant(seconds: float, series: Series) -> list[Timed]:
    return [Timed(seconds=seconds, ranks=(seconds,) * len(timed.ranks)) for timed in series]


def _saved_in_background(run: _Run, committed: Series, *, stops: Series, tiers: Tiers | None = None) -> Measurement:
    """Return a measurement of background saves.

    The saves block the job for the times in ``stops``, and commit after the times in ``committed``. Copying the state
    takes a small share of the blocked time.
    """
    saves = tuple(
        dataclasses.replace(
            save,
            returned_seconds=stop.seconds,
            staged_seconds=_SHORT_STOP * stop.seconds,
            stored_seconds=save.seconds,
        )
        for save, stop in zip(_operations("save", committed, run.base.bytes), stops, strict=True)
    )
    return run.measured(operations=saves, patterns=Patterns(training=_training(len(saves)), tiers=tiers))


@functools.cache
def _training(saves: int) -> Training:
    """Return training steps that take the same time before, during and after saves."""
    return Training(
        step_seconds=_STEP_SECONDS,
        cpu_share=0.1,
        saves=tuple(
            StepsOfSave(
                checkpoint=checkpoint,
                before_seconds=(_STEP_SECONDS,) * 20,
                during=(StepBatch(steps=10, seconds=10 * _STEP_SECONDS),),
                after_seconds=(_STEP_SECONDS,) * 20,
            )
            for checkpoint in range(1, saves + 1)
        ),
    )


def _chain(run: _Run, series: Series) -> Measurement:
    sizes = run.base.load_bytes
    loads = tuple(
        _operation("load", index, timed, size)
        for index, (size, timed) in enumerate(
            ((size, _times(size / sizes[-1], [timed])[0]) for size, timed in zip(sizes, series, strict=True)), 1
        )
    )
    chains = Chains(
        deltas=2,
        deleted=3,
        deleted_bytes=0,
        freed_bytes=None,
        integrity=synthetic_measurement.compared(1),
        misses_deleted=True,
    )
    return run.measured(operations=loads, patterns=Patterns(chains=chains))


def _drain_limit(run: _Run, limits: ClusterLimits, stop: float) -> float:
    assert run.base.drains
    return drain_limit_seconds(run.base.drains, limits, stop)


def _tiers(run: _Run, *, lost: float = 1.0) -> Tiers:
    """Return results of saves to a local tier, and of a restore after the loss of a host.

    Drains (copies from the local tier to the target) do not slow the saves. The restore of the lost host's files takes
    ``lost`` seconds.
    """
    size = run.base.bytes
    local = TierRestore(
        expected_tier="local",
        expected=2,
        tier="local",
        number=2,
        seconds=1.0,
        integrity=synthetic_measurement.compared(size),
    )
    return Tiers(
        bytes=size,
        undisturbed_seconds=(1.0,) * 3,
        during_drain_seconds=(1.0,) * 3,
        drain_seconds=(1.0,) * 3,
        complete=local,
        incomplete=dataclasses.replace(local, expected_tier="target", expected=1, tier="target", number=1),
        node_loss=NodeLoss(
            hosts=2,
            lost="n2",
            partner="n1",
            copied_bytes=size,
            copy_seconds=1.0,
            returned_bytes=size // 2,
            return_seconds=lost / 2,
            load_seconds=lost / 2,
            missing=0,
            integrity=synthetic_measurement.compared(size),
        ),
    )


def _endurance(series: Series) -> Endurance:
    seconds = [timed.seconds for timed in series]
    starts = [sum(seconds[:i]) for i in range(len(seconds))]
    return Endurance(
        requested_seconds=0.0,
        seconds=sum(seconds),
        kept=2,
        start_seconds=tuple(starts),
        save_seconds=tuple(seconds),
    )
