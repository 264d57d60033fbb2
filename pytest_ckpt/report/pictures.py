"""The pictures of a certificate, made from its document; each is safe to stand in the page."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from pytest_ckpt.report import charts, overview, view
from pytest_ckpt.report.background import background_chart, background_saves
from pytest_ckpt.report.goodput import curve_names, goodput_chart


def cluster(sizes: Sequence[view.Document], asked: int, forecasts: Sequence[view.Document] = ()) -> Markup:
    """Return the largest cluster that each checkpoint's times would serve, and what is projected from fewer clients."""
    bands = {row["subject"]: row["projected"] for row in forecasts}
    return Markup(overview.cluster_chart("cluster", sizes, asked, bands))


def of_subject(position: int, subject: view.Subject) -> dict[str, Any]:
    """Return the charts of one subject, by name."""
    made: dict[str, Any] = {"phases": [], "phase_names": []}
    for kind in subject.kinds:
        key = f"s{position}-{kind.kind}"
        if not kind.operations:
            continue
        made[kind.kind] = Markup(
            charts.operations_chart(key, kind.kind, kind.operations, kind.planned, kind.limit_seconds)
        )
        phases = charts.phases_chart(f"{key}-phases", kind.kind, kind.operations, kind.planned)
        if phases:
            made["phases"].append(Markup(phases))
    made["background_saves"] = background_saves(subject.measurement)
    made["background"] = Markup(background_chart(f"s{position}-background", made["background_saves"]))
    every = [*subject.save.operations, *subject.load.operations]
    made["phase_names"] = charts.phase_names(every)
    made["shares"] = {kind.kind: charts.phase_shares(kind.operations) for kind in subject.kinds}
    ran = subject.measurement or {}
    made["heat"] = Markup(overview.heat_map(f"s{position}-heat", every, ran.get("rank_bytes") or ()))
    made["is_even"] = overview.is_even(every, ran.get("rank_bytes") or ())
    made["slow"] = overview.slow_ranks(
        every, ran.get("rank_bytes") or (), {r["rank"]: r["host"] for r in ran.get("ranks") or ()}
    )
    return made


def goodput(rows: Sequence[Mapping[str, Any]], asked: int) -> dict[str, Any]:
    """Return the curves of what is left for training, and the letters by which they are named."""
    return {"picture": Markup(goodput_chart("goodput", rows, asked)), "names": curve_names(rows)}


def stages(seconds_of: Mapping[str, float]) -> dict[str, Any]:
    """Return what the run spent its time on, as a bar and as rows."""
    spent = {name: seconds for name, seconds in seconds_of.items() if seconds > 0}
    whole = sum(spent.values())
    return {
        "picture": Markup(overview.stages_bar("stages", spent)),
        "rows": [(name, seconds, seconds / whole) for name, seconds in spent.items()],
        "whole": whole,
    }


def heat_legend() -> list[str]:
    """Return the legend of the heat map, from the fastest ranks to the slowest."""
    borders = [f"{border:g}" for border in overview.HEAT_LEVELS]
    between = [f"{low} to {high}" for low, high in itertools.pairwise(borders)]
    return [f"up to {borders[0]}", *between, f"over {borders[-1]}"]
