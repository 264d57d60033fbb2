"""Checks that a run directory was not changed after its run, by digests, signature, and a new evaluation of its files.

Each finding names a file that differs, or a verdict or field of the report that a new evaluation changes. If someone
changes all files and the manifest consistently, only the signature detects this.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pytest_ckpt import __version__
from pytest_ckpt.evidence.attestation import PAYLOAD_TYPE, envelope_bytes, read_envelope, statement
from pytest_ckpt.evidence.judged_run import altered_tables, judge_directory
from pytest_ckpt.evidence.manifest import ATTESTATION, MANIFEST, compare, digests, file_digest, report_text
from pytest_ckpt.evidence.run_files import REPORT, Document, odd_records, read_report
from pytest_ckpt.evidence.unfinished import NO_REPORT, is_unfinished
from pytest_ckpt.grading.catalogue import recorded
from pytest_ckpt.report.html import write_certificate
from pytest_ckpt.report.junit import write_junit
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.support.strict_json import parse, read
from pytest_ckpt.support.units import counted

if TYPE_CHECKING:
    from pytest_ckpt.evidence.signing import PublicKey


Examined = Literal["digests", "verdicts", "pages", "signature"]
Outcome = Literal["holds", "broken", "not checked"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Examination:
    """The result of one check of a run directory. ``details`` lists the detected differences."""

    name: Examined
    outcome: Outcome
    description: str
    details: tuple[str, ...] = ()


_PAGES = {"certificate.html": write_certificate, "junit.xml": write_junit}
# A new evaluation does not reproduce these parts of a report: place and time of measurement, sections of plugins.
_STATED = frozenset(
    ("run", "environment", "settings", "stages", "left_behind", "sections", "system", "requirements", "exit_code")
)  # fmt: skip
# These values are compared exactly: they are copied from files.
_COPIES = ("measurements", "observations")
# Another version may use other sentences and field names.
_OF_ANY_VERSION = ("measurements", "grade")
# Exit codes of an interruption, an internal error, or a failed test outside the suites.
_OTHER_EXIT_CODES = (1, 2, 3)
# The mathematics libraries of two machines differ in the last digits of logarithms and powers.
_LAST_DIGITS = 1e-12
_MAXIMUM_DETAILS = 20


def verify_directory(directory: Path, keys: Sequence[PublicKey] | None) -> tuple[Examination, ...]:
    """Return the results of all checks of a run directory. Raises UsageError for any other directory.

    ``keys`` are the public keys of trusted signers. Without keys, the signer is not checked.
    """
    keys = keys or ()
    if is_unfinished(directory):
        return _of_unfinished(directory, keys)
    if not (directory / MANIFEST).is_file():
        raise UsageError(
            f"{directory} contains no {MANIFEST}, so it is not the directory of a run that ended.",
            "Name the directory of a run, such as ckpt-report.",
        )
    files = check_digests(directory)
    try:
        report = read_report(directory)
        verdicts, pages = _check_verdicts(directory, report), _check_pages(directory, report)
    except UsageError as error:
        report = None
        verdicts = _broken("verdicts", "the files cannot be judged again", [error.what])
        pages = _unchecked("pages", "the report cannot be read")
    return files, verdicts, pages, check_signature(directory, report, keys)


def _of_unfinished(directory: Path, keys: Sequence[PublicKey]) -> tuple[Examination, ...]:
    """Return the results of the checks of a run without a report.

    Such a run has no manifest, so its files cannot be compared with digests. The files are only judged.
    """
    try:
        document = judge_directory(directory, {}, as_recorded=True)
        verdicts = _unchecked("verdicts", NO_REPORT, document["grade_reasons"])
    except UsageError as error:
        verdicts = _broken("verdicts", "the measurements cannot be judged", [error.what])
    files, pages = _unchecked("digests", f"there is no {MANIFEST}"), _unchecked("pages", "the certificate is missing")
    return files, verdicts, pages, unsigned(None, keys)


def check_digests(directory: Path) -> Examination:
    """Compare every file with the manifest, and return the result."""
    comparison = compare(directory)
    groups = {
        "changed": comparison.changed,
        "added": comparison.added,
        "removed": comparison.removed,
        "ill-formed": comparison.ill_formed,
    }
    if details := tuple(f"{word}: {name}" for word, names in groups.items() for name in names):
        # All files that differ are listed, however many there are.
        return Examination(
            name="digests",
            outcome="broken",
            description=f"the directory is not as {MANIFEST} lists it",
            details=details,
        )
    return _verified("digests", f"{counted(comparison.listed, 'file is', 'files are')} as {MANIFEST} lists them")


def _check_verdicts(directory: Path, report: Document) -> Examination:
    """Judge the files again with the limits of the run, compare the verdicts with the report, and return the result."""
    try:
        again = judge_directory(directory, {}, as_recorded=True, report=report)
    except Exception as error:  # a changed file can lead to any error
        wrong = error.what if isinstance(error, UsageError) else f"{type(error).__name__}: {error}"
        return _broken("verdicts", "the files cannot be judged again", [wrong])
    if other := [*_differences(directory, report, again)]:
        return _broken("verdicts", "judging the files again gives another report", other)
    plugins = {r.plugin for r in recorded(report["catalogue"]) if r.plugin}
    notes = []
    if report["run"]["version"] != __version__:
        notes.append(f"version {report['run']['version']} made the report: only outcomes and grade are compared")
    if plugins:
        notes.append(f"verdicts of {', '.join(sorted(plugins))} cannot be judged again without the plugin")
    count = counted(len(report["requirements"]), "verdict follows", "verdicts follow")
    return _verified("verdicts", "; ".join([f"{count} from the measurements", *notes]))


def _differences(directory: Path, report: Document, again: Document) -> Iterator[str]:
    """Yield a phrase for each difference between the report and ``again``, the report of a new evaluation.

    Each phrase names the verdict, the field of the report, or the file that differs.
    """
    is_same_version = report["run"]["version"] == __version__
    ones, others = _by_name(report), _by_name(again)
    for name in dict.fromkeys([*ones, *others]):
        both = ones.get(name, []), others.get(name, [])
        if not is_same_version:
            both = [v["outcome"] for v in both[0]], [v["outcome"] for v in both[1]]
        if not is_alike(*both):
            yield f"judged otherwise: {name}"
    names = [n for n in dict.fromkeys([*report, *again]) if n not in _STATED] if is_same_version else _OF_ANY_VERSION
    for name in names:
        one, other = report.get(name), again.get(name)
        # Without numpy there is no forecast to compare.
        if not (name == "forecast" and other is None) and not is_alike(one, other, 0 if name in _COPIES else None):
            yield f"differs: {name} of {REPORT}"
    if report["exit_code"] not in (again["exit_code"], *_OTHER_EXIT_CODES):
        yield f"differs: exit_code of {REPORT}"
    if report["environment"]["versions"].get("pytest-ckpt") != report["run"]["version"]:
        yield f"differs: run.version of {REPORT}"
    if is_same_version:
        yield from (f"differs: {table} of {REPORT}" for table in altered_tables(report))
        if read(directory / REPORT) != report_text(report).encode():
            yield f"changed: {REPORT}"
        yield from (f"changed: {name}" for name in odd_records(directory))


def _by_name(report: Mapping[str, Any]) -> dict[str, list[Any]]:
    verdicts: dict[str, list[Any]] = {}
    for verdict in report["requirements"]:
        verdicts.setdefault(f"{verdict['id']} {verdict['subject']}", []).append(verdict)
    return verdicts


def is_alike(one: Any, other: Any, tolerance: float | None = None) -> bool:
    """Whether two plain documents are equal. Floats may differ by the relative ``tolerance`` (default 1e-12)."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(is_alike(one[name], other[name], tolerance) for name in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(is_alike(*both, tolerance) for both in zip(one, other, strict=True))
    if type(one) is float and type(other) is float:
        return math.isclose(one, other, rel_tol=_LAST_DIGITS if tolerance is None else tolerance)
    return type(one) is type(other) and bool(one == other)


def _check_pages(directory: Path, report: Document) -> Examination:
    """Write the certificate and the JUnit file again from the report, and return the result of the comparison.

    The check matters because people read these files instead of report.json.
    """
    if report["run"]["version"] != __version__:
        return _unchecked("pages", f"version {report['run']['version']} wrote the pages, this is {__version__}")
    return pages_written_again(directory, report)


def pages_written_again(directory: Path, report: Document) -> Examination:
    """Write the pages of a report again, compare them with the pages of the directory, and return the result.

    The same version of pytest-ckpt must have written the report, because the pages differ between versions.
    """
    with tempfile.TemporaryDirectory(prefix="pytest-ckpt-verify-") as home:
        try:
            for name, write in _PAGES.items():
                write(report, Path(home, name))
        except Exception as error:  # a changed report can lead to any error
            return _broken("pages", "the pages cannot be written again", [f"{type(error).__name__}: {error}"])
        other = [f"changed: {name}" for name in _PAGES if not _is_same(directory / name, Path(home, name))]
    if other:
        return _broken("pages", f"pages differ from {REPORT}", other)
    return _verified("pages", f"{' and '.join(_PAGES)} agree with {REPORT}")


def _is_same(one: Path, other: Path) -> bool:
    try:
        return read(one) == read(other)
    except OSError:
        return False


def _verified(name: Examined, description: str) -> Examination:
    return Examination(name=name, outcome="holds", description=description)


def _unchecked(name: Examined, description: str, details: Sequence[str] = ()) -> Examination:
    return Examination(name=name, outcome="not checked", description=description, details=_first(details))


def _broken(name: Examined, description: str, details: Sequence[str]) -> Examination:
    return Examination(name=name, outcome="broken", description=description, details=_first(details))


def _first(details: Sequence[str]) -> tuple[str, ...]:
    """Return at most 20 details. If there are more, an additional last entry states how many were left out."""
    more = len(details) - _MAXIMUM_DETAILS
    return (*details[:_MAXIMUM_DETAILS], *([f"and {more} more"] if more > 0 else []))


SIGN_OPTION = "--ckpt-sign"


def check_signature(directory: Path, report: Mapping[str, Any] | None, keys: Sequence[PublicKey]) -> Examination:
    """Check that the signature is valid and that its statement matches the directory. Return the result.

    If ``keys`` are given, the signature must be made with one of these keys.
    """
    file = directory / ATTESTATION
    if file.is_symlink():
        # The manifest does not list the signature file, so an invalid one can only be reported here.
        description = f"{ATTESTATION} is a link"
        return _broken("signature", description, [f"changed: {ATTESTATION}"])
    if not file.exists():
        return unsigned(report, keys)
    try:
        data = read(file)
        envelope = read_envelope(data)
    except (OSError, ValueError) as error:
        return _broken("signature", f"{ATTESTATION} cannot be read", [str(error)])
    faults = []
    if envelope_bytes(envelope) != data:
        faults.append(f"{ATTESTATION} is not byte for byte as it was written")
    if envelope.payload_type != PAYLOAD_TYPE:
        faults.append(f"the payload type is {envelope.payload_type!r}, not {PAYLOAD_TYPE!r}")
    sha256 = digests(directory) | {MANIFEST: file_digest(directory / MANIFEST)}
    if report is None or "report.json" not in sha256:
        faults.append("the report that the statement must match cannot be read")
    elif envelope.payload != statement(report, sha256):
        faults.append(
            f"the signed digests differ from the files of the directory ({_stated(envelope.payload, sha256)})"
        )
    if keys:
        from pytest_ckpt.evidence.signing import is_signed_with, key_id  # noqa: PLC0415

        known = [(s, key) for s in envelope.signatures for key in keys if is_signed_with(s, envelope, key)]
        if not known:
            faults.append("no signature in it was made with a private key that belongs to --key")
        elif any(s.keyid != key_id(key) for s, key in known):
            faults.append("the key's id in it, which the signature does not protect, was changed")
    if faults:
        return _broken("signature", "the signature does not verify", faults)
    if not keys:
        description = f"{ATTESTATION} fits the directory; who signed it cannot be known without --key"
        return _unchecked("signature", description)
    return _verified("signature", "report.json and manifest were signed with a key of --key")


def unsigned(report: Mapping[str, Any] | None, keys: Sequence[PublicKey]) -> Examination:
    """Return the result of the signature check for a directory without a signature.

    The check fails if a signature is expected: the run was signed, or the reader gave ``keys``.
    """
    was_signed = report is not None and any(
        s["option"] == SIGN_OPTION and s.get("value") for s in report.get("settings") or ()
    )
    if was_signed or keys:
        description = f"{ATTESTATION} is not there" + (": the run was signed, so it was removed" if was_signed else "")
        return _broken("signature", description, [f"removed: {ATTESTATION}"])
    description = (
        "the run was not signed: consistent tampering cannot be detected without a signature "
        f"({SIGN_OPTION} signs a run)"
    )
    return _unchecked("signature", description)


def _stated(payload: bytes, sha256: Mapping[str, str]) -> str:
    """Return a phrase on the differences between the signed digests and ``sha256``, the digests of the directory."""
    try:
        signed = {s["name"]: s["digest"]["sha256"] for s in parse(payload)["subject"]}
    except (ValueError, KeyError, TypeError):
        return "it is not a statement"
    other = [name for name, digest in signed.items() if sha256.get(name) != digest]
    return f"changed since: {', '.join(other)}" if other else "other results are stated"


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownKey:
    """A public key that the reader trusts. ``name`` is the file of the key as given on the command line."""

    name: str
    key: PublicKey


@dataclass(frozen=True, kw_only=True, slots=True)
class Signer:
    """A key and the directories that were signed with it.

    ``key`` is the file of a known key, and empty for an unknown key. ``key_id`` is the SHA-256 of a known key. For an
    unknown key, ``key_id`` is the unprotected id from the envelope. ``signed`` names the directories.
    """

    key_id: str
    key: str
    signed: tuple[str, ...]


def signers(places: Mapping[str, Path], keys: Sequence[KnownKey]) -> tuple[Signer, ...]:
    """Return the signers of the named directories: first the known keys in their order, then unknown keys.

    Whether the signed content matches the directory is not checked here (see `check_signature`).
    """
    from pytest_ckpt.evidence.signing import is_signed_with, key_id  # noqa: PLC0415 - its library may be missing

    known: dict[str, KnownKey] = {}
    for one in keys:
        known.setdefault(key_id(one.key), one)
    signed: dict[str, list[str]] = {identity: [] for identity in known}
    for name, directory in places.items():
        file = directory / ATTESTATION
        if file.is_symlink():
            continue
        try:
            envelope = read_envelope(read(file))
        except (OSError, ValueError):
            continue
        for signature in envelope.signatures:
            makers = (k for k, one in known.items() if is_signed_with(signature, envelope, one.key))
            signed.setdefault(next(makers, f"?{signature.keyid:.64}"), []).append(name)
    return tuple(
        Signer(
            key_id=identity.removeprefix("?"),
            key=known[identity].name if identity in known else "",
            signed=tuple(dict.fromkeys(names)),
        )
        for identity, names in signed.items()
    )
