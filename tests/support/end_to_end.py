"""Runs pytest-ckpt as a user does: in a separate process and directory, controlled only by options."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from pytest_ckpt.facts.events import OperationStarted, event_from_plain
from pytest_ckpt.facts.subject import Subject
from tests.support import CHECKOUT
from tests.support.machine import Found, eventually, patience

HERE = Path(__file__).resolve().parent
SUBJECT = "llama3-8b-open-2"
SMALLEST = (
    "--ckpt-model=llama3-8b",
    "--ckpt-mode=open",
    "--ckpt-ranks=2",
    "--ckpt-profile=smoke",
    "--ckpt-operations=2",
)
# The size is so small that the load of the machine would decide whether the limit for 64 accelerators (0.7 s) is met.
TINY = (*SMALLEST, "--ckpt-scale=1/10000", "--cluster=1")
# Runs use stream unless they name an engine, because importing torch takes half of the time of a small run.
TORCH = "--ckpt-engine=torch"
STREAM = "--ckpt-engine=stream"
MEASURED = f"{SUBJECT}/stream"
# Files of a measurement on the target and in the report.
DIRECTORY = Subject.from_text(MEASURED).slug
REQUIRED = ("SAVE", "LOAD", "INTEGRITY", "COLD", "DURABLE-CALLS")

_MARK = "PYTEST_CKPT_RUN"
# Tests have hypothesis and anyio; users need neither, and every start would import their plugins: hypothesis takes a
# quarter of a second, anyio a tenth.
_OTHERS = ("-p", "no:hypothesispytest", "-p", "no:anyio")
_PLUGIN = ("-p", "pytest_ckpt.plugin.session_hooks", "-p", "no:cacheprovider", *_OTHERS)
_CACHED_TEMPLATES = ("-p", "tests.support.cached_templates")
_IGNORED_HOST_LOAD = ("-p", "tests.support.ignored_host_load")
_CLUSTER = 64
_RUN_SECONDS = 240.0


def processes_of(run_id: str) -> list[int]:
    """Return the process ids of a run. Zombies are omitted.

    The processes of a run are found by a mark in their environment.
    """
    wanted = f"{_MARK}={run_id}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and wanted in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found


def in_every_rank(directory: Path, code: str, **environment: str) -> dict[str, str]:
    """Return environment variables for a run. They make every rank execute ``code`` first."""
    place = directory / "first"
    place.mkdir()
    (place / "sitecustomize.py").write_text(code)
    return {"PYTHONPATH": f"{place}:{CHECKOUT}", **environment}


@dataclass(frozen=True, kw_only=True)
class Run:
    """The results of a completed run: exit code, output, directories."""

    code: int
    text: str
    home: Path
    target: Path
    report: Path

    @cached_property
    def document(self) -> dict[str, Any]:
        return json.loads((self.report / "report.json").read_text())

    @cached_property
    def events(self) -> list[dict[str, Any]]:
        return read_events(self.report)

    @property
    def run_id(self) -> str:
        return self.document["run"]["id"]

    @property
    def left_on_target(self) -> list[str]:
        return sorted(entry.name for entry in self.target.iterdir())

    @property
    def launches(self) -> list[str]:
        return sorted(p.name for p in (self.report / "launches").iterdir() if p.name != "probe")

    def verdict(self, requirement: str, subject: str = SUBJECT) -> dict[str, Any]:
        """Return the verdict of a requirement on a subject (layout, engine and strategy)."""
        (found,) = (
            v for v in self.document["requirements"] if v["id"] == requirement and _is_of(v["subject"], subject)
        )
        return found

    def outcomes(self, subject: str = SUBJECT) -> dict[str, str]:
        """Return {requirement: outcome} of a subject, for the requirements in ``REQUIRED``."""
        return {name: self.verdict(name, subject)["outcome"] for name in REQUIRED}

    def measurement(self, subject: str = SUBJECT) -> dict[str, Any]:
        (found,) = (m for m in self.document["measurements"] if _is_of(m["subject"], subject))
        return found

    def operations(self, kind: str, subject: str = SUBJECT) -> list[dict[str, Any]]:
        return [o for o in self.measurement(subject)["operations"] if o["kind"] == kind]

    def assert_loads_compared_and_uncached(self, subject: str, times: int = 2) -> None:
        """Check that all bytes were loaded and compared ``times`` times, and that no byte was in the page cache.

        A load reads more bytes than the checkpoint has, because a file that every rank reads counts once per rank.
        """
        measurement = self.measurement(subject)
        integrity = measurement["integrity"]
        assert integrity["bytes_checked"] == integrity["bytes_expected"] == times * measurement["bytes"]
        for load in self.operations("load", subject):
            assert load["resident_bytes"] == 0
            assert load["mapped_bytes"] > measurement["bytes"]


def _is_of(text: str, subject: str) -> bool:
    """Return true if ``text`` is the subject ``subject``, or a subject whose layout is ``subject``."""
    return subject in (text, text.split("/", maxsplit=1)[0])


class Started:
    """A run in progress, as a separate process."""

    def __init__(self, process: subprocess.Popen[bytes], home: Path, target: Path, report: Path, output: Path) -> None:
        self.process = process
        self.home = home
        self.target = target
        self.report = report
        self._output = output

    @property
    def text(self) -> str:
        return self._output.read_text(errors="replace")

    @property
    def run_id(self) -> str:
        return self.session["run_id"]

    @property
    def session(self) -> dict[str, Any]:
        file = self.report / "session.json"
        self.until(file.exists, "the run is open")
        return json.loads(file.read_text())

    @property
    def run_directory(self) -> Path:
        """The directory of the run on the target."""
        return Path(self.session["area"]["location"])

    def until(self, condition: Callable[[], Found], what: str) -> Found:
        """Wait until ``condition`` returns a true value, and return this value. ``what`` describes the condition.

        If the run ends before this, fail with the output of the run.
        """

        def ended_or() -> Found | bool:
            return condition() or self.process.poll() is not None

        eventually(ended_or, what)
        found = condition()
        assert found, f"the run ended before this: {what}\n{self.text}"
        return found

    def pid_of_rank(self, rank: int, launch: int = 1) -> int:
        """Wait for the first message of a rank in a launch, and return the process id of this rank."""
        log = self.report / "launches" / str(launch) / f"rank-{rank}.log"
        self.until(lambda: log.exists() and "hello" in log.read_text(), f"rank {rank} introduces itself")
        return next(e["pid"] for e in map(json.loads, log.read_text().splitlines()) if e["event"] == "hello")

    def finish(self, seconds: float = _RUN_SECONDS) -> Run:
        """Wait for the end of the run. Fail after ``seconds``, or later on a slow machine."""
        limit = patience(seconds)
        try:
            code = self.process.wait(limit)
        except subprocess.TimeoutExpired:
            pytest.fail(f"the run did not end in {limit:.0f} s:\n{self.text}")
        run = Run(code=code, text=self.text, home=self.home, target=self.target, report=self.report)
        if (self.report / "report.json").exists():
            assert run.document, "read now: a later run may give this directory another name"
        return run


class Runner:
    """Starts runs of pytest-ckpt in one directory, and kills processes that remain after the runs."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.target = home / "target"
        self._started: list[Started] = []

    def start(
        self,
        *options: str,
        target: Path | None = None,
        report: Path | None = None,
        cluster: int | None = None,
        environment: Mapping[str, str] | None = None,
        terminal: int | None = None,
        around: Sequence[str] = (),
        python: str = sys.executable,
        with_host_load: bool = False,
    ) -> Started:
        """Start a run and return immediately.

        The cluster has 64 accelerators, unless ``cluster`` or an option states its size. If ``terminal`` is given, the
        run writes to this terminal (a file descriptor) and not to a file. ``around`` is a command line that is put
        before the run's command line. If ``with_host_load`` is true, the load and speed of this machine may change
        verdicts.
        """
        target = target or self.target
        words = [f"--ckpt-target={target}", STREAM, *_PLUGIN]
        if cluster is not None:
            options = (*options, f"--cluster={cluster}")
        elif not any(option.startswith("--cluster=") for option in options):
            words.append(f"--cluster={_CLUSTER}")
        if report:
            words.append(f"--ckpt-report={report}")
        # A parameter before the first name (--ckpt-suite=near-full=on) does not select a suite.
        if not any(re.match(r"--ckpt-(gate-table|suite=[a-z]+(,|:|$))", option) for option in options):
            # Behaviour checks run only in tests about them.
            words.append("--ckpt-gate-table=speed-only")
        if python == sys.executable and str(CHECKOUT) in (environment or {}).get("PYTHONPATH", str(CHECKOUT)):
            words += _CACHED_TEMPLATES if with_host_load else (*_CACHED_TEMPLATES, *_IGNORED_HOST_LOAD)
        output = self.home / f"output-{len(self._started) + 1}.txt"
        with output.open("wb") as file:
            process = subprocess.Popen(
                [*around, python, "-m", "pytest", *words, *options],
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                stdout=file if terminal is None else terminal,
                stderr=subprocess.STDOUT,
                env=_environment() | dict(environment or {}),
                start_new_session=True,
                preexec_fn=_restore_interrupts,  # noqa: PLW1509 - no threads here
            )
        started = Started(process, self.home, target, report or self.home / "ckpt-report", output)
        self._started.append(started)
        return started

    def run(self, *options: str, **how: Any) -> Run:
        return self.start(*options, **how).finish()

    def pytest(self, *arguments: object) -> pytest.RunResult:
        """Run pytest with only these arguments and wait for its end.

        Use this in tests in which the plugin refuses or ignores arguments, or lists suites.
        """
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *_PLUGIN, *map(str, arguments)],
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=patience(_RUN_SECONDS),
            env=_environment(),
        )
        output, wrong = done.stdout.splitlines(), done.stderr.splitlines()
        return pytest.RunResult(done.returncode, output, wrong, time.monotonic() - began)

    def close(self) -> None:
        """Kill the remaining processes of all runs, and remove the scratch directories of killed controllers."""
        for started in self._started:
            if started.process.poll() is None:
                started.process.kill()
                started.process.wait()
        for session in self.home.glob("*/session.json"):
            for pid in processes_of(json.loads(session.read_text())["run_id"]):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for kept in self.home.glob("*/launches/*/environment"):
            if scratch := re.search(r"^TMPDIR=(/dev/shm/ckpt-.+)$", kept.read_text(), re.MULTILINE):
                shutil.rmtree(scratch[1], ignore_errors=True)


@contextlib.contextmanager
def temporary_runner(home: Path) -> Iterator[Runner]:
    """Yield a Runner in an empty directory; close it when the block ends."""
    runner = Runner(home)
    runner.target.mkdir(exist_ok=True)
    try:
        yield runner
    finally:
        runner.close()


class Sabotage:
    """Injects a fault into one rank, in the save of one checkpoint.

    ``way`` is the type of fault; ``sabotage/sitecustomize.py`` lists the types. If ``way`` is ``hold``, the rank blocks
    in the write of its first file. If ``way`` is ``pause``, the rank blocks before it starts the operation. A call of
    ``release`` lets the rank continue.

    ``subject`` is the layout of the affected checkpoint; the engine is not restricted. If ``where`` is given, it is a
    regular expression for the affected operations, and is used in place of ``subject`` and ``checkpoint``.
    """

    def __init__(
        self, directory: Path, way: str, *, rank: int, checkpoint: int = 2, subject: str = SUBJECT, where: str = ""
    ) -> None:
        self._held = directory / "held"
        self._gate = directory / "gate"
        os.mkfifo(self._gate)
        plan = {
            "way": way,
            "rank": rank,
            "where": where or rf"^{subject}(/\S+)? save {checkpoint}$",
            "held": str(self._held),
            "gate": str(self._gate),
        }
        self.environment = {"PYTHONPATH": f"{HERE / 'sabotage'}:{CHECKOUT}", "CKPT_SABOTAGE": json.dumps(plan)}

    def wait_until_blocked(self, run: Started) -> int:
        """Wait until the rank is blocked; return its process id."""
        run.until(self._held.exists, "the rank is held in its write")
        return int(self._held.read_text())

    def release(self) -> None:
        """Let the blocked rank continue."""

        def opened() -> bool:
            try:
                os.close(os.open(self._gate, os.O_WRONLY | os.O_NONBLOCK))
            except OSError as error:
                if error.errno == errno.ENXIO:
                    return False
                raise
            return True

        eventually(opened, "the held rank listens")


def read_events(report: Path) -> list[dict[str, Any]]:
    """Return the events of a run directory. An incomplete last line is omitted."""
    file = report / "events.jsonl"
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text().splitlines(keepends=True) if line.endswith("\n")]


def started_operation(event: dict[str, Any]) -> str:
    """Return the description of the operation that an event starts, or an empty text for other events."""
    found = event_from_plain(event)
    return str(found.operation) if isinstance(found, OperationStarted) else ""


def counted_steps(text: str) -> list[tuple[int, int]]:
    """Return (number of finished steps, number of all steps) for each progress line."""
    return [(int(done), int(total)) for done, total in re.findall(r"^\[(\d+)/(\d+)\] ", text, re.MULTILINE)]


def progress_lines(text: str) -> list[str]:
    """Return the progress lines of a run's output."""
    return re.findall(r"^\[\d+/\d+\] .*$", text, re.MULTILINE)


def _restore_interrupts() -> None:
    """Restore the default handling of Ctrl-C, which shells disable for background commands."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _environment() -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "COV_", "CKPT_"))}
    return kept | {"COLUMNS": "120", "PYTHONPATH": str(CHECKOUT)}
