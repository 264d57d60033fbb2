"""Live metrics, as other programs read them: two parsers of Prometheus' library, and OpenTelemetry's encoder."""

from __future__ import annotations

import dataclasses

import pytest
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_CUMULATIVE
from prometheus_client import parser as older_parser
from prometheus_client.openmetrics import parser as open_metrics_parser

from pytest_ckpt.facts.events import (
    IntegrityCompared,
    MeasurementDone,
    MeasurementStarted,
    OperationDone,
    OperationStarted,
    PatternMeasured,
    StepDone,
)
from pytest_ckpt.facts.metrics import METRICS
from pytest_ckpt.facts.requests import Requests
from pytest_ckpt.facts.subject import OperationRef
from pytest_ckpt.report.live_metrics import (
    LiveMetrics,
    PlannedOperations,
    RunEnd,
    RunFacts,
    VerdictFacts,
    open_metrics_text,
    otlp_data,
)
from tests.support.synthetic_measurement import SUBJECT, compared, measurement, operation

HOSTILE = 'a "quoted" back\\slash\nand a line, {braces} \N{GREEK SMALL LETTER MU}'
RUN = RunFacts(
    run_id="20261128T092327-d3aa04",
    version="1.2.3",
    target=HOSTILE,
    profile="acceptance",
    cluster="16000",
    start_seconds=1_795_857_809.0,
    planned=(PlannedOperations(subject=str(SUBJECT), operation="save", count=10, limit_seconds=4.5),),
)
REQUESTS = Requests(
    endpoint="https://s3.array.example:9000", kind="part", sent=120, again=7, busy=5, waited_seconds=2.5, bytes=10**9,
    median_seconds=0.1, p99_seconds=0.2, slowest_seconds=0.3,
)  # fmt: skip
SAVE = operation("save", 1, 3.0, ranks=(1.0, 2.0, 3.0, 1.5))
FAILED = VerdictFacts(id="SAVE", subject=str(SUBJECT), severity="required", outcome="failed", margin=-0.25)


def started(action: str = "save", scenario: str = "") -> OperationStarted:
    return OperationStarted(operation=OperationRef(subject=SUBJECT, action=action, scenario=scenario, index=1))


def ended_measurement() -> MeasurementDone:
    whole = measurement()
    assert whole.cache
    return MeasurementDone(subject=SUBJECT, cache=whole.cache, ranks=whole.ranks, requests=(REQUESTS,))


def working() -> LiveMetrics:
    """Return the metrics of a run during a load of the pattern storm, after a save and a failed verdict."""
    found = LiveMetrics(RUN)
    events = (
        MeasurementStarted(subject=SUBJECT),
        started(),
        OperationDone(subject=SUBJECT, operation=SAVE),
        StepDone(subject=SUBJECT, kind="storm", index=1, step_seconds=1.25),
        IntegrityCompared(subject=SUBJECT, integrity=compared(100, fault_count=2)),
        ended_measurement(),
        started("load", "storm"),
    )
    for second, event in enumerate(events):
        found.record(event, 1_795_857_900.0 + second)
    found.judged(FAILED)
    return found


def families(text: str) -> dict[str, tuple[str, str]]:
    return {f.name: (f.type, f.unit) for f in open_metrics_parser.text_string_to_metric_families(text)}


def samples(text: str, parser=open_metrics_parser) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Return {(name, labels): value} of a metrics text.

    The label run_id is checked and omitted.
    """
    found = {}
    for family in parser.text_string_to_metric_families(text):
        for sample in family.samples:
            labels = dict(sample.labels)
            assert labels.pop("run_id") == RUN.run_id
            key = (sample.name, tuple(sorted(labels.items())))
            assert key not in found, "one value of each"
            found[key] = sample.value
    return found


def value(found, name: str, **labels: str) -> float:
    return found[name, tuple(sorted(labels.items()))]


def text_of(found: LiveMetrics) -> str:
    return open_metrics_text(RUN.run_id, found.samples())


def test_an_independent_parser_reads_what_the_run_did():
    found = samples(text_of(working()))
    save = {"subject": str(SUBJECT), "operation": "save"}
    assert value(found, "ckpt_operations_total", **save) == 1
    assert value(found, "ckpt_operations_planned", **save) == 10
    assert value(found, "ckpt_operation_seconds", **save) == 3.0
    assert value(found, "ckpt_operation_limit_seconds", **save) == 4.5
    assert value(found, "ckpt_operation_slowest_rank_seconds", **save) == 3.0
    assert value(found, "ckpt_operation_median_rank_seconds", **save) == 1.75
    assert value(found, "ckpt_moved_bytes_total", **save) == SAVE.bytes
    for phase, seconds in SAVE.phases.items():
        assert value(found, "ckpt_operation_phase_seconds", **save, phase=phase) == pytest.approx(seconds)
    assert value(found, "ckpt_step_seconds", subject=str(SUBJECT), step="storm") == 1.25
    assert value(found, "ckpt_integrity_faults", subject=str(SUBJECT)) == 2
    assert value(found, "ckpt_operation_running", subject=str(SUBJECT), operation="load", scenario="storm") == 1
    request = {"subject": str(SUBJECT), "endpoint": REQUESTS.endpoint, "request": "part"}
    assert value(found, "ckpt_request_retries_total", **request) == 7
    assert value(found, "ckpt_request_retry_wait_seconds_total", **request) == 2.5
    assert value(found, "ckpt_verdict_margin_ratio", requirement="SAVE", subject=str(SUBJECT)) == -0.25
    assert value(found, "ckpt_verdicts", severity="required", outcome="failed") == 1
    info = {"version": "1.2.3", "target": HOSTILE, "profile": "acceptance", "cluster": "16000"}
    assert value(found, "ckpt_run_info", **info) == 1
    assert value(found, "ckpt_run_last_event_timestamp_seconds") == 1_795_857_906.0
    assert value(found, "ckpt_run_running") == 1


def test_the_older_format_of_node_exporter_reads_the_same_values():
    text = text_of(working())
    assert samples(text, older_parser) == samples(text)
    # node_exporter refuses a file that contains another type, or a timestamp after a value.
    assert {kind for kind, _ in families(text).values()} == {"gauge", "counter"}
    assert all(len(line.rpartition("}")[2].split()) == 1 for line in text.splitlines() if not line.startswith("#"))


def finished_run() -> LiveMetrics:
    """Return the metrics of the run of `working` after this run has ended."""
    found = working()
    found.ended(RunEnd(exit_code=1, grade="not certified", verdicts=(FAILED,)))
    return found


def test_every_metric_of_the_table_is_written_under_its_name_with_its_unit():
    found = families(text_of(working())) | families(text_of(finished_run()))
    assert found == {m.name: ("counter" if m.is_counter else "gauge", m.unit) for m in METRICS}
    for metric in METRICS:
        assert metric.name.endswith(f"_{metric.unit}") or not metric.unit
        assert not metric.name.endswith("_total")


def test_the_end_replaces_the_verdicts_by_those_of_the_report():
    found = working()
    met = dataclasses.replace(FAILED, outcome="met", margin=0.5)
    found.ended(RunEnd(exit_code=0, grade="certified", verdicts=(met,)))
    seen = samples(text_of(found))
    assert value(seen, "ckpt_run_running") == 0
    assert value(seen, "ckpt_run_exit_code") == 0
    assert value(seen, "ckpt_run_grade_info", grade="certified") == 1
    assert value(seen, "ckpt_verdicts", severity="required", outcome="met") == 1
    assert not [name for name, labels in seen if ("outcome", "failed") in labels]
    assert not [name for name, _ in seen if name == "ckpt_operation_running"]


def test_a_run_that_ended_without_a_report_has_no_exit_code():
    found = working()
    found.ended(None)
    seen = samples(text_of(found))
    assert value(seen, "ckpt_run_running") == 0
    assert not {name for name, _ in seen} & {"ckpt_run_exit_code", "ckpt_run_grade_info"}


def test_a_measurement_that_begins_again_forgets_the_slowest_operation_of_the_one_before():
    found = working()
    found.record(MeasurementStarted(subject=SUBJECT), 1.0)
    found.record(OperationDone(subject=SUBJECT, operation=operation("save", 1, 2.0)), 2.0)
    seen = samples(text_of(found))
    save = {"subject": str(SUBJECT), "operation": "save"}
    assert value(seen, "ckpt_operation_slowest_seconds", **save) == 2.0
    assert value(seen, "ckpt_operations_total", **save) == 2


@pytest.mark.parametrize(
    "event",
    [
        OperationDone(subject=SUBJECT, operation=SAVE),
        StepDone(subject=SUBJECT, kind="storm", index=1, step_seconds=1.0),
        PatternMeasured(subject=SUBJECT, name="storm", not_run="too few ranks"),
        ended_measurement(),
    ],
    ids=lambda event: type(event).__name__,
)
def test_an_end_message_ends_the_operation_in_progress(event):
    found = working()
    assert "ckpt_operation_running{" in text_of(found)
    found.record(event, 1.0)
    assert "ckpt_operation_running{" not in text_of(found)


def test_otlp_has_the_same_values_under_the_same_names():
    found = working()
    (resource,) = encode_metrics(otlp_data(RUN, found.samples())).resource_metrics
    attributes = {a.key: a.value.string_value for a in resource.resource.attributes}
    assert attributes["service.name"] == "pytest-ckpt"
    assert attributes["service.instance.id"] == RUN.run_id
    units = {"": "", "seconds": "s", "bytes": "By", "ratio": "1"}
    rows = {metric.name: metric for metric in METRICS}
    seen = {}
    for metric in resource.scope_metrics[0].metrics:
        row = rows[metric.name]
        assert metric.unit == units[row.unit]
        data = metric.sum if row.is_counter else metric.gauge
        assert metric.WhichOneof("data") == ("sum" if row.is_counter else "gauge")
        if row.is_counter:
            assert metric.sum.is_monotonic
            assert metric.sum.aggregation_temporality == AGGREGATION_TEMPORALITY_CUMULATIVE
            assert {p.start_time_unix_nano for p in data.data_points} == {int(RUN.start_seconds * 1e9)}
        for point in data.data_points:
            labels = {a.key: a.value.string_value for a in point.attributes}
            assert labels.pop("run_id") == RUN.run_id
            number = point.as_double if point.WhichOneof("value") == "as_double" else point.as_int
            seen[row.sample_name, tuple(sorted(labels.items()))] = number
    assert seen == samples(text_of(found))
