"""Runs each check once: the first caller starts it, the others read its file."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ckpt.conformance.posix.check_folder import check_folder
from pytest_ckpt.facts.codec import from_plain, to_plain
from pytest_ckpt.facts.observation import Observation
from pytest_ckpt.launching.check_runs import run_check, run_object_check
from pytest_ckpt.launching.observer import Observer
from pytest_ckpt.launching.recorder import write_atomically
from pytest_ckpt.support import waits
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.targets.posix.run_folder import folder_of, keep_a_file
from pytest_ckpt.targets.posix.second_mount import lost_area, unlike_target
from pytest_ckpt.targets.posix.standing import Standing, describe_change, is_of_area, standing_of
from pytest_ckpt.targets.watched import answers_within, watched

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_ckpt.facts.checks import Check
    from pytest_ckpt.launching.launch_context import LaunchContext
    from pytest_ckpt.launching.second_client import SecondClient


# What a target answers that has died: each call, until somebody repairs it.
_ENDS = frozenset(
    ("EHOSTDOWN", "EIO", "ENODEV", "ENOENT", "ENOTCONN", "ENXIO", "EREMOTEIO", "EROFS", "ESHUTDOWN", "ESTALE")
)


# A target that did not answer a check gets so long to answer before the next one.
_SILENT_SECONDS = 10.0
_BLOCKED, _SILENT, _GONE = "blocked", "ETIMEDOUT", "ENODEV"


class Observations:
    """Hands out the observations of one run, from the files in its folder; makes those that are not there yet."""

    def __init__(self, context: LaunchContext, observer: Observer | None = None) -> None:
        self._context = context
        self._observer = observer or Observer()
        self._standing: Standing | None = None

    def observation(self, check: Check) -> Observation:
        """Return what a check saw; make it when nobody has yet."""
        file = self._context.folder / "observations" / f"{check.name}.json"
        # What takes the target or its space from others, and what is timed, runs alone; the rest beside each other.
        with self._lock(alone=check.needs in ("power cut", "small folder") or check.is_timed), self._claimed(check):
            if is_made_here := not file.exists():
                self._observer.checking(check.name)
                with waits.waiting(f"check {check.name}"):
                    self._make(check, file)
        seen = read_observation(file)
        if is_made_here:
            self._observer.checked(check.name, seen.seconds)
        return seen

    def _make(self, check: Check, file: Path) -> None:
        if (since := self._silent_since()) is not None:
            because = f"the target has not answered since check {since}"
            silent = Observation(requirement=check.requirement, subject=check.subject, not_run=because, errno=_SILENT)
            self._keep(silent, file)
            return
        seen = self._of_objects(check) if check.room == "objects" else self._of_target(check)
        seen = self._once(check, seen)
        if seen.blocked:
            (self._logs / _BLOCKED).write_text(check.name)
        self._keep(seen, file)

    def _keep(self, seen: Observation, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, json.dumps(self._context.redactor.plain(to_plain(seen)), indent=1) + "\n")

    def _silent_since(self) -> str | None:
        """Return the check that the target did not answer, if it still does not answer; None where it does."""
        blocked = self._logs / _BLOCKED
        area = self._context.own_area
        if not blocked.exists() or "paths" not in self._context.target.capabilities:
            return None
        try:
            with answers_within(min(_SILENT_SECONDS, self._context.settings.deadline_seconds)):
                watched(area.location, lambda: folder_of(area).exists())
        except UsageError:
            return blocked.read_text()
        blocked.unlink(missing_ok=True)
        return None

    def _lost(self, second: SecondClient) -> str:
        """Return why a second mount shows nothing any more; a client on another host says so itself."""
        return "" if second.command else lost_area(Path(second.folder), self._context.own_area)

    def _once(self, check: Check, seen: Observation) -> Observation:
        """Return what a check saw; where an earlier one met the end of the target, only that.

        Of a target that has died one check tells, the first that met it. The others could not be made. One error is
        no end: a full volume may answer EIO as well, and then takes files again.
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
        """Whether the storage of a check takes no file any more."""
        area = self._context.small if check.needs == "small folder" else self._context.own_area
        if area is None or check.room == "objects":
            return True
        try:
            with answers_within(min(_SILENT_SECONDS, self._context.settings.deadline_seconds)):
                watched(area.location, lambda: keep_a_file(folder_of(area)))
        except UsageError:
            return True
        except OSError as error:
            return errno.errorcode.get(error.errno or 0) in _ENDS
        return False

    def _of_objects(self, check: Check) -> Observation:
        context, settings = self._context, self._context.settings
        return run_object_check(
            check,
            area=dataclasses.replace(context.own_area, access=context.access),
            target=settings.target or "",
            share=settings.effort,
            seed=context.seed,
            deadline_seconds=settings.deadline_seconds,
            log_folder=self._logs,
            tell=lambda _call, _path: self._observer.tick(),
            redactor=context.redactor,
        )

    def _of_target(self, check: Check) -> Observation:
        """Make a check of files; where the run's folder is another one before or after it, it saw another storage."""
        before = self._replaced()
        seen = None if before else self._of_files(check)
        why = before or self._replaced()
        if seen and not why:
            return seen
        because = f"the target was replaced: {why}"
        return Observation(requirement=check.requirement, subject=check.subject, not_run=because, errno=_GONE)

    def _replaced(self) -> str:
        """Return what has taken the place of the run's folder, in words; empty where nothing seems to have."""
        area = self._context.own_area
        try:
            with answers_within(min(_SILENT_SECONDS, self._context.settings.deadline_seconds)):
                now = watched(area.location, lambda: standing_of(folder_of(area)))
        except UsageError:
            return ""
        if self._standing is None:
            self._standing = now
            if not is_of_area(now, area):
                return f"the run made folder number {area.identity[1]}; this is {now.describe()}"
        return describe_change(self._standing, now)

    def _of_files(self, check: Check) -> Observation:
        context, settings = self._context, self._context.settings
        second = context.second_client if check.needs == "second client" else None
        if second and (why := second.unlike or self._lost(second)):
            return Observation(requirement=check.requirement, subject=check.subject, not_run=why, errno=_GONE)
        if check.needs == "small folder" and context.small:
            volume = folder_of(context.small)
            if why := unlike_target("the volume that may be filled,", volume.parent, context.target):
                return Observation(requirement=check.requirement, subject=check.subject, not_run=why)
        witness = context.folder / "witness"
        witness.mkdir(parents=True, exist_ok=True)
        folder, within = check_folder(context.own_area)
        small, _ = check_folder(context.small) if context.small and check.needs == "small folder" else (None, "")
        return run_check(
            check,
            folder=folder,
            second_folder=second.folder if second else None,
            second_command=second.command if second else (),
            second_ports=second.ports if second else None,
            small_folder=small,
            power_cut=shlex.split(settings.power_cut or "") if check.needs == "power cut" else (),
            power_cuts=settings.power_cuts,
            witness=witness,
            share=settings.effort,
            seed=context.seed,
            deadline_seconds=settings.deadline_seconds,
            log_folder=self._logs,
            tell=lambda _call, _path: self._observer.tick(),
            redactor=context.redactor,
            within=within,
            run_id=context.run_id,
        )

    @property
    def _logs(self) -> Path:
        return self._context.folder / "launches" / "checks"

    @contextlib.contextmanager
    def _claimed(self, check: Check) -> Iterator[None]:
        """Let one worker make a check while others make other checks: who comes later finds its file."""
        self._logs.mkdir(parents=True, exist_ok=True)
        with (self._logs / f"{check.name}.log").open("a") as log:
            fcntl.flock(log, fcntl.LOCK_EX)
            yield

    @contextlib.contextmanager
    def _lock(self, *, alone: bool) -> Iterator[None]:
        with (self._context.folder / "lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
            yield


def read_observation(file: Path) -> Observation:
    """Return the observation that a file holds."""
    return from_plain(Observation, json.loads(file.read_text()))
