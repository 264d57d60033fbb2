"""Whether a run folder is as its run left it: digests, schema, verdicts, pages and signature, each by itself.

Digests and signature are compared with the bytes as stored. Today's code then judges the facts again and writes
certificate and JUnit again. Pages that another version wrote are "not checked".
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ckpt import __version__
from pytest_ckpt.evidence.cross_check import against_events, against_session
from pytest_ckpt.evidence.differences import differences, short, some
from pytest_ckpt.evidence.manifest import MANIFEST, compare, report_text
from pytest_ckpt.evidence.outcome import Examination
from pytest_ckpt.evidence.own_tables import (
    catalogue_faults,
    gate_faults,
    name_faults,
    option_faults,
    record_faults,
    stage_faults,
)
from pytest_ckpt.evidence.rejudge import judge_folder
from pytest_ckpt.evidence.run_files import Document
from pytest_ckpt.evidence.schemas import faults
from pytest_ckpt.evidence.signature_check import check_signature, unsigned
from pytest_ckpt.evidence.unfinished import NO_REPORT, is_unfinished
from pytest_ckpt.facts.codec import from_plain
from pytest_ckpt.facts.measurement import Measurement
from pytest_ckpt.grading.catalogue import REQUIREMENTS, recorded
from pytest_ckpt.report.html import write_certificate
from pytest_ckpt.report.junit import write_junit
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.support.strict_json import parse, read
from pytest_ckpt.support.units import counted

if TYPE_CHECKING:
    from pytest_ckpt.evidence.signing import PublicKey


# What follows from the measurements; the rest of a report says where and when they were made.
_FOLLOWS = (
    "cluster", "checkpoints", "gates", "requirements", "measurements", "observations", "certified_cluster", "training",
    "forecast",
    "scope", "certified_for", "grade", "grade_reasons", "system_lacks",
)  # fmt: skip
# In words of this version.
_FOLLOWS_IN_WORDS = ("catalogue", "disclosures", "relevance", "untried")
_TOLD_LATER = ("checkpoints", "scope", "certified_for", "training", "forecast", "system_lacks")
PDF = "certificate.pdf"
_PAGES = {"certificate.html": write_certificate, "junit.xml": write_junit}
# Exit codes that are not the requirements': interrupted, internal error, a test beside the suites that failed.
_OTHER_EXITS = (1, 2, 3)


def _is_of_this_version(report: Mapping[str, Any]) -> bool:
    """Whether this version wrote a report: only then sentences and pages can be the same."""
    return bool(report["run"]["version"] == __version__)


def verify_folder(folder: Path, keys: Sequence[PublicKey] | None) -> tuple[Examination, ...]:
    """Check a run folder. Raises UsageError when it is none.

    ``keys`` are the public keys that its signer may be known by; without any, who signed it is not checked.
    """
    keys = keys or ()
    if is_unfinished(folder):
        return _of_unfinished(folder, keys)
    if not (folder / MANIFEST).is_file():
        raise UsageError(
            f"{folder} holds no {MANIFEST}, so it is no folder of a run that ended.",
            "Name the folder of a run, such as ckpt-report.",
        )
    checks = [check_digests(folder)]
    schema, report = _check_schema(folder)
    checks.append(schema)
    if report is None:
        nothing = "report.json cannot be read as a report"
        checks += [Examination(name=name, outcome="not checked", description=nothing) for name in ("verdicts", "pages")]
    else:
        checks += [_check_verdicts(folder, report), *_check_plugins(report), _check_pages(folder, report)]
        if (folder / PDF).exists():
            checks.append(_check_pdf(folder / PDF, report))
    return (*checks, check_signature(folder, report, keys))


def _of_unfinished(folder: Path, keys: Sequence[PublicKey]) -> tuple[Examination, ...]:
    """Check a run that wrote no report: its measurements are held against plan, session and events."""
    nothing = {"digests": f"there is no {MANIFEST}", "schema": NO_REPORT, "pages": "there is no certificate"}
    digests, schema, pages = (
        Examination(name=name, outcome="not checked", description=description) for name, description in nothing.items()
    )
    try:
        document = judge_folder(folder, {}, as_recorded=True)
    except UsageError as error:
        description = "the measurements cannot be judged"
        verdicts = Examination(name="verdicts", outcome="broken", description=description, details=(error.what,))
    else:
        measurements = [from_plain(Measurement, m) for m in document["measurements"]]
        found = [
            *against_events(folder, measurements, run_seconds=None),
            *against_session(folder, document),
        ]
        if found:
            description = "measurements, plan and session are not of one run"
            verdicts = Examination(name="verdicts", outcome="broken", description=description, details=some(found))
        else:
            fit = counted(len(measurements), "measurement fits", "measurements fit")
            description = f"{fit} plan, session and events; no report says what follows"
            verdicts = Examination(
                name="verdicts",
                outcome="not checked",
                description=description,
                details=some(document["grade_reasons"]),
            )
    return (digests, schema, verdicts, pages, unsigned(None, keys))


def check_digests(folder: Path) -> Examination:
    """Compare every file with the manifest."""
    found = compare(folder)
    details = (
        *(f"changed: {name}" for name in found.changed),
        *(f"added: {name}" for name in found.added),
        *(f"removed: {name}" for name in found.removed),
        *(f"ill-formed: {name}" for name in found.ill_formed),
    )
    if found.is_same:
        return Examination(
            name="digests",
            outcome="holds",
            description=f"{counted(found.listed, 'file is', 'files are')} as {MANIFEST} lists them",
        )
    return Examination(
        name="digests", outcome="broken", description=f"the folder is not as {MANIFEST} lists it", details=details
    )


def _check_schema(folder: Path) -> tuple[Examination, Document | None]:
    """Check report.json against its schema; return it unless it cannot be judged."""

    def broken(description: str, *details: str) -> Examination:
        return Examination(name="schema", outcome="broken", description=description, details=some(details))

    try:
        data = read(folder / "report.json")
        report = parse(data)
    except (OSError, ValueError) as error:
        return broken("report.json cannot be read", str(error)), None
    if wrong := faults(report, "report"):
        return broken("report.json does not follow its schema", *wrong), None
    if _is_of_this_version(report) and data != report_text(report).encode():
        return broken("report.json is not byte for byte as a run writes it"), report
    return Examination(name="schema", outcome="holds", description=f"report.json follows {report['schema']}"), report


def _check_verdicts(folder: Path, report: Document) -> Examination:
    """Judge the measurements again, by the limits of the run, and compare all that follows from them."""
    try:
        again = judge_folder(folder, {}, as_recorded=True, report=report)
    except Exception as error:  # whatever a changed file leads to, it cannot be judged
        description = "the measurements cannot be judged again"
        return Examination(
            name="verdicts", outcome="broken", description=description, details=(f"{type(error).__name__}: {error}",)
        )
    is_same_version = _is_of_this_version(report)
    measured = {m["subject"] for m in again["measurements"]}
    observed = {(o["requirement"], o["subject"]) for o in again["observations"]}
    found = [
        f"requirements[{v['id']} {v['subject']}]: {v['outcome']}, and there is no measurement of it"
        for v in report["requirements"]
        if v["outcome"] in ("met", "failed")
        if v["subject"] not in measured and (v["id"], v["subject"]) not in observed
    ]
    found += [
        f"{place}: report.json says {short(stated)}, the measurements say {short(follows)}"
        for name in (*_FOLLOWS, *(_FOLLOWS_IN_WORDS if is_same_version else ()))
        if is_same_version or name != "grade_reasons"
        for place, stated, follows in differences(report.get(name), again.get(name), name, wording=is_same_version)
        # Where numpy is not there, nobody can make a forecast again.
        if name != "forecast" or again.get(name) is not None
        # What an older report did not tell; of checkpoints, plan.json and report are compared with one another.
        if is_same_version or stated is not None or name not in _TOLD_LATER
    ]
    measurements = [from_plain(Measurement, m) for m in again["measurements"]]
    found += against_events(
        folder,
        measurements,
        run_seconds=report["run"].get("seconds"),
        is_same_version=is_same_version,
    )
    found += against_session(folder, report, is_same_version=is_same_version)
    if is_same_version:
        found += [*gate_faults(report), *option_faults(report), *stage_faults(report), *name_faults(report)]
        found += [*catalogue_faults(report), *record_faults(folder, again)]
    made_by = report["environment"]["versions"].get("pytest-ckpt")
    if made_by != report["run"]["version"]:
        found.append(f"run.version: report.json says {report['run']['version']}, and version {made_by} made the run")
    code = report.get("exit_code")
    if code != again["exit_code"] and code not in _OTHER_EXITS:
        found.append(f"exit_code: report.json says {code}, the measurements say {again['exit_code']}")
    if found:
        description = "the report does not follow from the measurements"
        return Examination(name="verdicts", outcome="broken", description=description, details=some(found))
    count = sum(v["id"] in REQUIREMENTS for v in report["requirements"])
    beside = (
        "" if is_same_version else f" (of version {report['run']['version']}; the wording of sentences is not compared)"
    )
    return Examination(
        name="verdicts",
        outcome="holds",
        description=f"{counted(count, 'verdict follows', 'verdicts follow')} from the measurements{beside}",
    )


def _check_plugins(report: Mapping[str, Any]) -> tuple[Examination, ...]:
    """Say what plugins decided and wrote, which cannot be made again without them; nothing where there was none."""
    plugins = {r.id: r.plugin for r in recorded(report.get("catalogue") or ())}
    details = [
        f"{v['id']} {v['subject']}: {v['outcome']}: not re-judged: plugin {plugins[v['id']]} is needed"
        for v in report["requirements"]
        if v["id"] in plugins
    ]
    details += [f"section '{s['title']}' was written by plugin {s['plugin']}" for s in report.get("sections") or ()]
    if not details:
        return ()
    description = f"{len(details)} of plugins cannot be made again without them: they are as the report has them"
    return (Examination(name="plugins", outcome="not checked", description=description, details=some(details)),)


def _check_pages(folder: Path, report: Document) -> Examination:
    """Write certificate and JUnit again and compare them: people read these, and not report.json."""
    if not _is_of_this_version(report):
        description = f"version {report['run']['version']} wrote the certificate, this is {__version__}"
        return Examination(name="pages", outcome="not checked", description=description)
    return pages_written_again(folder, report)


def pages_written_again(folder: Path, report: Document) -> Examination:
    """Write the pages of a report of this version again and compare them with those of the folder."""
    with tempfile.TemporaryDirectory(prefix="pytest-ckpt-verify-") as home:
        try:
            for name, write in _PAGES.items():
                write(report, Path(home, name))
        except Exception as error:  # whatever a changed report leads to, its pages cannot be written
            description = "the pages cannot be written again"
            return Examination(
                name="pages", outcome="broken", description=description, details=(f"{type(error).__name__}: {error}",)
            )
        other = [n for n in _PAGES if not _is_same(folder / n, Path(home, n))]
    if other:
        description = "pages differ from report.json"
        return Examination(
            name="pages", outcome="broken", description=description, details=tuple(f"changed: {name}" for name in other)
        )
    return Examination(name="pages", outcome="holds", description=f"{' and '.join(_PAGES)} agree with report.json")


def _check_pdf(file: Path, report: Document) -> Examination:
    """Print the certificate again. Other fonts or another printer give other bytes, so only the same bytes say much."""
    from pytest_ckpt.report.pdf import write_pdf  # noqa: PLC0415

    alone = "only its digest says that it was not changed"
    try:
        with tempfile.TemporaryDirectory(prefix="pytest-ckpt-verify-") as home:
            write_pdf(report, Path(home, PDF))
            is_same = _is_same(file, Path(home, PDF))
    except Exception as error:  # whatever a changed report leads to
        description = (
            f"{PDF} could not be printed again ({(str(error).splitlines() or [type(error).__name__])[0]}): {alone}"
        )
        return Examination(name="pdf", outcome="not checked", description=description)
    if is_same:
        return Examination(name="pdf", outcome="holds", description=f"{PDF} agrees with report.json")
    description = f"{PDF} has other bytes when it is printed here, as with other fonts or another WeasyPrint: {alone}"
    return Examination(name="pdf", outcome="not checked", description=description)


def _is_same(one: Path, other: Path) -> bool:
    try:
        return read(one) == read(other)
    except OSError:
        return False
