"""Generates the tables in docs/file_systems.md from recorded test results. Run it with ``python -m``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pytest_ckpt.grading.catalogue import REQUIREMENTS
from pytest_ckpt.judging.remedies import KNOWN, remedy_of
from pytest_ckpt.support.units import format_binary_bytes
from tests.support import CHECKOUT
from tests.support.docs_pages import replace_section
from tests.support.file_systems.entry import FileSystem
from tests.support.file_systems.results import is_shown, recorded
from tests.support.file_systems.table import FILE_SYSTEMS

PAGE = CHECKOUT / "docs" / "file_systems.md"
Row = Mapping[str, Any]
_COLD_WAYS = ("cold", "volume")


def from_the_tests() -> str:
    """Return the generated text: a table of file systems and requirements, and a section per file system."""
    seen = recorded()
    rows = [(row, seen[row.name]) for row in FILE_SYSTEMS if "not_met" in seen.get(row.name, {})]
    return "\n".join([*_table(rows), "", *_parts(rows)]) + "\n"


def with_results(page: str) -> str:
    """Return the page with the generated text between its marks."""
    return replace_section(page, "the tests", from_the_tests())


def _table(rows: list[tuple[FileSystem, Row]]) -> Iterable[str]:
    asked = [r for r in REQUIREMENTS if any(_of(r, found["not_met"]) for _, found in rows)]
    yield f"| file system | how | {' | '.join(asked)} | date |"
    yield "|---|---|" + "---|" * (len(asked) + 1)
    for row, found in rows:
        cells = (_cell(requirement, found) for requirement in asked)
        yield f"| [{row.name}](#{_slug(row.name)}) | {row.how} | {' | '.join(cells)} | {found['date']} |"


def _of(requirement: str, verdicts: Mapping[str, Row]) -> dict[str, Row]:
    """Return {name: verdict} of the required verdicts in ``verdicts`` that belong to a requirement."""
    return {
        name: verdict
        for name, verdict in verdicts.items()
        if name.partition(".")[0] == requirement and verdict["severity"] == "required"
    }


def _failed(found: Row) -> set[str]:
    """Return the names of the required checks that failed on a file system."""
    verdicts = found["not_met"].items()
    return {name for name, v in verdicts if (v["outcome"], v["severity"]) == ("failed", "required")}


def _is_missing_input(verdict: Row) -> bool:
    return bool(verdict["reason"] == "not given")


def _cell(requirement: str, found: Row) -> str:
    """Return the text of a table cell: the outcome of one requirement on one file system.

    If the requirement has no verdict, the text is "not required".
    """
    verdicts = _of(requirement, found["not_met"])
    not_given = {name for name, verdict in verdicts.items() if _is_missing_input(verdict)}
    listed = []
    for outcome, word in (("failed", "**failed**"), ("not run", "not decided")):
        names = [n for n, verdict in verdicts.items() if verdict["outcome"] == outcome and n not in not_given]
        if names:
            listed.append(": ".join(filter(None, (word, _subjects(names)))))
    if requirement == "COLD" and listed:
        listed = next((word for word in map(_proof_text, _COLD_WAYS, map(found.get, _COLD_WAYS)) if word), listed)
    met = [name for name in found["met"] if name.partition(".")[0] == requirement]
    if met and not listed:
        listed.append("met")
    if not_given:
        listed.append(f"not tried: {_subjects(not_given)}")
    return "; ".join(listed) or "not required"


def _subjects(names: Iterable[str]) -> str:
    return ", ".join(sorted(filter(None, (name.partition(".")[2] for name in names))))


def _parts(rows: list[tuple[FileSystem, Row]]) -> Iterable[str]:
    for row, found in rows:
        versions = ", ".join(f"{package} {version}" for package, version in found["versions"].items())
        yield f"### {row.name}"
        yield ""
        gates = f"gate table `{found['gates']}`"
        listed = [f"Linux {found['kernel']}", versions, f"mounted as `{found['kind']}`", gates]
        yield f"Configuration: {row.how}. {'; '.join(filter(None, listed))}; {len(found['met'])} verdicts met."
        yield ""
        not_given = [name for name, verdict in found["not_met"].items() if _is_missing_input(verdict)]
        if not_given:
            yield f"Not run, because the run was not given what they need: {', '.join(not_given)}."
            yield ""
        if row.cures:
            shown = _without_our_code(row, found, row.cured_reproductions)
            removed = sorted(_failed(recorded()[row.cures]) - _failed(found))
            yield (
                f"Checks that failed on [{row.cures}](#{_slug(row.cures)}) and did not fail in this configuration: "
                f"{', '.join(removed)}. {shown}"
            ).rstrip()
            yield ""
        for name, verdict in found["not_met"].items():
            if verdict["severity"] == "required" and not _is_missing_input(verdict):
                yield from _failure(row, name, verdict, found)
        for way in _COLD_WAYS:
            if cold := found.get(way):
                condition = _condition(way, cold)
                yield f"{condition[0].upper()}{condition[1:]}, COLD is {_cold_text(cold)}: {cold['because']}"
                yield ""
        if row.leaves:
            yield row.leaves
            yield ""
        if lost := found.get("server_lost"):
            left = f" {' '.join(f'{line}.' for line in lost['left'])}" if lost["left"] else ""
            yield f"If the server is killed, or the client unmounted, during a save: {lost['because']}{left}"
            yield ""
        advisory = [name for name, v in found["not_met"].items() if _is_advisory_failure(name, v)]
        if advisory:
            yield f"Advisory checks that failed: {', '.join(advisory)}."
            yield ""


def _cold_text(cold: Row) -> str:
    return {"met": f"met ({cold['basis']})", "not run": "not decided"}.get(cold["outcome"], cold["outcome"])


def _proof_text(way: str, cold: Row | None) -> list[str]:
    """Return a list that contains the cell text about COLD; an empty list if COLD was not met or not tried.

    ``way`` is the recorded test of COLD, an element of ``_COLD_WAYS``.
    """
    return [f"{_cold_text(cold)}, {_condition(way, cold)}"] if cold and cold["outcome"] == "met" else []


def _condition(way: str, cold: Row) -> str:
    """Return a phrase about a test of COLD: the amount of data, and the memory of the host if it was limited."""
    if way == "cold":
        return "with one checkpoint of 760 MB"
    memory = format_binary_bytes(cold["memory_bytes"])
    return f"with {cold['checkpoints']} checkpoints of 112 MB on a host of {memory} of memory"


def _is_advisory_failure(name: str, verdict: Row) -> bool:
    # Variance on a busy machine is not a property of the file system.
    return (verdict["severity"], verdict["outcome"]) == ("advisory", "failed") and "." in name


def _failure(row: FileSystem, name: str, verdict: Row, found: Row) -> Iterable[str]:
    why = row.fails.get(name) or row.may_fail.get(name) or row.undecided.get(name) or ""
    yield f"- **{name}** {verdict['outcome']}. {why}".rstrip()
    yield f"  - The run: {verdict['because']}"
    if name in row.shows:
        yield f"  - {_without_our_code(row, found, (row.shows[name],))}"
    cures = [known for known in KNOWN if found["kind"] in known.kinds and name in known.checks]
    for known in cures:
        yield f"  - Cure: {remedy_of(known)}"
    yield ""


def _without_our_code(row: FileSystem, found: Row, ways: Iterable[str]) -> str:
    listed = []
    for way in ways:
        counts = found["shown"][way]
        figures = ", ".join(f"{name}: {value}" for name, value in counts.items())
        listed.append(f"`reproduce.py {way}`: {figures}" + ("" if is_shown(way, counts) else " (nothing wrong)"))
    return f"Without our code: {'; '.join(listed)}." if listed else ""


def _slug(name: str) -> str:
    return "".join(c for c in name.lower().replace(" ", "-") if c.isalnum() or c in "-_")


if __name__ == "__main__":
    PAGE.write_text(with_results(PAGE.read_text()))
