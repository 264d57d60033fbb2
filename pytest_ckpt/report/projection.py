"""Projected rates for more clients than a run measured, as text and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_ckpt import __version__
from pytest_ckpt.facts.codec import to_plain
from pytest_ckpt.support import units

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_ckpt.analysis.client_counts import CountedRates, Projection

SCHEMA = "pytest-ckpt/projection/1"


def document_of(rows: Sequence[tuple[CountedRates, Projection]], notices: Sequence[str]) -> dict[str, Any]:
    """Return the measured and projected rates in plain JSON types, in bytes a second."""
    return {
        "schema": SCHEMA,
        "tool": f"pytest-ckpt {__version__}",
        "notices": list(notices),
        "rows": [{**to_plain(counted), "projection": to_plain(projection)} for counted, projection in rows],
    }


def projection_lines(document: Mapping[str, Any]) -> list[str]:
    """Return the measured and projected rates as lines of text."""
    lines = [*document["notices"], "Projected from measured rates. A projection is not certified."]
    for row in document["rows"]:
        lines += ["", f"{row['name']}, {row['kind']}s, by {row['unit']}:"]
        for count, rates in row["rates"].items():
            mean = units.format_rate(sum(rates) / len(rates))
            lines.append(f"  {int(count):>9,}  {mean}, the mean of {units.counted(len(rates), row['kind'])}")
        lines.append(_line(row["projection"]))
    return lines


def _line(found: Mapping[str, Any]) -> str:
    between = f"{units.format_rate(found['low'])} to {units.format_rate(found['high'])}"
    if found["unavailable_reason"]:
        return f"  {found['clients']:>9,}  no projection, only bounds: {between}; {found['unavailable_reason']}"
    error = units.format_percent(found["leave_one_out_error"], digits=2)
    return (
        f"  {found['clients']:>9,}  {units.format_rate(found['median'])} projected, 90 % interval {between} (model "
        f"{found['model']}; left out, a count is missed by {error})"
    )
