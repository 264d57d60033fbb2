"""The dashboard and its page: every query can be parsed, and its metrics and labels exist."""

from __future__ import annotations

import json
import re

import promql_parser
import pytest

from pytest_ckpt.facts.metrics import METRICS, RUN
from tests.support.doc_pages import DOCS
from tests.support.docs_pages import metrics_page

DASHBOARD = json.loads((DOCS / "recipes" / "grafana-dashboard.json").read_text())
PAGE = metrics_page.PAGE.read_text()
LABELS = {metric.sample_name: {RUN, *metric.labels} for metric in METRICS}
PANELS = {panel["title"]: panel for panel in DASHBOARD["panels"]}
QUERIES = {f"{title} {t['refId']}": t["expr"] for title, panel in PANELS.items() for t in panel["targets"]}
SHOWN = PAGE.partition("\n## Queries\n")[2].partition("\n## ")[0].splitlines()
QUERIES |= {line.strip(): line.strip() for line in SHOWN if line.startswith("    ")}


def selectors(expression):
    """Yield (metric, labels) of each selector in a parsed query.

    If a query groups its result by labels, ``labels`` also contains these labels.
    """
    if isinstance(expression, promql_parser.VectorSelector):
        yield expression.name, {matcher.name for matcher in expression.matchers.matchers}
    elif isinstance(expression, promql_parser.MatrixSelector):
        yield from selectors(expression.vector_selector)
    elif isinstance(expression, promql_parser.AggregateExpr):
        grouped = set(expression.modifier.labels) if expression.modifier else set()
        yield from ((name, labels | grouped) for name, labels in selectors(expression.expr))
    elif isinstance(expression, promql_parser.BinaryExpr):
        yield from selectors(expression.lhs)
        yield from selectors(expression.rhs)
    elif isinstance(expression, promql_parser.Call):
        for argument in expression.args:
            yield from selectors(argument)
    elif isinstance(expression, promql_parser.ParenExpr):
        yield from selectors(expression.expr)
    else:
        assert isinstance(expression, promql_parser.NumberLiteral), f"{type(expression).__name__} is not read here"


def faults_of(query: str) -> list[str]:
    """Return the metrics and labels in a query that do not exist."""
    faults = []
    for name, labels in selectors(promql_parser.parse(query)):
        if name not in LABELS:
            faults.append(f"no metric {name}")
        elif unknown := labels - LABELS[name]:
            faults.append(f"{name} has no label {', '.join(sorted(unknown))}")
    return faults


@pytest.mark.parametrize("query", QUERIES.values(), ids=list(QUERIES))
def test_a_query_uses_existing_metrics_and_labels(query):
    assert faults_of(query) == []


def test_a_metric_or_a_label_that_there_is_not_is_found():
    assert faults_of("ckpt_operations") == ["no metric ckpt_operations"]
    assert faults_of('sum by (rank) (rate(ckpt_moved_bytes_total{run_id="$run"}[5m]))') == [
        "ckpt_moved_bytes_total has no label rank"
    ]
    assert faults_of("time() - ckpt_verdicts / ckpt_run_running > 1 and vector(0)") == []
    with pytest.raises(ValueError, match="unclosed"):
        faults_of("sum by (ckpt_verdicts")


def test_the_legends_name_labels_of_their_queries():
    for title, panel in PANELS.items():
        for target in panel["targets"]:
            found = set().union(*(LABELS[name] for name, _ in selectors(promql_parser.parse(target["expr"]))))
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= found, title


def test_the_variable_lists_the_runs():
    variables = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}
    query = variables["run"]["query"]["query"]
    assert query == "label_values(ckpt_run_info, run_id)"
    shown = [t["expr"] for panel in PANELS.values() for t in panel["targets"]]
    assert all('{run_id="$run"' in expression for expression in shown)


def test_panels_have_numbers_of_their_own_and_do_not_overlap():
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert {x for x, _ in cells} == set(range(24))


def test_the_dashboard_shows_the_metrics_that_a_lab_needs():
    shown = {name for query in QUERIES.values() for name, _ in selectors(promql_parser.parse(query))}
    kept = {"ckpt_run_info", "ckpt_run_start_timestamp_seconds", "ckpt_run_exit_code", "ckpt_run_grade_info",
            "ckpt_integrity_faults", "ckpt_steps_total", "ckpt_requests_total",
            "ckpt_request_retry_wait_seconds_total"}  # fmt: skip
    assert set(LABELS) - shown == kept, "what no panel shows is listed here"


def test_the_page_of_metrics_is_made_from_their_table():
    assert metrics_page.with_metrics(PAGE) == PAGE, "run: python -m tests.support.docs_pages.metrics_page"
