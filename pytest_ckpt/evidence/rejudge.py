"""Re-judges the saved results of a run from its directory: no target, no MPI, no torch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pytest_ckpt.config.gate_files import built_in, load_gates
from pytest_ckpt.evidence.judged_run import judged_run
from pytest_ckpt.evidence.manifest import MANIFEST, compare
from pytest_ckpt.evidence.run_files import (
    PLAN,
    REPORT,
    SESSION,
    VERIFY_REMEDY,
    Document,
    ReadDocument,
    read_file,
    read_report,
)
from pytest_ckpt.evidence.unfinished import as_incomplete, begun_report, is_unfinished
from pytest_ckpt.facts.codec import to_plain
from pytest_ckpt.facts.gate_tables import GATE_TABLES
from pytest_ckpt.facts.options import OPTIONS
from pytest_ckpt.grading.catalogue import CATALOGUE_NAMES
from pytest_ckpt.grading.grading import EXIT_INCOMPLETE
from pytest_ckpt.support.errors import UsageError

SECTIONS_LEFT_OUT = "what plugins wrote about the run's own verdicts is not repeated here"

_JUDGED = (REPORT, "measurements/", "observations/")


def judge_directory(
    directory: Path,
    command_line: Mapping[str, str | None],
    *,
    as_recorded: bool = False,
    foresees: bool = True,
    report: ReadDocument | None = None,
) -> Document:
    """Return the report of a run directory, judged again; ``command_line`` contains the given limits.

    With the limits of the run, the verdicts are the same as in the run. Plugins are not available: with the limits of
    the run their verdicts are kept and marked as kept, with other limits they are "not run", and neither certifies.
    With ``as_recorded`` their verdicts are kept unchanged, for a comparison. Without ``foresees`` there is no forecast;
    it is simulated, and needs numpy. ``report`` is the report of the directory, if the caller has read it already. A
    run whose controller was killed is judged from its files, and is "incomplete". Raises UsageError if the directory
    contains no run, or a file in it is not a file of a run.
    """
    unfinished = is_unfinished(directory)
    found = read_file(directory / SESSION) if unfinished else report or read_report(directory)
    with odd_facts_named(directory):
        begun = begun_report(found, read_file(directory / PLAN)) if unfinished else found
        document = _judge(directory, begun, command_line, as_recorded=as_recorded, foresees=foresees)
        return as_incomplete(document) if unfinished else document


@contextlib.contextmanager
def odd_facts_named(directory: Path) -> Iterator[None]:
    """Turn the errors that implausible facts of a directory cause into a UsageError.

    Such facts have the right form, but lead to a median of an empty list, a division by zero, or a missing part.
    """
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise UsageError(
            f"{directory} cannot be judged: it holds what no run leaves ({type(error).__name__}: {error}).",
            VERIFY_REMEDY,
        ) from None


def judge_sealed_directory(
    directory: Path, command_line: Mapping[str, str | None], *, foresees: bool = True
) -> Document:
    """Return the report of a run directory, judged again; changed files are named, and the run cannot pass then.

    Only files that are judged are compared. Raises UsageError as `judge_directory` does.
    """
    document = judge_directory(directory, command_line, foresees=foresees)
    if is_unfinished(directory) or not (changed := changes_of_facts(directory)):
        return document
    return without_trust(document, [f"The directory is not as its run left it: {', '.join(changed)}. {VERIFY_REMEDY}"])


def without_trust(document: Document, reasons: Sequence[str]) -> Document:
    """Return a report that rests on changed files: it certifies no system, and does not pass."""
    document["grade_reasons"] += reasons
    if document["grade"] == "certified":
        document["grade"] = "incomplete"
    # Whoever changed it may have changed it for the better.
    document["exit_code"] = document["exit_code"] or EXIT_INCOMPLETE
    return document


def changes_of_facts(directory: Path) -> list[str]:
    """Return the differences of report, measurements and observations from the manifest."""
    try:
        found = compare(directory)
    except OSError as error:
        return [f"{MANIFEST} cannot be read: {error.strerror}"]
    changes = (("changed", found.changed), ("added", found.added), ("removed", found.removed))
    facts = [f"{word} {name}" for word, names in changes for name in names if name.startswith(_JUDGED)]
    return [*facts, *(f"ill-formed {line}" for line in found.ill_formed)]


def altered_tables(report: ReadDocument) -> tuple[str, ...]:
    """Return which tables of a report of this version differ from the tables of this version.

    They are the rows of the shipped gate table, the defaults of options, and the list of requirements and checks.
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
