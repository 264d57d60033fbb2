"""Generates the tables and charts of docs/how_often_wrong.md from the acceptance study. Run it with ``python -m``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pytest_ckpt.support.units import counted, format_percent
from tests.support import CHECKOUT
from tests.support.acceptance_charts import curves_picture, file_of, passed_share
from tests.support.docs_pages import replace_section
from tests.support.missed_faults import SHARES, TRIALS, miss_probability
from tests.support.simulated_arrays import (
    GOOD_LATE_SHARE,
    LATE_SHARES,
    TRUTHS,
    TRUTHS_OF_STEADINESS,
    margin_at,
    truth_of,
)
from tests.support.simulated_runs import CERTIFICATE, rows

PAGE = CHECKOUT / "docs" / "how_often_wrong.md"
FILE = CHECKOUT / "docs" / "how_often_wrong.json"
PICTURES = CHECKOUT / "docs" / "pictures"

Document = Mapping[str, Any]


def recorded() -> Document:
    document: Document = json.loads(FILE.read_text())
    return document


def pictures(document: Document) -> dict[str, str]:
    """Return {file name: content} of the charts on the page."""
    return {file_of(row.name): curves_picture(document, row.name) for row in rows()}


def with_results(page: str, document: Document) -> str:
    """Return the page with the generated tables between its marks."""
    parts = {
        "run": _run(document),
        "arrays": _arrays(),
        "certificate": _risks(document, CERTIFICATE),
        "rows": [line for row in rows() if row.name != CERTIFICATE for line in _row(document, row.name)],
        "behaviour": _behaviour(),
    }
    for name, lines in parts.items():
        page = replace_section(page, f"the study, {name}", "".join(f"{line}\n" for line in lines))
    return page


def _run(document: Document) -> Iterator[str]:
    curves = document["curves"]
    points = sum(len(each["points"]) for each in curves)
    yield (
        f"The values are from a run on {document['date']} ({document['machine']}): "
        f"{counted(document['arrays'], 'array')} for each of {counted(points, 'point')} of "
        f"{counted(len(curves), 'curve')}, seed {document['seed']}. "
        f"It took {document['processor_seconds']} s of processor time."
    )


def _arrays() -> Iterator[str]:
    yield "| kind | truth | smallest margin of a good array |"
    yield "|---|---|---|"
    for truth in (*TRUTHS, *TRUTHS_OF_STEADINESS):
        of = " (STEADY only)" if truth in TRUTHS_OF_STEADINESS else ""
        yield f"| {truth.name}{of} | {truth.sentence} | {format_percent(truth.good_margin)} |"


def _row(document: Document, row: str) -> Iterator[str]:
    yield f"### {row}"
    yield ""
    yield f"![{row}: share of simulated arrays that pass, over their margin](pictures/{file_of(row)})"
    yield ""
    yield from _risks(document, row)
    yield ""


def _risks(document: Document, row: str) -> Iterator[str]:
    curves = [each for each in document["curves"] if each["row"] == row]
    is_late = curves[0]["points"][0]["late_share"] is not None
    yield f"Decided by {counted(curves[0]['operations'], 'operation')} of a run."
    yield ""
    if is_late:
        names = (f"{'good' if share <= GOOD_LATE_SHARE else 'bad'}, {_share(share)} late" for share in LATE_SHARES)
        yield f"| kind | {' | '.join(names)} |"
        yield "|---" * (len(LATE_SHARES) + 1) + "|"
    for each in curves:
        truth = truth_of(each["truth"])
        if truth.late is None:
            shares = ", ".join(
                f"{_share(passed_share(point))} at {_share(point['margin'])}" for point in each["points"]
            )
            yield f"- {each['truth']}: share of arrays that pass, by their margin: {shares}."
            continue
        points = [_point(each, margin_at(truth.late, share)) for share in LATE_SHARES]
        cells = [_share(1 - passed_share(point) if point["is_good"] else passed_share(point)) for point in points]
        yield f"| {each['truth']} | {' | '.join(cells)} |"


def _point(each: Mapping[str, Any], margin: float) -> Mapping[str, Any]:
    point: Mapping[str, Any] = next(point for point in each["points"] if point["margin"] == margin)
    return point


def _behaviour() -> Iterator[str]:
    yield "| trials | " + " | ".join(f"p = {_share(share)}" for share in SHARES) + " |"
    yield "|---" * (len(SHARES) + 1) + "|"
    for trials in TRIALS:
        cells = (_share(miss_probability(share, trials)) for share in SHARES)
        yield f"| {trials:,} | {' | '.join(cells)} |"


def _share(share: float) -> str:
    return f"{share * 100:.3g} %" if abs(share) >= 0.0005 else "0 %"


def write(document: Document) -> None:
    PAGE.write_text(with_results(PAGE.read_text(), document))
    for name, content in pictures(document).items():
        (PICTURES / name).write_text(content)


if __name__ == "__main__":
    write(recorded())
