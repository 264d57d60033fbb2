"""One check of a target's behaviour in a process of its own: started, listened to, left behind if it never ends."""

from __future__ import annotations

import dataclasses
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

from pytest_ckpt.facts.checks import CHECKS_FOLDER
from pytest_ckpt.facts.codec import from_plain
from pytest_ckpt.facts.event_line import Call
from pytest_ckpt.facts.events import from_line
from pytest_ckpt.facts.failure import BlockedCall
from pytest_ckpt.facts.observation import Observation
from pytest_ckpt.support import waits
from pytest_ckpt.support.die_with_parent import tied_to_this_process
from pytest_ckpt.support.processes import (
    MARK,
    blocked_sentence,
    end_session,
    processes_of_session,
    stopped_among,
    tasks_blocked_in,
)
from pytest_ckpt.support.redaction import Redactor
from pytest_ckpt.support.resources import PACKAGE_HOME
from pytest_ckpt.support.units import format_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TextIO

    from pytest_ckpt.facts.checks import Check
    from pytest_ckpt.facts.targets import AreaRef

    Tell = Callable[[str, str], None]

_TICK_SECONDS = 0.25
_START_SECONDS = 60.0
_READ_BYTES = 1 << 16
# What a broken check is told by: the end of what it said.
_LAST_WORDS = 1500
_NOBODY = Redactor()


def run_check(
    check: Check,
    *,
    folder: Path,
    second_folder: str | None = None,
    second_command: Sequence[str] = (),
    second_ports: tuple[int, int] | None = None,
    small_folder: Path | None = None,
    power_cut: Sequence[str] = (),
    power_cuts: int = 3,
    witness: Path,
    share: float,
    seed: int,
    deadline_seconds: float,
    log_folder: Path,
    tell: Tell | None = None,
    within: str = "",
    run_id: str = "",
    redactor: Redactor = _NOBODY,
) -> Observation:
    """Make one check and return what it saw; a check that breaks or never ends gives an observation that says so.

    ``folder`` lies on the target, ``second_folder`` is what the second client calls it. ``within`` names the run's own
    folder below these and ``small_folder``, where the check works; ``reproduce`` leaves it out, since it goes with the
    run. A check that makes no call for ``deadline_seconds`` is reported as blocked within ten seconds more, and killed;
    if the kernel does not let go of it, it is left and named. All that the check says is kept in ``log_folder``;
    ``tell`` hears each (call, path) that it is about to make. ``run_id`` marks its processes as a run's.
    """
    options = _options(
        second_command=second_command,
        second_ports=second_ports,
        power_cut=power_cut,
        power_cuts=power_cuts,
        share=share,
        seed=seed,
    )
    places = {"folder": str(folder), "second-folder": second_folder, "small-folder": small_folder and str(small_folder)}
    named = [f"--{name}={path}" for name, path in places.items() if path]
    used = [f"--{name}={Path(path) / within}" for name, path in places.items() if path]
    command = ["-m", "pytest_ckpt.conformance", check.name]
    seen = _made(
        check,
        [*command, *used, *options, f"--witness={witness}", "--json", *(["--make-folder"] if within else [])],
        deadline_seconds=deadline_seconds,
        log_folder=log_folder,
        tell=tell,
        run_id=run_id,
        redactor=redactor,
    )
    return dataclasses.replace(seen, reproduce=shlex.join([sys.executable, *command, *named, *options]))


def run_object_check(
    check: Check,
    *,
    area: AreaRef,
    target: str,
    share: float,
    seed: int,
    deadline_seconds: float,
    log_folder: Path,
    tell: Tell | None = None,
    redactor: Redactor = _NOBODY,
) -> Observation:
    """Make one check of an object store, below the run's ``area``; ``target`` is what the user called it."""
    access = area.access
    options = [f"--share={share:g}", f"--seed={seed}"]
    options += [f"--endpoint={','.join(access.endpoints)}"] if access.endpoints else []
    options += [f"--ca-bundle={access.ca_bundle}"] if access.ca_bundle else []
    options += ["--embedded"] if access.embedded else []
    command = ["-m", "pytest_ckpt.conformance.objects", check.name]
    seen = _made(
        check,
        [*command, f"--target={area.location}/{CHECKS_FOLDER}", *options, "--json"],
        deadline_seconds=deadline_seconds,
        log_folder=log_folder,
        tell=tell,
        run_id=area.run_id,
        redactor=redactor,
    )
    return dataclasses.replace(seen, reproduce=shlex.join([sys.executable, *command, f"--target={target}", *options]))


def _made(
    check: Check,
    arguments: list[str],
    *,
    deadline_seconds: float,
    log_folder: Path,
    tell: Tell | None,
    run_id: str,
    redactor: Redactor,
) -> Observation:
    """Start a check by these arguments of Python, listen to it, and return what it saw."""
    # -P: a file of the current directory must not replace a module of Python or of ours.
    words = [sys.executable, "-P", *arguments]
    began = time.monotonic()
    with (log_folder / f"{check.name}.log").open("w") as log:
        log.write(redactor.text(shlex.join(words)) + "\n")
        process = subprocess.Popen(
            tied_to_this_process(words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=_environment(run_id),
            start_new_session=True,
        )
        listener = _Listener(process, log, tell, redactor)
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
                # Whenever the kernel lets go of it, it must not stay as a zombie.
                threading.Thread(target=process.wait, daemon=True).start()
            else:
                process.wait()
        log.write(f"exit code {process.returncode}\n")
    seen = Observation(requirement=check.requirement, subject=check.subject, seconds=time.monotonic() - began)
    if blocked and stuck:
        blocked = dataclasses.replace(blocked, stack=f"{blocked.stack}\n{blocked_sentence(stuck)}")
    if blocked:
        # A check may have told what it saw and hang in removing its folder.
        seen = dataclasses.replace(listener.observation() or seen, blocked=blocked)
    else:
        seen = listener.observation() or dataclasses.replace(seen, not_run=halted or listener.how_it_broke())
    return seen


class _Listener:
    """What a check has said so far: the call it is about to make, its result, and everything else."""

    def __init__(self, process: subprocess.Popen[bytes], log: TextIO, tell: Tell | None, redactor: Redactor) -> None:
        assert process.stdout
        assert process.stderr
        self._process = process
        self._streams = (process.stdout, process.stderr)
        self._log = log
        self._tell = tell
        self._redactor = redactor
        self._began = self._moved = time.monotonic()
        self._call, self._path = "start", ""
        self._has_called = False
        self._result = b""
        self._rest = b""
        self._says: list[str] = []

    def follow(self, deadline_seconds: float) -> bool:
        """Listen until the check has ended; return whether it has made no call for the deadline instead."""
        with selectors.DefaultSelector() as selector:
            for stream in self._streams:
                os.set_blocking(stream.fileno(), False)
                selector.register(stream, selectors.EVENT_READ)
            # Not until the pipes are closed: what the check has started may hold them.
            while self._process.poll() is None:
                for key, _ in selector.select(_TICK_SECONDS):
                    if self._read(key.fileobj is self._process.stdout, key.fd) == b"":
                        selector.unregister(key.fileobj)
                waits.look()
                # A busy host takes its time to start a process, which says nothing of the target.
                allowed = deadline_seconds if self._has_called else max(deadline_seconds, _START_SECONDS)
                if time.monotonic() - self._moved > allowed:
                    return True
        return False

    def blocked(self, deadline_seconds: float) -> BlockedCall:
        """Return the call of a check that does not go on, with what the kernel says of each of its tasks."""
        silent = format_seconds(time.monotonic() - self._moved)
        return BlockedCall(
            message=f"no progress for {silent} (--ckpt-deadline {format_seconds(deadline_seconds)})",
            host=socket.gethostname(),
            call=self._call,
            path=self._path,
            stack=tasks_blocked_in(processes_of_session(self._process.pid)),
        )

    def halted(self) -> str:
        """Say that a process of a check that does not go on was stopped; empty if none was."""
        if (stopped := stopped_among(processes_of_session(self._process.pid))) is None:
            return ""
        return (
            f"process {stopped} of the check was stopped on {socket.gethostname()} in {self._call} of {self._path} "
            "(a signal, a debugger or a frozen cgroup); that says nothing of the storage"
        )

    def waits_for(self) -> str:
        """Return which call the check is in, and since when; empty where it has made none."""
        if not self._has_called:
            return ""
        of = f" of {self._path}" if self._path else ""
        return f"it has been in {self._call}{of} for {format_seconds(round(time.monotonic() - self._moved))}"

    def observation(self) -> Observation | None:
        """Return what the check saw, or None when it did not come so far."""
        try:
            return from_plain(Observation, json.loads(self._result))
        except (ValueError, TypeError, AttributeError):
            return None

    def how_it_broke(self) -> str:
        """Return how the check's process ended without having said what it saw."""
        code = self._process.returncode
        text = "\n".join(self._says).strip()[-_LAST_WORDS:]
        # The last line of a traceback is the error; the lines above it show where.
        last = text.rpartition("\n")[2] or "it said nothing"
        if code < 0:
            how = f"killed by signal {-code} ({signal.Signals(-code).name}) in {self._call} of {self._path}: {last}"
        else:
            how = f"exit code {code}: {last}"
        return f"the check itself broke: {how}" + (f"\n{text}" if "\n" in text else "")

    def close(self) -> None:
        """Take in the last words and let go of the pipes."""
        for stream in self._streams:
            while self._read(stream is self._process.stdout, stream.fileno()):
                pass
            stream.close()

    def _read(self, is_result: bool, descriptor: int) -> bytes | None:
        """Take in and return what has arrived: None when nothing has, nothing at the end."""
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
                self._take(line.decode(errors="replace"))
        return data

    def _take(self, line: str) -> None:
        self._log.write(f"+{time.monotonic() - self._began:.3f} s {self._redactor.text(line)}\n")
        before, event = from_line(line)
        if isinstance(event, Call):
            self._call, self._path, self._has_called = event.call, event.path, True
            self._moved = time.monotonic()
            if self._tell:
                self._tell(self._call, self._path)
            line = before
        if line:
            self._says.append(line)


def _options(
    *,
    second_command: Sequence[str],
    second_ports: tuple[int, int] | None,
    power_cut: Sequence[str],
    power_cuts: int,
    share: float,
    seed: int,
) -> list[str]:
    options = [f"--share={share:g}", f"--seed={seed}"]
    if second_command:
        options.append(f"--second-command={shlex.join(second_command)}")
        if second_ports:
            options.append(f"--second-ports={second_ports[0]}-{second_ports[1]}")
    if power_cut:
        options += [f"--power-cut={shlex.join(power_cut)}", f"--power-cuts={power_cuts}"]
    return options


def _environment(run_id: str) -> dict[str, str]:
    paths = [str(PACKAGE_HOME), *filter(None, [os.environ.get("PYTHONPATH")])]
    added = {"PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}
    return {**os.environ, **added, **({MARK: run_id} if run_id else {})}
