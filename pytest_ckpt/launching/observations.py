"""Runs each check of the target's behaviour once per run, and stores the check's observation in a file.

The first caller runs the check in a separate process; later callers read the file. If a check blocks, its process is
killed. If the kernel does not release the process, it is left running.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import json
import os
import selectors
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ckpt.facts.checks import CHECKS_DIRECTORY
from pytest_ckpt.facts.codec import from_plain, to_plain
from pytest_ckpt.facts.event_line import Call
from pytest_ckpt.facts.events import from_line
from pytest_ckpt.facts.failure import BlockedCall
from pytest_ckpt.facts.observation import Observation
from pytest_ckpt.launching.recorder import Observer, write_atomically
from pytest_ckpt.support import waits
from pytest_ckpt.support.die_with_parent import tied_to_this_process
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.support.processes import (
    MARK,
    blocked_sentence,
    end_session,
    processes_of_session,
    stopped_among,
    tasks_blocked_in,
)
from pytest_ckpt.support.redaction import Redactor
from pytest_ckpt.support.resources import python_path
from pytest_ckpt.support.units import format_seconds
from pytest_ckpt.targets.posix.commit import commit_of
from pytest_ckpt.targets.posix.run_directory import (
    DirectoryIdentity,
    check_file_calls,
    describe_change,
    directory_identity,
    directory_of,
    is_of_area,
)
from pytest_ckpt.targets.posix.second_mount import fault_of_second_mount, unlike_target
from pytest_ckpt.targets.timed_calls import answers_within, watched

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import TextIO

    from pytest_ckpt.facts.checks import Check
    from pytest_ckpt.facts.proofs import CommitMethod
    from pytest_ckpt.facts.targets import AreaRef
    from pytest_ckpt.launching.launch_context import LaunchContext
    from pytest_ckpt.launching.second_client import SecondClient

    ReportCall = Callable[[str, str], None]

_TICK_SECONDS = 0.25
_START_SECONDS = 60.0
_READ_BYTES = 1 << 16
# A failed check is described by the end of its output, up to this length.
_LAST_WORDS = 1500
_NOBODY = Redactor()

# If a target has died, every call returns one of these errors until the target is repaired.
_ENDS = frozenset(
    ("EHOSTDOWN", "EIO", "ENODEV", "ENOENT", "ENOTCONN", "ENXIO", "EREMOTEIO", "EROFS", "ESHUTDOWN", "ESTALE")
)

# A target that did not answer a check has this time to answer before the next one.
_SILENT_SECONDS = 10.0
_BLOCKED, _SILENT, _UNMOUNTED = "blocked", "ETIMEDOUT", "ENODEV"


def run_check(
    check: Check,
    *,
    directory: Path,
    second_directory: str | None = None,
    second_command: Sequence[str] = (),
    second_ports: tuple[int, int] | None = None,
    small_directory: Path | None = None,
    power_cut: Sequence[str] = (),
    power_cuts: int = 3,
    commit: CommitMethod = "rename",
    witness: Path,
    share: float,
    seed: int,
    deadline_seconds: float,
    log_directory: Path,
    report_call: ReportCall | None = None,
    within: str = "",
    run_id: str = "",
    redactor: Redactor = _NOBODY,
) -> Observation:
    """Run one check of a file system and return its observation, even if the check fails or blocks.

    ``directory`` is on the target; ``second_directory`` is the path of the same directory on the second client.
    ``small_directory`` is on a volume that may be filled. The check works in the subdirectory ``within`` of each
    directory. The observation contains a command that repeats the check. The command omits ``within``, because this
    subdirectory is removed with the run.

    ``commit`` is the commit method of the run's saves. ``run_id`` marks the processes of the check. ``log_directory``
    receives the check's output. ``report_call`` is called with (call, path) before each call of the check.

    If the check makes no call for ``deadline_seconds``, its process is killed and the check is reported as blocked. If
    the kernel does not release the process, the process is left running and reported.
    """
    options = _options(
        second_command=second_command,
        second_ports=second_ports,
        power_cut=power_cut,
        power_cuts=power_cuts,
        commit=commit,
        share=share,
        seed=seed,
    )
    places = {
        "directory": str(directory),
        "second-directory": second_directory,
        "small-directory": small_directory and str(small_directory),
    }
    named = [f"--{name}={path}" for name, path in places.items() if path]
    used = [f"--{name}={Path(path) / within}" for name, path in places.items() if path]
    command = ["-m", "pytest_ckpt.conformance", check.name]
    observation = _run_check_process(
        check,
        [*command, *used, *options, f"--witness={witness}", "--json", *(["--make-directory"] if within else [])],
        deadline_seconds=deadline_seconds,
        log_directory=log_directory,
        report_call=report_call,
        run_id=run_id,
        redactor=redactor,
    )
    return dataclasses.replace(observation, reproduce=shlex.join([sys.executable, *command, *named, *options]))


def run_object_check(
    check: Check,
    *,
    area: AreaRef,
    target: str,
    share: float,
    seed: int,
    deadline_seconds: float,
    log_directory: Path,
    report_call: ReportCall | None = None,
    redactor: Redactor = _NOBODY,
) -> Observation:
    """Run one check of an object store below the run's prefix ``area``, and return its observation.

    ``target`` is the target as the user wrote it. It appears in the command that repeats the check.
    """
    access = area.access
    options = [f"--share={share:g}", f"--seed={seed}"]
    options += [f"--endpoint={','.join(access.endpoints)}"] if access.endpoints else []
    options += [f"--ca-bundle={access.ca_bundle}"] if access.ca_bundle else []
    options += ["--embedded"] if access.embedded else []
    command = ["-m", "pytest_ckpt.conformance.objects", check.name]
    observation = _run_check_process(
        check,
        [*command, f"--target={area.location}/{CHECKS_DIRECTORY}", *options, "--json"],
        deadline_seconds=deadline_seconds,
        log_directory=log_directory,
        report_call=report_call,
        run_id=area.run_id,
        redactor=redactor,
    )
    return dataclasses.replace(
        observation, reproduce=shlex.join([sys.executable, *command, f"--target={target}", *options])
    )


def _run_check_process(
    check: Check,
    arguments: list[str],
    *,
    deadline_seconds: float,
    log_directory: Path,
    report_call: ReportCall | None,
    run_id: str,
    redactor: Redactor,
) -> Observation:
    """Run a check in a Python process with ``arguments``, and return its observation."""
    # -P: a file in the current directory must not replace a module of Python or of this package.
    words = [sys.executable, "-P", *arguments]
    began = time.monotonic()
    with (log_directory / f"{check.name}.log").open("w") as log:
        log.write(redactor.text(shlex.join(words)) + "\n")
        process = subprocess.Popen(
            tied_to_this_process(words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=_environment(run_id),
            start_new_session=True,
        )
        listener = _Listener(process, log, report_call, redactor)
        stuck: list[int] = []
        blocked: BlockedCall | None = None
        halted = ""
        try:
            with waits.waiting(listener.waits_for):
                stands = listener.follow(deadline_seconds)
            if stands and not (halted := listener.halted()):
                blocked = listener.blocked(deadline_seconds)
        finally:
            stuck = end_session(process.pid)
            listener.close()
            if process.pid in stuck:
                # When the kernel releases the process later, it must not remain as a zombie.
                threading.Thread(target=process.wait, daemon=True).start()
            else:
                process.wait()
        log.write(f"exit code {process.returncode}\n")
    observation = Observation(requirement=check.requirement, subject=check.subject, seconds=time.monotonic() - began)
    if blocked and stuck:
        blocked = dataclasses.replace(blocked, stack=f"{blocked.stack}\n{blocked_sentence(stuck)}")
    if blocked:
        # A check may have reported its result and then hang in the removal of its directory.
        observation = dataclasses.replace(listener.observation() or observation, blocked=blocked)
    else:
        observation = listener.observation() or dataclasses.replace(
            observation, not_run=halted or listener.describe_end()
        )
    return observation


class _Listener:
    """Reads the output of a check's process: its calls, its result and its messages."""

    def __init__(
        self, process: subprocess.Popen[bytes], log: TextIO, report_call: ReportCall | None, redactor: Redactor
    ) -> None:
        assert process.stdout
        assert process.stderr
        self._process = process
        self._streams = (process.stdout, process.stderr)
        self._log = log
        self._report_call = report_call
        self._redactor = redactor
        self._began = self._moved = time.monotonic()
        self._call, self._path = "start", ""
        self._has_called = False
        self._result = b""
        self._rest = b""
        self._says: list[str] = []

    def follow(self, deadline_seconds: float) -> bool:
        """Read the output until the check ends. Return True if the check made no call for ``deadline_seconds``."""
        with selectors.DefaultSelector() as selector:
            for stream in self._streams:
                os.set_blocking(stream.fileno(), False)
                selector.register(stream, selectors.EVENT_READ)
            # Do not wait until the pipes are closed, because child processes of the check may keep them open.
            while self._process.poll() is None:
                for key, _ in selector.select(_TICK_SECONDS):
                    if self._read(key.fileobj is self._process.stdout, key.fd) == b"":
                        selector.unregister(key.fileobj)
                waits.print_if_due()
                # On a busy host a process starts late; this is not the target's fault.
                allowed = deadline_seconds if self._has_called else max(deadline_seconds, _START_SECONDS)
                if time.monotonic() - self._moved > allowed:
                    return True
        return False

    def blocked(self, deadline_seconds: float) -> BlockedCall:
        """Return the call in which the check is blocked, with the kernel stacks of all threads of the check."""
        silent = format_seconds(time.monotonic() - self._moved)
        return BlockedCall(
            message=f"no progress for {silent} (--ckpt-io-timeout {format_seconds(deadline_seconds)})",
            host=socket.gethostname(),
            call=self._call,
            path=self._path,
            stack=tasks_blocked_in(processes_of_session(self._process.pid)),
        )

    def halted(self) -> str:
        """Return a sentence if a signal has stopped a process of the check; otherwise return an empty text."""
        if (stopped := stopped_among(processes_of_session(self._process.pid))) is None:
            return ""
        return (
            f"process {stopped} of the check was stopped on {socket.gethostname()} in {self._call} of {self._path} (a "
            "signal, a debugger or a frozen cgroup); the storage is not judged by this"
        )

    def waits_for(self) -> str:
        """Return the check's current call and the duration of this call, as text; empty before the first call."""
        if not self._has_called:
            return ""
        of = f" of {self._path}" if self._path else ""
        return f"it has been in {self._call}{of} for {format_seconds(round(time.monotonic() - self._moved))}"

    def observation(self) -> Observation | None:
        """Return the observation that the check reported; None if the check ended without reporting one."""
        try:
            return from_plain(Observation, json.loads(self._result))
        except (ValueError, TypeError, AttributeError):
            return None

    def describe_end(self) -> str:
        """Return a text on how the check's process ended, for a check that reported no observation."""
        code = self._process.returncode
        text = "\n".join(self._says).strip()[-_LAST_WORDS:]
        # The last line of a traceback is the error; the lines above it show where.
        last = text.rpartition("\n")[2] or "no output"
        if code < 0:
            how = f"killed by signal {-code} ({signal.Signals(-code).name}) in {self._call} of {self._path}: {last}"
        else:
            how = f"exit code {code}: {last}"
        return f"the check itself broke: {how}" + (f"\n{text}" if "\n" in text else "")

    def close(self) -> None:
        """Read the remaining output and close the pipes."""
        for stream in self._streams:
            while self._read(stream is self._process.stdout, stream.fileno()):
                pass
            stream.close()

    def _read(self, is_result: bool, descriptor: int) -> bytes | None:
        """Read and return new output of the check from a pipe.

        Return None if there is no new output yet, and empty bytes at the end of the output. If ``is_result``, the pipe
        carries the check's result; otherwise it carries calls and messages.
        """
        try:
            data = os.read(descriptor, _READ_BYTES)
        except BlockingIOError:
            return None
        if is_result:
            self._result += data
        else:
            *lines, self._rest = (self._rest + data).split(b"\n")
            if not data and self._rest:
                lines, self._rest = [self._rest], b""
            for line in lines:
                self._process_line(line.decode(errors="replace"))
        return data

    def _process_line(self, line: str) -> None:
        self._log.write(f"+{time.monotonic() - self._began:.3f} s {self._redactor.text(line)}\n")
        before, event = from_line(line)
        if isinstance(event, Call):
            self._call, self._path, self._has_called = event.call, event.path, True
            self._moved = time.monotonic()
            if self._report_call:
                self._report_call(self._call, self._path)
            line = before
        if line:
            self._says.append(line)


def _options(
    *,
    second_command: Sequence[str],
    second_ports: tuple[int, int] | None,
    power_cut: Sequence[str],
    power_cuts: int,
    commit: CommitMethod,
    share: float,
    seed: int,
) -> list[str]:
    options = [f"--share={share:g}", f"--seed={seed}"]
    if commit != "rename":
        options.append(f"--commit={commit}")
    if second_command:
        options.append(f"--second-command={shlex.join(second_command)}")
        if second_ports:
            options.append(f"--second-ports={second_ports[0]}-{second_ports[1]}")
    if power_cut:
        options += [f"--power-cut={shlex.join(power_cut)}", f"--power-cuts={power_cuts}"]
    return options


def _environment(run_id: str) -> dict[str, str]:
    added = {"PYTHONPATH": python_path(), "PYTHONUNBUFFERED": "1"}
    return {**os.environ, **added, **({MARK: run_id} if run_id else {})}


class Observations:
    """The observations of one run. If a check has not run yet, it runs when its observation is requested."""

    def __init__(self, context: LaunchContext, observer: Observer | None = None) -> None:
        self._context = context
        self._observer = observer or Observer()
        self._standing: DirectoryIdentity | None = None

    def observation(self, check: Check) -> Observation:
        """Return the observation of a check. If the check has not run yet, run it."""
        file = self._context.directory / "observations" / f"{check.name}.json"
        # Checks that take the target or its space from others, and timed checks, run alone; others run in parallel.
        with self._lock(alone=check.needs in ("power cut", "small directory") or check.is_timed), self._claimed(check):
            if is_missing := not file.exists():
                self._observer.checking(check.name)
                with waits.waiting(f"check {check.name}"):
                    self._perform(check, file)
        observation = read_observation(file)
        if is_missing:
            self._observer.checked(check.name, observation.seconds)
        return observation

    def _perform(self, check: Check, file: Path) -> None:
        if (since := self._silent_since()) is not None:
            because = f"the target has not answered since check {since}"
            silent = Observation(requirement=check.requirement, subject=check.subject, not_run=because, errno=_SILENT)
            self._store(silent, file)
            return
        observation = self._of_objects(check) if check.package == "objects" else self._of_target(check)
        observation = self._once(check, observation)
        if observation.blocked:
            (self._logs / _BLOCKED).write_text(check.name)
        self._store(observation, file)

    def _store(self, seen: Observation, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, json.dumps(self._context.redactor.plain(to_plain(seen)), indent=1) + "\n")

    def _silent_since(self) -> str | None:
        """Return the name of an earlier check that blocked, if the target still does not answer; otherwise None."""
        blocked = self._logs / _BLOCKED
        area = self._context.run_area
        if not blocked.exists() or "paths" not in self._context.target.capabilities:
            return None
        try:
            with answers_within(min(_SILENT_SECONDS, self._context.settings.io_timeout_seconds)):
                watched(area.location, lambda: directory_of(area).exists())
        except UsageError:
            return blocked.read_text()
        blocked.unlink(missing_ok=True)
        return None

    def _lost(self, second: SecondClient) -> str:
        """Return why a second mount does not show the run's files; empty if it shows them.

        If the second client is another host, return an empty text, because the check itself reports a lost host.
        """
        return "" if second.command else fault_of_second_mount(Path(second.directory), self._context.run_area)

    def _once(self, check: Check, seen: Observation) -> Observation:
        """Return ``seen``, or "not run" if an earlier check has already reported that the target no longer works.

        The result is "not run" if all of these conditions hold:

        - ``seen`` has the same fatal error as the earlier check, such as EIO.
        - A test of the target also fails. A full volume that accepts files again passes this test.
        - ``seen`` contains no trials.
        """
        if seen.errno not in _ENDS or not self._has_ended(check):
            return seen
        place = self._logs / "ended.json"
        with (self._logs / "ended.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            before = json.loads(place.read_text()) if place.exists() else None
            if before is None or before["errno"] != seen.errno:
                write_atomically(place, json.dumps({"errno": seen.errno, "check": check.name}) + "\n")
        if before is None or before["errno"] != seen.errno or seen.trials:
            return seen
        because = f"the target answers {seen.errno} since check {before['check']}"
        return Observation(
            requirement=seen.requirement,
            subject=seen.subject,
            seconds=seen.seconds,
            not_run=because,
            errno=seen.errno,
            reproduce=seen.reproduce,
        )

    def _has_ended(self, check: Check) -> bool:
        """Return whether the storage that a check uses no longer answers or no longer accepts a file.

        Called after a fatal error. For an object store, return True without a test, because the error is sufficient.
        """
        area = self._context.small if check.needs == "small directory" else self._context.run_area
        if area is None or check.package == "objects":
            return True
        try:
            with answers_within(min(_SILENT_SECONDS, self._context.settings.io_timeout_seconds)):
                watched(area.location, lambda: check_file_calls(directory_of(area)))
        except UsageError:
            return True
        except OSError as error:
            return errno.errorcode.get(error.errno or 0) in _ENDS
        return False

    def _of_objects(self, check: Check) -> Observation:
        context, settings = self._context, self._context.settings
        return run_object_check(
            check,
            area=dataclasses.replace(context.run_area, access=context.access),
            target=settings.target or "",
            share=settings.effort,
            seed=context.seed,
            deadline_seconds=settings.io_timeout_seconds,
            log_directory=self._logs,
            report_call=lambda _call, _path: self._observer.tick(),
            redactor=context.redactor,
        )

    def _of_target(self, check: Check) -> Observation:
        """Run a check of a file system and return its observation.

        If the run's directory has been replaced before or during the check, return the observation "not run".
        """
        before = self._replaced()
        observation = None if before else self._of_files(check)
        reason = before or self._replaced()
        if observation and not reason:
            return observation
        because = f"the target was replaced: {reason}"
        return Observation(requirement=check.requirement, subject=check.subject, not_run=because, errno=_UNMOUNTED)

    def _replaced(self) -> str:
        """Return a sentence if the run's directory has been replaced; otherwise return an empty text."""
        area = self._context.run_area
        try:
            with answers_within(min(_SILENT_SECONDS, self._context.settings.io_timeout_seconds)):
                now = watched(area.location, lambda: directory_identity(directory_of(area)))
        except UsageError:
            return ""
        if self._standing is None:
            self._standing = now
            if not is_of_area(now, area):
                return f"the run's directory had inode {area.identity[1]}; this is {now.describe()}"
        return describe_change(self._standing, now)

    def _of_files(self, check: Check) -> Observation:
        context, settings = self._context, self._context.settings
        second = context.second_client if check.needs == "second client" else None
        if second and (reason := second.unlike or self._lost(second)):
            return Observation(requirement=check.requirement, subject=check.subject, not_run=reason, errno=_UNMOUNTED)
        if check.needs == "small directory" and context.small:
            volume = directory_of(context.small)
            if reason := unlike_target("the volume that may be filled,", volume.parent, context.target):
                return Observation(requirement=check.requirement, subject=check.subject, not_run=reason)
        witness = context.directory / "witness"
        witness.mkdir(parents=True, exist_ok=True)
        # The path is only printed: on a target that hangs, a call would block this process too.
        directory = directory_of(context.run_area)
        area = context.small if check.needs == "small directory" else None
        small = directory_of(area).parent if area else None
        return run_check(
            check,
            directory=directory.parent,
            second_directory=second.directory if second else None,
            second_command=second.command if second else (),
            second_ports=second.ports if second else None,
            small_directory=small,
            power_cut=shlex.split(settings.power_cut or "") if check.needs == "power cut" else (),
            power_cuts=settings.power_cuts,
            commit=commit_of(area or context.run_area).method,
            witness=witness,
            share=settings.effort,
            seed=context.seed,
            deadline_seconds=settings.io_timeout_seconds,
            log_directory=self._logs,
            report_call=lambda _call, _path: self._observer.tick(),
            redactor=context.redactor,
            within=f"{directory.name}/{CHECKS_DIRECTORY}",
            run_id=context.run_id,
        )

    @property
    def _logs(self) -> Path:
        return self._context.directory / "launches" / "checks"

    @contextlib.contextmanager
    def _claimed(self, check: Check) -> Iterator[None]:
        """In the ``with`` block, let only this pytest-xdist worker run the check.

        A worker that has waited for the block reads the result from the file.
        """
        self._logs.mkdir(parents=True, exist_ok=True)
        with (self._logs / f"{check.name}.log").open("a") as log:
            fcntl.flock(log, fcntl.LOCK_EX)
            yield

    @contextlib.contextmanager
    def _lock(self, *, alone: bool) -> Iterator[None]:
        with (self._context.directory / "lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
            yield


def read_observation(file: Path) -> Observation:
    """Return the observation stored in a file."""
    return from_plain(Observation, json.loads(file.read_text()))
