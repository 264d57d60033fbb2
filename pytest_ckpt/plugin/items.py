"""The tests of a run: one for each requirement and subject. Also the measurements that the tests need."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_ckpt.config.options import command_line_of
from pytest_ckpt.facts.checks import CHECKS
from pytest_ckpt.facts.codec import to_plain
from pytest_ckpt.facts.subject import Subject
from pytest_ckpt.facts.verdict import Verdict
from pytest_ckpt.grading.catalogue import compared_with, is_given
from pytest_ckpt.judging.behaviour import missing_need
from pytest_ckpt.judging.requirement import Requirement
from pytest_ckpt.judging.verdicts import KIND_OF, decide, decide_observed, not_run, verdict_over_starts
from pytest_ckpt.launching.measurements import Measurements
from pytest_ckpt.launching.observations import Observations
from pytest_ckpt.launching.recorder import Observer
from pytest_ckpt.plugin.stash import OPEN_RUN, PLUGINS, RUN
from pytest_ckpt.plugin.terminal import TerminalObserver
from pytest_ckpt.plugin.worker_results import SubjectTimes, TestResult, hang
from pytest_ckpt.report.text import failure_text
from pytest_ckpt.run.crash import of_report_directory, store_traceback
from pytest_ckpt.sizing.steps import planned_steps

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_ckpt.run.context import RunContext

_CARRIED = pytest.StashKey[TestResult]()
_OBSERVER = pytest.StashKey[Observer]()
_MEASUREMENTS = pytest.StashKey[Measurements]()
_OBSERVATIONS = pytest.StashKey[Observations]()


class SuiteFile(pytest.File):
    """A test file of ``suites/``. Its tests are created from the run's catalogue, without an import of the file."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yield the tests of this suite: one for each pair of a requirement in the run and a subject."""
        for requirement in self.config.stash[RUN].catalogue.values():
            if not requirement.plugin and _place_of(requirement)[0].stem == self.path.stem:
                yield from _items_of(requirement, self)


class PluginFile(pytest.File):
    """A file in which a plugin defines requirements.

    The requirements become tests even if the command line names other files. If the command line names only single
    tests (``::``), the requirements do not become tests.
    """

    def collect(self) -> Iterator[pytest.Item]:
        """Yield the tests of this file: one for each pair of a requirement in the run and a subject."""
        for requirement in self.config.stash[RUN].catalogue.values():
            if requirement.plugin and _place_of(requirement)[0] == self.path:
                yield from _items_of(requirement, self)


def items_of_plugins(session: pytest.Session) -> list[pytest.Item]:
    """Return the tests that plugins add."""
    stated = [r for r in session.config.stash[RUN].catalogue.values() if r.plugin]
    files = [PluginFile.from_parent(session, path=path) for path in dict.fromkeys(_place_of(r)[0] for r in stated)]
    return [item for file in files for item in file.collect()]


class RequirementItem(pytest.Item):
    """The test of one requirement on one subject.

    The test's name contains the requirement's id, so ``-k REPEAT`` selects the tests of REPEAT.
    """

    def __init__(self, *, requirement: Requirement, subject: str, **of_pytest: Any) -> None:
        super().__init__(**of_pytest)
        self.requirement, self.subject = requirement, subject

    def runtest(self) -> None:
        """Measure the subject and judge the requirement on the measurement.

        The test fails if a required requirement is not met. The test is skipped if the requirement is undecided or
        waived. A failed advisory requirement does not fail the test; pytest shows the test with the status "advisory".
        """
        run = self.config.stash[RUN]
        try:
            self._decide_and_report(run)
            return
        except Exception as error:
            sentence = store_traceback(error, run.directory, run.redactor)
            self.stash[_CARRIED] = TestResult(crash=sentence)
            if of_report_directory(error, run.directory):
                # Every other test would repeat the error, so the last line of the run reports it once.
                self.session.shouldfail = sentence = "the report directory cannot be written"
        # Outside the except block, so that pytest does not print the error a second time as the cause.
        pytest.fail(sentence, pytrace=False)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return the file, line and name of the requirement, for pytest's reports."""
        path, line = _place_of(self.requirement)
        return path, line, self.name

    def _decide_and_report(self, run: RunContext) -> None:
        requirement, subject = self.requirement, self.subject
        if requirement.suite == "conformance":
            verdict = self._judge_behaviour(run)
            timed = None
            raw = f"observations/{requirement.id}.{subject}.json"
        else:
            verdict, timed = self._judge(run)
            raw = f"measurements/{Subject.from_text(subject).slug}.json"
        verdict = run.waived(verdict)
        self.stash[_CARRIED] = TestResult(verdict=verdict, timed=timed)
        names = ("subject", "severity", "outcome", "reason", "measured", "limit", "unit", "margin")
        properties = [("requirement", verdict.id), *((name, getattr(verdict, name)) for name in names)]
        self.user_properties.extend((name, value) for name, value in properties if value is not None)
        if verdict.outcome in ("not run", "waived"):
            pytest.skip(verdict.because)
        if verdict.outcome == "failed" and verdict.severity == "required":
            explain = ""
            if requirement.suite != "conformance":
                explain = f"pytest-ckpt plan {command_line_of(run.settings, ('--ckpt-report', '--ckpt-config'))}"
            text = failure_text(to_plain(verdict), explain, requirement.next_step)
            pytest.fail(f"{text}\nraw data: {run.directory / raw}", pytrace=False)

    def _judge(self, run: RunContext) -> tuple[Verdict, SubjectTimes | None]:
        requirement, subject = self.requirement, self.subject
        planned = run.plan.of(Subject.from_text(subject))
        if planned.not_run:
            return not_run(requirement, subject, "not planned", f"{planned.not_run}.", run.gates), None
        if requirement.not_given and not requirement.is_requested(run.settings):
            return not_run(requirement, subject, "not given", requirement.not_given, run.gates), None
        own, measured = requirement.own_launch, measurements(self.session)
        measurement = (
            measured.measured_separately(planned.subject, own) if own else measured.measurement(planned.subject)
        )
        verdict = decide(requirement, measurement, run.plan.limits, run.gates)
        verdict = verdict_over_starts(
            verdict, requirement, measured.not_judged(planned.subject), run.plan.limits, run.gates
        )
        kind = KIND_OF.get(requirement.id)
        if kind is None:
            return verdict, None
        seconds = tuple(o.seconds for o in measurement.of_kind(kind))
        return verdict, SubjectTimes(subject=subject, kind=kind, seconds=seconds, bytes=measurement.bytes)

    def _judge_behaviour(self, run: RunContext) -> Verdict:
        requirement, subject = self.requirement, self.subject
        (check,) = (c for c in CHECKS if (c.requirement, c.subject) == (requirement.id, subject))
        if not is_given(check, run.settings):
            return not_run(requirement, subject, "not given", missing_need(check), run.gates)
        observation = _observations(self.session).observation(check)
        kind = run.environment.target.kind
        return decide_observed(requirement, observation, run.gates, kind, run.plan.files_of_host)


def carry(item: pytest.Item, report: pytest.TestReport) -> None:
    """Attach a test's result to its pytest report."""
    if report.when == "call" and _CARRIED in item.stash:
        hang(item.stash[_CARRIED], report)


def measurements(session: pytest.Session) -> Measurements:
    """Return the measurements of the session.

    A launch measures every subject of the selected tests that needs the same number of ranks.
    """
    stash = session.config.stash
    if _MEASUREMENTS not in stash:
        opened, run = stash.get(OPEN_RUN, None), stash[RUN]
        made = Measurements(run, _observer(session), stash[PLUGINS], opened.waiting if opened else None)
        selection = _requirement_items(session, run)
        made.limit_to({c.subject for c in run.plan.checkpoints if str(c.subject) in selection.subjects})
        stash[_MEASUREMENTS] = made
    return stash[_MEASUREMENTS]


def _observations(session: pytest.Session) -> Observations:
    """Return the session's results of behaviour checks; each check runs once."""
    stash = session.config.stash
    if _OBSERVATIONS not in stash:
        stash[_OBSERVATIONS] = Observations(stash[RUN], _observer(session))
    return stash[_OBSERVATIONS]


def _observer(session: pytest.Session) -> Observer:
    """Return the observer that prints the progress of all measurements and checks of the session."""
    stash = session.config.stash
    if _OBSERVER not in stash:
        run = stash[RUN]
        selection = _requirement_items(session, run)
        wanted = [c for c in run.plan.runnable if str(c.subject) in selection.subjects and run.is_open(c.subject)]
        steps = [s for c in wanted for s in planned_steps(c, run.settings, run.target)]
        stash[_OBSERVER] = TerminalObserver(session.config, steps, selection.checks)
    return stash[_OBSERVER]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Selection:
    """The subjects that the selected tests need, and the number of behaviour checks that these tests will run."""

    subjects: frozenset[str]
    checks: int


def _requirement_items(session: pytest.Session, run: RunContext) -> _Selection:
    pairs = {(item.requirement.id, item.subject) for item in session.items if isinstance(item, RequirementItem)}
    made = [
        c
        for c in CHECKS
        if (c.requirement, c.subject) in pairs and is_given(c, run.settings) and not run.observed(c.name)
    ]
    named = {subject for _, subject in pairs}
    compared = compared_with(run.plan, run.settings, [c.subject for c in run.plan.runnable if str(c.subject) in named])
    return _Selection(subjects=frozenset(named | set(map(str, compared))), checks=len(made))


def _items_of(requirement: Requirement, file: pytest.File) -> Iterator[pytest.Item]:
    run = file.config.stash[RUN]
    if run.runs(requirement.id):
        for subject in run.subjects(requirement.id):
            name = f"{requirement.id}[{subject}]"
            yield RequirementItem.from_parent(file, name=name, requirement=requirement, subject=subject)


def _place_of(requirement: Requirement) -> tuple[Path, int]:
    """Return the file and the line, counted from 0, in which a requirement is defined."""
    assert requirement.function is not None
    code = inspect.unwrap(requirement.function).__code__
    return Path(code.co_filename), code.co_firstlineno - 1
