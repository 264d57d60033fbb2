"""Output of ``pytest-ckpt size``: lines for a terminal, and an HTML page.

The lines and the page show the storage that clusters require.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from pytest_ckpt import __version__
from pytest_ckpt.facts.codec import to_plain
from pytest_ckpt.report.charts import Frame, curve, dot
from pytest_ckpt.report.svg import Axis, label, picture
from pytest_ckpt.sizing.demands import FORMULAS
from pytest_ckpt.support import units

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pytest_ckpt.facts.settings import Settings
    from pytest_ckpt.report.html import PageSection
    from pytest_ckpt.sizing.demands import RetentionDemand, SizeRow, StorageTable, TableDemand

SCHEMA = "pytest-ckpt/size/1"
_WIDTH, _HEIGHT = 1060, 424
_FRAME = Frame(left=84.0, right=900.0, top=34.0, bottom=380.0)

Cell = tuple[str, "Callable[[Mapping[str, Any]], str]"]


def document_of(rows: Sequence[SizeRow], keeping: RetentionDemand, settings: Settings) -> dict[str, Any]:
    """Return all demands on the storage, the rules and the formulas in plain JSON types."""
    return {
        "schema": SCHEMA,
        "tool": f"pytest-ckpt {__version__}",
        "rules": {
            "failures": settings.failures,
            "save_budget": settings.save_budget,
            "load_budget": settings.load_budget,
            "checkpoints_per_failure": settings.checkpoints_per_failure,
            "drain_every": settings.drain_every,
            "target_share": settings.target_share,
            **to_plain(keeping),
        },
        "formulas": dict(FORMULAS),
        "rows": [to_plain(row) for row in rows],
    }


def table_of(table: StorageTable, rows: Iterable[TableDemand]) -> dict[str, Any]:
    """Return a dictionary with the document's field ``table``.

    The field contains a published table. Each row also contains the demand that this program derives for the row.
    """
    words = {"name": table.name, "title": table.title, "source": table.source}
    return {"table": {**words, "rows": [to_plain(row) for row in rows]}}


def size_lines(document: Mapping[str, Any]) -> list[str]:
    """Return the demands on the storage as lines of text: tables, then the rules and the formulas."""
    lines = ["What clusters need from storage for checkpoints. No run was made."]
    for heading, cells, rows_of in _tables(document):
        head, *rows = _table(rows_of, cells)
        widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
        lines += ["", f"{heading}:"]
        for row in (head, *rows):
            padded = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
            lines.append("  ".join(("", row[0].ljust(widths[0]), *padded)))
    lines += ["", "rules:", *(f"  {text}" for text in _rules(document["rules"])), "", "formulas:"]
    for name, formula in document["formulas"].items():
        lines += textwrap.wrap(f"{_name(name)}: {formula}", 110, initial_indent="  ", subsequent_indent="      ")
    return lines


def size_sections(document: Mapping[str, Any], curves: Sequence[SizeRow]) -> list[PageSection]:
    """Return the demands on the storage as the sections of a page; ``curves`` are the rows of the chart."""
    from pytest_ckpt.report.html import PageSection  # noqa: PLC0415 - jinja2 only when it is needed

    sections = []
    for place, (heading, cells, rows_of) in enumerate(_tables(document)):
        head, *rows = _table(rows_of, cells)
        drawn = () if place else (_chart(curves),)
        title = heading[0].upper() + heading[1:]
        sections.append(PageSection(heading=title, head=tuple(head), rows=tuple(map(tuple, rows)), pictures=drawn))
    sections.append(PageSection(heading="Rules", text=" ".join(_rules(document["rules"]))))
    formulas = tuple((_name(name), formula) for name, formula in document["formulas"].items())
    return [*sections, PageSection(heading="Formulas", head=("figure", "how it follows"), rows=formulas)]


def _tables(document: Mapping[str, Any]) -> Iterator[tuple[str, Sequence[Cell], Sequence[Mapping[str, Any]]]]:
    """Yield (heading, columns, rows) of each table."""
    for heading, cells in _TABLES:
        yield heading, cells, document["rows"]
    if table := document.get("table"):
        yield f"compared with {table['name']}: {table['title']}; {table['source']}", _COMPARED, table["rows"]


def _table(rows: Sequence[Mapping[str, Any]], cells: Sequence[Cell]) -> list[list[str]]:
    """Return the rows of a table as texts; the first row contains the headings."""
    return [[head for head, _ in cells], *([write(row) for _, write in cells] for row in rows)]


def _of(field: str, write: Callable[[Any], str]) -> Callable[[Mapping[str, Any]], str]:
    return lambda row: write(row[field])


def _by(strategy: str, field: str, write: Callable[[Any], str]) -> Callable[[Mapping[str, Any]], str]:
    return lambda row: next(write(rate[field]) for rate in row["rates"] if rate["strategy"] == strategy)


# The default load budget has no published source, so the columns show the demand for several budgets.
_LOAD_BUDGETS = (0.005, 0.01, 0.02, 0.05)


def _load_at(budget: float) -> Callable[[Mapping[str, Any]], str]:
    """Return the formatter of a cell that shows a load rate and a time.

    The time is the share ``budget`` of the MTTF. At the load rate, one copy of the model is loaded in this time.
    """

    def write(row: Mapping[str, Any]) -> str:
        seconds = budget * row["mttf_seconds"]
        rate = row["load_bytes_per_second"] * row["load_limit_seconds"] / seconds
        return f"{units.format_rate(rate)} in {units.format_seconds(seconds)}"

    return write


_MODEL: tuple[Cell, ...] = (
    ("model", lambda row: row["model"]),
    ("accelerators", _of("accelerators", units.format_count)),
)
_TABLES: tuple[tuple[str, tuple[Cell, ...]], ...] = (
    (
        "while saving: the whole cluster, by strategy",
        (
            *_MODEL,
            ("checkpoint", _of("checkpoint_bytes", units.format_bytes)),
            ("every", _of("interval_seconds", units.format_seconds)),
            ("sync", _by("sync", "bytes_per_second", units.format_rate)),
            ("sync in", _by("sync", "within_seconds", units.format_seconds)),
            ("async", _by("async", "bytes_per_second", units.format_rate)),
            ("async in", _by("async", "within_seconds", units.format_seconds)),
            ("tiered", _by("tiered", "bytes_per_second", units.format_rate)),
            ("tiered in", _by("tiered", "within_seconds", units.format_seconds)),
            ("a node (sync)", _of("node_bytes_per_second", units.format_rate)),
            ("an accelerator", _of("accelerator_bytes_per_second", units.format_rate)),
        ),
    ),
    (
        "while loading, and the cost for training",
        (
            *_MODEL,
            ("one copy", _of("load_bytes_per_second", units.format_rate)),
            ("within", _of("load_limit_seconds", units.format_seconds)),
            ("all copies", _of("load_all_bytes_per_second", units.format_rate)),
            ("copies", _of("copies", units.format_count)),
            ("goodput", _of("goodput", units.format_percent)),
            ("best interval", _of("daly_seconds", units.format_seconds)),
            ("(Young)", _of("young_seconds", units.format_seconds)),
        ),
    ),
    (
        "while loading one copy, by load budget (--ckpt-load-budget)",
        (*_MODEL, *((units.format_percent(budget), _load_at(budget)) for budget in _LOAD_BUDGETS)),
    ),
    (
        "volume and capacity",
        (
            *_MODEL,
            ("saves a day", lambda row: f"{row['checkpoints_per_day']:,.4g}"),
            ("a day", _of("bytes_per_day", units.format_bytes)),
            ("a year", _of("bytes_per_year", units.format_bytes)),
            ("sustained", _of("sustained_bytes_per_second", units.format_rate)),
            ("capacity", _of("capacity_bytes", units.format_bytes)),
            ("raw", _of("raw_capacity_bytes", units.format_bytes)),
            ("drive writes a day", lambda row: f"{row['drive_writes_per_day']:.3g}"),
        ),
    ),
)


_COMPARED: tuple[Cell, ...] = (
    ("model", lambda row: row["model"]),
    ("storage of", lambda row: row["what"]),
    ("accelerators", _of("accelerators", units.format_count)),
    ("level", lambda row: row["level"]),
    ("writes", _of("write_bytes_per_second", units.format_rate)),
    ("needed (sync)", _of("needed_write_bytes_per_second", units.format_rate)),
    ("reads", _of("read_bytes_per_second", units.format_rate)),
    ("needed", _of("needed_read_bytes_per_second", units.format_rate)),
    ("sufficient for", _of("sufficient_up_to_accelerators", units.format_count)),
)


def _rules(rules: Mapping[str, Any]) -> list[str]:
    """Return the rules in sentences."""
    percent = units.format_percent
    usable = rules["usable_bytes"]
    on = "as much as is kept" if usable is None else units.format_bytes(usable)
    listed = [
        f"Failures: {rules['failures']} (--ckpt-failures); {rules['checkpoints_per_failure']} checkpoints a failure "
        "(k).",
        f"Saving may cost {percent(rules['save_budget'])} of training (b), a restore {percent(rules['load_budget'])} "
        "of the time between two failures (c).",
        f"Strategy tiered drains every save of {rules['drain_every']} (n); {percent(rules['target_share'])} of "
        "failures leave only the target (p).",
        f"Kept: the newest {rules['newest']} and {rules['daily']} daily ones, {rules['copies']} of each, on {on} "
        f"usable; {percent(rules['erasure_overhead'])} more for erasure coding; write amplification "
        f"{rules['write_amplification']:g}.",
    ]
    times = [
        f"a {kind} of {units.format_seconds(rules[f'{kind}_seconds'])}"
        for kind in ("save", "load")
        if rules[f"{kind}_seconds"] is not None
    ]
    return listed + ([f"Goodput and best interval are computed for {' and '.join(times)}."] if times else [])


def _name(field: str) -> str:
    """Return the name of a field as words, without its unit."""
    for unit in ("_bytes_per_second", "_seconds", "_bytes"):
        field = field.removesuffix(unit)
    return field.replace("_", " ")


def _chart(rows: Sequence[SizeRow]) -> str:
    """Return a chart of the rate that blocking saves require, over cluster size: one curve per model, log axes."""
    rate = {(row.model, row.accelerators): row.rates[0].bytes_per_second for row in rows}
    models, sizes = list(dict.fromkeys(m for m, _ in rate)), sorted({n for _, n in rate})
    across = Axis(low=sizes[0], high=sizes[-1], start=_FRAME.left, end=_FRAME.right, log=True)
    up = Axis(
        low=min(rate.values()) / 1.5, high=max(rate.values()) * 1.5, start=_FRAME.bottom, end=_FRAME.top, log=True
    )
    parts = [*_FRAME.grid(up, units.format_rate), *_FRAME.counts_below(across, sizes)]
    ends = []
    for model in models:
        points = [(across.at(n), up.at(rate[model, n])) for n in sizes]
        parts += [curve(points), *(dot(x, y) for x, y in points)]
        ends.append((points[-1][1], model))
    parts += [*_FRAME.names(ends), _FRAME.ground()]
    parts.append(label(0, 16, "bandwidth that a save by sync needs, over accelerators of the cluster", "t"))
    described = f"{units.counted(len(models), 'model')} over clusters of {sizes[0]:,} to {sizes[-1]:,} accelerators."
    return picture("size", _WIDTH, _HEIGHT, "Bandwidth over cluster size", described, parts)
