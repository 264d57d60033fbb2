"""Generates the table in docs/dashboards.md from the table of metrics. Run it with ``python -m``."""

from __future__ import annotations

from pytest_ckpt.facts.metrics import METRICS, Metric
from tests.support import CHECKOUT
from tests.support.docs_pages import replace_section

PAGE = CHECKOUT / "docs" / "dashboards.md"


def with_metrics(page: str) -> str:
    """Return the page with the generated table between its marks."""
    lines = ["| metric | kind | labels | meaning |", "|---|---|---|---|", *map(_row, METRICS)]
    return replace_section(page, "the table of metrics", "\n".join(lines) + "\n")


def _row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"| `{metric.sample_name}` | {'counter' if metric.is_counter else 'gauge'} | {labels} | {metric.help} |"


if __name__ == "__main__":
    PAGE.write_text(with_metrics(PAGE.read_text()))
