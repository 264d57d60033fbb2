"""Simulated runs: operation times are random, and the report is derived from these times as in a real run.

``write_run`` writes the directory of a small run. ``report`` returns the report of a large run on an invented array.
Pages, tests and pictures use these reports. The vendor's name in a report states that nothing was measured.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_ckpt import __version__
from pytest_ckpt.config.gate_files import load_gates
from pytest_ckpt.config.options import resolve
from pytest_ckpt.evidence.starts import all_starts
from pytest_ckpt.facts.checks import Check
from pytest_ckpt.facts.client_ceiling import ClientCeiling
from pytest_ckpt.facts.codec import to_plain
from pytest_ckpt.facts.events import (
    DurabilityCounted,
    Event,
    Imported,
    IntegrityCompared,
    MeasurementDone,
    MeasurementStarted,
    OperationDone,
    OperationStarted,
    PatternMeasured,
    Ready,
    StepDone,
    event_to_plain,
)
from pytest_ckpt.facts.failure import Failure
from pytest_ckpt.facts.measurement import (
    Endurance,
    FillLevel,
    LoadPattern,
    Measurement,
    MixedLoad,
    NearFull,
    NoisyNeighbour,
    Operation,
    OperationKind,
    Patterns,
    RankFacts,
    SavePace,
)
from pytest_ckpt.facts.observation import Anomaly, Observation
from pytest_ckpt.facts.proofs import CacheReading, Durability
from pytest_ckpt.facts.settings import Settings
from pytest_ckpt.facts.subject import OperationRef
from pytest_ckpt.facts.system import Told
from pytest_ckpt.facts.targets import Capacity, TargetFacts
from pytest_ckpt.grading.catalogue import (
    REQUIREMENTS,
    checks_of_run,
    chosen_suites,
    is_given,
    offered,
    requirements_of_run,
)
from pytest_ckpt.grading.document import create_document
from pytest_ckpt.grading.grading import judge_run
from pytest_ckpt.judging.verdicts import decide, decide_observed
from pytest_ckpt.judging.waivers import Waiver
from pytest_ckpt.run.close import write_report
from pytest_ckpt.sizing.near_full import LEVELS
from pytest_ckpt.sizing.pacing import SHARE_OF_LIMIT
from pytest_ckpt.sizing.plan import Plan, PlannedCheckpoint, plan_run
from pytest_ckpt.sizing.record import FACTS_OF_ENDURANCE
from tests.support import synthetic_measurement
from tests.support.synthetic_target import mounted

SUBJECT = "llama3-8b-open-2"
SYNTHETIC_TARGET = mounted("ext4")
OPTIONS_OF_A_SMALL_RUN = {
    "ckpt_target": "/mnt/array",
    "ckpt_cluster": "64",
    "ckpt_model": "llama3-8b",
    "ckpt_engine": "torch",
    "ckpt_mode": "open",
    "ckpt_ranks": "2",
    "ckpt_profile": "smoke",
    "ckpt_gate_table": "speed-only",
}
VENDOR = "Made-up figures"
SYSTEM = {
    "system": {"vendor": VENDOR, "product": "Example Array, no real system", "firmware": "0.0"},
    "topology": {"nodes": 16, "drives": 384, "protection": "8+2 erasure coding", "usable_capacity": "4.6 PB"},
    "clients": {"hosts": 8, "model": "2 x 64 cores, 1.5 TiB", "software": "nfs, kernel 6.8"},
    "network": {"fabric": "Ethernet, RoCE v2", "client_links": "2 x 200 Gb/s"},
}
STARTED, FINISHED = "2031-05-06T07:08:09+00:00", "2031-05-06T09:47:12+00:00"
_RUN_SECONDS = 61.5
_OF_LAUNCH = {"launch": 1.0005, "import": 1.0008}
_HOST_RANKS = 8
_HOST_BYTES = 1536 << 30
_PHASES = {
    "save": {"open": 0.01, "write": 0.66, "fsync": 0.28, "close": 0.005, "directory": 0.01, "coordination": 0.005},
    "load": {"open": 0.02, "read": 0.95, "close": 0.005, "coordination": 0.025},
}

Document = dict[str, Any]
Seconds = Callable[[random.Random, OperationKind, int], float]


def start_of_day(number: int) -> str:
    """Return the start time of the simulated run on day ``number`` of May 2031."""
    return f"2031-05-{number:02d}T07:08:09+00:00"


def write_run(
    directory: Path,
    *,
    seed: int = 1,
    save: float = 0.10,
    load: float = 0.05,
    noise: float = 0.05,
    started: str = STARTED,
    signer: Any = None,
    versions: dict[str, str] | None = None,
    target: dict[str, Any] | None = None,
    options: dict[str, str] | None = None,
    run_id: str = "",
    fails: bool = False,
    observations: Sequence[Observation] = (),
    waivers: tuple[Waiver, ...] = (),
    system: Told | None = None,
    change: Callable[[Measurement], Measurement] = lambda measurement: measurement,
) -> Document:
    """Write a run directory and return its report. A save takes about ``save`` seconds and a load ``load`` seconds.

    ``change`` modifies each simulated measurement before the evaluation. If only the suite conformance is selected, the
    run has no measurements.
    """
    rng = random.Random(seed)

    def operation(planned: PlannedCheckpoint, kind: OperationKind, index: int) -> Operation:
        took = (save if kind == "save" else load) * rng.lognormvariate(0.0, noise)
        each = [took * rng.uniform(0.9, 0.99) for _ in range(planned.layout.processes)]
        each[rng.randrange(planned.layout.processes)] = took
        return _operation(planned, kind, index, each, {"write" if kind == "save" else "read": took})

    def measure(planned: PlannedCheckpoint, is_first: bool) -> Measurement:
        stages = (_OF_LAUNCH if is_first else {}) | {"save": 1.0, "load": 1.0}
        operations = _operations(planned, functools.partial(operation, planned))
        return change(_measurement(planned, operations, ("n1",), seed=seed, stages=stages))

    made = _judged(
        OPTIONS_OF_A_SMALL_RUN | (options or {}),
        SYNTHETIC_TARGET,
        lambda plan, settings: [measure(c, c is plan.runnable[0]) for c in plan.runnable if settings.measures],
        lambda _settings, _asked: observations,
        run={"id": run_id or f"20310506T070809-{seed:06x}", "started": started, "finished": started,
             "seconds": _RUN_SECONDS, "directory": str(directory), "seed": seed},
        stages=_stages,
        fails=fails,
        changed={"target": target or {}, "versions": versions or {}},
        waivers=waivers,
        system=system,
    )  # fmt: skip
    files = {
        **{f"measurements/{m.subject.slug}.json": to_plain(m) for m in made.measurements},
        **{f"observations/{o.requirement}.{o.subject}.json": to_plain(o) for o in observations},
        "plan.json": made.plan.to_plain(ranks=True),
        "session.json": _session(made.document),
    }
    texts = {
        **{name: json.dumps(document, indent=1) + "\n" for name, document in files.items()},
        "launches/1/command": "mpiexec -n 2 python -m pytest_ckpt.ranks\n",
        "launches/1/rank-0.log": '{"event": "hello", "rank": 0}\n',
        "events.jsonl": "".join(json.dumps(line) + "\n" for line in _lines(made.measurements)),
        "lock": "",
    }
    (directory / "measurements").mkdir(parents=True)
    for name, text in texts.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)
    starts = all_starts(
        directory, made.document["run"], made.document["exit_code"], made.measurements, made.observations
    )
    document = made.document | {"starts": to_plain(starts)}
    write_report(document, directory, signer)
    return document


def _session(document: Document) -> Document:
    run = document["run"]
    return {
        "run_id": run["id"],
        "started": run["started"],
        "seed": run["seed"],
        "command": run["command"],
        "area": None,
        "small": None,
        "extras": [],
        **{
            name: document[name]
            for name in ("environment", "gate_table", "waivers", "settings", "system", "catalogue_names")
        },
    }


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Judged:
    plan: Plan
    measurements: Sequence[Measurement]
    observations: Sequence[Observation]
    document: Document


def _judged(
    options: Mapping[str, str | None],
    target: TargetFacts,
    measure: Callable[[Plan, Settings], Sequence[Measurement]],
    observe: Callable[[Settings, Sequence[Check]], Sequence[Observation]],
    *,
    run: Document,
    stages: Callable[[Sequence[Measurement]], Mapping[str, float]],
    fails: bool = False,
    changed: Mapping[str, dict[str, Any]],
    waivers: tuple[Waiver, ...] = (),
    system: Mapping[str, Any] | None = None,
) -> _Judged:
    """Evaluate a run with these options.

    ``measure`` returns the measurements, and ``observe`` returns the observations of checks. ``changed`` contains
    changed entries of the environment.
    """
    settings = resolve(options, {})
    gates = load_gates(settings.gate_table, target.gate_kind)
    catalogue = offered(REQUIREMENTS, target.capabilities)
    settings = dataclasses.replace(settings, suites=chosen_suites(settings, gates, catalogue))
    plan = plan_run(settings, target)
    measurements = measure(plan, settings)
    asked = requirements_of_run(settings, gates, catalogue)
    checks = [c for r in asked for c in checks_of_run(r, settings, gates) if is_given(c, settings)]
    observations = observe(settings, checks)
    judged = [r for r in asked if r.is_measured and r.suite in settings.suites and r.is_requested(settings)]
    findings = [decide(r, m, plan.limits, gates) for m in measurements for r in judged]
    findings += [
        decide_observed(catalogue[o.requirement], o, gates, target.kind, plan.files_of_host) for o in observations
    ]
    judgement = judge_run(plan, settings, gates, findings, measurements, waivers, run["started"], catalogue)
    hosts = {host: m for m in measurements for host in m.hosts} or {"n1": None}
    document = create_document(
        run={
            "version": __version__,
            "command": ["pytest", *(f"--{n.replace('_', '-')}={v}" for n, v in options.items() if v)],
            **run,
        },
        plan=plan,
        settings=settings,
        gates=gates,
        waivers=waivers,
        judgement=judgement,
        exit_code=2 if fails else judgement.exit_code,
        measurements=measurements,
        observations=observations,
        environment={
            "hosts": [
                {"host": host, "ranks": [r.rank for r in m.ranks if r.host == host] if m else [0, 1],
                 "cpu": "EPYC", "cores": 64, "memory_bytes": _HOST_BYTES, "kernel": "6.8.0", "os": "Ubuntu 24.04.1 LTS",
                 "python": "3.12.3"}
                for host, m in sorted(hosts.items())
            ],
            "target": to_plain(target) | changed.get("target", {}),
            "versions": {"pytest-ckpt": __version__, "python": "3.12.3", "torch": "2.13.0", "mpi4py": "4.1.1"}
            | changed.get("versions", {}),
            "launcher": "mpiexec (Open MPI) 5.0.11",
        },
        stages=stages(measurements),
        left_behind=[],
        system=system,
        catalogue=catalogue,
    )  # fmt: skip
    return _Judged(plan=plan, measurements=measurements, observations=observations, document=document)


def _events(measurements: Sequence[Measurement]) -> Iterator[Event]:
    """Yield the events that rank 0 sends in a launch with these measurements."""
    yield Ready()
    yield Imported()
    for measurement in measurements:
        subject = measurement.subject
        yield MeasurementStarted(subject=subject)
        loads = len(measurement.of_kind("load"))
        for operation in measurement.operations:
            if operation.kind == "load" and operation.index == 1 and measurement.durability:
                yield DurabilityCounted(subject=subject, durability=measurement.durability)
            yield OperationStarted(
                operation=OperationRef(subject=subject, action=operation.kind, index=operation.index)
            )
            yield OperationDone(subject=subject, operation=operation)
            if operation.kind == "load" and measurement.integrity:
                # All faults are found in the last load.
                done = measurement.integrity
                so_far = synthetic_measurement.compared(
                    done.bytes_expected, done.bytes_checked * operation.index // loads
                )
                integrity = done if operation.index == loads else so_far
                yield IntegrityCompared(subject=subject, integrity=integrity)
        yield from _pattern_events(measurement)
        assert measurement.cache
        yield MeasurementDone(
            subject=subject,
            cache=measurement.cache,
            ranks=measurement.ranks,
            engine_facts=measurement.engine_facts,
            retention=measurement.retention,
            data=measurement.data,
            stages={name: s for name, s in measurement.stages.items() if name not in _OF_LAUNCH},
        )


def _pattern_events(measurement: Measurement) -> Iterator[Event]:
    """Yield the events of the I/O patterns in a measurement.

    As in a real run, the endurance pattern yields the events of at most ``FACTS_OF_ENDURANCE`` saves.
    """
    subject = measurement.subject
    for field in dataclasses.fields(Patterns):
        found = getattr(measurement.patterns, field.name, None)
        if isinstance(found, Endurance):
            for index in range(1, min(FACTS_OF_ENDURANCE, len(found.save_seconds)) + 1):
                yield OperationStarted(
                    operation=OperationRef(subject=subject, scenario="endurance", action="save", index=index)
                )
                seconds = found.save_seconds[index - 1]
                yield StepDone(subject=subject, kind="endurance", index=index, step_seconds=seconds)
        if field.name != "not_run" and found is not None:
            yield PatternMeasured(subject=subject, name=field.name, found=found)


def _lines(measurements: Sequence[Measurement]) -> Iterator[dict[str, Any]]:
    """Yield the lines of ``events.jsonl``. All ranks are ready after 1 s and have imported their modules after 2 s."""
    events = list(_events(measurements))
    apart = min(0.001, (_RUN_SECONDS - 3) / len(events))
    for number, event in enumerate(events):
        yield {"seconds": round(min(number + 1, 2) + apart * number, 6), **event_to_plain(event)}


def _stages(measurements: Sequence[Measurement]) -> dict[str, float]:
    stages: dict[str, float] = {}
    for measurement in measurements:
        for name, seconds in measurement.stages.items():
            stages[name] = stages.get(name, 0.0) + seconds
    return stages | {"other": _RUN_SECONDS - sum(stages.values())}


def _operations(
    planned: PlannedCheckpoint, operation: Callable[[OperationKind, int], Operation]
) -> tuple[Operation, ...]:
    kinds: tuple[OperationKind, ...] = ("save", "load")
    return tuple(operation(kind, index) for kind in kinds for index in range(1, planned.operations + 1))


def _operation(
    planned: PlannedCheckpoint, kind: OperationKind, index: int, each: Sequence[float], phases: dict[str, float]
) -> Operation:
    """Return an operation. ``each`` contains the time of each rank in seconds.

    ``phases`` is {phase: seconds} of the slowest rank.
    """
    commit = phases.get("commit", 0.0)
    made = synthetic_measurement.operation(kind, index, max(each) + commit, ranks=each, size=planned.layout.bytes)
    return dataclasses.replace(made, phases=phases, checkpoint=index)


def _measurement(
    planned: PlannedCheckpoint, operations: Sequence[Operation], hosts: Sequence[str], *, seed: int, **changes: Any
) -> Measurement:
    shards, count = planned.layout, planned.operations
    written, files = shards.bytes * count, shards.files * count
    return synthetic_measurement.measurement(
        size=shards.bytes,
        operations=operations,
        subject=planned.subject,
        model=shards.model.name,
        mode=shards.mode,
        processes=shards.processes,
        hosts=tuple(hosts),
        engine=planned.engine.name,
        scale=shards.scale,
        seed=seed,
        full_bytes=shards.full_bytes,
        rank_bytes=tuple(rank.bytes for rank in shards.ranks()),
        operations_planned=count,
        integrity=synthetic_measurement.compared(written),
        durability=Durability(files=files, files_synced=files, directories=count, directories_synced=count,
                              saves=count, commits=count),
        ranks=tuple(RankFacts(rank=r, host=hosts[min(r // _HOST_RANKS, len(hosts) - 1)], pid=100 + r,
                              peak_memory_bytes=91_000_000) for r in range(shards.processes)),
        launch="launches/1",
        **changes,
    )  # fmt: skip


def steady(save: float = 0.72, load: float = 0.45) -> Seconds:
    """Return a function that returns operation times as shares of the limit.

    The times are about ``save`` for saves and about ``load`` for loads.
    """
    return lambda rng, kind, _index: (save if kind == "save" else load) * rng.uniform(0.94, 1.03)


def late(rng: random.Random, kind: OperationKind, index: int) -> float:
    """Return the time of an operation as a share of its time limit. Saves 4 and 8 exceed their limit."""
    return rng.uniform(0.82, 0.96) + (0.42 if kind == "save" and index in (4, 8) else 0.0)


def report(
    seconds: Seconds | None = None,
    *,
    models: str = "llama3-8b,llama3-70b",
    ranks: int = 64,
    options: Mapping[str, str | None] | None = None,
    slow_ranks: range = range(0),
    slower: float = 1.6,
    seen: Mapping[str, Mapping[str, Any]] | None = None,
    waivers: tuple[Waiver, ...] = (),
    file_system: str = "nfs4",
    fails_after: int | None = None,
    is_measured: bool = True,
    text: str = "",
) -> Document:
    """Return the report of a simulated run on shared storage.

    - ``seconds``: returns the time of an operation as a share of its limit
    - ``slow_ranks``: ranks whose operations take ``slower`` times as long as those of other ranks
    - ``seen``: {check: changed fields of its observation}
    - ``fails_after``: the first measurement fails after this number of operations
    - ``is_measured``: if False, no rank starts
    - ``text``: appended to every string from hosts, vendors and users
    """
    hosts = tuple(f"node{n + 1:03}" for n in range(max(1, ranks // _HOST_RANKS)))
    given = {
        "ckpt_target": "/mnt/made-up",
        "ckpt_cluster": "16000",
        "ckpt_model": models,
        "ckpt_hosts": ",".join(f"{host}:{_HOST_RANKS}" for host in hosts),
        "ckpt_engine": "stream",
        "ckpt_power_cut": "/usr/local/bin/cut-power",
        "ckpt_small_volume": "/mnt/made-up-small",
    } | dict(options or {})
    is_local = file_system == "ext4"
    target = mounted(
        file_system,
        given["ckpt_target"] or "",
        source="/dev/made-up" if is_local else "array.example:/ckpt",
        options="rw,relatime" if is_local else "rw,relatime,vers=4.2,hard,nconnect=16,nosharecache",
        capacity=Capacity(
            total_bytes=4_600_000_000_000_000, used_bytes=500_000_000_000_000, free_bytes=4_100_000_000_000_000
        ),
    )
    rng = random.Random(1)

    def measure(planned: PlannedCheckpoint, settings: Settings) -> Measurement:
        return _large_measurement(rng, planned, seconds or steady(), slow_ranks, slower, settings)

    def measure_all(plan: Plan, settings: Settings) -> list[Measurement]:
        measurements = [measure(planned, settings) for planned in plan.runnable if is_measured]
        if fails_after is not None:
            measurements[0] = _failed(measurements[0], fails_after)
        return measurements

    made = _judged(
        given,
        target,
        measure_all,
        lambda _settings, checks: [_observation(rng, c, (seen or {}).get(c.name, {})) for c in checks if is_measured],
        run={"id": "20310506T070809-made-up", "started": STARTED, "finished": FINISHED, "seconds": 9543.0,
             "directory": "/srv/made-up/ckpt-report", "seed": 1},
        stages=lambda _measurements: {
            "preflight": 4.1, "launch": 31.2, "content": 320.4, "save": 1830.5, "drop caches": 61.0, "load": 2204.2,
            "verify": 422.8, "patterns": 2800.0, "checks": 1650.0, "clean-up": 58.8, "other": 160.0},
        changed={},
        waivers=waivers,
        system=SYSTEM,
    )  # fmt: skip
    return _with_text(made.document, text) if text else made.document


_FROM_OUTSIDE = {
    "because", "command", "detail", "directory", "disclosures", "engine_facts", "file", "grade_reasons", "host",
    "hosts", "launcher", "location", "message", "not_run", "options", "reads", "rule", "stack", "system", "value",
    "versions",
}  # fmt: skip


def _with_text(value: Any, text: str, *, is_outside: bool = False) -> Any:
    """Return a document in which ``text`` is appended to all strings from hosts, vendors and users."""
    match value:
        case str():
            return value + text if is_outside else value
        case list():
            return [_with_text(each, text, is_outside=is_outside) for each in value]
        case dict():
            return {k: _with_text(v, text, is_outside=is_outside or k in _FROM_OUTSIDE) for k, v in value.items()}
    return value


def _failed(measurement: Measurement, after: int) -> Measurement:
    done, failed = measurement.operations[:after], measurement.operations[after]
    return dataclasses.replace(
        measurement,
        operations=done,
        cache=None,
        integrity=None,
        durability=None,
        patterns=None,
        failure=Failure(
            kind="error",
            message="No space left on device",
            rank=3,
            host=measurement.hosts[0],
            operation=OperationRef(subject=measurement.subject, action=failed.kind, index=failed.index),
            phase="write" if failed.kind == "save" else "read",
            file="zero_pp_rank_3_mp_rank_00_model_states.pt",
            errno="ENOSPC",
            stack='File "engine.py", line 12, in save\n  os.write(file, view)',
        ),
    )


def _large_measurement(
    rng: random.Random,
    planned: PlannedCheckpoint,
    seconds: Seconds,
    slow_ranks: range,
    slower: float,
    settings: Settings,
) -> Measurement:
    rank_bytes = [rank.bytes for rank in planned.layout.ranks()]
    hosts = tuple(f"node{n + 1:03}" for n in range(-(-planned.layout.processes // _HOST_RANKS)))
    limits = {"save": planned.demand.save_limit_seconds, "load": planned.demand.load_limit_seconds}

    def operation(kind: OperationKind, index: int) -> Operation:
        took = limits[kind] * seconds(rng, kind, index)
        paces = [rng.triangular(0.84, 1.0, 0.95) * (slower if r in slow_ranks else 1.0) for r in range(len(rank_bytes))]
        paces = [pace * b for pace, b in zip(paces, rank_bytes, strict=True)]
        commit = {"commit": 0.012} if kind == "save" else {}
        moved = took - sum(commit.values())
        each = [moved * pace / max(paces) for pace in paces]
        phases = {name: share * moved for name, share in _PHASES[kind].items()}
        return _operation(planned, kind, index, each, phases | commit)

    made = _measurement(
        planned,
        _operations(planned, operation),
        hosts,
        seed=1,
        stages={"launch": 15.0, "content": 160.0, "save": 900.0, "drop caches": 30.0, "load": 1100.0, "verify": 210.0},
        engine_facts={"requests": "4 MiB, 2 in flight for each rank", "direct": "O_DIRECT"},
    )
    readings = tuple(
        CacheReading(rule=rule, host=host, memory_bytes=_HOST_BYTES, bytes_compared=3 << 40, requires_drop=True)
        for rule in ("one checkpoint of the host x 3 < memory", "all checkpoints of the host < 3 x memory")
        for host in hosts
    )
    return dataclasses.replace(
        made,
        cache=dataclasses.replace(made.cache, readings=readings, method="/proc/sys/vm/drop_caches"),
        patterns=_patterns(operation, made, settings, limits["save"]) if settings.includes_contention else None,
        client_ceilings=tuple(
            ClientCeiling(
                host=host,
                ranks=min(_HOST_RANKS, len(rank_bytes)),
                makes_bytes_per_second=41.3e9,
                compares_bytes_per_second=46.8e9,
            )
            for host in hosts
        ),
    )


def _patterns(
    operation: Callable[[OperationKind, int], Operation], made: Measurement, settings: Settings, save_limit: float
) -> Patterns:
    ranks, size = len(made.rank_bytes), sum(made.rank_bytes)
    pace = SavePace(seconds=SHARE_OF_LIMIT * save_limit, bytes=size, full_bytes=size)

    def loads(reads: str) -> LoadPattern:
        done = tuple(operation("load", n) for n in (1, 2, 3))
        return LoadPattern(reads=reads, rank_bytes=made.rank_bytes, operations=done, integrity=made.integrity)

    return Patterns(
        storm=loads("every rank of all replicas reads its file"),
        shifted=loads("each rank reads the files of the rank that is 8 further"),
        joined=loads("every second rank reads the files of two"),
        split=loads("two ranks read each file, one half each"),
        neighbour=NoisyNeighbour(
            ranks=ranks // 2,
            neighbour_ranks=ranks // 2,
            bytes=size // 2,
            neighbour_bytes=size // 2,
            save_seconds=(0.81 * save_limit, 0.84 * save_limit, 0.82 * save_limit),
            neighbour_save_seconds=(0.82 * save_limit, 0.83 * save_limit, 0.82 * save_limit),
            concurrent_bytes=size * 3,
            pace=pace,
        ),
        mixed=MixedLoad(
            reads="a data loader a host, 10 MB/s, samples of 128 KiB",
            undisturbed_p99_seconds=(0.0041, 0.0043, 0.0042),
            contended_p99_seconds=(0.0062, 0.0066, 0.0064),
            undisturbed_reads=(30_120, 30_087, 30_211),
            contended_reads=(28_002, 27_884, 27_930),
            save_seconds=(0.82 * save_limit, 0.84 * save_limit, 0.83 * save_limit),
            loader_bytes_per_second=10e6,
            empty_queue_seconds=(0.0, 0.0, 0.0),
            undisturbed_empty_queue_seconds=(0.0, 0.0, 0.0),
            client_busy=0.1,
            pace=pace,
        ),
        endurance=Endurance(
            requested_seconds=14_400.0,
            seconds=14_412.0,
            kept=2,
            start_seconds=tuple(40.0 * n for n in range(360)),
            save_seconds=tuple(18.0 + n % 3 for n in range(360)),
        )
        if settings.includes_endurance
        else None,
        near_full=NearFull(
            capacity_bytes=10**12,
            levels=tuple(
                FillLevel(requested=share, used=share or 0.01, ballast_bytes=int(share * 1e12),
                          save_seconds=(18.0, 18.1, 18.2))
                for share in (0.0, *LEVELS)
            ),
        )
        if settings.includes_endurance
        else None,
    )  # fmt: skip


def _observation(rng: random.Random, check: Check, changes: Mapping[str, Any]) -> Observation:
    healthy = Observation(
        requirement=check.requirement,
        subject=check.subject,
        trials=1000,
        seconds=rng.uniform(0.5, 60.0),
        measured=None if check.limit is None else check.limit * rng.uniform(0.05, 0.4),
        unit=check.unit,
        reproduce=f"python -m pytest_ckpt.conformance {check.name} --directory=/mnt/made-up",
    )
    return dataclasses.replace(healthy, **changes)


def certified(**changes: Any) -> Document:
    """Return the report of an array that meets every requirement with some margin."""
    return report(**changes)


def not_certified(**changes: Any) -> Document:
    """Return the report of an array with a slow host, late saves, a non-atomic rename, and a waiver."""
    torn = Anomaly(
        kind="a file was torn",
        where="COMMIT.file-second-client-4711/latest",
        seen="old bytes up to offset 65,536, new ones behind",
        expected="the old bytes or the new ones",
    )
    stale = Anomaly(kind="an old size", where="after 3.2 s", seen="4,096 bytes", expected="8,192 bytes")
    return report(
        late,
        slow_ranks=range(40, 48),
        seen={
            "COMMIT.file-second-client": {"anomaly_count": 3, "anomalies": (torn,)},
            "STALE.attributes": {"measured": 3.2, "anomaly_count": 0, "anomalies": (stale,)},
        },
        waivers=(
            Waiver(
                requirement="STALE",
                subject="attributes",
                reason="Our jobs wait five seconds at the barrier; ticket 4711",
                expires="2031-12-31",
            ),
        ),
        **changes,
    )


def incomplete() -> Document:
    """Return the report of a run with too few ranks, and without a second client, power cut and small volume."""
    return report(ranks=8, options={"ckpt_power_cut": None, "ckpt_small_volume": None})


def rehearsal() -> Document:
    """Return the report of a run with the profile smoke on a local disk."""
    there = ("ckpt_model", "ckpt_hosts", "ckpt_engine", "ckpt_power_cut", "ckpt_small_volume")
    options = dict.fromkeys(there) | {"ckpt_profile": "smoke"}
    return report(steady(0.4, 0.3), options=options, file_system="ext4")


def thousand_ranks() -> Document:
    """Return the report of a run of llama3-1t on 1,024 ranks of 128 hosts."""
    return report(steady(0.6, 0.5), models="llama3-1t", ranks=1024, slow_ranks=range(712, 720), slower=1.35)


def nothing_ran() -> Document:
    """Return the report of a run that ended before the first rank started."""
    whole = report(models="llama3-8b", ranks=8, is_measured=False)
    environment = {"hosts": [], "target": whole["environment"]["target"], "versions": {}, "launcher": ""}
    return {**whole, "environment": environment, "settings": [], "disclosures": [], "stages": {}, "system": None}


def contract_only() -> Document:
    """Return a report with only the required fields of docs/contract.md, as written by an early version."""
    whole = incomplete()
    kept = ("schema", "run", "grade", "cluster", "requirements", "catalogue_names", "measurements",
            "sufficient_up_to_accelerators")  # fmt: skip
    slim = {name: whole[name] for name in kept}
    slim["run"] = {name: whole["run"][name] for name in ("id", "version", "started", "finished", "command")}
    later = {"reasons", "inputs", "failure_model", "failures_per_day_in_slots"}
    slim["cluster"] = {n: v for n, v in whole["cluster"].items() if n not in later}
    subjects = {row["subject"] for row in whole["sufficient_up_to_accelerators"]}
    slim["requirements"] = [v for v in whole["requirements"] if v["subject"] in subjects]
    added = {"stages", "ranks", "engine_facts", "patterns", "failure", "rank_bytes", "full_bytes", "operations_planned"}
    bare = {
        "cache": {"required": True, "method": "none", "resident_fraction": None},
        "integrity": {"bytes_checked": 0, "faults": []},
        "durability": {"files": 16, "files_synced": 0},
        "basis": "rank 0 only",
    }
    slim["measurements"] = [
        {
            **{name: value for name, value in m.items() if name not in added},
            **bare,
            "operations": [
                {n: v for n, v in o.items() if n != "bytes"} | {"rank_seconds": [], "phases": {}}
                for o in m["operations"]
            ],
        }
        for m in whole["measurements"]
    ]
    return slim
