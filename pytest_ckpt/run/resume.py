"""Resumes the run of a report directory: ``--ckpt-resume``.

A run can consist of several invocations of pytest, called starts. A complete measurement is kept if its conditions are
the same, whether it passed or failed. So users cannot choose among results by interrupting a run. Incomplete
measurements are repeated. If one of their finished saves or loads exceeded its limit, the requirement stays failed.
Measurements under other conditions are reported and repeated. Conditions are compared separately for each subject and
each check, because the suites of a run may use different hosts.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ckpt import __version__
from pytest_ckpt.evidence.judged_run import odd_facts_named, recorded_settings
from pytest_ckpt.evidence.manifest import ATTESTATION, MANIFEST, compare
from pytest_ckpt.evidence.run_files import EVENTS, PLAN, REPORT, SESSION, fitting, read_file, short
from pytest_ckpt.evidence.starts import (
    ADDED,
    BROKEN_OFF,
    REPLACED,
    START,
    all_starts,
    completed,
    directory_of_start,
    earlier_starts,
    interrupted_work,
    newest_events,
    running_operations,
)
from pytest_ckpt.evidence.unfinished import report_before_measurements
from pytest_ckpt.facts.checks import CHECKS, Check
from pytest_ckpt.facts.codec import to_plain
from pytest_ckpt.facts.environment import HostFacts
from pytest_ckpt.facts.events import MeasurementDone, MeasurementStarted, SubjectEvents
from pytest_ckpt.facts.failure import Failure
from pytest_ckpt.facts.measurement import Measurement
from pytest_ckpt.facts.observation import Observation
from pytest_ckpt.facts.options import OPTIONS, Option
from pytest_ckpt.facts.settings import SUITES, Origin, Settings
from pytest_ckpt.facts.starts import InterruptedWork, RepeatedMeasurement, Start, is_interruption
from pytest_ckpt.facts.subject import Pattern
from pytest_ckpt.facts.targets import AreaRef, TargetFacts
from pytest_ckpt.grading.catalogue import checkpoints_of_requirement, checks_of_run, is_given, requirements_of_run
from pytest_ckpt.judging.gates import Gates
from pytest_ckpt.judging.verdicts import decide, decide_observed
from pytest_ckpt.launching.measurements import names_of_run, read_measurement
from pytest_ckpt.launching.observations import read_observation
from pytest_ckpt.launching.recorder import measurement_of, write_atomically
from pytest_ckpt.launching.separate_launches import OWN_LAUNCHES
from pytest_ckpt.ranks.process.job import Task
from pytest_ckpt.run.crash import CRASH_FILE
from pytest_ckpt.sizing.patterns import PATTERNS
from pytest_ckpt.sizing.plan import Plan, PlannedCheckpoint, plan_run
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.support.processes import blocked_sentence, end_marked

if TYPE_CHECKING:
    import contextlib

    from pytest_ckpt.judging.requirement import Requirement
    from pytest_ckpt.run.preflight import Preflight
    from pytest_ckpt.targets.protocol import Target

OPTION = "--ckpt-resume"
_CONFORMANCE = "conformance"
_MEASURING_NOTHING = frozenset(("seed", "keep", "own_launch", "patterns", "ramp"))
# Task fields that are parameters of patterns; they matter only for measurements with these patterns.
_PARAMETERS_OF: Mapping[str, tuple[Pattern, ...]] = {
    **{name: (name,) for name in PATTERNS},
    "paced": ("neighbour", "mixed"),
}
# Conditions of checks in addition to the target, for each need of a check.
_OF_CHECKS: Mapping[str, tuple[str, ...]] = {
    "": ("effort", "endpoints"),
    "second client": ("second_mount", "hosts"),
    "power cut": ("power_cut",),
    "small directory": ("small_volume",),
}
_OPTIONS_OF_CHECKS = frozenset(("second_mount", "small_volume", "power_cut"))
# Options that do not affect the measurements of a start; the newest value is used.
_OF_START = frozenset(("suite", "target", "gate_table"))
_OF_TARGET = ("location", "kind", "gate_kind", "is_local", "mount_point", "plugin")
_SEALED = (REPORT, MANIFEST, ATTESTATION, "certificate.html", "certificate.pdf", "junit.xml")
_BROKEN = "the process that ran the measurement was ended"


@dataclass(frozen=True, kw_only=True, slots=True)
class EarlierRun:
    """The run of a report directory, as the last start (pytest invocation) of the run left it.

    ``is_closed``: the last start wrote its report. ``has_gaps``: the last start ended early or omitted a test.
    """

    directory: Path
    report: Mapping[str, Any]
    settings: Settings
    target: TargetFacts
    gates: Gates
    plan: Plan
    hosts: tuple[HostFacts, ...]
    area: AreaRef | None
    is_closed: bool
    has_gaps: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Resumption:
    """The results that a start keeps from earlier starts, and the measurements that it repeats.

    ``number`` is the number of this start. ``settings`` and ``plan`` cover the suites of all starts. ``hosts`` are the
    hosts of saves and loads. ``lacking`` are kept subjects to which patterns (additional measurements) are added.
    ``broken`` and ``broken_checks`` were interrupted. ``replaced`` were measured under other conditions.
    """

    number: int
    settings: Settings
    plan: Plan
    hosts: tuple[HostFacts, ...]
    lacking: tuple[str, ...]
    broken: tuple[Measurement, ...]
    broken_checks: tuple[InterruptedWork, ...]
    replaced: tuple[RepeatedMeasurement, ...]
    notices: tuple[str, ...]


def read_earlier(directory: Path, locks: contextlib.ExitStack) -> EarlierRun:
    """Return the run of a report directory.

    The run is locked against other starts (pytest invocations) until ``locks`` is closed. Raises UsageError if the
    directory contains no run of this version, was changed, or belongs to a run in progress.
    """
    if not (directory / SESSION).is_file():
        raise UsageError(
            f"{OPTION}: {directory} contains no run.",
            "Name the directory of the run with --ckpt-report, or leave --ckpt-resume out.",
        )
    lock_run(directory, locks)
    session, plan = read_file(directory / SESSION), read_file(directory / PLAN)
    with odd_facts_named(directory):
        version = session["environment"]["versions"]["pytest-ckpt"]
        if version != __version__:
            raise UsageError(
                f"{OPTION}: pytest-ckpt {version} began the run of {directory}, this is {__version__}.",
                f"Install pytest-ckpt {version}, or begin a new run without --ckpt-resume.",
            )
        if (directory / MANIFEST).exists() and not (comparison := compare(directory)).is_same:
            names = [*comparison.changed, *comparison.added, *comparison.removed, *comparison.ill_formed]
            raise UsageError(
                f"{OPTION}: {directory} is not as its last start left it: {', '.join(names[:5])}.",
                "Restore the directory from a copy, or begin a new run without --ckpt-resume.",
            )
        begun = report_before_measurements(session, plan)
        settings = recorded_settings(begun, {}, ("plan", "condition"))
        settings = dataclasses.replace(
            settings,
            suites=tuple(session["all_suites"]),
            origins=tuple(fitting(Origin, o) for o in session["settings"]),
        )
        target, gates = fitting(TargetFacts, session["environment"]["target"]), fitting(Gates, session["gate_table"])
        report = read_file(directory / REPORT) if (directory / MANIFEST).exists() else None
        has_gaps = report is None or (
            report["exit_code"] in (2, 3) or any(v["reason"] == "no test" for v in report["requirements"])
        )
        if report is not None:
            begun["run"] |= {"finished": report["run"]["finished"]}
            begun["exit_code"] = report["exit_code"]
        return EarlierRun(
            directory=directory,
            report=begun,
            settings=settings,
            target=target,
            gates=gates,
            plan=plan_run(settings, target, gates.table),
            hosts=tuple(fitting(HostFacts, host) for host in session["environment"]["hosts"]),
            area=fitting(AreaRef, session["area"]) if session["area"] else None,
            is_closed=report is not None,
            has_gaps=has_gaps,
        )


def lock_run(directory: Path, locks: contextlib.ExitStack) -> None:
    """Lock the run of a directory against other starts (pytest invocations) until ``locks`` is closed.

    Raises UsageError if another start is running.
    """
    file = os.open(directory / SESSION, os.O_RDONLY)
    locks.callback(os.close, file)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UsageError(
            f"{OPTION}: the run of {directory} is still in progress.",
            "Wait for its end, or name another --ckpt-report.",
        ) from None
    except OSError:
        # A file system without locks: other starts cannot be detected.
        return


def resumed(earlier: EarlierRun, checked: Preflight, catalogue: Mapping[str, Requirement]) -> Resumption:
    """Return which results of ``earlier`` this start (pytest invocation) keeps, and which measurements it repeats.

    ``checked`` are the results of this start's preflight. Raises UsageError if the run cannot be resumed.
    """
    for name in _OF_TARGET:
        before, now = getattr(earlier.target, name), getattr(checked.facts, name)
        if before != now:
            raise UsageError(
                f"{OPTION}: the run of {earlier.directory} is of another target ({name.replace('_', ' ')}: {before}, "
                f"and now {now}).",
                "Name the same --ckpt-target, or begin a new run without --ckpt-resume.",
            )
    now = checked.settings
    whole = _combined_settings(earlier, now)
    plan = plan_run(whole, checked.facts, checked.gates.table)
    hosts = checked.hosts if now.measures else earlier.hosts
    subjects = _Subjects(earlier, checked)
    checks = _Checks(earlier, checked, catalogue)
    if earlier.is_closed and not earlier.has_gaps and not (subjects.open or checks.open):
        raise UsageError(
            f"{OPTION}: the run of {earlier.directory} is complete, and these options do not add to it.",
            "Add a suite (--ckpt-suite), or begin a new run without --ckpt-resume.",
        )
    archived = earlier_starts(earlier.directory)
    # A start may have been killed after it had moved the previous start's files, and before its own beginning.
    is_archived = any(start.id == earlier.report["run"]["id"] for start in archived)
    number = len(archived) + (0 if is_archived else 1)
    kept = len(subjects.kept) + len(checks.kept)
    replaced = (*subjects.replaced, *checks.replaced)
    notices = [f"continuing the run of {earlier.directory}: {kept} complete measurements and checks are kept"]
    notices += [f"measured again, it was broken off: {m.subject}" for m in subjects.broken]
    notices += [f"measured again: {r.name} ({'; '.join(r.differences)})" for r in replaced]
    return Resumption(
        number=number + 1,
        settings=whole,
        plan=plan,
        hosts=hosts,
        lacking=tuple(subjects.lacking),
        broken=tuple(subjects.broken),
        broken_checks=tuple(checks.broken),
        replaced=replaced,
        notices=tuple(notices),
    )


def archive(earlier: EarlierRun, resumption: Resumption) -> None:
    """Archive records of the last start in ``starts/``, so that this start can write its own.

    First the session, the plan, the report and the certificate are copied. Then the files that this start writes again
    are moved or removed. Valid measurements and checks remain. If this process is killed, the next start completes the
    archive. Raises OSError.
    """
    directory, number = earlier.directory, resumption.number - 1
    place = directory_of_start(directory, number)
    place.mkdir(parents=True, exist_ok=True)
    if not (place / START).exists():
        for name in (SESSION, PLAN, REPORT, "certificate.html"):
            if (directory / name).exists():
                shutil.copyfile(directory / name, place / name)
        for measurement in resumption.broken:
            _write(place / BROKEN_OFF / f"{measurement.subject.slug}.json", measurement)
        _write(place / START, _ended(earlier, resumption))
    for name in _SEALED:
        (directory / name).unlink(missing_ok=True)
    for name in (EVENTS, CRASH_FILE):
        if (directory / name).exists():
            (directory / name).replace(place / name)
    for name in ("checks", "probe"):
        if (directory / "launches" / name).exists():
            (directory / "launches" / name).rename(place / name)
    for measurement in resumption.broken:
        _clear_broken(earlier, measurement)
    for replaced in resumption.replaced:
        for file in _files_of(directory, replaced.name, (ADDED, BROKEN_OFF)):
            target = place / REPLACED / file.parent.name / file.name
            target.parent.mkdir(parents=True, exist_ok=True)
            file.replace(target)
    for check in resumption.broken_checks:
        (directory / "observations" / f"{check.name}.json").unlink(missing_ok=True)


def clear_area(earlier: EarlierRun, target: Target, seconds: float) -> list[str]:
    """Remove the files that a killed start left on the target; return a sentence for each remaining file.

    If a process of this start cannot be ended, remove nothing and return a sentence about the process.
    """
    area = earlier.area
    # A server that the start ran itself has ended with it.
    if earlier.is_closed or area is None or area.access.embedded:
        return []
    if stuck := end_marked(area.run_id):
        return [f"the files of the killed start stay on the target: {blocked_sentence(stuck)}"]
    return target.clean(area, names_of_run(earlier.plan.runnable), seconds)


def _ended(earlier: EarlierRun, resumption: Resumption) -> Start:
    """Return the record of the last start: its complete and incomplete measurements."""
    measurements, observations = completed(earlier.directory, earlier.plan), _observations(earlier.directory)
    *_, last = all_starts(
        earlier.directory, earlier.report["run"], earlier.report.get("exit_code"), measurements, observations
    )
    unmade = {check.name for check in resumption.broken_checks}
    return dataclasses.replace(
        last,
        measured=tuple(name for name in last.measured if name not in unmade),
        interrupted_work=(*interrupted_work(earlier.directory, resumption.broken), *resumption.broken_checks),
        replaced=resumption.replaced,
    )


def _clear_broken(earlier: EarlierRun, measurement: Measurement) -> None:
    """Remove an interrupted measurement, because this start repeats it.

    If only a pattern (an additional measurement) with a separate launch was interrupted, remove only that pattern.
    """
    for file in _files_of(earlier.directory, str(measurement.subject)):
        stored = read_measurement(file)
        if is_interruption(stored.failure):
            file.unlink()
        elif (cleared := _without_broken_patterns(stored)) != stored:
            _write(file, cleared)


def _without_broken_patterns(measurement: Measurement) -> Measurement:
    patterns = measurement.patterns
    if patterns is None:
        return measurement
    missing: dict[str, Any] = {}
    for name in OWN_LAUNCHES:
        if (result := patterns.result_of(name)) and is_interruption(result.failure):
            missing[name] = None
    return (
        dataclasses.replace(measurement, patterns=dataclasses.replace(patterns, **missing)) if missing else measurement
    )


def _files_of(directory: Path, name: str, kinds: Sequence[str] = (ADDED,)) -> Iterator[Path]:
    """Yield the files of all starts that contain the measurements of a subject or the observation of a check.

    ``name`` is the name of the subject or check. ``kinds`` are the names of the directories to search for earlier
    starts.
    """
    places = [directory / "measurements", directory / "observations"]
    places += [place for kind in kinds for place in sorted(directory.glob(f"starts/*/{kind}"))]
    slug = name.replace("/", "+")
    yield from (file for place in places if (file := place / f"{slug}.json").exists())


def _write(file: Path, record: Any) -> None:
    write_atomically(file, json.dumps(to_plain(record), indent=1) + "\n")


class _Subjects:
    """The subjects of an earlier run, divided into kept and repeated subjects."""

    def __init__(self, earlier: EarlierRun, checked: Preflight) -> None:
        self.kept: list[str] = []
        self.lacking: list[str] = []
        self.replaced: list[RepeatedMeasurement] = []
        self._earlier, self._checked = earlier, checked
        is_selected = checked.settings.measures
        now = {str(c.subject): c for c in checked.plan.runnable} if is_selected else {}
        there = {str(m.subject): m for m in completed(earlier.directory, earlier.plan, without=is_interruption)}
        self.broken = [*_broken(earlier)]
        for name, measurement in there.items():
            planned = now.get(name)
            if is_selected and planned is None:
                raise UsageError(
                    f"{OPTION}: the run of {earlier.directory} has measured {name}, which these options leave out.",
                    "Also name its model, mode, engine and strategy: existing measurements are not repeated.",
                )
            if planned and (differences := self._differences(planned, measurement)):
                self.replaced.append(
                    RepeatedMeasurement(name=name, differences=differences, failed=self._failed(measurement))
                )
                continue
            self.kept.append(name)
            if planned and self._lacks(planned, measurement):
                self.lacking.append(name)
        measured = ((now[name], _without_broken_patterns(m)) for name, m in there.items() if name in now)
        lacks_own = any(
            PATTERNS[name].is_requested(planned, checked.settings)
            and not (m.failure or (m.patterns and m.patterns.result_of(name)))
            for planned, m in measured
            for name in OWN_LAUNCHES
        )
        self.open = bool(set(now) - set(self.kept) or self.lacking or lacks_own)

    def _tasks(self, planned: PlannedCheckpoint) -> tuple[dict[str, Any], dict[str, Any]]:
        before = self._earlier.plan.of(planned.subject)
        return (
            to_plain(Task.of(before, self._earlier.settings, 0)),
            to_plain(Task.of(planned, self._checked.settings, 0)),
        )

    def _differences(self, planned: PlannedCheckpoint, measurement: Measurement) -> tuple[str, ...]:
        """Return a sentence for each condition of this start that differs from the conditions of the measurement."""
        before, now = self._tasks(planned)
        ignored = _MEASURING_NOTHING | {
            name
            for name, patterns in _PARAMETERS_OF.items()
            if name in now and not (before[name] and now[name] and any(_has(measurement, p) for p in patterns))
        }
        sentences = [_difference(name, before[name], now[name]) for name in now if name not in ignored]
        earlier, settings = self._earlier.settings, self._checked.settings
        for name in ("io_size_bytes", "endpoints", "client_cache_bytes"):
            sentences.append(_difference(name, getattr(earlier, name), getattr(settings, name)))
        sentences.append(_difference("io_depth", *(of.io_depth or "not set" for of in (earlier, settings))))
        hosts = [sorted((h.host, len(h.ranks)) for h in hosts) for hosts in (self._earlier.hosts, self._checked.hosts)]
        sentences.append(_difference("hosts", *hosts) if all(hosts) else "")
        return tuple(filter(None, sentences))

    def _lacks(self, planned: PlannedCheckpoint, measurement: Measurement) -> bool:
        """Return whether a requested pattern (an additional measurement) is missing in ``measurement``.

        The result is False for a failed measurement, because its failure is kept as the result.
        """
        wanted = Task.of(planned, self._checked.settings, 0).patterns
        return not measurement.failure and not all(_has(measurement, name) for name in wanted)

    def _failed(self, measurement: Measurement) -> tuple[str, ...]:
        """Return the ids of the requirements that a measurement fails under the limits of this start."""
        earlier = self._earlier
        requested = [
            r
            for r in requirements_of_run(earlier.settings, earlier.gates, self._checked.catalogue)
            if r.is_measured and not r.plugin and r.suite in earlier.settings.suites
            if any(c.subject == measurement.subject for c in checkpoints_of_requirement(r, earlier.plan))
        ]
        limits = self._checked.plan.limits
        return tuple(r.id for r in requested if decide(r, measurement, limits, earlier.gates).outcome == "failed")


def _has(measurement: Measurement, name: Pattern) -> bool:
    patterns = measurement.patterns
    return patterns is not None and (patterns.result_of(name) is not None or name in patterns.not_run)


def _broken(earlier: EarlierRun) -> Iterator[Measurement]:
    """Yield the measurements that the last start began and did not complete or did not write."""
    written = set()
    for planned in earlier.plan.checkpoints:
        for file in _files_of(earlier.directory, str(planned.subject)):
            stored = read_measurement(file)
            if is_interruption(stored.failure) or _without_broken_patterns(stored) != stored:
                written.add(stored.subject)
                yield stored
    yield from (m for m in _unwritten(earlier) if m.subject not in written)


class _Checks:
    """The checks of an earlier run, divided into kept and repeated checks."""

    def __init__(self, earlier: EarlierRun, checked: Preflight, catalogue: Mapping[str, Requirement]) -> None:
        self.kept: list[str] = []
        self.broken: list[InterruptedWork] = []
        self.replaced: list[RepeatedMeasurement] = []
        is_selected = _CONFORMANCE in checked.settings.suites
        requested = _checks_by_name(checked) if is_selected else {}
        there = {f"{o.requirement}.{o.subject}": o for o in _observations(earlier.directory)}
        for log in sorted((earlier.directory / "launches" / "checks").glob("*.log")):
            if log.stem not in there and log.stat().st_size:
                self.broken.append(InterruptedWork(name=log.stem, operation="", operations=0, why=_BROKEN))
        for name, observation in there.items():
            check = requested.get(name)
            verdict = decide_observed(
                catalogue[observation.requirement],
                observation,
                earlier.gates,
                earlier.target.kind,
                earlier.plan.files_of_host,
            )
            differences = tuple(_of_check(check, earlier.settings, checked.settings)) if check else ()
            if check and verdict.outcome == "not run" and observation.errno:
                self.broken.append(InterruptedWork(name=name, operation="", operations=0, why=verdict.because))
            elif differences:
                failed = (observation.requirement,) if verdict.outcome == "failed" else ()
                self.replaced.append(RepeatedMeasurement(name=name, differences=differences, failed=failed))
            else:
                self.kept.append(name)
        self.open = bool(set(requested) - set(self.kept))


def _checks_by_name(checked: Preflight) -> dict[str, Check]:
    checks: Iterable[Check] = (
        check
        for requirement in checked.catalogue.values()
        for check in checks_of_run(requirement, checked.settings, checked.gates)
        if requirement.suite == _CONFORMANCE and is_given(check, checked.settings)
    )
    return {check.name: check for check in checks}


def _of_check(check: Check, before: Settings, now: Settings) -> Iterator[str]:
    for name in (*_OF_CHECKS[""], *(_OF_CHECKS[check.needs] if check.needs else ())):
        if difference := _difference(name, getattr(before, name), getattr(now, name)):
            yield difference


def _difference(name: str, before: Any, now: Any) -> str:
    """Return a sentence if the condition ``name`` has changed; otherwise empty."""
    if to_plain(before) == to_plain(now):
        return ""
    return f"{name.replace('_', ' ')}: {short(before)}, now {short(now)}"


def _observations(directory: Path) -> list[Observation]:
    names = {check.name for check in CHECKS}
    return [read_observation(f) for f in sorted((directory / "observations").glob("*.json")) if f.stem in names]


def _unwritten(earlier: EarlierRun) -> Iterator[Measurement]:
    """Yield the measurements that the last start began but did not write, because its process was killed."""
    stated: dict[str, SubjectEvents] = {}
    now: SubjectEvents | None = None
    for event in newest_events(earlier.directory):
        if isinstance(event, MeasurementStarted):
            now = stated[str(event.subject)] = SubjectEvents(subject=event.subject)
        elif now:
            now.record(event)
            if isinstance(event, MeasurementDone):
                now = None
    launches = len(list((earlier.directory / "launches").glob("[0-9]*")))
    running = running_operations(earlier.directory)
    seed = int(earlier.report["run"]["seed"])
    for name, events in stated.items():
        if name in running and any(str(c.subject) == name for c in earlier.plan.runnable):
            planned = earlier.plan.of(events.subject)
            failure = Failure(kind="interrupted", message=_BROKEN)
            task = Task.of(planned, earlier.settings, seed)
            yield measurement_of(events, planned, task, f"launches/{launches}", {}, failure)


def _combined_settings(earlier: EarlierRun, now: Settings) -> Settings:
    """Return the settings of the whole run.

    For suites that this start omits, the settings of earlier starts are used.
    """
    before = earlier.settings
    carried = [suite for suite in before.suites if suite not in now.suites]
    if not carried:
        return now
    if _option_value(before, "profile") != _option_value(now, "profile"):
        raise UsageError(
            f"{OPTION}: the run of {earlier.directory} has the profile {_option_value(before, 'profile')}.",
            f"Choose --ckpt-profile={_option_value(before, 'profile')}.",
        )
    suites = tuple(suite for suite in SUITES if suite in {*before.suites, *now.suites})
    older = [option for option in OPTIONS if _is_of_before(option, carried, now)]
    fields = {option.field or option.key: None for option in older if option.field != "-"}
    origins = {origin.option: origin for origin in now.origins}
    origins |= {o.option: o for o in before.origins if o.option in {option.flag for option in older}}
    suite = origins["--ckpt-suite"]
    origins["--ckpt-suite"] = dataclasses.replace(suite, value=",".join(suites), source="all starts")
    return dataclasses.replace(
        now,
        **{name: getattr(before, name) for name in fields},
        suites=suites,
        origins=tuple(origins.values()),
    )


def _is_of_before(option: Option, carried: list[str], now: Settings) -> bool:
    if option.key in _OF_START or "limit" in option.roles:
        return False
    if option.key in _OPTIONS_OF_CHECKS:
        return _CONFORMANCE in carried
    if option.suite:
        return option.suite in carried
    return not now.measures and bool({"plan", "condition"} & set(option.roles))


def _option_value(settings: Settings, key: str) -> str:
    return next((o.value for o in settings.origins if o.option == f"--ckpt-{key}"), "")
