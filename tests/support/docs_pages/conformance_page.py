"""Generates the tables in docs/conformance.md from the tables of checks and faults. Run it with ``python -m``."""

from __future__ import annotations

from collections.abc import Iterable

from pytest_ckpt.facts.checks import CHECKS
from pytest_ckpt.grading.catalogue import REQUIREMENTS
from tests.support import CHECKOUT, object_matrix
from tests.support.docs_pages import replace_section
from tests.support.matrix import COMPLETE_FILES, CONTENT, MATRIX
from tests.support.matrix_of_speed import OF_SPEED

PAGE = CHECKOUT / "docs" / "conformance.md"

_INTRODUCTION = (
    "For each fault, all checks were run on a target with two clients and only this fault. The checks in the",
    'column "fails" must fail, and those in the column "may fail too" may fail. No other check may fail, and every',
    "failure must state its reason.",
)
_OF_OBJECTS = (
    "Faults of object stores. Each is one defect in the S3 server that comes with pytest-ckpt. Only the checks named",
    "here fail:",
)


def from_the_tables() -> str:
    """Return the generated text: the requirements with their checks, and the matrix of faults."""
    lines = []
    for requirement in (r for r in REQUIREMENTS.values() if r.suite == "conformance"):
        lines += [f"### {requirement.id}: {requirement.title}", ""]
        for paragraph in requirement.text.split("\n\n"):
            lines += [" ".join(paragraph.split()), ""]
        lines += [f"*{requirement.severity.capitalize()}. Source: {requirement.source}.*", ""]
        lines.append("| check | what is done | needs | limit | who relies on it | faults that prove it |")
        lines.append("|---|---|---|---|---|---|")
        for check in (c for c in CHECKS if c.requirement == requirement.id):
            limit = "" if check.limit is None else f"{check.limit:g} {check.unit}"
            proof = "; ".join(row.fault for row in (*MATRIX, *object_matrix.MATRIX) if check.name in row.fails)
            lines.append(f"| {check.name} | {check.how} | {check.needs} | {limit} | {check.relies} | {proof} |")
        lines.append("")
    head = ["| fault of the target | what it does | fails | may fail too |", "|---|---|---|---|"]
    lines += ["## The matrix", "", *_INTRODUCTION, "", *head]
    for row in MATRIX:
        fails = _listed(row.fails) or f"nothing; reported by {_listed(row.reported)}"
        where = f" It applies only to files of `{row.parameters['path']}`." if "path" in row.parameters else ""
        lines.append(f"| {row.fault} | {row.sentence}{where} | {fails} | {_listed(row.may_fail)} |")
    lines += ["", "Faults of speed, which only a complete run can show:", "", *head]
    for speed in OF_SPEED:
        fails = _listed(speed.fails) or "nothing"
        lines.append(f"| {speed.title} | {speed.sentence} | {fails} | {_listed(speed.may_fail - speed.fails)} |")
    lines += ["", *_OF_OBJECTS, "", "| fault of the store | what it does | fails | may fail too |", "|---|---|---|---|"]
    for of_store in object_matrix.MATRIX:
        names = _listed(of_store.fails), _listed(of_store.may_fail)
        lines.append(f"| {of_store.fault} | {of_store.sentence} | {' | '.join(names)} |")
    return "\n".join(lines) + "\n"


def with_tables(page: str) -> str:
    """Return the page with the generated text between its marks."""
    return replace_section(page, "the tables", from_the_tables())


def _listed(names: Iterable[str]) -> str:
    """Return the names of checks, separated by commas.

    If the names are all checks that compare whole files, a phrase precedes them. If the names contain nearly all other
    checks that read data back, a phrase stands for these.
    """
    chosen = frozenset(names)
    if chosen == COMPLETE_FILES:
        return "every check that compares whole files: " + ", ".join(sorted(chosen))
    if chosen and chosen >= CONTENT - COMPLETE_FILES - {"POINTER.overwrite", "POINTER.overwrite-second-client"}:
        return ", ".join(["other checks that read data back", *sorted(chosen - CONTENT)])
    return ", ".join(sorted(chosen))


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text()))
