"""What the files of one run say of the same thing must be the same: measurement, plan, events, session and report.

A run writes its facts down more than once: rank 0's words go to ``events.jsonl`` as they come, the measurement is made
of them, the report holds it again, ``session.json`` and ``plan.json`` were written before the first byte. Who changes
one of them has to find them all.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_ckpt.config.engines import recorded_engine
from pytest_ckpt.config.models import kept_models
from pytest_ckpt.evidence.event_log import log_faults, more_than_told, plain_events, read_log, stage_faults
from pytest_ckpt.facts.codec import from_plain, to_plain
from pytest_ckpt.facts.events import events_by_subject
from pytest_ckpt.facts.measurement import Measurement, Operation
from pytest_ckpt.facts.observation import Observation
from pytest_ckpt.grading.catalogue import CatalogueRow
from pytest_ckpt.sizing.models import layout
from pytest_ckpt.sizing.plan import SCHEMA as PLAN_SCHEMA
from pytest_ckpt.sizing.plan import PlannedCheckpoint, rank_to_plain
from pytest_ckpt.support.strict_json import parse, read, read_lines

EVENTS, SESSION, PLAN = "events.jsonl", "session.json", "plan.json"
_KINDS = ("save", "load")
# Clocks are read to the nanosecond and summed in floats.
_CLOCK_SECONDS = 1e-6


def contradictions(measurement: Measurement, planned: PlannedCheckpoint) -> list[str]:
    """Return what in a measurement cannot be of the checkpoint that the plan names, or contradicts itself."""
    shards = planned.layout
    expected = {
        "subject": planned.subject,
        "model": shards.model.name,
        "mode": shards.mode,
        "engine": planned.engine.name,
        "processes": shards.processes,
        "scale": shards.scale,
        "bytes": shards.bytes,
        "full_bytes": shards.full_bytes,
        "operations_planned": planned.operations,
        "rank_bytes": shards.rank_bytes,
        "basis": "all ranks",
        "save_bytes": planned.save_bytes,
        "load_bytes": planned.load_bytes,
        "drains": planned.drains,
    }
    found = [
        f"its {name} is {_short(getattr(measurement, name))}, that of the plan {_short(value)}"
        for name, value in expected.items()
        if getattr(measurement, name) != value
    ]
    if found:
        return found
    for kind in _KINDS:
        numbers = [o.index for o in measurement.operations if o.kind == kind]
        if numbers != list(range(1, len(numbers) + 1)) or len(numbers) > planned.operations:
            found.append(f"its {kind}s are numbered {_short(numbers)}, and {planned.operations} were planned")
    found += [f"{o.kind} {o.index}: {text}" for o in measurement.operations for text in _of_operation(o, measurement)]
    integrity, durability = measurement.integrity, measurement.durability
    whole = planned.loaded_bytes
    if integrity and integrity.fault_count < len(integrity.faults):
        found.append(f"it names {len(integrity.faults)} faults and counts {integrity.fault_count}")
    if integrity and integrity.bytes_expected != whole:
        found.append(f"{integrity.bytes_expected:,} bytes were to be compared, and its loads are of {whole:,}")
    saves = sum(o.kind == "save" for o in measurement.operations)
    if durability and (durability.saves, durability.files) != (saves, planned.files_of_saves(saves)):
        found.append(
            f"durable calls are told of {durability.files:,} files in {durability.saves} saves, and there were "
            f"{planned.files_of_saves(saves):,} in {saves}"
        )
    return found


def observation_contradictions(observation: Observation) -> list[str]:
    """Return what in an observation contradicts itself."""
    found = []
    if (observation.anomaly_count == 0) != (not observation.anomalies) or (
        observation.anomaly_count < len(observation.anomalies)
    ):
        found.append(f"it names {len(observation.anomalies)} anomalies and counts {observation.anomaly_count}")
    if observation.measured is not None and observation.measured < 0:
        found.append(f"it measured {observation.measured:g} {observation.unit}")
    return found


def against_events(
    folder: Path,
    measurements: Sequence[Measurement],
    *,
    run_seconds: float | None,
    is_same_version: bool = True,
) -> list[str]:
    """Return where a measurement says something else than rank 0 told, and where rank 0 cannot have told it so.

    ``run_seconds`` is how long the run went on, None where nobody knows. What another version may tell more of, or
    spend its time on, is compared for ``is_same_version`` alone.
    """
    by_subject = {m.subject: m for m in measurements}
    try:
        log = list(read_log(read_lines(folder / EVENTS)))
        noted = events_by_subject(plain_events(log))
        found = [*log_faults(log, by_subject, run_seconds)]
        if is_same_version:
            found += [*more_than_told(log), *stage_faults(log, by_subject)]
    except OSError as error:
        return [f"{EVENTS} cannot be read: {error.strerror}"] if measurements else []
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        return [f"{EVENTS} is none of a run: {error}"]
    found = [f"{EVENTS}: {text}" for text in found]
    for measurement in measurements:
        seen = noted.get(measurement.subject)
        if seen is None:
            if measurement.operations or measurement.integrity or measurement.durability:
                found.append(f"{EVENTS} tells nothing of {measurement.subject}")
            continue
        found += [
            f"measurements/{measurement.subject.slug}.json: its {name} is not what rank 0 told ({EVENTS})"
            for name, value in seen.facts.items()
            if getattr(measurement, name) != value
        ]
    return found


def against_session(folder: Path, report: Mapping[str, Any], *, is_same_version: bool = True) -> list[str]:
    """Return where the report differs from what was written down when the run began.

    What another version may not have written down, or laid out otherwise, is compared for ``is_same_version`` alone.
    """
    run = report["run"]
    try:
        session = parse(read(folder / SESSION))
        plan = parse(read(folder / PLAN))
        environment, known = report["environment"], session["environment"].get("recorders")
        if known is not None and environment.get("recorders", [])[: len(known)] == known:
            # More may have joined pytest after the run had begun.
            environment = {**environment, "recorders": known}
        fields = {
            "run.id": (run["id"], session["run_id"]),
            "run.started": (run["started"], session["started"]),
            "run.seed": (run.get("seed"), session["seed"]),
            "run.command": (run["command"], session["command"]),
            "environment": (environment, session["environment"]),
            "gates": (report.get("gates"), session["gates"]),
            "waivers": (report.get("waivers"), session["waivers"]),
            "catalogue_names": (report["catalogue_names"], session["catalogue_names"]),
        }
        planned = [{name: value for name, value in c.items() if name != "ranks"} for c in plan["checkpoints"]]
        beside = {
            "cluster": (report["cluster"], plan["cluster"]),
            "checkpoints": (report.get("checkpoints"), planned),
        }
        found = []
        if is_same_version:
            fields |= {name: (report[name], session[name]) for name in ("settings", "system")}
            # Gates may have switched off what a plugin brought.
            brought = [r for r in report["catalogue"] if r["plugin"]]
            asked = [to_plain(from_plain(CatalogueRow, row)) for row in session["extras"]]
            fields["catalogue"] = (brought, [row for row in asked if row in brought])
            # Only a plan that the report repeats is laid out: any other could be of any size.
            if beside["checkpoints"][0] == planned:
                found = [*_files(plan["checkpoints"])]
            if set(plan) != {"schema", "cluster", "checkpoints"}:
                found.append(f"{PLAN} holds more than a plan")
            if plan["schema"] != PLAN_SCHEMA:
                found.append(f"{PLAN} follows {_short(plan['schema'])}, and this version writes {PLAN_SCHEMA}")
    except OSError as error:
        return [f"{Path(error.filename or folder).name} cannot be read: {error.strerror}"]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        return [f"{SESSION} or {PLAN} is none of a run: {type(error).__name__}: {error}"]
    return found + [
        f"{name}: report.json says {_short(one)}, {file} says {_short(other)}"
        for file, both in ((SESSION, fields), (PLAN, beside))
        for name, (one, other) in both.items()
        if one != other
    ]


def _files(checkpoints: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield where the files of a rank are not those of the layout that the plan names."""
    for planned in checkpoints:
        processes = planned["processes"] if planned["mode"] == "open" else None
        model = kept_models([planned]).get(planned["model"], planned["model"])
        shards = layout(model, mode=planned["mode"], processes=processes, scale=planned["scale"])
        rule = recorded_engine(planned["engine"]).files
        of_layout = (rank_to_plain(rank, rule) for rank in shards.ranks())
        for one, other in itertools.zip_longest(planned["ranks"], of_layout):
            if one != other:
                yield f"{PLAN}: rank {(one or other)['rank']} of {planned['subject']} has other files than its layout"
                break


def _of_operation(operation: Operation, measurement: Measurement) -> Iterator[str]:
    seconds, ranks = operation.seconds, operation.rank_seconds
    if operation.basis != "all ranks" or len(ranks) != measurement.processes:
        yield f"times of {len(ranks)} of {measurement.processes} ranks ({operation.basis})"
        return
    if max(ranks) > seconds + _CLOCK_SECONDS:
        yield f"it took {seconds:.9g} s, and rank {ranks.index(max(ranks))} took {max(ranks):.9g} s"
    slowest, first = operation.slowest_rank, operation.rank0_seconds
    if slowest is None or slowest >= len(ranks) or ranks[slowest] != max(ranks):
        yield f"rank {slowest} is named as the slowest, and rank {ranks.index(max(ranks))} was"
    if first != ranks[0]:
        yield f"rank 0 took {first} s in one place and {ranks[0]} s in another"
    beyond = [name for name, part in operation.phases.items() if part > seconds + _CLOCK_SECONDS]
    if beyond:
        yield f"its phase {beyond[0]} is longer than the whole"
    if operation.resident_bytes and operation.resident_bytes > (operation.mapped_bytes or 0):
        yield f"{operation.resident_bytes:,} of {operation.mapped_bytes or 0:,} bytes were in a cache"


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."
