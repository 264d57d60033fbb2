"""Cost of a launch for the controller, by number of ranks: ``python benchmarks/launch_scaling.py``.

The ranks are simulated: one process opens a connection for each rank and sends the rank's messages. Only the
controller's share of a launch is measured. The columns of the table:

- start: from the launch until every rank has connected and rank 0 has received the job.
- beat: one message in which a rank reports its activity.
- save: all messages about one save, and their records in files as in a run. Each rank sends two beats. Rank 0 sends
  four events; one of them contains the times of all ranks.
- rank 0: the CPU time in which rank 0 combines the results of all ranks of a save and encodes the message, without MPI.
- end: from the last save until all messages are confirmed.

CPU seconds are those of the controller. Elapsed seconds (wall) include the work of the simulated ranks on the same
cores. Each column may grow at most in proportion to the number of ranks. ``--raw FILE`` records the values as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pytest_ckpt.facts.events import (
    Beat,
    Event,
    Hello,
    HostsSeen,
    HostsWaited,
    Imported,
    OperationDone,
    OperationStarted,
    Ready,
    event_to_plain,
)
from pytest_ckpt.facts.subject import OperationRef, Subject
from pytest_ckpt.facts.targets import AreaRef
from pytest_ckpt.launching.launch import Launch
from pytest_ckpt.launching.launcher import Launcher
from pytest_ckpt.launching.recorder import Observer, Recorder
from pytest_ckpt.ranks.operations import RankOperation, combine
from pytest_ckpt.ranks.process.controller import END
from pytest_ckpt.ranks.process.job import Job
from pytest_ckpt.support.redaction import Redactor
from pytest_ckpt.wire.caller import Caller, call
from pytest_ckpt.wire.frames import framed, seals

_RANKS = (64, 256, 1024, 4096)
_BEATS, _SAVES = 10, 5
_SUBJECT = Subject(model="made", mode="test")
_SAVE = OperationRef(subject=_SUBJECT, action="save", index=1)
_PHASES = ("open", "write", "fsync", "close", "directory")
_OWN = RankOperation(
    seconds=1.23456789,
    phases=dict.fromkeys(_PHASES, 0.23456789),
    bytes=1 << 30,
    returned_seconds=1.3456789,
    staged_seconds=1.3456789,
)


def be_all_ranks(ranks: int) -> None:
    """Act as all ranks: each one connects, sends its number, reports activities and saves, and ends."""
    environment = dict(os.environ)
    callers: list[Caller] = []
    for rank in range(ranks):
        os.environ.update(environment)
        caller = call()
        caller.send(event_to_plain(Hello(rank=rank, host=f"node{rank // 8}", pid=rank + 1)))
        callers.append(caller)
    callers[0].receive()
    callers[0].send(event_to_plain(Ready()))
    for number in range(_BEATS - 1):
        for rank, caller in enumerate(callers):
            caller.send(event_to_plain(beat_of(rank, number)))
    # Messages of other connections may be read later, so the last message of each rank is one that is counted.
    for caller in callers:
        caller.send(event_to_plain(Imported()))
    callers[0].receive()
    done, looked = event_to_plain(joined(ranks)), event_to_plain(HostsWaited(subject=_SUBJECT, awaited="directory"))
    for number in range(_SAVES):
        is_last = number == _SAVES - 1
        for event in (looked, event_to_plain(OperationStarted(operation=_SAVE)), done, looked):
            callers[0].send(event)
        for rank, caller in enumerate(callers):
            # One beat for the preparation of content, one for the save.
            caller.send(event_to_plain(beat_of(rank, number)))
            caller.send(looked if is_last else event_to_plain(beat_of(rank, number)))
    callers[0].send(event_to_plain(HostsSeen(hosts=())))
    for caller in callers:
        caller.send(END)
    for caller in callers:
        caller.receive()


def beat_of(rank: int, number: int) -> Beat:
    """Return the message in which a rank reports its current activity.

    ``number`` is the progress of the rank in this activity, from 0 to 500.
    """
    return Beat(rank=rank, operation=_SAVE, phase="write", file="x.pt", waiting=False, progress=(number, 500), lane="")


def joined(ranks: int) -> OperationDone:
    """Return the message in which rank 0 reports a completed save with the times of all ranks."""
    return OperationDone(subject=_SUBJECT, operation=combine("save", 1, 1, [_OWN] * ranks))


def rank_0_seconds(ranks: int) -> float:
    """Return the CPU seconds in which rank 0 combines the results of all ranks for a save and encodes the message."""
    gathered = [pickle.dumps(_OWN) for _ in range(ranks)]
    _, seal = seals(b"made", b"up")
    began = time.process_time()
    for _ in range(_SAVES):
        owns = [pickle.loads(of_rank) for of_rank in gathered]
        operation = combine("save", 1, 1, owns)
        framed(seal, event_to_plain(OperationDone(subject=_SUBJECT, operation=operation)))
    return (time.process_time() - began) / _SAVES


@dataclass
class Seen:
    """Passes the events of one launch to ``recorder``, and stores the time of the last event of each type.

    - ``moments``: {event type or name: (elapsed seconds, CPU seconds of this process)}
    - ``imported``: the number of ranks that have completed their imports
    - ``go_on``: a function that is called when ``imported`` reaches ``ranks``; the ranks then begin to save
    """

    recorder: Recorder
    ranks: int
    go_on: Callable[[], None] = lambda: None
    imported: int = 0
    moments: dict[str, tuple[float, float]] = field(default_factory=dict)

    def record(self, event: Event) -> None:
        """Record an event and its time. When all ranks have completed their imports, let the ranks begin to save."""
        self.recorder.record(event)
        self.note(event.__class__.__name__)
        if isinstance(event, Imported):
            self.imported += 1
            if self.imported == self.ranks:
                self.go_on()

    def note(self, name: str) -> None:
        """Store the current time under ``name``, replacing an earlier time."""
        self.moments[name] = (time.perf_counter(), time.process_time())

    def between(self, first: str, last: str) -> tuple[float, float]:
        """Return the elapsed seconds and the CPU seconds between two stored times."""
        (wall, cpu), (end, end_cpu) = self.moments[first], self.moments[last]
        return end - wall, end_cpu - cpu


def measure(ranks: int, directory: Path) -> dict[str, float]:
    """Launch ``ranks`` simulated ranks once; return {name: seconds or bytes}."""
    launcher = Launcher(
        template=(sys.executable, __file__, "--ranks-of", "{processes}", "--"),
        version="ranks that are not real",
        hosts=(),
    )
    area = AreaRef(scheme="", location="/", run_id="scaling", opener="pytest_ckpt.targets.posix.store:open_store")
    job = Job(processes=ranks, area=area, deadline_seconds=600, tasks=())
    redactor = Redactor.of({}, ())
    events = directory / "events.jsonl"
    recorder = Recorder((), job, "1", lambda _subject: directory / "measurement.json", events, Observer(), redactor)
    launch = Launch(launcher, "scaling", directory / f"of-{ranks}", redactor)
    seen = Seen(recorder=recorder, ranks=ranks, go_on=lambda: launch.answer("go on"))
    seen.note("begin")
    failure = launch.run(job, seen.record)
    seen.note("end")
    if failure:
        sys.exit(f"{ranks} ranks: {failure.message}")
    found: dict[str, float] = {"ranks": ranks}
    for name, first, last in (
        ("start", "begin", "Ready"),
        ("beats", "Ready", "Imported"),
        ("saves", "Imported", "HostsWaited"),
        ("end", "HostsWaited", "end"),
    ):
        found[f"{name}_seconds"], found[f"{name}_cpu_seconds"] = seen.between(first, last)
    found["rank_0_cpu_seconds"] = rank_0_seconds(ranks)
    found["peak_memory_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return found


def _in_a_process(ranks: int) -> dict[str, float]:
    """Return the result of `measure` in a forked process.

    Each number of ranks needs a new process, because the measured peak memory of a process never decreases.
    """
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
    """Measure a launch with each number of ranks, and print the table."""
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
    print(" ranks  start: CPU     wall  beat: CPU  save: CPU   rank 0  end: CPU     wall  memory")
    for ranks in asked.ranks:
        rows.append(row := _in_a_process(ranks))
        print(
            f"{ranks:>6}  {row['start_cpu_seconds']:>8.2f} s  {row['start_seconds']:>5.1f} s"
            f"  {row['beats_cpu_seconds'] / (ranks * _BEATS) * 1e6:>6.0f} us"
            f"  {row['saves_cpu_seconds'] / _SAVES * 1e3:>6.0f} ms  {row['rank_0_cpu_seconds'] * 1e3:>4.1f} ms"
            f"  {row['end_cpu_seconds']:>6.2f} s  {row['end_seconds']:>5.1f} s"
            f"  {row['peak_memory_bytes'] / 1e6:>3.0f} MB"
        )
    if asked.raw:
        asked.raw.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
