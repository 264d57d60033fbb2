"""Writes one measurement of a pytest-ckpt run in the file format of DLIO's results. Pure (no input or output).

All durations are measured. Rank 0's duration is the duration of the whole operation, because rank 0 commits a save for
all ranks. Each other rank has its own duration.

The recorded end of an operation is the time at which rank 0 reported the end, in seconds from the start of the launch.
The exported files use the start of the run in place of the start of the launch. Therefore the intervals between
operations of a launch are as measured. All exported dates and times of day are too early by the time from the start of
the run to the start of the launch.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pytest_ckpt.facts.measurement import Measurement, Operation
from pytest_ckpt.facts.models import Model
from pytest_ckpt.facts.subject import DEFAULT_STRATEGY
from pytest_ckpt.published.facts import EXPORT
from pytest_ckpt.sizing.architectures import MODELS

NOT_A_SUBMISSION = (
    "Exported by pytest-ckpt from one of its own runs. This is neither a submission to MLPerf Storage nor a result of "
    "it: mlpstorage did not run it."
)

_GIB = 2**30
_MICROSECOND = 1e-6


@dataclass(frozen=True, kw_only=True, slots=True)
class Host:
    """A host of ranks, as recorded by the run. An unknown value is 0 or empty."""

    name: str
    memory_bytes: int
    cpu: str
    cores: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ExportedMeasurement:
    """One measurement, with the other values that the exported files contain.

    ``ends`` are the times at which rank 0 reported the end of each operation, in seconds from the start of the launch.
    If ``ends`` is empty, each operation is assumed to begin when the previous operation ends.
    """

    measurement: Measurement
    run_id: str
    version: str
    started: datetime
    location: str
    hosts: tuple[Host, ...]
    ends: tuple[float, ...]

    @property
    def model(self) -> Model:
        """The saved model."""
        return MODELS[self.measurement.model]

    @property
    def begins(self) -> tuple[float, ...]:
        """The exported start of each operation in seconds from the start of the run. Operations do not overlap."""
        found, free = [], 0.0
        ends = self.ends or (0.0,) * len(self.measurement.operations)
        for operation, end in zip(self.measurement.operations, ends, strict=True):
            begin = max(free, end - operation.seconds)
            found.append(begin)
            free = begin + operation.seconds
        return tuple(found)


def unavailable_reason(measurement: Measurement) -> str:
    """Return why a measurement cannot be written in DLIO's format; empty if it can be written."""
    if measurement.model not in MODELS:
        return f"{measurement.model} is not a model of the format."
    if measurement.scale != 1.0:
        return f"its checkpoints are {measurement.scale:g} of the full size, and the format has only full ones."
    if measurement.subject.strategy != DEFAULT_STRATEGY:
        return f"strategy {measurement.subject.strategy} saves in the background, which the format has no word for."
    if any(measurement.bytes_of(o) != measurement.bytes for o in measurement.operations):
        return "its saves are deltas, which the format has no word for."
    if not measurement.operations:
        return "no operation came to its end."
    if any(len(o.rank_seconds) != measurement.processes for o in measurement.operations):
        return "not every rank's time is known."
    return ""


def statistics_files(exported: ExportedMeasurement) -> dict[str, dict[str, Any]]:
    """Return {file name: content} of the ranks' statistics files."""
    measurement = exported.measurement
    begins = exported.begins
    finished = begins[-1] + measurement.operations[-1].seconds
    files: dict[str, dict[str, Any]] = {}
    for rank in range(measurement.processes):
        epoch: dict[str, Any] = {"start": _time_text(exported.started, 0.0)}
        for operation, begin in zip(measurement.operations, begins, strict=True):
            seconds = _rank_seconds(operation, rank)
            epoch[f"{operation.kind}_ckpt{operation.index}"] = {
                "start": _time_text(exported.started, begin),
                "end": _time_text(exported.started, begin + seconds),
                "duration": seconds,
                "throughput": measurement.bytes / _GIB / seconds,
            }
        epoch["end"] = _time_text(exported.started, finished)
        files[f"{rank}_per_epoch_stats.json"] = {"1": epoch}
    return files


def summary(exported: ExportedMeasurement) -> dict[str, Any]:
    """Return the content of summary.json. Its means are computed from rank 0's durations of the operations."""
    measurement = exported.measurement
    metric: dict[str, Any] = {"checkpoint_size_GB": measurement.bytes / _GIB}
    for kind in ("save", "load"):
        seconds = [o.seconds for o in measurement.operations if o.kind == kind]
        if seconds:
            metric[f"{kind}_checkpoint_duration_mean_seconds"] = statistics.fmean(seconds)
            rates = [measurement.bytes / _GIB / s for s in seconds]
            metric[f"{kind}_checkpoint_io_mean_GB_per_second"] = statistics.fmean(rates)
    hosts = exported.hosts
    end = exported.begins[-1] + measurement.operations[-1].seconds
    found: dict[str, Any] = {
        "not_a_submission": NOT_A_SUBMISSION,
        "start": _time_text(exported.started, 0.0),
        "end": _time_text(exported.started, end),
        "num_accelerators": measurement.processes,
        "metric": metric,
    }
    if hosts:
        found |= {"num_hosts": len(hosts), "hostname": hosts[0].name}
    if hosts and all(host.memory_bytes for host in hosts):
        found["host_memory_GB"] = [host.memory_bytes / _GIB for host in hosts]
    return found


def metadata(exported: ExportedMeasurement) -> dict[str, Any]:
    """Return the content of mlpstorage's metadata file. The content is marked as an export of a pytest-ckpt run."""
    machines = []
    for host in exported.hosts:
        machine: dict[str, Any] = {"hostname": host.name}
        if host.memory_bytes:
            machine["memory"] = {"total": host.memory_bytes}
        if host.cpu or host.cores:
            machine["cpu"] = {"model": host.cpu, "num_logical_cores": host.cores}
        machines.append(machine)
    return {
        EXPORT: {
            "not_a_submission": NOT_A_SUBMISSION,
            "version": exported.version,
            "run": exported.run_id,
            "subject": str(exported.measurement.subject),
            "engine": exported.measurement.engine,
        },
        "benchmark_type": "checkpointing",
        "verification": "not a submission",
        "model": exported.model.name,
        "command": "run",
        "num_processes": exported.measurement.processes,
        "parameters": workload(exported),
        "system_info": {"num_hosts": len(machines), "hosts": machines},
    }


def workload(exported: ExportedMeasurement) -> dict[str, Any]:
    """Return DLIO's configuration: model, directory, operations, and whether every file was synced.

    The pause between checkpoints is omitted, because a pytest-ckpt run does not pause.
    """
    model, measurement = exported.model, exported.measurement
    durability = measurement.durability
    checkpoint: dict[str, Any] = {
        "checkpoint_folder": exported.location,
        "num_checkpoints_write": len(measurement.of_kind("save")),
        "num_checkpoints_read": len(measurement.of_kind("load")),
    }
    if measurement.mode == "subset":
        checkpoint["mode"] = "subset"
    if durability is not None and durability.files:
        checkpoint["fsync"] = durability.files_synced == durability.files
    return {
        "model": {
            "name": model.name.replace("llama3-", "llama_"),
            "type": "transformer",
            "num_layers": model.layers,
            "model_datatype": "fp16",
            "optimizer_datatype": "fp32",
            "parallelism": {
                "tensor": model.tensor_parallel,
                "pipeline": model.pipeline_parallel,
                "zero_stage": model.zero_stage,
            },
            "transformer": {
                "vocab_size": model.vocabulary,
                "hidden_size": model.hidden,
                "ffn_hidden_size": model.feed_forward,
                "num_attention_heads": model.heads,
                "num_kv_heads": model.key_value_heads,
            },
        },
        "framework": "pytorch",
        "workflow": {"generate_data": False, "train": False, "checkpoint": True},
        "checkpoint": checkpoint,
    }


def side_file(document: Mapping[str, Any], omitted: Sequence[str]) -> dict[str, Any]:
    """Return the content of an additional file with the values that DLIO's format cannot contain, such as the verdicts.

    ``omitted`` are the measurements that were not exported.
    """
    return {
        "schema": "pytest-ckpt/mlperf-export/1",
        "not_a_submission": NOT_A_SUBMISSION,
        "placed": "Durations are measured. Operations are placed on the clock by the times at which rank 0 reported "
        "their ends, counted from the start of the launch; that start is set to the start of the run.",
        "rank_0": "Rank 0 commits a save for all: its duration is the duration of the whole operation.",
        "omitted": list(omitted),
        "run": document["run"],
        "grade": document["grade"],
        "grade_reasons": document["grade_reasons"],
        "cluster": document["cluster"],
        "requirements": document["requirements"],
        "measurements": [
            {name: m[name] for name in ("subject", "engine", "cache", "integrity", "durability")}
            for m in document["measurements"]
        ],
    }


def _rank_seconds(operation: Operation, rank: int) -> float:
    seconds = operation.seconds if rank == 0 else operation.rank_seconds[rank]
    # The files have a resolution of microseconds, and every operation takes some time.
    return max(round(seconds, 6), _MICROSECOND)


def _time_text(started: datetime, seconds: float) -> str:
    return (started.replace(tzinfo=None) + timedelta(seconds=round(seconds, 6))).isoformat(timespec="microseconds")
