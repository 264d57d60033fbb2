"""Readers of live metrics: an OpenTelemetry collector in this process, and a parser for OpenMetrics text."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.support.machine import patience

Values = dict[tuple[str, tuple[tuple[str, str], ...]], float]
"""Values of metrics by name and labels; the labels are sorted pairs."""


def values_of(text: str) -> Values:
    """Return {(metric name, labels): value} of metrics in OpenMetrics text."""
    families = text_string_to_metric_families(text)
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}


@dataclass
class Collector:
    """A running OpenTelemetry collector and the requests that it has received.

    It answers each request with the HTTP status code ``status``.
    """

    port: int
    status: int = 200
    paths: list[str] = field(default_factory=list)
    requests: list[ExportMetricsServiceRequest] = field(default_factory=list)
    arrived: threading.Condition = field(default_factory=threading.Condition)

    @property
    def destination(self) -> str:
        return f"otlp://127.0.0.1:{self.port}"

    def values(self, request: ExportMetricsServiceRequest | None = None) -> Values:
        """Return {(metric name, labels): value} of a request. If no request is given, read the newest request."""
        found: Values = {}
        for resource in (request or self.requests[-1]).resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    data = getattr(metric, metric.WhichOneof("data"))
                    for point in data.data_points:
                        labels = tuple(sorted((a.key, a.value.string_value) for a in point.attributes))
                        found[metric.name, labels] = getattr(point, point.WhichOneof("value"))
        return found

    def wait_for(self, count: int) -> None:
        """Wait until ``count`` requests have arrived."""
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self.requests) >= count, timeout=patience(60)), (
                "no metrics arrived"
            )


@contextlib.contextmanager
def collector() -> Iterator[Collector]:
    """Run a collector on a free port of this host and yield it; stop it when the block ends."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            with kept.arrived:
                kept.paths.append(self.path)
                kept.requests.append(ExportMetricsServiceRequest.FromString(body))
                kept.arrived.notify_all()
            self.send_response(kept.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Do nothing, so that requests are not logged."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        kept = Collector(port=server.server_address[1])
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield kept
        finally:
            server.shutdown()
            thread.join()
