"""How pages and the terminal tell that a report was made of several runs: which run, and of which day, each part is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ckpt.report.quantity import moment_text
from pytest_ckpt.report.view import Document
from pytest_ckpt.support.units import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_OPERATIONS = "operations"


@dataclass(frozen=True, kw_only=True, slots=True)
class Replaced:
    """Older results of one run that newer ones took the place of, all with the same change; ``names``: which."""

    run: str
    newer_run: str
    outcome: str
    newer_outcome: str
    names: tuple[str, ...]
    because: tuple[str, ...]

    @property
    def is_better(self) -> bool:
        """Whether something that failed is met now: a reader wants to know why."""
        return (self.outcome, self.newer_outcome) == ("failed", "met")


@dataclass(frozen=True, kw_only=True, slots=True)
class Runs:
    """What a report says of the runs that it was made of; of one run alone, nothing."""

    runs: tuple[Document, ...] = ()
    by_verdict: Mapping[tuple[str, str], str] | None = None
    by_part: Mapping[tuple[str, str], str] | None = None
    replaced: tuple[Replaced, ...] = ()
    differences: tuple[Document, ...] = ()
    notices: tuple[str, ...] = ()

    def of_verdict(self, verdict: Document) -> str:
        """Return the run and the day that a verdict is of; empty where there is one run."""
        return (self.by_verdict or {}).get((verdict["id"], verdict["subject"]), "")

    def of_subject(self, subject: str) -> str:
        """Return the run and the day that a subject's saves and loads are of."""
        return (self.by_part or {}).get((subject, _OPERATIONS), "")

    def of_patterns(self, subject: str) -> list[tuple[str, str]]:
        """Return the patterns of a subject that are of another run than its saves and loads, each with that run."""
        own = self.of_subject(subject)
        parts = (self.by_part or {}).items()
        return [(part, run) for (of, part), run in parts if of == subject and run != own]

    @property
    def better(self) -> tuple[Replaced, ...]:
        """Return what failed before and is met now."""
        return tuple(r for r in self.replaced if r.is_better)


def runs_of(document: Document) -> Runs:
    """Return what a report document says of its runs."""
    combined = document.get("combined")
    if not combined:
        return Runs()
    named = {run["label"]: f"{run['label']}, {str(run['started'])[:10]}" for run in combined["runs"]}
    return Runs(
        runs=tuple(combined["runs"]),
        by_verdict={(r["id"], r["subject"]): named.get(r["run"], r["run"]) for r in combined["results"]},
        by_part={(p["subject"], p["part"]): named.get(p["run"], p["run"]) for p in combined["measured"]},
        replaced=tuple(_replaced(combined["superseded"])),
        differences=tuple(combined["differences"]),
        notices=tuple(combined["notices"]),
    )


def _replaced(rows: Sequence[Document]) -> list[Replaced]:
    """Return what was replaced, alike changes together; what failed and is met now first."""
    groups: dict[tuple[str, str, str, str], list[Document]] = {}
    for row in rows:
        key = (row["run"], row["newer_run"], row["outcome"], row["newer_outcome"])
        groups.setdefault(key, []).append(row)
    found = [
        Replaced(
            run=run,
            newer_run=newer,
            outcome=outcome,
            newer_outcome=newer_outcome,
            names=tuple(f"{row['id']} {row['subject']}" for row in of),
            because=tuple(row["because"] for row in of) if outcome == "failed" else (),
        )
        for (run, newer, outcome, newer_outcome), of in groups.items()
    ]
    return sorted(found, key=lambda group: not group.is_better)


def runs_lines(document: Document) -> list[str]:
    """Return the lines of the terminal: the runs, what failed before, and in what they differ."""
    found = runs_of(document)
    lines = [
        f"{run['label']}: {run['id']}, {moment_text(run['started'])}: {run['grade']} alone, "
        f"{counted(run['results'], 'result')} here"
        for run in found.runs
    ]
    for group in found.replaced:
        if group.outcome == group.newer_outcome:
            many = counted(len(group.names), "result")
            lines.append(f"superseded: {many} of {group.run} by {group.newer_run}: {group.outcome} in both")
            continue
        word = "failed before" if group.is_better else "superseded"
        lines.append(
            f"{word}: {', '.join(group.names)}: {group.outcome} in {group.run}, {group.newer_outcome} in "
            f"{group.newer_run}"
        )
    if found.differences:
        lines.append(f"the runs differ in: {', '.join(str(d['name']) for d in found.differences)}")
    return [*lines, *found.notices]
