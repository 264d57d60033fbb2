"""Saves and loads a full-size checkpoint of Llama 3 8B ten times, on a machine whose disk is too small for it.

    python benchmarks/full_size.py DIRECTORY [--operations 10] [--scale 1] [--raw FILE] [--certificate DIRECTORY]

The target is the compact file system of the tests (tests/support/targets/fuse_compact.py). It stores 12 bytes for each
4 KiB page of generated content, and compares every written page with that content. Offsets, memory, progress and
certificate are as at full size. The speed is that of this machine's processor. About 2.2 TB are saved and loaded in 20
minutes. The benchmark needs root, /dev/fuse and 11 GB of memory.

The benchmark prints the unshared memory (USS) of the ranks and of the controller next to the planned memory. It also
prints the processor time of the ranks and of the file system, per GB that was saved and loaded.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.rank_memory import ranks_of, unshared_bytes
from tests.support.targets.misbehaving import misbehaving

_POLL_SECONDS = 2.0


@dataclass
class _Memory:
    """The peak unshared memory (USS) of the controller and of each rank, in bytes, and the CPU seconds of each rank.

    ``ranks`` and ``rank_seconds`` are {process id: value}.
    """

    ranks: dict[int, int] = field(default_factory=dict)
    rank_seconds: dict[int, float] = field(default_factory=dict)
    controller: int = 0

    def look(self, controller: psutil.Process) -> None:
        self.controller = max(self.controller, unshared_bytes(controller))
        for rank in ranks_of(controller):
            with contextlib.suppress(psutil.Error):
                times = rank.cpu_times()
                self.ranks[rank.pid] = max(self.ranks.get(rank.pid, 0), unshared_bytes(rank))
                self.rank_seconds[rank.pid] = times.user + times.system


def _measured(target: Path, words: list[str]) -> tuple[_Memory, float]:
    """Run pytest with the options ``words`` on the target; return (memory of its processes, elapsed seconds)."""
    memory, start = _Memory(), time.monotonic()
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--ckpt-target={target}", *words]
    print(" ".join(command[1:]), flush=True)
    with subprocess.Popen(command) as process:
        controller = psutil.Process(process.pid)
        while process.poll() is None:
            memory.look(controller)
            time.sleep(_POLL_SECONDS)
    return memory, time.monotonic() - start


def _planned_bytes(words: list[str]) -> int:
    """Return the memory in bytes that `pytest-ckpt plan` predicts for the largest rank of a run with ``words``."""
    command = [Path(sys.executable).with_name("pytest-ckpt"), "plan", "--json", *words]
    plan = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return int(plan["checkpoints"][0]["memory_bytes"]["largest_rank"])


def _figures(report: Path, memory: _Memory, seconds: float, server: psutil.Process) -> dict[str, float | int | str]:
    document = json.loads((report / "report.json").read_text())
    (measurement,) = document["measurements"]
    operations = measurement["operations"]
    moved = measurement["bytes"] * len(operations)
    # Each GB was saved once and loaded once, as in benchmarks/processor_time.py.
    gigabytes = measurement["bytes"] * sum(one["kind"] == "save" for one in operations) / 1e9
    slowest = {kind: max(one["seconds"] for one in operations if one["kind"] == kind) for kind in ("save", "load")}
    times = server.cpu_times()
    return {
        "grade": document["grade"],
        "seconds of the run": seconds,
        "seconds of saves and loads": sum(one["seconds"] for one in operations),
        "seconds of the slowest save": slowest["save"],
        "seconds of the slowest load": slowest["load"],
        "bytes of saves and loads": moved,
        "bytes of the largest rank": max(memory.ranks.values()),
        "bytes of the controller": memory.controller,
        "bytes of the file system": unshared_bytes(server),
        "core-seconds per GB: ranks": sum(memory.rank_seconds.values()) / gigabytes,
        "core-seconds per GB: file system": (times.user + times.system) / gigabytes,
    }


def _main() -> None:
    parser = argparse.ArgumentParser(description="Save and load Llama 3 8B at full size on the compact file system.")
    parser.add_argument("directory", type=Path, help="where the target is mounted")
    parser.add_argument("--operations", type=int, default=10)
    parser.add_argument("--scale", default="1")
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--raw", type=Path, help="keep every value in this file")
    parser.add_argument("--certificate", type=Path, help="keep the run directory here")
    arguments = parser.parse_args()
    workload = [
        "--cluster=1024", "--ckpt-model=llama3-8b", "--ckpt-profile=acceptance", f"--ckpt-scale={arguments.scale}",
        f"--ckpt-operations={arguments.operations}", f"--ckpt-ranks={arguments.ranks}",
    ]  # fmt: skip
    figures: dict[str, float | int | str] = {"planned bytes of the largest rank": _planned_bytes(workload)}
    with tempfile.TemporaryDirectory() as name, misbehaving(arguments.directory, compact=True) as target:
        report = Path(name) / "report"
        # The target has one client, so the gate table for one host applies. Its suite contention is not run.
        words = [*workload, "--ckpt-gate-table=posix-local", "--ckpt-suite=performance,conformance"]
        memory, seconds = _measured(target.path, [*words, f"--ckpt-report={report}"])
        if arguments.certificate:
            shutil.copytree(report, arguments.certificate, dirs_exist_ok=True)
        figures |= _figures(report, memory, seconds, psutil.Process(target.pid))
    for name, value in figures.items():
        print(f"{name:>36}  {value if isinstance(value, str) else f'{value:,.3f}'.removesuffix('.000')}")
    if arguments.raw:
        arguments.raw.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    _main()
