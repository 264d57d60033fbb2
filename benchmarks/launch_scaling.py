"""What ranks cost the controller, by their number: ``python benchmarks/launch_scaling.py``.

The ranks are not real: one process holds a connection for each, and speaks the protocol. So what is measured is the
controller's own part of a launch: until every rank is known and rank 0 has the job (start), reports of what each rank
does (a beat, which a rank sends when it begins something and every 30 s at most), and until all that was told is
confirmed (end). Seconds are of the controller's CPU and, beside them, of the wall, which holds the work of the ranks
that are not real on the same cores. Each part may grow as the ranks do. ``--raw FILE`` keeps the figures as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from pytest_ckpt.facts.events import Beat, Event, Hello, HostsSeen, Ready, event_to_plain
from pytest_ckpt.facts.subject import OperationRef, Subject
from pytest_ckpt.facts.targets import AreaRef
from pytest_ckpt.launching.launch import Launch
from pytest_ckpt.launching.launcher import Launcher
from pytest_ckpt.ranks.process.controller import END
from pytest_ckpt.ranks.process.job import Job
from pytest_ckpt.support.redaction import Redactor
from pytest_ckpt.wire.caller import Caller, call

_RANKS = (64, 256, 1024, 4096)
_BEATS = 10
_SAVE = OperationRef(subject=Subject(model="made", mode="test"), action="save", index=1)


def be_all_ranks(ranks: int) -> None:
    """Be so many ranks: call, say who each is, take the job, tell what each does, and end as ranks do."""
    environment = dict(os.environ)
    callers: list[Caller] = []
    for rank in range(ranks):
        os.environ.update(environment)
        caller = call()
        caller.send(event_to_plain(Hello(rank=rank, host=f"node{rank // 8}", pid=rank + 1)))
        callers.append(caller)
    callers[0].receive()
    callers[0].send(event_to_plain(Ready()))
    for number in range(_BEATS):
        for rank, caller in enumerate(callers):
            beat = Beat(
                rank=rank, operation=_SAVE, phase="write", file="x.pt", waiting=False, progress=(number, 500), lane=""
            )
            caller.send(event_to_plain(beat))
    callers[0].send(event_to_plain(HostsSeen(hosts=())))
    for caller in callers:
        caller.send(END)
    for caller in callers:
        caller.receive()


@dataclass
class Seen:
    """Moments of one launch, each as wall and CPU seconds of this process."""

    moments: dict[str, tuple[float, float]] = field(default_factory=dict)

    def take(self, event: Event) -> None:
        """Note when the job has arrived, and when all has been told."""
        self.note(event.__class__.__name__)

    def note(self, name: str) -> None:
        """Note a moment."""
        self.moments[name] = (time.perf_counter(), time.process_time())

    def between(self, first: str, last: str) -> tuple[float, float]:
        """Return what passed between two moments."""
        (wall, cpu), (end, end_cpu) = self.moments[first], self.moments[last]
        return end - wall, end_cpu - cpu


def measure(ranks: int, folder: Path) -> dict[str, float]:
    """Launch so many once; return the figures."""
    launcher = Launcher(
        template=(sys.executable, __file__, "--ranks-of", "{processes}", "--"),
        version="ranks that are not real",
        hosts=(),
    )
    area = AreaRef(scheme="", location="/", run_id="scaling", opener="pytest_ckpt.targets.posix.store:open_store")
    job = Job(processes=ranks, area=area, deadline_seconds=600, tasks=())
    seen = Seen()
    seen.note("begin")
    failure = Launch(launcher, "scaling", folder / f"of-{ranks}", Redactor.of({}, ())).run(job, seen.take)
    seen.note("end")
    if failure:
        sys.exit(f"{ranks} ranks: {failure.message}")
    found: dict[str, float] = {"ranks": ranks}
    for name, first, last in (
        ("start", "begin", "Ready"),
        ("beats", "Ready", "HostsSeen"),
        ("end", "HostsSeen", "end"),
    ):
        found[f"{name}_seconds"], found[f"{name}_cpu_seconds"] = seen.between(first, last)
    found["peak_memory_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return found


def _in_a_process(ranks: int) -> dict[str, float]:
    """Measure in a process of its own: memory that was taken is seldom given back."""
    reading, writing = os.pipe()
    if child := os.fork():
        os.close(writing)
        with os.fdopen(reading) as pipe:
            text = pipe.read()
        os.waitpid(child, 0)
        if not text:
            sys.exit(1)
        found: dict[str, float] = json.loads(text)
        return found
    with tempfile.TemporaryDirectory() as name:
        measured = measure(ranks, Path(name))
    os.write(writing, json.dumps(measured).encode())
    os._exit(0)


def main() -> None:
    """Measure each number of ranks, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=_RANKS)
    parser.add_argument("--raw", type=Path)
    parser.add_argument("--ranks-of", type=int, help=argparse.SUPPRESS)
    asked, _ = parser.parse_known_args()
    if asked.ranks_of:
        resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
        be_all_ranks(asked.ranks_of)
        return
    rows = []
    print(" ranks  start: CPU     wall  beat: CPU  end: CPU     wall  memory")
    for ranks in asked.ranks:
        rows.append(row := _in_a_process(ranks))
        print(
            f"{ranks:>6}  {row['start_cpu_seconds']:>8.2f} s  {row['start_seconds']:>5.1f} s"
            f"  {row['beats_cpu_seconds'] / (ranks * _BEATS) * 1e6:>6.0f} us"
            f"  {row['end_cpu_seconds']:>6.2f} s  {row['end_seconds']:>5.1f} s"
            f"  {row['peak_memory_bytes'] / 1e6:>3.0f} MB"
        )
    if asked.raw:
        asked.raw.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
