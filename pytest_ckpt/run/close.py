"""Closes a run: ends its processes, cleans the target, judges, and writes the report."""

from __future__ import annotations

import dataclasses
import datetime
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ckpt import __version__
from pytest_ckpt.evidence.run_files import Document
from pytest_ckpt.evidence.starts import ADDED, all_starts
from pytest_ckpt.facts.checks import CHECKS, CHECKS_DIRECTORY
from pytest_ckpt.facts.codec import to_plain
from pytest_ckpt.facts.measurement import Measurement
from pytest_ckpt.facts.observation import Observation
from pytest_ckpt.facts.starts import is_interruption
from pytest_ckpt.facts.targets import Names, removal_of
from pytest_ckpt.grading.document import create_document
from pytest_ckpt.grading.grading import judge_run
from pytest_ckpt.judging.clients import clients_of
from pytest_ckpt.launching.measurements import complete_measurement, measurements_of_starts, names_of_run
from pytest_ckpt.launching.observations import read_observation
from pytest_ckpt.launching.recorder import write_atomically
from pytest_ckpt.run.certify import CertifyRequest, certified, write_draft
from pytest_ckpt.support import waits
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.support.processes import signals_handled_by, undisturbed
from pytest_ckpt.support.units import counted
from pytest_ckpt.targets.posix.target import PosixTarget

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pytest_ckpt.evidence.signing import Signer
    from pytest_ckpt.facts.verdict import Verdict
    from pytest_ckpt.run.context import RunContext
    from pytest_ckpt.run.open import OpenRun

_REMOVE_SECONDS = 120.0


@dataclass(frozen=True, kw_only=True, slots=True)
class ClosedRun:
    """The report of a run. ``last_words`` are sentences for the user that the report does not contain."""

    document: Document
    last_words: tuple[str, ...]


def close_run(
    run: OpenRun,
    verdicts: Iterable[Verdict],
    exit_code: int,
    *,
    final: bool,
    sections: Callable[[Document], list[Document]] = lambda _document: [],
    recorders: Sequence[str] = (),
) -> ClosedRun:
    """End remaining processes, clean the target, and create the final report.

    A draft report is written before the clean-up. A separate process creates the final report after the clean-up.
    During the clean-up, Ctrl-C and SIGTERM interrupt it. Before and after the clean-up, these signals are ignored.

    ``exit_code`` is pytest's exit code. With ``final`` (interrupted, internal error), ``exit_code`` is also the run's
    exit code. Otherwise the verdicts determine the run's exit code. If a test outside the suites failed, the exit code
    reports a failure, whatever the verdicts are. ``sections`` returns the plugins' sections for a report. ``recorders``
    describes foreign code in pytest's processes that could have changed results.
    """
    with undisturbed(), run.locks:
        return _close(run, verdicts, exit_code, final=final, sections=sections, recorders=recorders)


def _close(
    run: OpenRun,
    verdicts: Iterable[Verdict],
    exit_code: int,
    *,
    final: bool,
    sections: Callable[[Document], list[Document]],
    recorders: Sequence[str],
) -> ClosedRun:
    environment = run.context.environment
    known = tuple(dict.fromkeys((*environment.recorders, *recorders)))
    context = dataclasses.replace(run.context, environment=dataclasses.replace(environment, recorders=known))
    environment = dataclasses.replace(run.combined.environment, recorders=known)
    combined = dataclasses.replace(run.combined, environment=environment)
    if run.waiting:
        # There are no measurements, or only published ones.
        run.waiting.end()
    with waits.waiting("ending what is left of the run"):
        stays = context.end_remaining_processes()
    try:
        measurements, observations = _measurements(combined), _observations(context)
        draft = _draft(combined, verdicts, measurements, observations)
        draft["sections"] = context.redactor.plain(sections(draft))
        # The report comes first: if this process ends later, the report exists and lists possible remains.
        write_draft(draft, context.directory)
    except Exception:
        # An error in the report directory must not leave files on the target.
        _clean(context, stays)
        run.serving.close()
        raise
    cleaning = time.monotonic()
    draft["left_behind"] = context.redactor.plain(_clean(context, stays))
    run.serving.close()
    total = time.monotonic() - run.began
    clean_up = time.monotonic() - cleaning
    *_, start = all_starts(context.directory, draft["run"], None, measurements, observations)
    measured_here = [m for m in measurements if str(m.subject) in start.measured or is_interruption(m.failure)]
    observed_here = [o for o in observations if f"{o.requirement}.{o.subject}" in start.measured]
    draft["stages"] = _stages(run, measured_here, observed_here, total=total, clean_up=clean_up)
    draft["run"]["finished"] = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    draft["run"]["seconds"] = total
    closing = CertifyRequest(
        directory=str(context.directory),
        exit_code=exit_code,
        is_final=final,
        pdf=context.settings.pdf,
    )
    public, printed = certified(draft, closing, run.signer)
    kept = _append_to_history(context, public)
    return ClosedRun(document=public, last_words=tuple(filter(None, (printed, kept))))


def _draft(
    context: RunContext,
    verdicts: Iterable[Verdict],
    measurements: Sequence[Measurement],
    observations: Sequence[Observation],
) -> Document:
    """Return the draft of the report.

    The draft contains no forecast. It states that the run's files on the target are not removed yet.
    """
    judgement = judge_run(
        context.plan,
        context.settings,
        context.gates,
        verdicts,
        measurements,
        context.waivers,
        context.started,
        context.catalogue,
        clients_of(to_plain(context.environment)),
    )
    document = create_document(
        run={
            "id": context.run_id,
            "version": __version__,
            "started": context.started,
            "finished": None,
            "seconds": None,
            "command": context.command,
            "directory": str(context.directory),
            "seed": context.seed,
            "suites": context.own_suites,
            "hosts": context.own_hosts,
        },
        plan=context.plan,
        settings=context.settings,
        gates=context.gates,
        waivers=context.waivers,
        judgement=judgement,
        exit_code=judgement.exit_code,
        measurements=measurements,
        observations=observations,
        environment=to_plain(context.environment),
        stages={},
        left_behind=_pending(context),
        system=context.system,
        catalogue=context.catalogue,
        foresees=False,
    )
    starts = all_starts(context.directory, document["run"], document["exit_code"], measurements, observations)
    draft: Document = context.redactor.plain(document | {"starts": to_plain(starts)})
    return draft


def _stages(
    run: OpenRun,
    measurements: Iterable[Measurement],
    observations: Iterable[Observation],
    *,
    total: float,
    clean_up: float,
) -> dict[str, float]:
    stages = {"preflight": run.preflight_seconds}
    for measurement in measurements:
        for stage, seconds in measurement.stages.items():
            stages[stage] = stages.get(stage, 0.0) + seconds
    if checked := sum(o.seconds for o in observations):
        stages["checks"] = checked
    stages["clean-up"] = clean_up
    stages["other"] = max(0.0, total - sum(stages.values()))
    return stages


def _measurements(context: RunContext) -> list[Measurement]:
    """Return the measurements so far, in the order of the plan."""
    files = {c.subject: context.directory / "measurements" / f"{c.subject.slug}.json" for c in context.plan.checkpoints}
    return [
        complete_measurement(file, measurements_of_starts(context.directory, context.start, ADDED, subject))
        for subject, file in files.items()
        if file.exists()
    ]


def _observations(context: RunContext) -> list[Observation]:
    """Return the results of the checks of the target, in the order of the table of checks."""
    files = [context.directory / "observations" / f"{check.name}.json" for check in CHECKS]
    return [read_observation(file) for file in files if file.exists()]


def _append_to_history(context: RunContext, document: Document) -> str:
    """Append the run to its history. Return a sentence on the result; the sentence is empty if the run has no history.

    An error of the history does not affect the report.
    """
    history = context.settings.history
    if not history:
        return ""
    from pytest_ckpt.evidence.history import append_run  # noqa: PLC0415

    try:
        count = append_run(Path(history), document, context.directory)
    except (OSError, shutil.Error) as error:
        return f"THE RUN IS NOT IN THE HISTORY: {history}: {error}"
    return f"history: {history} holds {counted(count, 'run')}"


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def _pending(context: RunContext) -> list[str]:
    """Return one sentence: the run's directory or prefix on the target is not cleaned yet.

    The sentence includes the command that removes the directory or prefix, if such a command exists.
    """
    area = context.run_area
    command = removal_of(area.scheme, area.location, area.access)
    return [f"{area.location}: it was not cleaned yet{f'; remove it: {command}' if command else ''}"]


def _clean(context: RunContext, stays: str) -> list[str]:
    """Remove the run's directories on the target. Return a sentence for each directory that remains.

    If ``stays`` is not empty, nothing is removed; ``stays`` is the reason. A signal ends the clean-up early.
    """
    try:
        with signals_handled_by(_interrupt), waits.waiting("clean-up"):
            return _cleaned(context, stays)
    except KeyboardInterrupt:
        return [f"the clean-up was interrupted: {sentence}" for sentence in _pending(context)]


def _cleaned(context: RunContext, stays: str) -> list[str]:
    area, seconds = context.run_area, min(_REMOVE_SECONDS, context.settings.io_timeout_seconds)
    if stays:
        return [f"{area.location} stays: {stays}"]
    names = names_of_run(context.plan.runnable)
    if context.settings.keep_files:
        # If files are kept on the target, the local tier is cleaned, because the target has the same checkpoints.
        left = context.clean_local(names, seconds)
        return [f"{area.location} is kept because of --ckpt-keep-files", *left]
    left = context.clean(names, seconds)
    if context.small:
        small = PosixTarget(context.settings.small_volume or "", "--ckpt-small-volume")
        left += small.clean(context.small, Names(directories=frozenset((CHECKS_DIRECTORY,))), seconds)
    return left


def write_report(document: Document, directory: Path, signer: Signer | None = None, *, pdf: bool = False) -> str:
    """Write report.json, certificate.html, junit.xml, the digests and the signature.

    The digests cover all files of the run directory. With ``pdf``, also write certificate.pdf and return a sentence on
    the PDF. Without ``pdf``, return an empty text. A failed PDF does not affect the report.
    """
    from pytest_ckpt.evidence.manifest import report_text, write_manifest  # noqa: PLC0415
    from pytest_ckpt.report.html import write_certificate  # noqa: PLC0415 - jinja2 only when it is needed
    from pytest_ckpt.report.junit import write_junit  # noqa: PLC0415

    write_atomically(directory / "report.json", report_text(document))
    write_certificate(document, directory / "certificate.html")
    write_junit(document, directory / "junit.xml")
    words = _print(document, directory / "certificate.pdf") if pdf else ""
    write_manifest(directory)
    if signer:
        signer.write(document, directory)
    return words


def _print(document: Document, file: Path) -> str:
    from pytest_ckpt.report.pdf import write_pdf  # noqa: PLC0415

    try:
        write_pdf(document, file)
    except (UsageError, OSError) as error:
        return f"THERE IS NO PDF: {file}: {str(error).splitlines()[0]}"
    return f"PDF: {file}"
