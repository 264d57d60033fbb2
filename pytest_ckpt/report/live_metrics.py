"""Live metrics of a run for monitoring: converts events and verdicts to OpenMetrics text and OTLP data.

The reporting process is the process of `run.live_metrics`. Only this process uses the libraries of the extra
``[metrics]``.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_ckpt.facts import metrics
from pytest_ckpt.facts.events import (
    KINDS,
    Event,
    IntegrityCompared,
    MeasurementDone,
    MeasurementStarted,
    OperationDone,
    OperationStarted,
    PatternMeasured,
    StepDone,
)
from pytest_ckpt.facts.metrics import METRICS, RUN, Metric, Sample, Unit

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricsData

    from pytest_ckpt.facts.measurement import Operation
    from pytest_ckpt.facts.requests import Requests
    from pytest_ckpt.facts.subject import OperationRef

_READ = frozenset(
    (
        MeasurementStarted, OperationStarted, OperationDone, StepDone, IntegrityCompared, PatternMeasured,
        MeasurementDone,
    )
)  # fmt: skip
_ORDER = {metric: place for place, metric in enumerate(METRICS)}
# OpenTelemetry uses UCUM units. A count has no unit, because for "1" a collector would add "_ratio" to the name.
_UCUM: dict[Unit, str] = {"": "", "seconds": "s", "bytes": "By", "ratio": "1"}
_NANOSECONDS = 1_000_000_000


def is_read(name: str) -> bool:
    """Return whether events with this name change a metric. The reporting process can skip other events."""
    return KINDS.get(name) in _READ


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedOperations:
    """The planned saves of a subject, or its planned loads: their number, and the time limit of one operation."""

    subject: str
    operation: str
    count: int
    limit_seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class RunFacts:
    """The facts of a run that are known at its start.

    ``start_seconds`` is a Unix time. ``cluster`` is a number of accelerators as text.
    """

    run_id: str
    version: str
    target: str
    profile: str
    cluster: str
    start_seconds: float
    planned: tuple[PlannedOperations, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class VerdictFacts:
    """The fields of a verdict that are reported as metrics."""

    id: str
    subject: str
    severity: str
    outcome: str
    margin: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class RunEnd:
    """The result of a run: exit code, grade, and all verdicts of its report."""

    exit_code: int
    grade: str
    verdicts: tuple[VerdictFacts, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """A message from the controller (pytest's process) to the reporting process, sent as one line.

    A message contains ``run`` or ``verdict``, or ``is_end`` is true because the run has ended. With ``is_end``, ``end``
    is the result of the run; None if the run ended without a report.
    """

    run: RunFacts | None = None
    verdict: VerdictFacts | None = None
    end: RunEnd | None = None
    is_end: bool = False


@dataclass(slots=True)
class _Operations:
    """The saves of a subject until now, or its loads until now.

    ``slowest_seconds`` covers only the subject's newest measurement, because verdicts use only the newest measurement.
    """

    newest: Operation
    count: int = 0
    bytes: int = 0
    slowest_seconds: float = 0.0


@dataclass(slots=True)
class _Steps:
    count: int = 0
    newest_seconds: float = 0.0


@dataclass(slots=True)
class LiveMetrics:
    """The metrics of a run. Events and verdicts update the metrics in the order of time."""

    run: RunFacts
    _event_seconds: float | None = None
    _is_running: bool = True
    _end: RunEnd | None = None
    _now: OperationRef | None = None
    _operations: dict[tuple[str, str], _Operations] = field(default_factory=dict)
    _steps: dict[tuple[str, str], _Steps] = field(default_factory=dict)
    _faults: dict[str, int] = field(default_factory=dict)
    _requests: dict[str, tuple[Requests, ...]] = field(default_factory=dict)
    _verdicts: dict[tuple[str, str], VerdictFacts] = field(default_factory=dict)

    def record(self, event: Event, at_seconds: float) -> None:
        """Record an event of rank 0. ``at_seconds`` is the Unix time at which the event was read."""
        self._event_seconds = at_seconds
        if isinstance(event, OperationStarted):
            self._now = event.operation
            return
        if isinstance(event, MeasurementStarted):
            # If a measurement begins again, the slowest operation of the previous one does not count.
            for (subject, _), operations in self._operations.items():
                if subject == str(event.subject):
                    operations.slowest_seconds = 0.0
        elif isinstance(event, OperationDone):
            self._operation(str(event.subject), event.operation)
        elif isinstance(event, StepDone):
            steps = self._steps.setdefault((str(event.subject), event.kind), _Steps())
            steps.count += 1
            steps.newest_seconds = event.step_seconds
        elif isinstance(event, IntegrityCompared):
            self._faults[str(event.subject)] = event.integrity.fault_count
        elif isinstance(event, MeasurementDone):
            self._requests[str(event.subject)] = event.requests
        if isinstance(event, OperationDone | StepDone | PatternMeasured | MeasurementDone):
            self._now = None

    def judged(self, verdict: VerdictFacts) -> None:
        """Record a verdict."""
        self._verdicts[verdict.id, verdict.subject] = verdict

    def ended(self, end: RunEnd | None) -> None:
        """Record the end of the run. ``end`` is None if the run ended without a report."""
        self._is_running, self._end = False, end
        if end:
            self._verdicts = {(verdict.id, verdict.subject): verdict for verdict in end.verdicts}

    def samples(self) -> list[Sample]:
        """Return the current values of all metrics, in the order of the table of metrics."""
        return sorted((Sample(*value) for value in self._values()), key=lambda sample: _ORDER[sample.metric])

    def _operation(self, subject: str, operation: Operation) -> None:
        done = self._operations.setdefault((subject, operation.kind), _Operations(operation))
        done.newest = operation
        done.count += 1
        done.bytes += operation.bytes
        done.slowest_seconds = max(done.slowest_seconds, operation.seconds)

    def _values(self) -> Iterator[tuple[Metric, tuple[str, ...], float]]:
        run = self.run
        yield metrics.RUN_INFO, (run.version, run.target, run.profile, run.cluster), 1
        yield metrics.RUN_START, (), run.start_seconds
        yield metrics.RUN_RUNNING, (), int(self._is_running)
        if self._event_seconds is not None:
            yield metrics.RUN_EVENT, (), self._event_seconds
        if self._end:
            yield metrics.RUN_EXIT, (), self._end.exit_code
            yield metrics.RUN_GRADE, (self._end.grade,), 1
        for planned in run.planned:
            yield metrics.PLANNED, (planned.subject, planned.operation), planned.count
            yield metrics.LIMIT, (planned.subject, planned.operation), planned.limit_seconds
        if self._is_running and (now := self._now):
            yield metrics.RUNNING, (str(now.subject), now.action, now.scenario), 1
        yield from self._values_of_operations()
        for step, steps in self._steps.items():
            yield metrics.STEPS, step, steps.count
            yield metrics.STEP_SECONDS, step, steps.newest_seconds
        for subject, count in self._faults.items():
            yield metrics.FAULTS, (subject,), count
        for subject, of_subject in self._requests.items():
            for requests in of_subject:
                labels = (subject, requests.endpoint, requests.kind)
                yield metrics.REQUESTS, labels, requests.sent
                yield metrics.RETRIES, labels, requests.again
                yield metrics.BUSY, labels, requests.busy
                yield metrics.RETRY_WAIT, labels, requests.waited_seconds
        yield from self._values_of_verdicts()

    def _values_of_operations(self) -> Iterator[tuple[Metric, tuple[str, ...], float]]:
        for labels, done in self._operations.items():
            newest = done.newest
            yield metrics.DONE, labels, done.count
            yield metrics.MOVED, labels, done.bytes
            yield metrics.SECONDS, labels, newest.seconds
            yield metrics.SLOWEST, labels, done.slowest_seconds
            yield metrics.BYTES, labels, newest.bytes
            if newest.rank_seconds:
                yield metrics.SLOWEST_RANK, labels, max(newest.rank_seconds)
                yield metrics.MEDIAN_RANK, labels, statistics.median(newest.rank_seconds)
            for phase, seconds in newest.phases.items():
                yield metrics.PHASE, (*labels, phase), seconds

    def _values_of_verdicts(self) -> Iterator[tuple[Metric, tuple[str, ...], float]]:
        for verdict in self._verdicts.values():
            yield metrics.VERDICT, (verdict.id, verdict.subject, verdict.severity, verdict.outcome), 1
            if verdict.margin is not None:
                yield metrics.MARGIN, (verdict.id, verdict.subject), verdict.margin
        for labels, count in Counter((v.severity, v.outcome) for v in self._verdicts.values()).items():
            yield metrics.VERDICTS, labels, count


def _by_metric(samples: Iterable[Sample]) -> Iterator[tuple[Metric, list[Sample]]]:
    """Yield each metric with its samples. The samples of a metric must be consecutive."""
    for metric, of_metric in itertools.groupby(samples, key=lambda sample: sample.metric):
        yield metric, list(of_metric)


def open_metrics_text(run_id: str, samples: Sequence[Sample]) -> str:
    """Return OpenMetrics text that is also valid in Prometheus' older text format.

    node_exporter reads only the older format. Therefore the text contains only gauges and counters, and no timestamps.
    """
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily  # noqa: PLC0415 - an extra
    from prometheus_client.openmetrics.exposition import generate_latest  # noqa: PLC0415

    families = []
    for metric, of_metric in _by_metric(samples):
        kind: Any = CounterMetricFamily if metric.is_counter else GaugeMetricFamily
        family = kind(metric.name, metric.help, labels=(RUN, *metric.labels), unit=metric.unit)
        for sample in of_metric:
            family.add_metric((run_id, *sample.labels), sample.value)
        families.append(family)
    write: Any = generate_latest
    text: bytes = write(_Families(families))
    return text.decode()


@dataclass(frozen=True, slots=True)
class _Families:
    """A collection of metric families that prometheus_client can write.

    This collection replaces the default registry of prometheus_client. The default registry would also write metrics of
    this Python process.
    """

    families: Sequence[Any]

    def collect(self) -> Sequence[Any]:
        """Return the metric families."""
        return self.families


def otlp_data(run: RunFacts, samples: Sequence[Sample]) -> MetricsData:
    """Return the samples as data of the OpenTelemetry SDK.

    Names contain the unit, but not the suffix ``_total`` of counters. A collector that writes to Prometheus appends
    ``_total``. Prometheus then has the names of the OpenMetrics file, so one dashboard can show both sources. Counters
    are cumulative from the start of the run.
    """
    from opentelemetry.sdk.metrics import export  # noqa: PLC0415 - an extra
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope  # noqa: PLC0415

    now, start = time.time_ns(), int(run.start_seconds * _NANOSECONDS)
    written = []
    for metric, of_metric in _by_metric(samples):
        points = [
            export.NumberDataPoint(
                attributes=dict(zip((RUN, *metric.labels), (run.run_id, *sample.labels), strict=True)),
                start_time_unix_nano=start if metric.is_counter else 0,
                time_unix_nano=now,
                value=sample.value,
            )
            for sample in of_metric
        ]
        data: export.Sum | export.Gauge = export.Gauge(data_points=points)
        if metric.is_counter:
            cumulative = export.AggregationTemporality.CUMULATIVE
            data = export.Sum(data_points=points, aggregation_temporality=cumulative, is_monotonic=True)
        written.append(export.Metric(metric.name, metric.help, _UCUM[metric.unit], data))
    of_service = {"service.name": "pytest-ckpt", "service.version": run.version, "service.instance.id": run.run_id}
    return export.MetricsData(
        [
            export.ResourceMetrics(
                resource=Resource.create(of_service),
                scope_metrics=[
                    export.ScopeMetrics(
                        scope=InstrumentationScope("pytest_ckpt", run.version), metrics=written, schema_url=""
                    )
                ],
                schema_url="",
            )
        ]
    )
