"""The table of live metrics, which a run reports to a monitoring system. Pure.

The writers of `report.live_metrics` and the page docs/dashboards.md are derived from these rows. A test compares the
queries of the dashboard with the rows.

Names follow OpenMetrics 1.0. Units are base units: seconds, bytes, shares of 1. A name ends with its unit; a counter
also has the suffix ``_total``.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

OTLP = "otlp"
"""The URL scheme of a collector's endpoint in ``--ckpt-metrics``."""

DEFAULT_PORT = 4318
"""The port of OTLP over HTTP, as the OpenTelemetry specification names it."""

FILE_SUFFIX = ".prom"
"""The textfile collector of node_exporter reads files with this suffix only."""

RUN = "run_id"
"""The name of the label that every metric has."""

Unit = Literal["", "seconds", "bytes", "ratio"]


class Metric(NamedTuple):
    """One metric. ``name`` is the name without the suffix ``_total`` of counters.

    ``labels`` are the names of the labels without the label `RUN`.
    """

    name: str
    help: str
    labels: tuple[str, ...] = ()
    unit: Unit = ""
    is_counter: bool = False

    @property
    def sample_name(self) -> str:
        """The name under which Prometheus stores the metric."""
        return f"{self.name}_total" if self.is_counter else self.name


class Sample(NamedTuple):
    """A value of a metric. ``labels`` has the values of the metric's labels, in the same order."""

    metric: Metric
    labels: tuple[str, ...]
    value: float


_OPERATION = ("subject", "operation")
_REQUEST = ("subject", "endpoint", "request")

RUN_INFO = Metric("ckpt_run_info", "Description of the run; the value is 1.",
                  ("version", "target", "profile", "cluster"))  # fmt: skip
RUN_START = Metric("ckpt_run_start_timestamp_seconds", "Unix time at which the run started.", unit="seconds")
RUN_EVENT = Metric("ckpt_run_last_event_timestamp_seconds", "Unix time at which the newest event of the run was read.",
                   unit="seconds")  # fmt: skip
RUN_RUNNING = Metric("ckpt_run_running", "1 while the run works; 0 after its end, also if it was killed.")
RUN_EXIT = Metric("ckpt_run_exit_code", "Exit code of the run. Only after the report was written.")
RUN_GRADE = Metric("ckpt_run_grade_info", "Grade of the run; the value is 1. Only after the report was written.",
                   ("grade",))  # fmt: skip
PLANNED = Metric("ckpt_operations_planned", "Number of saves or loads that the run measures.", _OPERATION)
LIMIT = Metric("ckpt_operation_limit_seconds", "Time limit of a save or load, as planned.", _OPERATION, "seconds")
RUNNING = Metric("ckpt_operation_running", "1 while ranks perform this operation; scenario is the name of a pattern, "
                 "and empty for the subject's own saves and loads.", (*_OPERATION, "scenario"))  # fmt: skip
DONE = Metric("ckpt_operations", "Number of completed saves or loads.", _OPERATION, is_counter=True)
MOVED = Metric("ckpt_moved_bytes", "Bytes of all completed saves or loads.", _OPERATION, "bytes", is_counter=True)
SECONDS = Metric("ckpt_operation_seconds", "Time of the newest save or load, until its slowest rank has finished and, "
                 "for a save, the checkpoint is committed.", _OPERATION, "seconds")  # fmt: skip
SLOWEST = Metric("ckpt_operation_slowest_seconds", "Time of the slowest save or load of the run so far.", _OPERATION,
                 "seconds")  # fmt: skip
BYTES = Metric("ckpt_operation_bytes", "Bytes of the newest save or load, all ranks together.", _OPERATION, "bytes")
SLOWEST_RANK = Metric("ckpt_operation_slowest_rank_seconds", "Time of the slowest rank in the newest save or load, "
                      "without the commit.", _OPERATION, "seconds")  # fmt: skip
MEDIAN_RANK = Metric("ckpt_operation_median_rank_seconds", "Median time of the ranks in the newest save or load, "
                     "without the commit.", _OPERATION, "seconds")  # fmt: skip
PHASE = Metric("ckpt_operation_phase_seconds", "Time of the slowest rank in each phase of the newest save or load.",
               (*_OPERATION, "phase"), "seconds")  # fmt: skip
STEPS = Metric("ckpt_steps", "Number of completed steps of a subject's patterns.", ("subject", "step"),
               is_counter=True)  # fmt: skip
STEP_SECONDS = Metric("ckpt_step_seconds", "Time of the newest step.", ("subject", "step"), "seconds")
FAULTS = Metric("ckpt_integrity_faults", "Number of places in loaded checkpoints that differ from the saved data.",
                ("subject",))  # fmt: skip
REQUESTS = Metric("ckpt_requests", "Number of requests to an object store; known at the end of a measurement.",
                  _REQUEST, is_counter=True)  # fmt: skip
RETRIES = Metric("ckpt_request_retries", "Number of requests that were repeated after 503, 429, silence or a broken "
                 "connection.", _REQUEST, is_counter=True)  # fmt: skip
BUSY = Metric("ckpt_request_busy_answers", "Number of answers 503 and 429.", _REQUEST, is_counter=True)
RETRY_WAIT = Metric("ckpt_request_retry_wait_seconds", "Time that ranks waited before they repeated requests.",
                    _REQUEST, "seconds", is_counter=True)  # fmt: skip
VERDICT = Metric("ckpt_verdict_info", "Verdict on a requirement; the value is 1.",
                 ("requirement", "subject", "severity", "outcome"))  # fmt: skip
MARGIN = Metric("ckpt_verdict_margin_ratio", "Share of the limit that was left; negative if the limit was missed.",
                ("requirement", "subject"), "ratio")  # fmt: skip
VERDICTS = Metric("ckpt_verdicts", "Number of verdicts so far.", ("severity", "outcome"))

METRICS = (
    RUN_INFO, RUN_START, RUN_EVENT, RUN_RUNNING, RUN_EXIT, RUN_GRADE, PLANNED, LIMIT, RUNNING, DONE, MOVED, SECONDS,
    SLOWEST, BYTES, SLOWEST_RANK, MEDIAN_RANK, PHASE, STEPS, STEP_SECONDS, FAULTS, REQUESTS, RETRIES, BUSY, RETRY_WAIT,
    VERDICT, MARGIN, VERDICTS,
)  # fmt: skip
"""Every metric, in the order of the page and of the file."""
