"""Generates the tables of docs/mlperf_v3.md from the published times. Run it with ``python -m``.

``docs/mlperf_v3.json`` contains the times of rank 0 for each published row. This module writes the times as DLIO files
in the directory tree of a submission, and judges the tree.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from pytest_ckpt.facts.measurement import OperationKind
from pytest_ckpt.published.directory import find_runs
from pytest_ckpt.published.judge import judge_one, read_results
from pytest_ckpt.published.runs import KINDS
from pytest_ckpt.sizing.models import layout
from pytest_ckpt.support.units import format_percent, format_seconds
from tests.support import CHECKOUT
from tests.support.docs_pages import replace_section

PAGE = CHECKOUT / "docs" / "mlperf_v3.md"
FILE = CHECKOUT / "docs" / "mlperf_v3.json"
CLUSTER = 16_000
_OF_KIND: Mapping[OperationKind, str] = {"save": "saves", "load": "loads"}
_NONE = "-"


@dataclass(frozen=True, kw_only=True)
class JudgedRow:
    """A published row and its judgement. ``report`` is the document that ``judge`` prints."""

    submitter: str
    system: str
    model: str
    report: Mapping[str, Any]

    def figure(self, kind: OperationKind) -> Mapping[str, Any]:
        found: Mapping[str, Any] = next(f for f in self.report["published"]["figures"] if f["kind"] == kind)
        return found

    def judged(self, kind: OperationKind) -> str:
        """Return the time of the slowest operation. If this time is an upper bound, it begins with "at most"."""
        operations = [o for m in self.report["measurements"] for o in m["operations"] if o["kind"] == kind]
        slowest = max(operations, key=lambda o: float(o["seconds"]))
        at_most = "at most " if slowest["at_least_seconds"] is not None else ""
        return at_most + format_seconds(slowest["seconds"])

    @property
    def cluster(self) -> str:
        """The size, as text, of the largest cluster for which all known saves and loads meet the time limits."""
        served = self.report["sufficient_up_to_accelerators"][0]["overall"]
        return _NONE if served is None else f"{served:,}"

    def unknown(self) -> Iterator[str]:
        """Yield a phrase for each fact that the published files do not contain.

        Such facts are the time of an operation's slowest process, and the use of a cache in loads.
        """
        for kind in KINDS:
            bases = self.figure(kind)["bases"]
            last = f"{kind} {self.figure(kind)['operations']}"
            if bases.get("rank 0 only"):
                yield last
            elif bases.get("at most"):
                yield f"{last} (only an upper bound is known)"
        if self.report["published"]["signs"]:
            yield "whether some loads came from a cache"


def recorded() -> Mapping[str, Any]:
    """Return the document with the published times."""
    document: Mapping[str, Any] = json.loads(FILE.read_text())
    return document


def write_tree(top: Path, document: Mapping[str, Any]) -> None:
    """Write the times of every row as statistics of rank 0, in a submission tree below ``top``."""
    for row in document["rows"]:
        size_gib = layout(row["model"], mode="full").bytes / 2**30
        place = top / "closed" / row["submitter"] / "results" / row["system"] / "checkpointing" / row["model"]
        for run in row["runs"]:
            directory = place / run["directory"]
            directory.mkdir(parents=True)
            (directory / "0_per_epoch_stats.json").write_text(json.dumps({"1": _epoch(run, size_gib)}))


def _epoch(run: Mapping[str, Any], size_gib: float) -> dict[str, Any]:
    at = datetime.strptime(run["directory"], "%Y%m%d_%H%M%S")
    at = _next(at, run["began"])
    found: dict[str, Any] = {"start": at.isoformat()}
    for kind in KINDS:
        for number, (clock, seconds) in enumerate(run[_OF_KIND[kind]], start=1):
            at = _next(at, clock)
            found[f"{kind}_ckpt{number}"] = {
                "start": at.isoformat(),
                "end": (at + timedelta(seconds=seconds)).isoformat(),
                "duration": seconds,
                "throughput": size_gib / seconds,
            }
            at += timedelta(seconds=seconds)
    return {**found, "end": at.isoformat()}


def _next(after: datetime, clock: str) -> datetime:
    """Return the first moment that is not before ``after`` and has the time of day ``clock``."""
    moment = datetime.combine(after.date(), datetime.strptime(clock, "%H:%M:%S.%f").time())
    return moment if moment >= after else moment + timedelta(days=1)


def judged_rows(document: Mapping[str, Any]) -> list[JudgedRow]:
    """Judge every row of the document, and return each row with its report."""
    found = []
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        write_tree(top, document)
        results = read_results(top, find_runs(top)).results
        for result in results:
            place = result.runs[0].files.place
            found.append(
                JudgedRow(
                    submitter=place.submitter,
                    system=place.system,
                    model=place.model_directory,
                    report=judge_one(result, top, {"ckpt_cluster": str(CLUSTER)}),
                )
            )
    return sorted(found, key=lambda row: (row.submitter.lower(), row.system, row.report["measurements"][0]["bytes"]))


def with_results(page: str, document: Mapping[str, Any]) -> str:
    """Return the page with the generated tables between its marks."""
    rows = judged_rows(document)
    for name, lines in (("counts", _counts(document, rows)), ("rows", _table(rows))):
        page = replace_section(page, f"the times, {name}", "".join(f"{line}\n" for line in lines))
    return page


def _counts(document: Mapping[str, Any], rows: Sequence[JudgedRow]) -> Iterator[str]:
    yield "| | met | met as far as recorded | too slow |"
    yield "|---|---:|---:|---:|"
    for kind in KINDS:
        outcomes = Counter(row.figure(kind)["outcome"] for row in rows)
        assert set(outcomes) <= {"met", "met as far as recorded", "failed"}, outcomes
        cells = [outcomes[name] for name in ("met", "met as far as recorded", "failed")]
        yield f"| {kind}s of {len(rows)} rows | {' | '.join(map(str, cells))} |"
    yield ""
    figures = [row.figure(kind) for row in rows for kind in KINDS]
    longer = sorted(f["overstatement"] for f in figures if f["overstatement"] is not None)
    suspect = sum(bool(row.report["published"]["signs"]) for row in rows)
    middle, most = format_percent(longer[len(longer) // 2], digits=2), format_percent(longer[-1])
    yield (
        f"The table counts {len(rows)} of the {document['published_rows']} published rows. The mean time of the "
        f"slowest process is longer than the published mean: by {middle} in the median over all saves and loads, by "
        f"{most} at most. In {suspect} rows, some loads show signs of a cache."
    )


def _table(rows: Sequence[JudgedRow]) -> Iterator[str]:
    yield (
        "| submitter | system | checkpoint | save: published | judged | load: published | judged | sufficient for | "
        f"save at {CLUSTER:,} | load at {CLUSTER:,} | not known |"
    )
    yield "|---|---|---|---:|---:|---:|---:|---:|---|---|---|"
    for row in rows:
        times = [
            cell for kind in KINDS for cell in (format_seconds(row.figure(kind)["published_seconds"]), row.judged(kind))
        ]
        outcomes = [row.figure(kind)["outcome_text"].replace("failed", "too slow") for kind in KINDS]
        cells = [row.submitter, f"`{row.system}`", row.model, *times, row.cluster, *outcomes, "; ".join(row.unknown())]
        yield f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    PAGE.write_text(with_results(PAGE.read_text(), recorded()))
