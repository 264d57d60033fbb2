"""Simulated result directories of DLIO and mlpstorage, in their published formats.

The simulation has the order of a DLIO run: a barrier, an operation with a time for each rank, a pause, and the next
barrier. The start time of rank 0's next operation therefore shows when the slowest rank ended.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

GIB = 2**30
BYTES = {
    ("llama3-8b", 8): 112_425_623_552,
    ("llama3-70b", 64): 978_406_572_032,
    ("llama3-70b", 8): 122_300_821_504,
    ("llama3-405b", 512): 5_682_508_791_808,
    ("llama3-405b", 8): 105_811_532_800,
    ("llama3-1t", 1024): 16_564_174_094_592,
}
ARCHITECTURES = {
    "llama3-8b": ("llama_8b", 32, 4096, 14336, 32, 8, 1, 1, 3),
    "llama3-70b": ("llama_70b", 80, 8192, 28672, 128, 8, 8, 1, 3),
    "llama3-405b": ("llama_405b", 126, 16384, 53248, 128, 8, 8, 32, 1),
    "llama3-1t": ("llama_1t", 128, 25872, 98304, 192, 32, 8, 64, 1),
}
Seconds = Callable[[str, int, int], float]


def steady(save: float = 5.0, load: float = 4.0) -> Seconds:
    """Return a function that returns nearly equal operation times.

    The slowest rank changes from operation to operation, and is never rank 0.
    """
    return lambda kind, number, rank: (
        (save if kind == "save" else load) + (0.3 if rank == 1 + number % 3 else 0.001 * rank)
    )


@dataclass(kw_only=True)
class SyntheticRun:
    """One simulated run of DLIO.

    - ``seconds``: returns the time of an operation for (kind, number, rank)
    - ``between``: pause before each operation, in seconds
    - ``offsets``: {rank: offset of its clock in seconds}
    - ``listing``: time between saves and loads in which every rank lists the checkpoints, in seconds
    - ``received``: share of the loaded bytes that the host's network interface receives during the loads
    - ``zone_hours``: hours by which DLIO's clock is ahead of UTC
    - ``dropped``: number of page-cache drops that the host reports
    """

    model: str = "llama3-8b"
    processes: int = 8
    saves: int = 10
    loads: int = 10
    seconds: Seconds = field(default_factory=steady)
    between: float = 5.0
    started: datetime = datetime(2026, 3, 1, 12, 0, 0)
    offsets: Mapping[int, float] = field(default_factory=dict)
    jitter: float = 0.0005
    listing: float = 0.0
    seed: int = 1
    size: int | None = None
    received: float = 1.0
    zone_hours: float = 0.0
    dropped: int = 0
    same_file_system: bool | None = False

    @property
    def bytes(self) -> int:
        return self.size or BYTES[self.model, self.processes]

    def stats(self, ranks: Sequence[int] | None = None) -> dict[int, dict[str, Any]]:
        """Return {rank: statistics} for these ranks (None: all ranks of the run)."""
        rng = random.Random(self.seed)
        at = 0.0
        wanted = range(self.processes) if ranks is None else ranks
        epochs: dict[int, dict[str, Any]] = {r: {"start": self._moment(r, at)} for r in wanted}
        for kind, count in (("save", self.saves), ("load", self.loads)):
            at += self.listing if kind == "load" else 0.0
            for number in range(1, count + 1):
                barrier = at + self.between
                last = barrier
                for rank in range(self.processes):
                    start = round(barrier + rng.random() * self.jitter, 6)
                    took = round(self.seconds(kind, number, rank), 6)
                    last = max(last, start + took)
                    if rank in epochs:
                        epochs[rank][f"{kind}_ckpt{number}"] = {
                            "start": self._moment(rank, start),
                            "end": self._moment(rank, start + took),
                            "duration": took,
                            "throughput": self.bytes / GIB / took,
                        }
                at = last + rng.random() * self.jitter
        for rank, epoch in epochs.items():
            epoch["end"] = self._moment(rank, at)
        return {rank: {"1": epoch} for rank, epoch in epochs.items()}

    def slowest(self, kind: str) -> list[float]:
        """Return the time of the slowest rank for each operation of this kind."""
        count = self.saves if kind == "save" else self.loads
        return [
            round(max(self.seconds(kind, n, rank) for rank in range(self.processes)), 6) for n in range(1, count + 1)
        ]

    def summary(self) -> dict[str, Any]:
        """Return rank 0's summary, with the means of rank 0's own times.

        The names of fields contain "GB", but the unit is GiB.
        """
        metric: dict[str, Any] = {}
        for kind, count in (("save", self.saves), ("load", self.loads)):
            own = [round(self.seconds(kind, n, 0), 6) for n in range(1, count + 1)]
            # The mean of an empty list is NaN and is written as such.
            mean = sum(own) / count if count else float("nan")
            rate = sum(self.bytes / GIB / s for s in own) / count if count else float("nan")
            if count or kind == "save":
                metric[f"{kind}_checkpoint_io_mean_GB_per_second"] = rate
                metric[f"{kind}_checkpoint_duration_mean_seconds"] = mean
        metric["checkpoint_size_GB"] = self.bytes / GIB
        return {
            "start": self._moment(0, -0.02),
            "num_accelerators": self.processes,
            "num_hosts": max(1, self.processes // 8),
            "hostname": "client-1",
            "metric": metric,
            "host_memory_GB": [256.0] * max(1, self.processes // 8),
        }

    def workload(self, directory: str = "/mnt/array/checkpoints") -> dict[str, Any]:
        """Return the section ``workload`` of DLIO's configuration."""
        name, layers, hidden, forward, heads, kv, tensor, pipeline, zero = ARCHITECTURES[self.model]
        return {
            "model": {
                "name": name,
                "type": "transformer",
                "num_layers": layers,
                "model_datatype": "fp16",
                "optimizer_datatype": "fp32",
                "parallelism": {"tensor": tensor, "pipeline": pipeline, "zero_stage": zero},
                "transformer": {
                    "vocab_size": 128256,
                    "hidden_size": hidden,
                    "ffn_hidden_size": forward,
                    "num_attention_heads": heads,
                    "num_kv_heads": kv,
                },
            },
            "framework": "pytorch",
            "workflow": {"generate_data": False, "train": False, "checkpoint": True},
            "checkpoint": {
                "checkpoint_folder": directory,
                "time_between_checkpoints": self.between,
                "num_checkpoints_write": self.saves,
                "num_checkpoints_read": self.loads,
                "fsync": True,
            },
        }

    def metadata(self, directory: str = "/mnt/array/checkpoints") -> dict[str, Any]:
        return {
            "benchmark_type": "checkpointing",
            "model": self.model,
            "command": "run",
            "num_processes": self.processes,
            "parameters": self.workload(directory),
            "system_info": {"hosts": [{"hostname": "client-1", "memory": {"total": 256 * GIB}}]},
        }

    def separation(self, directory: str = "/mnt/array/checkpoints") -> dict[str, Any]:
        """Return mlpstorage's finding on whether checkpoints and results are on the same file system."""
        return {
            "version": 1,
            "method": "link_exdev",
            "data_or_chkpt_path": directory,
            "results_path": "/home/someone/results",
            "same_filesystem": self.same_file_system,
        }

    def counters(self, every: float = 10.0) -> list[tuple[str, int]]:
        """Return (UTC time, bytes received so far) for each sample of the host's network counter.

        The first sample is 20 s before the run, and the last sample is after the end of the run. ``every`` is the
        interval in seconds.
        """
        epoch = self.stats([0])[0]["1"]
        loads = [entry for name, entry in epoch.items() if name.startswith("load_ckpt")]
        end = (datetime.fromisoformat(epoch["end"]) - self.started).total_seconds()
        spans = [((datetime.fromisoformat(e["start"]) - self.started).total_seconds(), e["duration"]) for e in loads]
        found = []
        for step in range(int((end + 20.0) // every) + 2):
            at = step * every - 20.0
            shares = sum(min(max((at - start) / seconds, 0.0), 1.0) for start, seconds in spans)
            moment = self.started + timedelta(seconds=at) - timedelta(hours=self.zone_hours)
            received = 10**12 + round(self.received * shares * self.bytes)
            found.append((f"{moment.isoformat(timespec='seconds')}Z", received))
        return found

    def snapshots(self) -> dict[str, Any]:
        """Return the host's network counters before and after the run, in the form of mlpstorage's metadata."""
        counted = self.counters()

        def one(moment: str, received: int) -> dict[str, Any]:
            network = [
                {"interface_name": "lo", "rx_bytes": 7 * received},
                {"interface_name": "eth0", "rx_bytes": received},
                {"interface_name": "enP1234s1", "rx_bytes": received},
                {"interface_name": "bond0", "rx_bytes": received},
            ]
            host = {"hostname": "client-1", "memory": {"total": 256 * GIB}, "collection_timestamp": moment}
            return {"hosts": [host | {"network": network}]}

        return {"start": one(*counted[0]), "end": one(*counted[-1])}

    def series(self) -> dict[str, Any]:
        """Return mlpstorage's time series of the host, with only the counters that pytest-ckpt reads."""
        samples = [
            {
                "timestamp": moment,
                "hostname": "client-1",
                "vmstat": {"drop_pagecache": self.dropped},
                "netdev": [{"interface_name": "eth0", "rx_bytes": received}],
            }
            for moment, received in self.counters()
        ]
        return {"collection_interval_seconds": 10.0, "samples_by_host": {"10.0.0.1": samples}}

    def log(self) -> str:
        lines = [f"[OUTPUT] {self._moment(0, 0)} Running DLIO [Checkpointing] with {self.processes} process(es)"]
        for name, entry in self.stats([0])[0]["1"].items():
            if isinstance(entry, str):
                continue
            verb, number = ("saving" if name.startswith("save") else "loading"), name.partition("_ckpt")[2]
            lines.append(
                f"[OUTPUT] {entry['start']} Starting {verb} checkpoint {number} after total step {number} for epoch 1"
            )
            lines.append(
                f"[OUTPUT] {entry['end']} Finished {verb} checkpoint {number} for epoch 1 in "
                f"{entry['duration']:.4f} s; Throughput: {entry['throughput']:.4f} GB/s"
            )
        return "\n".join(lines) + "\n"

    def write(
        self, directory: Path, *, ranks: Sequence[int] | None = None, parts: Sequence[str] = ("summary", "config")
    ) -> Path:
        """Write the result directory with the statistics of these ``ranks`` (None: all), and return the directory.

        Valid ``parts``: ``summary``, ``config``, ``metadata``, ``snapshots`` (within ``metadata``), ``log``,
        ``separation`` and ``series``.
        """
        directory.mkdir(parents=True, exist_ok=True)
        for rank, content in self.stats(ranks).items():
            (directory / f"{rank}_per_epoch_stats.json").write_text(json.dumps(content, indent=4))
        if "summary" in parts:
            (directory / "summary.json").write_text(json.dumps(self.summary(), indent=4))
        if "config" in parts:
            (directory / "dlio_config").mkdir(exist_ok=True)
            (directory / "dlio_config" / "config.yaml").write_text(
                yaml.safe_dump({"workload": self.workload()}, sort_keys=False)
            )
        if "metadata" in parts:
            snapshots = {"cluster_snapshots": self.snapshots()} if "snapshots" in parts else {}
            (directory / f"checkpointing_{directory.name}_metadata.json").write_text(
                json.dumps(self.metadata() | snapshots, indent=2)
            )
        if "separation" in parts:
            (directory / "fs_separation.json").write_text(json.dumps(self.separation(), indent=2))
        if "series" in parts:
            (directory / f"checkpointing_{directory.name}_timeseries.json").write_text(json.dumps(self.series()))
        if "log" in parts:
            (directory / "dlio.log").write_text(self.log())
        return directory

    def _moment(self, rank: int, seconds: float) -> str:
        return (self.started + timedelta(seconds=seconds + self.offsets.get(rank, 0.0))).isoformat(
            timespec="microseconds"
        )


CAPABILITIES = {
    "multi_host": True, "simultaneous_write": True, "simultaneous_read": True, "remap_time_in_seconds": 0,
}  # fmt: skip


def describe(top: Path, submitter: str, system: str, capabilities: Mapping[str, Any] | None = None) -> Path:
    """Write the description of a system into a tree of published results, in the layout of v3.0; return the file."""
    file = top / "closed" / submitter / "systems" / f"{system}.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    declared = CAPABILITIES if capabilities is None else capabilities
    file.write_text(yaml.safe_dump({"system_under_test": {"solution": {"capabilities": dict(declared)}}}))
    return file


def published(top: Path, submitter: str, system: str, model: str, time: str) -> Path:
    """Return the path of a run's result directory in a tree of published results."""
    return top / "closed" / submitter / "results" / system / "checkpointing" / model / time
