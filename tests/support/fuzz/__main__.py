"""Fuzzes the inputs of the commands: ``python -m tests.support.fuzz --cases 100000 --seed 7``.

An attack changes an input and runs a command. The command must not print a traceback, take more than 20 s or 1 GB,
write to a wrong place, or improve a verdict. Each violation is printed with a command that repeats the attack, and the
exit code is then 1.
"""

from __future__ import annotations

import argparse
import os
import select
import shlex
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from tests.support.fuzz.command_input import DescribedFiles, FigureOptions
from tests.support.fuzz.families import Exports, Family, PublishedTrees, Rules, RunDirectories, clear
from tests.support.fuzz.sandbox import HANG_SECONDS, Sandbox
from tests.support.fuzz.user_input import InputFiles, OptionValues
from tests.support.machine import patience

FAMILIES: dict[str, tuple[type[Family], int]] = {
    "directories": (RunDirectories, 16), "published": (PublishedTrees, 12), "rules": (Rules, 5),
    "exports": (Exports, 5),
    "options": (OptionValues, 20), "inputs": (InputFiles, 16), "figures": (FigureOptions, 13),
    "described": (DescribedFiles, 13),
}  # fmt: skip
"""Families of attacks, each with its share of a hundred cases."""

# The memory for several concurrent attacks in which a file was made far larger.
_ROOM_BYTES = 4 << 30
# Signals that request an end; the directory of the attacks is removed first.
_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# A process without output for this time is blocked in the kernel and cannot be killed.
_SILENT_SECONDS = 3.0 * HANG_SECONDS


def numbered(cases: int, names: list[str]) -> Iterator[tuple[str, int]]:
    """Yield (family, number) for about ``cases`` attacks on the families ``names``.

    The share of a family in the attacks is its weight in `FAMILIES`. An attack depends only on its family, its number
    and the seed, and not on the number of cases.
    """
    whole = sum(FAMILIES[name][1] for name in names)
    for name in names:
        for number in range(-(-cases * FAMILIES[name][1] // whole)):
            yield name, number


class Worker:
    """Runs attacks, each in a separate directory. If ``keep`` is true, the directories are kept."""

    def __init__(self, home: Path, keep: bool) -> None:
        self._home, self._keep = home, keep
        self._families: dict[str, Family] = {}
        self._sandbox = Sandbox()

    def begin(self, names: list[str]) -> None:
        """Create the original inputs of the families ``names``. An attack changes a copy of an original input."""
        for name in names:
            originals = self._home / name
            originals.mkdir()
            self._families[name] = FAMILIES[name][0](self._sandbox)
            self._families[name].prepare(originals)

    def attempt(self, name: str, seed: str, number: int) -> tuple[list[str], list[str]]:
        """Run one attack in a separate directory; return (descriptions of the changes, violations)."""
        place = Path(tempfile.mkdtemp(prefix="case-", dir=self._home))
        (place / "out").mkdir()
        os.environ["TMPDIR"] = tempfile.tempdir = str(place / "out")
        os.chdir(place)
        (place / "out").rmdir()
        try:
            return self._families[name].attempt(Random(f"{name}/{seed}/{number}"), place)
        finally:
            os.chdir(self._home)
            if self._keep:
                print(f"kept: {place}")
            else:
                clear(place)

    def enclose(self) -> None:
        """Let the sandbox watch this process from now on."""
        self._sandbox.enclose()


def serve(worker: Worker, seed: str, cases: list[tuple[str, int]], out: int) -> None:
    """Run attacks. Write a line to the descriptor ``out`` before each attack, and a line for each violation."""
    worker.enclose()
    with os.fdopen(out, "w", buffering=1, errors="backslashreplace") as seen:
        for name, number in cases:
            seen.write(f"begin {name}/{seed}/{number}\n")
            try:
                done, found = worker.attempt(name, seed, number)
            except Exception:  # an error in the attack itself
                done, found = [], [traceback.format_exc(limit=-3)]
            for fault in found:
                seen.write(f"fault {fault!a} after {done!a}\n")
        seen.write("end\n")


class Running:
    """Starts a child process that runs attacks, and controls this process.

    If the child dies, a new child runs the remaining attacks.
    """

    def __init__(
        self, worker: Worker, seed: str, cases: list[tuple[str, int]], found: Callable[[str, str], None]
    ) -> None:
        self._worker, self._seed, self._left, self._found = worker, seed, cases, found
        self.made = 0
        self._start()

    def _start(self) -> None:
        self.pipe, write = os.pipe()
        self._pid = os.fork()
        if not self._pid:
            for number in _ENDS:
                signal.signal(number, signal.SIG_DFL)
            os.close(self.pipe)
            code = 1
            try:
                serve(self._worker, self._seed, self._left, write)
                code = 0
            finally:
                os._exit(code)
        os.close(write)
        self._text, self._now, self._ended = b"", "", False
        self.last_sign = time.monotonic()

    def take(self) -> bool:
        """Process the reports of the child; return true if more reports will come."""
        data = os.read(self.pipe, 1 << 16)
        self.last_sign = time.monotonic()
        *lines, self._text = (self._text + data).split(b"\n")
        for line in lines:
            word, _, rest = line.decode().partition(" ")
            if word == "begin":
                self._now = rest
                self.made += 1
                self._left = self._left[1:]
            elif word == "fault":
                self._found(self._now, rest)
            self._ended = self._ended or word == "end"
        return True if data else self._over("its process ended")

    def look(self) -> bool:
        """Kill the child if it has sent no report for too long; return true if more reports will come."""
        silent = time.monotonic() - self.last_sign
        if silent < patience(_SILENT_SECONDS):
            return True
        os.kill(self._pid, signal.SIGKILL)
        return self._over(f"it sent no output for {silent:.0f} s, and no signal reached it")

    def end(self) -> None:
        """Kill the child and close its pipe."""
        os.kill(self._pid, signal.SIGKILL)
        os.close(self.pipe)
        os.waitpid(self._pid, 0)

    def _over(self, why: str) -> bool:
        os.close(self.pipe)
        _, status = os.waitpid(self._pid, 0)
        if self._ended:
            return False
        self._found(self._now, f"{why} ({status})")
        if not self._left:
            return False
        self._start()
        return True


def run(
    worker: Worker, seed: str, cases: list[tuple[str, int]], processes: int, goes_on: Callable[[], bool]
) -> tuple[int, list[tuple[str, str]]]:
    """Run attacks in several processes until all are done or ``goes_on`` returns false.

    Return (number of started attacks, [(attack, violation)]).
    """
    found: list[tuple[str, str]] = []

    def add(name: str, what: str) -> None:
        found.append((name, what))
        _tell(name, what)

    going: list[Running] = []
    try:
        going += (Running(worker, seed, cases[n::processes], add) for n in range(min(processes, len(cases))))
        everyone = list(going)
        while going and goes_on():
            ready, _, _ = select.select([r.pipe for r in going], [], [], 1.0)
            going = [r for r in going if (r.take() if r.pipe in ready else r.look())]
    finally:
        for running in going:
            running.end()
    return sum(r.made for r in everyone), found


def _memory() -> str | None:
    """Return /dev/shm, which is in memory; None if it is not writable or has less than 4 GiB of free space.

    Attacks create thousands of directories. On a disk, this would take a third of the total time.
    """
    if not os.access("/dev/shm", os.W_OK):
        return None
    found = os.statvfs("/dev/shm")
    return "/dev/shm" if found.f_bavail * found.f_frsize >= _ROOM_BYTES else None


def _tell(name: str, what: str) -> None:
    try:
        print(f"{name}: {what}\n  alone: python -m tests.support.fuzz --case {shlex.quote(name)}", flush=True)
    except BrokenPipeError:
        sys.exit(1)


def main() -> int:
    """Run the attacks of the command line; return the exit code, which is 1 if there was a violation."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=2000, help="how many attacks (2000)")
    parser.add_argument("--seed", default="1", help="any word; the same seed makes the same attacks (1)")
    parser.add_argument("--family", choices=FAMILIES, action="append", help="only these; may be said again")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="side by side")
    parser.add_argument("--case", help="one case alone, as it was printed: family/seed/number; its files are kept")
    asked = parser.parse_args()
    names = asked.family or list(FAMILIES)
    ended_by: list[int] = []
    for number in _ENDS:
        # An exception could be raised during a fork, where Python discards it.
        signal.signal(number, lambda number, _frame: ended_by.append(number))
    home = Path(tempfile.mkdtemp(prefix="ckpt-fuzz-", dir=None if asked.case else _memory()))
    worker = Worker(home, keep=bool(asked.case))
    seed, cases = asked.seed, list(numbered(asked.cases, names))
    if asked.case:
        name, seed, number = asked.case.split("/")
        names, cases = [name], [(name, int(number))]
    began = time.monotonic()
    try:
        worker.begin(names)
        made, found = run(worker, seed, cases, asked.processes, goes_on=lambda: not ended_by)
    finally:
        if not asked.case:
            clear(home)
    failed = len({name for name, _ in found})
    print(f"{made} attacks with seed {seed} in {time.monotonic() - began:.0f} s: {failed} did what they must not")
    if ended_by:
        return 128 + ended_by[0]
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
