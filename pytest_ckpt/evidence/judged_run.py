"""Judges the files of a run directory again with this version, for `judge`, `verify` and the writers of a run.

The facts of a run are its measurements and observations (results of checks). Verdicts are derived from the facts.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pytest_ckpt import __version__
from pytest_ckpt.config.engines import known_engines, recorded_engine
from pytest_ckpt.config.gate_files import built_in, load_gates
from pytest_ckpt.config.models import recorded_models
from pytest_ckpt.config.options import resolve
from pytest_ckpt.evidence.manifest import MANIFEST, compare
from pytest_ckpt.evidence.run_files import (
    PLAN,
    REPORT,
    SESSION,
    VERIFY_REMEDY,
    Document,
    ReadDocument,
    fitting,
    not_ours,
    read_file,
    read_observations,
    read_report,
)
from pytest_ckpt.evidence.starts import additional_measurements, all_starts, completed
from pytest_ckpt.evidence.unfinished import as_incomplete, decidable, is_unfinished, report_before_measurements
from pytest_ckpt.facts.checks import CHECKS
from pytest_ckpt.facts.codec import to_plain
from pytest_ckpt.facts.gate_tables import GATE_TABLES
from pytest_ckpt.facts.measurement import Measurement
from pytest_ckpt.facts.observation import Observation
from pytest_ckpt.facts.options import OPTIONS, Role, with_role
from pytest_ckpt.facts.settings import Origin, Settings
from pytest_ckpt.facts.starts import Start
from pytest_ckpt.facts.targets import TargetFacts
from pytest_ckpt.facts.verdict import Verdict
from pytest_ckpt.grading.catalogue import (
    CATALOGUE_NAMES,
    catalogue_of_names,
    chosen_suites,
    extended,
    offered,
    recorded,
)
from pytest_ckpt.grading.document import create_document
from pytest_ckpt.grading.grading import (
    EXIT_CRASHED,
    EXIT_INCOMPLETE,
    Judgement,
    judge_run,
    of_crashed_run,
    without_plugins,
)
from pytest_ckpt.judging.clients import clients_of
from pytest_ckpt.judging.gates import Gates
from pytest_ckpt.judging.requirement import Requirement
from pytest_ckpt.judging.verdicts import (
    AdditionalMeasurement,
    decide,
    decide_observed,
    not_run,
    severity_of,
    verdict_over_starts,
)
from pytest_ckpt.judging.waivers import Waiver
from pytest_ckpt.sizing.plan import Plan, plan_run
from pytest_ckpt.support.errors import UsageError

NO_FACTS = "This directory does not contain its measurement."


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class _Facts:
    """The files of a run directory from which verdicts are derived.

    ``kind`` is the target's file system or protocol. ``others`` is {subject: its additional measurements}. An
    additional measurement was interrupted, or it only adds access patterns.
    """

    kind: str
    plan: Plan
    gates: Gates
    measurements: Mapping[str, Measurement]
    observations: Mapping[tuple[str, str], Observation]
    others: Mapping[str, Sequence[AdditionalMeasurement]]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class JudgedRun:
    """A run that was judged again: the content of its directory, and the new verdicts (``judgement``).

    ``catalogue_names`` lists the requirements and checks of the version that performed the run. ``extras`` are the
    requirements of plugins, read from the report.
    """

    report: ReadDocument
    settings: Settings
    target: TargetFacts
    plan: Plan
    gates: Gates
    catalogue: Mapping[str, Requirement]
    catalogue_names: tuple[str, ...]
    extras: tuple[Requirement, ...]
    measurements: tuple[Measurement, ...]
    observations: tuple[Observation, ...]
    waivers: tuple[Waiver, ...]
    judgement: Judgement
    starts: tuple[Start, ...]

    def document(self, *, foresees: bool = True) -> Document:
        """Return the new report of the run. The report contains a forecast only if ``foresees`` is true."""
        document = create_document(
            foresees=foresees,
            # The certificate in the directory belongs to the original judgement.
            run={**self.report["run"], "directory": ""},
            plan=self.plan,
            settings=self.settings,
            gates=self.gates,
            waivers=self.waivers,
            judgement=self.judgement,
            exit_code=self.judgement.exit_code,
            measurements=self.measurements,
            observations=self.observations,
            environment=self.report["environment"],
            stages=self.report["stages"],
            left_behind=self.report["left_behind"],
            system=self.report.get("system"),
            catalogue=self.catalogue,
            catalogue_names=self.catalogue_names,
        )
        return document | {"starts": to_plain(self.starts)}


def judged_run(
    directory: Path,
    report: ReadDocument,
    command_line: Mapping[str, str | None],
    *,
    as_recorded: bool,
    decides_all: bool = False,
) -> JudgedRun:
    """Return a run, judged again from the files of its directory.

    ``report`` is the report of the run. ``command_line`` contains the options of the new judgement. If ``as_recorded``
    is true, the verdicts of plugins are kept unchanged. Requirements of deselected tests or suites were not run. If
    ``decides_all`` is true, these requirements are also judged if the directory has facts for them. Raises UsageError,
    or any error that invalid facts cause.
    """
    extras = recorded(report.get("catalogue") or ())
    settings = recorded_settings(report, command_line)
    if as_recorded:
        settings = dataclasses.replace(settings, origins=tuple(fitting(Origin, s) for s in report["settings"]))
    target = fitting(TargetFacts, report["environment"]["target"])
    # Requirements and checks that were added after the run are not part of it: they are neither judged nor missing.
    names = tuple(report["catalogue_names"])
    catalogue = catalogue_of_names(offered(extended(extras), target.capabilities), names)
    gate_file = command_line.get("ckpt_gate_table")
    gates = load_gates(gate_file, target.gate_kind, catalogue) if gate_file else fitting(Gates, report["gate_table"])
    later = {check.name: "off" for check in CHECKS if check.name not in names}
    gates_with_later = dataclasses.replace(gates, kinds=gates.kinds | later)
    settings = dataclasses.replace(settings, suites=chosen_suites(settings, gates_with_later, catalogue))
    plan = plan_run(settings, target, gates.table)
    measurements = completed(directory, plan)
    if "page cache" in target.capabilities and any(m.cache and m.cache.is_declared_cold for m in measurements):
        raise not_ours(
            directory, "contains data that no run writes", ["its target has a page cache, and loads were not counted"]
        )
    observations = read_observations(directory)
    facts = _Facts(
        kind=target.kind,
        plan=plan,
        gates=gates_with_later,
        measurements={str(m.subject): m for m in measurements},
        observations={(o.requirement, o.subject): o for o in observations},
        others=additional_measurements(directory, plan),
    )
    verdicts = _verdicts(report, settings, facts, catalogue, as_recorded=as_recorded, decides_all=decides_all)
    waivers = tuple(fitting(Waiver, w) for w in report.get("waivers", []))
    judgement = judge_run(
        plan,
        settings,
        gates_with_later,
        verdicts,
        measurements,
        waivers,
        report["run"]["started"],
        catalogue,
        clients_of(report["environment"]),
    )
    if report.get("exit_code") == EXIT_CRASHED:
        judgement = of_crashed_run(judgement)
    if not as_recorded:
        judgement = without_plugins(judgement, {r.id: r.plugin for r in extras})
    return JudgedRun(
        report=report,
        settings=settings,
        target=target,
        plan=plan,
        gates=gates,
        catalogue=catalogue,
        catalogue_names=names,
        extras=extras,
        measurements=tuple(measurements),
        observations=tuple(observations),
        waivers=waivers,
        judgement=judgement,
        starts=all_starts(directory, report["run"], report.get("exit_code"), measurements, observations),
    )


def _verdicts(
    report: ReadDocument,
    settings: Settings,
    facts: _Facts,
    catalogue: Mapping[str, Requirement],
    *,
    as_recorded: bool,
    decides_all: bool,
) -> list[Verdict]:
    """Return new verdicts on all requirements of the report.

    If the run has no report, each requirement with facts is judged. If ``decides_all`` is false, requirements that were
    not run because of a deselected test or suite are left out.
    """
    plan, gates = facts.plan, facts.gates
    chosen = chosen_suites(settings, gates, catalogue)
    if "requirements" in report:
        has_same_limits = _has_same_limits(report, plan)
        places = [fitting(Verdict, v) for v in report["requirements"]]
    else:
        has_same_limits = True
        places = [
            *decidable(
                plan, settings, gates, catalogue, measured=facts.measurements.keys(), observed=facts.observations.keys()
            )
        ]
    verdicts = []
    for recorded_verdict in places:
        if recorded_verdict.id not in catalogue:
            continue
        requirement = catalogue[recorded_verdict.id]
        was_left_out = recorded_verdict.reason == "no test" or (
            recorded_verdict.outcome == "not run" and requirement.suite not in chosen
        )
        # If a test did not run in the original run, its requirement is left out, even if its facts exist.
        if was_left_out and not decides_all:
            continue
        if requirement.plugin and recorded_verdict.subject in facts.measurements:
            kept = (
                recorded_verdict
                if as_recorded
                else _recorded_verdict(recorded_verdict, requirement.plugin, has_same_limits=has_same_limits)
            )
            verdict = dataclasses.replace(kept, severity=severity_of(requirement, recorded_verdict.subject, gates))
        else:
            verdict = _decide(requirement, recorded_verdict, facts)
        if verdict.outcome != "not run" or requirement.suite in chosen:
            verdicts.append(verdict)
    return verdicts


def _recorded_verdict(verdict: Verdict, plugin: str, *, has_same_limits: bool) -> Verdict:
    """Return the recorded verdict of a plugin, with a note that the verdict was not judged again.

    If the limits have changed since the run, the outcome is "not run".
    """
    needed = f"Not re-judged: plugin {plugin} is needed."
    if has_same_limits:
        return dataclasses.replace(verdict, because=f"{needed} In the run: {verdict.because}")
    was = f"By the limits of the run it was {verdict.outcome}: {verdict.because}"
    return dataclasses.replace(
        verdict, outcome="not run", because=f"{needed} {was}", measured=None, limit=None, margin=None, detail=""
    )


def _has_same_limits(report: ReadDocument, plan: Plan) -> bool:
    now = {name: value for name, value in plan.limits.to_plain().items() if isinstance(value, int | float)}
    then = report["cluster"]
    return all(math.isclose(value, then.get(name, math.nan), rel_tol=1e-9) for name, value in now.items())


def _decide(requirement: Requirement, found: Verdict, facts: _Facts) -> Verdict:
    """Return the new verdict on a requirement. ``found`` is the verdict that the run recorded."""
    subject, gates = found.subject, facts.gates
    if measurement := facts.measurements.get(subject):
        verdict = decide(requirement, measurement, facts.plan.limits, gates)
        return verdict_over_starts(verdict, requirement, facts.others.get(subject, ()), facts.plan.limits, gates)
    if observation := facts.observations.get((found.id, subject)):
        return decide_observed(requirement, observation, gates, facts.kind, facts.plan.files_of_host)
    if found.outcome == "not run":
        return dataclasses.replace(found, severity=severity_of(requirement, subject, gates))
    # A statement is evidence only if a file other than the report contains it.
    return not_run(requirement, subject, "no facts", NO_FACTS, gates)


def recorded_settings(
    report: ReadDocument, command_line: Mapping[str, str | None], roles: Sequence[Role] = ("plan",)
) -> Settings:
    """Return the settings of a run, for the options that have one of the ``roles``.

    Values in ``command_line`` take precedence over the recorded values.
    """
    flags = {option.flag: option.ini_name for role in roles for option in with_role(role)}
    fields = {flags[s["option"]]: s["value"] for s in report["settings"] if s["option"] in flags and s["value"]}
    hosts = report["environment"]["hosts"]
    if len(hosts) > 1:
        fields["ckpt_hosts"] = ",".join(f"{host['host']}:{max(1, len(host['ranks']))}" for host in hosts)
    ranks = sum(len(host["ranks"]) for host in hosts)
    if ranks and "ckpt_ranks" not in fields:
        fields["ckpt_ranks"] = str(ranks)
    recorded = [recorded_engine(c["engine"]) for c in report["checkpoints"] if c.get("engine")]
    return resolve(
        command_line,
        fields,
        ini_source="the run",
        engines=known_engines(recorded),
        kept=recorded_models(report["checkpoints"]),
    )


SECTIONS_LEFT_OUT = "what plugins wrote about the run's own verdicts is not repeated here"

_JUDGED = (REPORT, "measurements/", "observations/")


def judge_directory(
    directory: Path,
    command_line: Mapping[str, str | None],
    *,
    as_recorded: bool = False,
    foresees: bool = True,
    report: ReadDocument | None = None,
    moment: str = "",
) -> Document:
    """Return the report of a run directory, judged again. ``command_line`` contains the limits that the user gave.

    If the limits are those of the run, the verdicts are the same as in the run. Plugins are not available, so their
    verdicts cannot be judged again. With the limits of the run, the verdicts of plugins are kept and marked. With other
    limits, these verdicts become "not run". In both cases, the report does not certify the run. If ``as_recorded`` is
    true, the verdicts of plugins are kept unchanged, for a comparison.

    If ``foresees`` is true, the report contains a forecast, which needs numpy. ``report`` is the report of the
    directory, if the caller has read it. ``moment`` is the time of this judgement for the field ``judged_again``; if it
    is empty, the field is left out. If the controller of the run was killed, the run is judged from its files and is
    "incomplete".

    Raises UsageError if the directory contains no run, or a file that no run writes.
    """
    unfinished = is_unfinished(directory)
    content = read_file(directory / SESSION) if unfinished else report or read_report(directory)
    with odd_facts_named(directory):
        begun = report_before_measurements(content, read_file(directory / PLAN)) if unfinished else content
        document = _judge(directory, begun, command_line, as_recorded=as_recorded, foresees=foresees)
        if moment:
            document["judged_again"] = _judged_again(begun, document, command_line, moment)
        return as_incomplete(document) if unfinished else document


@contextlib.contextmanager
def odd_facts_named(directory: Path) -> Iterator[None]:
    """Return a context manager that turns errors caused by implausible facts of a directory into UsageError.

    Such facts have a valid form. Examples of errors: a division by zero, the median of an empty list, a missing field.
    """
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise UsageError(
            f"{directory} cannot be judged: it contains data that no run writes ({type(error).__name__}: {error}).",
            VERIFY_REMEDY,
        ) from None


def judge_sealed_directory(
    directory: Path, command_line: Mapping[str, str | None], *, foresees: bool = True, moment: str = ""
) -> Document:
    """Return the report of a run directory, judged again. If the facts were changed, the run does not pass.

    In this case, the report lists the changes. Only the report, the measurements and the observations are compared with
    the manifest. ``moment`` is the time of this judgement in ISO 8601. If ``moment`` is given, the report also contains
    the original cluster and grade. Raises the same errors as `judge_directory`.
    """
    document = judge_directory(directory, command_line, foresees=foresees, moment=moment)
    if is_unfinished(directory) or not (changed := changes_of_facts(directory)):
        return document
    return without_trust(document, [f"The directory is not as its run left it: {', '.join(changed)}. {VERIFY_REMEDY}"])


def without_trust(document: Document, reasons: Sequence[str]) -> Document:
    """Change a report that is based on changed files, and return it.

    The changed report neither passes nor certifies the run. ``reasons`` are added to the reasons of the grade.
    """
    document["grade_reasons"] += reasons
    if document["grade"] == "certified":
        document["grade"] = "incomplete"
    # A changed file may have been changed in favour of the system.
    document["exit_code"] = document["exit_code"] or EXIT_INCOMPLETE
    return document


def changes_of_facts(directory: Path) -> list[str]:
    """Return a phrase for each difference between the facts of a run and its manifest.

    The compared files are the report, the measurements and the observations. Each invalid line of the manifest also
    causes a phrase.
    """
    try:
        comparison = compare(directory)
    except OSError as error:
        return [f"{MANIFEST} cannot be read: {error.strerror}"]
    changes = (("changed", comparison.changed), ("added", comparison.added), ("removed", comparison.removed))
    facts = [f"{word} {name}" for word, names in changes for name in names if name.startswith(_JUDGED)]
    return [*facts, *(f"ill-formed {line}" for line in comparison.ill_formed)]


def altered_tables(report: ReadDocument) -> tuple[str, ...]:
    """Return the names of the tables in a report that differ from the tables of this version of pytest-ckpt.

    The tables are the built-in gate table, the defaults of options, and the list of requirements and checks. The same
    version must have written the report.
    """
    shipped = {built_in(word).name: word for word in GATE_TABLES}
    gates = report["gate_table"]
    kind = report["environment"]["target"]["gate_kind"]
    defaults = sorted((s["option"], s["default"]) for s in report["settings"])
    are_ours = {
        "gate_table": gates["name"] not in shipped or gates == to_plain(load_gates(shipped[gates["name"]], kind)),
        "settings": defaults == sorted((option.flag, option.default) for option in OPTIONS),
        "catalogue_names": tuple(report["catalogue_names"]) == CATALOGUE_NAMES,
    }
    return tuple(name for name, is_ours in are_ours.items() if not is_ours)


def _judge(
    directory: Path,
    report: ReadDocument,
    command_line: Mapping[str, str | None],
    *,
    as_recorded: bool,
    foresees: bool,
) -> Document:
    judged = judged_run(directory, report, command_line, as_recorded=as_recorded)
    document = judged.document(foresees=foresees)
    if report.get("sections") and not as_recorded:
        document["disclosures"].append(SECTIONS_LEFT_OUT)
    return document


def _judged_again(
    report: ReadDocument, document: Document, command_line: Mapping[str, str | None], moment: str
) -> Document:
    """Return the section ``judged_again``: the original cluster and grade, and the changed limit options."""
    of_run = {s["option"]: s["value"] for s in report["settings"]}
    now = {s["option"]: s["value"] for s in document["settings"]}
    given = [option.flag for option in with_role("limit") if command_line.get(option.ini_name) is not None]
    return {
        "accelerators": recorded_settings(report, {}).cluster,
        "grade": report.get("grade", ""),
        "judged": moment,
        "version": __version__,
        "limits": [
            {"option": flag, "of_run": of_run.get(flag, ""), "value": now[flag]}
            for flag in given
            if now[flag] != of_run.get(flag, "")
        ],
    }
