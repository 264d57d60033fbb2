"""Whether a certificate of several runs is what its runs say: each run by itself, then the certificate made again."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ckpt import __version__
from pytest_ckpt.evidence.combined import combine_folders
from pytest_ckpt.evidence.manifest import ATTESTATION, MANIFEST, file_digest, report_text
from pytest_ckpt.evidence.outcome import Examination
from pytest_ckpt.evidence.run_files import COMBINED, REPORT, Document, ReadDocument
from pytest_ckpt.evidence.schemas import faults
from pytest_ckpt.evidence.signature_check import check_signature
from pytest_ckpt.evidence.verification import check_digests, is_alike, pages_written_again, verify_folder
from pytest_ckpt.facts.options import with_role
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.support.strict_json import parse, read
from pytest_ckpt.support.units import counted

if TYPE_CHECKING:
    from pytest_ckpt.evidence.signing import PublicKey

_WRITTEN = ("pytest-ckpt judge RUN1 RUN2 … --out FOLDER", "pytest-ckpt verify FOLDER RUN1 RUN2 …")


def is_combined(folder: Path) -> bool:
    """Whether a folder holds a certificate of several runs."""
    try:
        report = parse(read(folder / REPORT))
    except (OSError, ValueError):
        return False
    return isinstance(report, dict) and COMBINED in report


def verify_combined(folder: Path, runs: Sequence[Path], keys: Sequence[PublicKey] | None) -> tuple[Examination, ...]:
    """Check a certificate of several runs, and all its runs. Raises UsageError where one lacks, or is none of them.

    Whatever of them is signed must be signed with one of ``keys``, where there are any.
    """
    keys = keys or ()
    if not (folder / MANIFEST).is_file():
        raise UsageError(f"{folder} holds no {MANIFEST}, so {_WRITTEN[0]} did not write it.", f"Say {_WRITTEN[1]}.")
    if not is_combined(folder):
        raise UsageError(
            f"{folder} holds no certificate of several runs.",
            f"Name a folder that {_WRITTEN[0]} wrote first, or one folder of a run alone.",
        )
    report: Document = parse(read(folder / REPORT))
    wrong = faults(report, "report")
    checks = [check_digests(folder)]
    if not wrong:
        labels = _labels(report, runs)
        checks += [_check_verdicts(folder, report, list(labels)), _check_pages(folder, report)]
    else:
        labels = {run: f"run {number}" for number, run in enumerate(runs, start=1)}
        checks += [
            _examined("verdicts", wrong, "", f"{REPORT} does not follow its schema"),
            Examination(name="pages", outcome="not checked", description=f"{REPORT} is no report of several runs"),
        ]
    signed = [place for place in (folder, *labels) if (place / ATTESTATION).exists()]
    # Who was given a key expects a signature somewhere.
    expected = keys if folder in signed or not signed else ()
    checks.append(check_signature(folder, None if wrong else report, expected))
    for run, label in labels.items():
        found = verify_folder(run, keys if run in signed else ())
        checks += [dataclasses.replace(c, name=f"{label}: {c.name}") for c in found]
    return tuple(checks)


def _labels(report: ReadDocument, runs: Sequence[Path]) -> dict[Path, str]:
    """Return the runs by the label that the report gives each. Raises UsageError where they are not those it names."""
    named = {str(run["id"]): str(run["label"]) for run in report[COMBINED]["runs"]}
    found = {run: _id_of(run) for run in runs}
    missing = [f"{label} ({id_:.60})" for id_, label in named.items() if id_ not in found.values()]
    if missing:
        raise UsageError(
            f"The certificate is made of {counted(len(named), 'run')}; not named: {', '.join(missing)}.",
            f"Name the folders of all its runs: {_WRITTEN[1]}",
        )
    if strange := [run for run, id_ in found.items() if id_ not in named]:
        raise UsageError(f"{strange[0]} is none of the runs of this certificate.", f"Leave it out: {_WRITTEN[1]}")
    return {run: named[id_] for run, id_ in found.items()}


def _id_of(run: Path) -> str:
    try:
        return str(parse(read(run / REPORT))["run"]["id"])
    except (OSError, ValueError, LookupError, TypeError):
        return ""


def _check_verdicts(folder: Path, report: ReadDocument, runs: Sequence[Path]) -> Examination:
    """Make the report again of its runs and compare all of it."""
    combined = report[COMBINED]
    if combined["version"] != __version__:
        described = f"version {combined['version']!s:.20} combined the runs, this is {__version__}"
        return Examination(name="verdicts", outcome="not checked", description=described)
    found = [
        f"{run['label']}: its {MANIFEST} is another one"
        for place in runs
        for run in combined["runs"]
        if run["id"] == _id_of(place) and run["manifest_sha256"] != _digest(place)
    ]
    known = {option.ini_name for option in with_role("limit")}
    limits = {name: str(value) for name, value in combined["limits"].items()}
    found += [f"combined.limits.{name}: no option of pytest-ckpt judge" for name in limits if name not in known]
    if report_text(dict(report)).encode() != read(Path(folder, REPORT)):
        found.append(f"changed: {REPORT}")
    try:
        again = combine_folders(runs, {name: value for name, value in limits.items() if name in known})
    except Exception as error:  # whatever changed files lead to, they cannot be combined
        found.append(f"the runs cannot be combined again: {error!s:.300}")
    else:
        found += [
            f"differs: {name} of {REPORT}"
            for name in dict.fromkeys([*report, *again])
            if not is_alike(report.get(name), again.get(name))
        ]
    verdicts = counted(len(report["requirements"]), "verdict follows", "verdicts follow")
    return _examined("verdicts", found, f"{verdicts} from the runs", "the report does not follow from its runs")


def _digest(run: Path) -> str:
    try:
        return file_digest(run / MANIFEST)
    except OSError:
        return ""


def _check_pages(folder: Path, report: Document) -> Examination:
    if report[COMBINED]["version"] != __version__:
        described = f"version {report[COMBINED]['version']!s:.20} wrote the certificate, this is {__version__}"
        return Examination(name="pages", outcome="not checked", description=described)
    return pages_written_again(folder, report)


def _examined(name: str, found: Sequence[str], holds: str, broken: str) -> Examination:
    if found:
        return Examination(name=name, outcome="broken", description=broken, details=tuple(found))
    return Examination(name=name, outcome="holds", description=holds)
