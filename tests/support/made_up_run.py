"""Run directories as a run leaves them, without a run: made-up times, judged and written as those of a run."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pytest_ckpt import __version__
from pytest_ckpt.config.gate_files import load_gates
from pytest_ckpt.config.options import resolve
from pytest_ckpt.evidence.starts import all_starts
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
from pytest_ckpt.facts.measurement import Endurance, Measurement, Operation, Patterns, RankFacts
from pytest_ckpt.facts.observation import Observation
from pytest_ckpt.facts.proofs import CacheFacts, Durability, Integrity
from pytest_ckpt.facts.subject import OperationRef
from pytest_ckpt.facts.system import Told
from pytest_ckpt.grading.catalogue import REQUIREMENTS, offered
from pytest_ckpt.grading.completeness import asked_requirements
from pytest_ckpt.grading.document import make_document
from pytest_ckpt.grading.grading import judge_run
from pytest_ckpt.judging.verdicts import decide, decide_observed
from pytest_ckpt.judging.waivers import Waiver
from pytest_ckpt.run.close import write_report
from pytest_ckpt.sizing.plan import PlannedCheckpoint, plan_run
from pytest_ckpt.sizing.record import TOLD_OF_ENDURANCE
from tests.support.made_target import mounted

SUBJECT = "llama3-8b-open-2"
_RUN_SECONDS = 61.5
_OF_LAUNCH = {"launch": 1.0005, "import": 1.0008}
MADE_UP = mounted("ext4")
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


def day_of(number: int) -> str:
    """Return when the run of a day began."""
    return f"2031-05-{number:02d}T07:08:09+00:00"


def make_run(
    directory: Path,
    *,
    seed: int = 1,
    save: float = 0.10,
    load: float = 0.05,
    noise: float = 0.05,
    started: str = "2031-05-06T07:08:09+00:00",
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
) -> dict[str, Any]:
    """Write a run directory whose saves and loads take about so many seconds; return its report.

    ``change`` makes other measurements of the made-up ones, before they are judged. A run of suite conformance alone
    measures none.
    """
    given = OPTIONS_OF_A_SMALL_RUN | (options or {})
    settings = resolve(given, {})
    plan = plan_run(settings, MADE_UP)
    rng = random.Random(seed)
    planned = [c for c in plan.checkpoints if not c.not_run] if settings.measures else []
    measurements = [
        change(_measurement(rng, c, save, load, noise, seed=seed, is_first=number == 0))
        for number, c in enumerate(planned)
    ]
    gates = load_gates(settings.gate_table, MADE_UP.gate_kind)
    catalogue = offered(REQUIREMENTS, MADE_UP.capabilities)
    chosen = {"performance", *settings.suites} if settings.suites == ("auto",) else set(settings.suites)
    asked = [r for r in asked_requirements(settings, gates, catalogue) if r.is_measured and r.suite in chosen]
    findings = [decide(r, m, plan.limits, gates) for m in measurements for r in asked]
    findings += [decide_observed(catalogue[o.requirement], o, gates, MADE_UP.kind) for o in observations]
    judgement = judge_run(plan, settings, gates, findings, measurements, waivers, started, catalogue)
    document = make_document(
        run={
            "id": run_id or f"20310506T070809-{seed:06x}",
            "version": __version__,
            "started": started,
            "finished": started,
            "seconds": _RUN_SECONDS,
            "command": ["pytest", *(f"--{name.replace('_', '-')}={value}" for name, value in given.items())],
            "directory": str(directory),
            "seed": seed,
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
                {"host": "n1", "ranks": [0, 1], "cpu": "EPYC", "cores": 64, "memory_bytes": 1 << 40,
                 "kernel": "6.8.0", "os": "Linux", "python": "3.12.3"}
            ],
            "target": to_plain(MADE_UP) | (target or {}),
            "versions": {"python": "3.12.3", "pytest-ckpt": __version__, "torch": "2.13.0"} | (versions or {}),
            "launcher": "mpiexec (Open MPI) 5.0.8",
        },
        stages=_stages(measurements),
        left_behind=[],
        catalogue=catalogue,
        system=system,
    )  # fmt: skip
    (directory / "measurements").mkdir(parents=True)
    for measurement in measurements:
        text = json.dumps(to_plain(measurement), indent=1) + "\n"
        (directory / "measurements" / f"{measurement.subject.slug}.json").write_text(text)
    for observation in observations:
        (directory / "observations").mkdir(exist_ok=True)
        name = f"{observation.requirement}.{observation.subject}.json"
        (directory / "observations" / name).write_text(json.dumps(to_plain(observation), indent=1) + "\n")
    (directory / "launches" / "1").mkdir(parents=True)
    (directory / "launches" / "1" / "command").write_text("mpiexec -n 2 python -m pytest_ckpt.ranks\n")
    (directory / "launches" / "1" / "rank-0.log").write_text('{"event": "hello", "rank": 0}\n')
    (directory / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in _lines(measurements)))
    (directory / "plan.json").write_text(json.dumps(plan.to_plain(ranks=True)) + "\n")
    (directory / "session.json").write_text(json.dumps(_session(document), indent=1) + "\n")
    (directory / "lock").touch()
    starts = all_starts(directory, document["run"], document["exit_code"], measurements, observations)
    document |= {"starts": to_plain(starts)}
    write_report(document, directory, signer)
    return document


def _session(document: dict[str, Any]) -> dict[str, Any]:
    """Return what is written down of a run when it begins."""
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


def _events(measurements: list[Measurement]) -> Iterator[Event]:
    """Yield what rank 0 tells of these measurements, all of one launch."""
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
                # Whatever is wrong is found in the last load.
                done = measurement.integrity
                so_far = Integrity(
                    bytes_expected=done.bytes_expected,
                    bytes_checked=done.bytes_checked * operation.index // loads,
                    fault_count=0,
                    faults=(),
                )
                integrity = done if operation.index == loads else so_far
                yield IntegrityCompared(subject=subject, integrity=integrity)
        yield from _patterns(measurement)
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


def _patterns(measurement: Measurement) -> Iterator[Event]:
    """Yield what is told of patterns; of the saves of endurance as many as a run tells of."""
    subject = measurement.subject
    for field in dataclasses.fields(Patterns):
        found = getattr(measurement.patterns, field.name, None)
        if isinstance(found, Endurance):
            for index in range(1, min(TOLD_OF_ENDURANCE, len(found.save_seconds)) + 1):
                yield OperationStarted(
                    operation=OperationRef(subject=subject, scenario="endurance", action="save", index=index)
                )
                seconds = found.save_seconds[index - 1]
                yield StepDone(subject=subject, kind="endurance", index=index, step_seconds=seconds)
        if field.name != "not_run" and found is not None:
            yield PatternMeasured(subject=subject, name=field.name, found=found)


def _lines(measurements: list[Measurement]) -> Iterator[dict[str, Any]]:
    """Yield the lines of ``events.jsonl``; the ranks are ready after a second and have imported after another."""
    events = list(_events(measurements))
    apart = min(0.001, (_RUN_SECONDS - 3) / len(events))
    for number, event in enumerate(events):
        yield {"seconds": round(min(number + 1, 2) + apart * number, 6), **event_to_plain(event)}


def _stages(measurements: list[Measurement]) -> dict[str, float]:
    stages: dict[str, float] = {}
    for measurement in measurements:
        for name, seconds in measurement.stages.items():
            stages[name] = stages.get(name, 0.0) + seconds
    return stages | {"other": _RUN_SECONDS - sum(stages.values())}


def _measurement(
    rng: random.Random, planned: PlannedCheckpoint, save: float, load: float, noise: float, *, seed: int, is_first: bool
) -> Measurement:
    shards, count = planned.layout, planned.operations
    files = sum(len(rank.files) for rank in shards.ranks())
    operations = [
        _operation(rng, kind, index, seconds, noise, shards.processes, shards.bytes)
        for kind, seconds in (("save", save), ("load", load))
        for index in range(1, count + 1)
    ]
    return Measurement(
        subject=planned.subject,
        model=shards.model.name,
        mode=shards.mode,
        processes=shards.processes,
        hosts=("n1",),
        engine=planned.engine.name,
        scale=shards.scale,
        seed=seed,
        bytes=shards.bytes,
        full_bytes=shards.full_bytes,
        rank_bytes=tuple(rank.bytes for rank in shards.ranks()),
        basis="all ranks",
        operations_planned=count,
        operations=tuple(operations),
        cache=CacheFacts(
            required=True, readings=(), policy="auto", method="drop_caches", probe="cachestat", resident_fraction=0.0
        ),
        integrity=Integrity(bytes_expected=shards.bytes * count, bytes_checked=shards.bytes * count, fault_count=0,
                            faults=()),
        durability=Durability(files=files * count, files_synced=files * count, directories=count,
                              directories_synced=count, saves=count, commits=count),
        stages=(_OF_LAUNCH if is_first else {}) | {"save": 1.0, "load": 1.0},
        ranks=tuple(RankFacts(rank=r, host="n1", pid=100 + r) for r in range(shards.processes)),
        launch="launches/1",
    )  # fmt: skip


def _operation(
    rng: random.Random, kind: Any, index: int, seconds: float, noise: float, ranks: int, size: int
) -> Operation:
    took = seconds * rng.lognormvariate(0.0, noise)
    each = [took * rng.uniform(0.9, 0.99) for _ in range(ranks)]
    slowest = rng.randrange(ranks)
    each[slowest] = took
    return Operation(
        kind=kind,
        index=index,
        seconds=took,
        slowest_rank=slowest,
        rank0_seconds=each[0],
        rank_seconds=tuple(each),
        phases={"write" if kind == "save" else "read": took},
        bytes=size,
        checkpoint=index,
        mapped_bytes=size if kind == "load" else None,
        resident_bytes=0 if kind == "load" else None,
    )
