"""A process of a run is killed at a random moment. Exit code, remaining files and ``judge`` are checked.

``CKPT_KILLS`` is the number of kills, and ``CKPT_KILLS_SEED`` is the seed. The number of a kill selects the type of the
killed process. The seed and this number determine the moment.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_ckpt.targets.posix.target import PosixTarget
from tests.support.end_to_end import TINY, Run, Runner, Started
from tests.support.jsonschema_validation import violations
from tests.support.machine import eventually, need_fuse, patience
from tests.support.targets.misbehaving import Target, misbehaving

KILLS, SEED = int(os.environ.get("CKPT_KILLS", "6")), os.environ.get("CKPT_KILLS_SEED", "1")
MARK = "CKPT_TEST_KILLS"
OPTIONS = (
    *TINY, "--ckpt-gate-table=posix-shared", "--ckpt-suite=performance,conformance",
    # Other requirements have time limits that a busy machine exceeds, with or without a kill.
    "-k", "(SAVE[ or LOAD or INTEGRITY or DURABLE-CALLS or VISIBLE or EXCLUSIVE or NAMES[ or [pointer) and not many",
)  # fmt: skip
OF_CONTROLLER = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
_RANKS, _AGENT = "pytest_ckpt.ranks", "pytest_ckpt.conformance.agent"
_LAUNCHERS = {"mpiexec", "mpirun", "prterun"}

pytestmark = pytest.mark.thorough


@dataclass(frozen=True, kw_only=True, slots=True)
class Process:
    """A process of a run, with the arguments of its command line."""

    pid: int
    words: tuple[str, ...]

    @property
    def module(self) -> str:
        """The name of the module that Python runs with ``-m``; an empty text for other programs."""
        is_python = self.words[1:2] == ("-m",) and len(self.words) > 2
        return self.words[2] if is_python else ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Role:
    """A type of process in a run.

    ``plays`` is a function of (process, controller's pid). It returns whether the process has this type. Before
    the kill, the test waits for at most ``last_line`` lines of output. Later, the run may have no process of this type.
    """

    name: str
    plays: Callable[[Process, int], bool]
    last_line: int


ROLES = (
    Role(name="controller", plays=lambda p, controller: p.pid == controller, last_line=36),
    Role(name="launcher", plays=lambda p, _: Path(p.words[0]).name in _LAUNCHERS, last_line=30),
    Role(name="rank", plays=lambda p, _: p.module == _RANKS, last_line=30),
    Role(name="check", plays=lambda p, _: p.module == "pytest_ckpt.conformance", last_line=28),
    Role(name="second client", plays=lambda p, _: p.module == _AGENT, last_line=28),
    # A process that the controller forks to call the target.
    Role(name="call", plays=lambda p, controller: p.module == "pytest" and p.pid != controller, last_line=28),
)


@pytest.fixture(scope="module")
def mounted(create_home: Callable[[str], Path]) -> Iterator[Target]:
    need_fuse()
    with misbehaving(create_home("kills"), second=True) as target:
        yield target


@pytest.fixture
def target(mounted: Target) -> Iterator[Target]:
    yield mounted
    mounted.empty()


def processes_with(mark: str) -> list[Process]:
    """Return all running processes whose environment contains ``mark``, in the form NAME=VALUE."""
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            environment = (directory / "environ").read_bytes()
            words = tuple((directory / "cmdline").read_bytes().decode(errors="replace").split("\0"))
            is_dead = (directory / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            continue
        if mark.encode() in environment.split(b"\0") and not is_dead:
            found.append(Process(pid=int(directory.name), words=words))
    return sorted(found, key=lambda process: process.pid)


def kill_one(started: Started, role: Role, mark: str, chance: random.Random) -> tuple[int, signal.Signals] | None:
    """Kill a process of the given role after a random number of output lines.

    Return (pid, signal), or None if the run ends before the kill. ``chance`` is the source of random numbers.
    """
    line = chance.randint(0, role.last_line)
    playing: list[Process] = []

    def ready() -> bool:
        if started.process.poll() is not None:
            return True
        if len(started.text.splitlines()) >= line:
            playing[:] = [p for p in processes_with(mark) if role.plays(p, started.process.pid)]
        return bool(playing)

    eventually(ready, f"a {role.name} at line {line}", patience(240))
    if not playing:
        return None
    victim = chance.choice(playing).pid
    how = chance.choice(OF_CONTROLLER) if role.name == "controller" else signal.SIGKILL
    try:
        os.kill(victim, how)
    except ProcessLookupError:
        return None
    return victim, how


@pytest.mark.parametrize("number", range(KILLS), ids=lambda n: f"{ROLES[n % len(ROLES)].name} {n}")
def test_a_killed_process_leaves_nothing_behind(runner: Runner, target: Target, number: int) -> None:
    role, chance, mark = ROLES[number % len(ROLES)], random.Random(f"{SEED}/{number}"), str(uuid.uuid4())
    scratch = runner.home / "scratch"
    scratch.mkdir()
    started = runner.start(
        *OPTIONS, f"--ckpt-second-mount={target.second}", target=target.path,
        environment={MARK: mark, "TMPDIR": str(scratch)},
    )  # fmt: skip
    killed = kill_one(started, role, f"{MARK}={mark}", chance)
    story = f"{SEED}/{number}: {role.name}, {killed}; the controller is {started.process.pid}"
    run = started.finish()
    began = time.monotonic()
    eventually(lambda: not processes_with(f"{MARK}={mark}"), f"no process is left; {story}\n{run.text}")
    took = time.monotonic() - began
    assert took < patience(60), f"{story}: the last process ended {took:.0f} s after the run"
    # Earlier, pytest itself is still being loaded, and ends like any Python program.
    if "test session starts" in run.text:
        assert "INTERNALERROR" not in run.text, f"{story}\n{run.text}"
    if killed and killed[1] == signal.SIGKILL and role.name == "controller":
        check_remaining_directories(run, story)
    else:
        assert run.left_on_target == [], f"{story}\n{run.text}"
        assert list(scratch.iterdir()) == [], story
    has_exit_code(run, role, killed[1] if killed else None, story)
    is_judged(run, story)


def check_remaining_directories(run: Run, story: str) -> None:
    """Check the directories that a run left on the target when its controller was killed.

    For each of these directories, the next run prints a command that removes it. When all commands have run, the target
    is empty.
    """
    left = PosixTarget(str(run.target)).leftovers()
    assert sorted(Path(each.what).name for each in left) == run.left_on_target, story
    for each in left:
        subprocess.run(["/bin/sh", "-c", each.command], check=True)
    assert run.left_on_target == [], story


def has_exit_code(run: Run, role: Role, how: signal.Signals | None, story: str) -> None:
    """Check that the exit code fits the role of the killed process, and that the kill caused no failed requirement.

    ``how`` is the signal that killed the process; None if no process was killed.
    """
    words = f"{story}: exit code {run.code}\n{run.text}"
    if role.name == "controller" and how:
        expected = {-9} if how == signal.SIGKILL else {2}
        # Before pytest handles signals, it ends like any Python program.
        before = set() if "test session starts" in run.text else {1, 2, -how}
        assert run.code in expected | before, words
        return
    # If the kill comes while hosts are inspected, nothing was written. Later, at least the unselected requirements are
    # missing.
    assert run.code in ({4, 8} if role.name in ("launcher", "rank", "call") else {8}), words
    if (run.report / "report.json").exists():
        failed = [v["id"] for v in run.document["requirements"] if v["outcome"] == "failed"]
        # Whether REPEAT fails depends on other load, as saves take only a few milliseconds here.
        assert not set(failed) - {"REPEAT"}, words


def is_judged(run: Run, story: str) -> None:
    """Check that ``judge`` and ``verify`` accept the report directory, or refuse it if it contains no facts yet."""
    command = [sys.executable, "-m", "pytest_ckpt.cli.main"]
    done = {
        word: subprocess.run(
            [*command, word, str(run.report), "--json"], capture_output=True, text=True, check=False, cwd=run.home
        )
        for word in ("judge", "verify")
    }
    words = f"{story}\n{run.text}\n{done['verify'].stdout}\n{done['judge'].stderr}{done['verify'].stderr}"
    assert all("Traceback" not in each.stderr for each in done.values()), words
    if (run.report / "report.json").exists():
        document = json.loads(done["judge"].stdout)
        assert not violations(document, "report"), words
        assert document["grade"] == run.document["grade"], words
        assert done["judge"].returncode == (8 if run.code == 2 else run.code), words
        assert done["verify"].returncode == 0, words
    elif (run.report / "session.json").exists():
        assert json.loads(done["judge"].stdout)["grade"] == "incomplete", words
        assert (done["judge"].returncode, done["verify"].returncode) == (8, 8), words
    else:
        assert (done["judge"].returncode, done["verify"].returncode) == (4, 4), words
