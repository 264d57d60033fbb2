"""What a suite may ask for: settings, target, limits, the bench, and the judge of its requirement."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_ckpt.config.options import command_words
from pytest_ckpt.facts.checks import CHECKS
from pytest_ckpt.facts.codec import to_plain
from pytest_ckpt.facts.measurement import OperationKind
from pytest_ckpt.facts.subject import Subject
from pytest_ckpt.facts.verdict import Verdict
from pytest_ckpt.judging.behaviour import missing_need
from pytest_ckpt.judging.completeness import compared_with, is_given
from pytest_ckpt.judging.requirement import Requirement
from pytest_ckpt.judging.starts import with_others
from pytest_ckpt.judging.verdicts import decide, decide_observed, not_run
from pytest_ckpt.launching.measurements import Measurements
from pytest_ckpt.launching.observations import Observations
from pytest_ckpt.launching.observer import Observer
from pytest_ckpt.plugin.carried import Carried, Timed, hang
from pytest_ckpt.plugin.stash import OPEN_RUN, PLUGINS, RUN
from pytest_ckpt.plugin.terminal_observer import TerminalObserver
from pytest_ckpt.report.text import failure_text
from pytest_ckpt.run.crash import keep_traceback, of_report_folder
from pytest_ckpt.sizing.steps import planned_steps
from pytest_ckpt.targets.posix.run_folder import folder_of

if TYPE_CHECKING:
    from pytest_ckpt.facts.settings import Settings
    from pytest_ckpt.run.context import RunContext
    from pytest_ckpt.sizing.limits import ClusterLimits

_CARRIED = pytest.StashKey[Carried]()

# The requirements whose seconds pytest-benchmark follows.
_TIMED: dict[str, OperationKind] = {"SAVE": "save", "LOAD": "load"}


@pytest.fixture(scope="session")
def ckpt_settings(pytestconfig: pytest.Config) -> Settings:
    """What the user decided about the run."""
    return pytestconfig.stash[RUN].settings


@pytest.fixture(scope="session")
def ckpt_limits(pytestconfig: pytest.Config) -> ClusterLimits:
    """The limits of the cluster that the storage is meant for."""
    return pytestconfig.stash[RUN].plan.limits


@pytest.fixture(scope="session")
def ckpt_target(pytestconfig: pytest.Config) -> Path:
    """The run's own folder on the target; a target that has none refuses the test."""
    run = pytestconfig.stash[RUN]
    if "paths" not in run.target.capabilities:
        pytest.fail(f"{run.target.location} has no folders: it is {run.target.description}", pytrace=False)
    return folder_of(run.own_area)


@pytest.fixture(scope="session")
def ckpt_observer(request: pytest.FixtureRequest) -> Observer:
    """Shows how far the session has come with all that it will measure and check."""
    run = request.config.stash[RUN]
    asked = _asked(request.session, run)
    wanted = [c for c in run.plan.runnable if asked.measures(str(c.subject)) and run.is_open(c.subject)]
    steps = [s for c in wanted for s in planned_steps(c, run.settings, run.target)]
    return TerminalObserver(request.config, steps, asked.checks)


@pytest.fixture(scope="session")
def bench(request: pytest.FixtureRequest, ckpt_observer: Observer) -> Measurements:
    """Hands out measurements: the first to ask launches the ranks, for all subjects that the session will ask for."""
    stash = request.config.stash
    opened = stash.get(OPEN_RUN, None)
    bench = Measurements(stash[RUN], ckpt_observer, stash[PLUGINS], opened.waiting if opened else None)
    asked = _asked(request.session, stash[RUN])
    bench.want({c.subject for c in stash[RUN].plan.checkpoints if asked.measures(str(c.subject))})
    return bench


@pytest.fixture(scope="session")
def checks(pytestconfig: pytest.Config, ckpt_observer: Observer) -> Observations:
    """Hands out what checks of the target's behaviour saw; each is made once."""
    return Observations(pytestconfig.stash[RUN], ckpt_observer)


@pytest.fixture
def judge(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Return a function that measures a subject and judges the requirement of this test on it.

    It fails the test when a required requirement is not met and skips it when it could not be decided; a
    failed advisory requirement is reported as such and fails nothing.
    """
    mark = request.node.get_closest_marker("requirement")
    run = request.config.stash[RUN]
    requirement = run.catalogue[mark.args[0]]

    def decide_and_tell(subject: str) -> None:
        try:
            _decide_and_tell(subject)
            return
        except Exception as error:
            sentence = keep_traceback(error, run.folder, run.redactor)
            request.node.stash[_CARRIED] = Carried(crash=sentence)
            if of_report_folder(error, run.folder):
                # So would every other test; the last line of the run tells it, once.
                request.session.shouldfail = sentence = "the report folder cannot be written"
        # Out here, pytest does not print the error a second time as the cause.
        pytest.fail(sentence, pytrace=False)

    def _decide_and_tell(subject: str) -> None:
        if subject not in (known := run.subjects(requirement.id)):
            pytest.fail(f"'{subject}' is no subject of {requirement.id}; it has {', '.join(known)}", pytrace=False)
        if requirement.suite == "conformance":
            verdict = _judge_behaviour(requirement, subject, run, request.getfixturevalue("checks"))
            timed = None
            raw = f"observations/{requirement.id}.{subject}.json"
        else:
            verdict, timed = _judge(requirement, subject, run, request.getfixturevalue("bench"))
            raw = f"measurements/{Subject.from_text(subject).slug}.json"
        verdict = run.waived(verdict)
        request.node.stash[_CARRIED] = Carried(verdict=verdict, timed=timed)
        names = ("subject", "severity", "outcome", "reason", "measured", "limit", "unit", "margin")
        properties = [("requirement", verdict.id), *((name, getattr(verdict, name)) for name in names)]
        request.node.user_properties.extend((name, value) for name, value in properties if value is not None)
        if verdict.outcome in ("not run", "waived"):
            pytest.skip(verdict.because)
        if verdict.outcome == "failed" and verdict.severity == "required":
            explain = ""
            if requirement.suite != "conformance":
                explain = f"pytest-ckpt plan {command_words(run.settings, ('--ckpt-report', '--ckpt-config'))}"
            text = failure_text(to_plain(verdict), explain, requirement.next_step)
            pytest.fail(f"{text}\nraw data: {run.folder / raw}", pytrace=False)

    return decide_and_tell


def carry(item: pytest.Item, report: pytest.TestReport) -> None:
    """Hang what a test decided on its report."""
    if report.when == "call" and _CARRIED in item.stash:
        hang(item.stash[_CARRIED], report)


def _judge(
    requirement: Requirement, subject: str, run: RunContext, bench: Measurements
) -> tuple[Verdict, Timed | None]:
    planned = run.plan.of(Subject.from_text(subject))
    if planned.not_run:
        return not_run(requirement, subject, "not planned", f"{planned.not_run}.", run.gates), None
    if requirement.not_given and not requirement.is_asked(run.settings):
        return not_run(requirement, subject, "not given", requirement.not_given, run.gates), None
    own = requirement.own_launch
    measurement = bench.with_own_launch(planned.subject, own) if own else bench.measurement(planned.subject)
    verdict = decide(requirement, measurement, run.plan.limits, run.gates)
    verdict = with_others(verdict, requirement, bench.others(planned.subject), run.plan.limits, run.gates)
    kind = _TIMED.get(requirement.id)
    if kind is None:
        return verdict, None
    seconds = tuple(o.seconds for o in measurement.of_kind(kind))
    return verdict, Timed(subject=subject, kind=kind, seconds=seconds, bytes=measurement.bytes)


def _judge_behaviour(requirement: Requirement, subject: str, run: RunContext, checks: Observations) -> Verdict:
    (check,) = (c for c in CHECKS if (c.requirement, c.subject) == (requirement.id, subject))
    if not is_given(check, run.settings):
        return not_run(requirement, subject, "not given", missing_need(check), run.gates)
    return decide_observed(requirement, checks.observation(check), run.gates, run.environment.target.kind)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Asked:
    """What the tests of a session ask for: subjects of any suite, and how many checks that can be made."""

    subjects: frozenset[str]
    checks: int

    def measures(self, subject: str) -> bool:
        return subject in self.subjects


def _asked(session: pytest.Session, run: RunContext) -> _Asked:
    params = [getattr(getattr(item, "callspec", None), "params", {}) for item in session.items]
    pairs = {
        (str(mark.args[0]), str(of["subject"]))
        for item, of in zip(session.items, params, strict=True)
        if "subject" in of and (mark := item.get_closest_marker("requirement"))
    }
    made = [
        c
        for c in CHECKS
        if (c.requirement, c.subject) in pairs and is_given(c, run.settings) and not run.observed(c.name)
    ]
    named = {str(of["subject"]) for of in params if "subject" in of}
    beside = compared_with(run.plan, run.settings, [c.subject for c in run.plan.runnable if str(c.subject) in named])
    return _Asked(subjects=frozenset(named | set(map(str, beside))), checks=len(made))
