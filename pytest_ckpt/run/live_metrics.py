"""Reports live metrics in a separate process.

The process reads operations from ``events.jsonl`` and receives verdicts from the controller (pytest's process). During
the run, neither the ranks nor the controller wait for its reports. The process has the lowest CPU priority. If the
disk is full or the endpoint does not answer, the process prints one warning and retries every 30 s.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import importlib.util
import json
import logging
import os
import select
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ckpt import __version__
from pytest_ckpt.evidence.run_files import EVENTS
from pytest_ckpt.facts.codec import from_plain, to_plain
from pytest_ckpt.facts.events import Event, event_from_plain
from pytest_ckpt.facts.metrics import DEFAULT_PORT, OTLP
from pytest_ckpt.launching.recorder import write_atomically
from pytest_ckpt.report.live_metrics import (
    LiveMetrics,
    Message,
    PlannedOperations,
    RunEnd,
    RunFacts,
    VerdictFacts,
    is_read,
    open_metrics_text,
    otlp_data,
)
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.support.processes import describe_exit
from pytest_ckpt.support.resources import python_path
from pytest_ckpt.support.user_files import answering, refuse_inside, resolved_user_path
from pytest_ckpt.targets.schemes import split

if TYPE_CHECKING:
    from pytest_ckpt.evidence.run_files import Document
    from pytest_ckpt.facts.settings import Settings
    from pytest_ckpt.facts.verdict import Verdict
    from pytest_ckpt.run.context import RunContext

OPTION = "--ckpt-metrics"

# Changes are reported once a second. Values are repeated, because a collector forgets old ones. After a failure, the
# next report follows later.
_LOOK_SECONDS, _REPEAT_SECONDS, _RETRY_SECONDS = 1.0, 15.0, 30.0
# The timeouts of a request to a collector, of the last report until the process is killed, and of its end after that.
_REQUEST_SECONDS, _END_SECONDS, _KILL_SECONDS = 3.0, 10.0, 1.0
_LOWEST_PRIORITY = 19


def is_endpoint(destination: str) -> bool:
    """Return True if metrics are sent to a collector, and False if they are written to a file."""
    return destination.startswith(f"{OTLP}://")


def check_destination(settings: Settings) -> None:
    """Check that metrics can be reported to the destination in the settings.

    Raises UsageError if a library is missing or the file cannot be written. The file must not be in the target or in
    the report directory.
    """
    destination = settings.metrics
    if not destination:
        return
    library = "opentelemetry.exporter.otlp.proto.http" if is_endpoint(destination) else "prometheus_client"
    if not _is_installed(library):
        raise UsageError(
            f"{OPTION} {destination} needs the library {library}, which is not installed.",
            "Install it: pip install 'pytest-ckpt[metrics]'",
        )
    if is_endpoint(destination):
        return
    others = {"--ckpt-report": settings.report}
    if settings.target and not split(settings.target)[0]:
        others["--ckpt-target"] = settings.target
    elsewhere = "Name a file elsewhere, in the directory of node_exporter's textfile collector."
    file = refuse_inside(OPTION, destination, others, elsewhere)
    with answering(f"{OPTION} {destination}"):
        can_be_written = file.parent.is_dir() and os.access(file.parent, os.W_OK | os.X_OK) and not file.is_dir()
    if not can_be_written:
        raise UsageError(
            f"{OPTION} {destination} cannot be written: {file.parent} must be a directory that this user may write.",
            "Create the directory, or name another file.",
        )


def _is_installed(library: str) -> bool:
    try:
        return importlib.util.find_spec(library) is not None
    except ModuleNotFoundError:
        return False


class MetricsReporter:
    """The controller's handle of the process that reports metrics.

    `end` waits for the process, for about 10 s at most. `send` waits only if it must kill the process, for at most 1 s.
    """

    def __init__(self, context: RunContext) -> None:
        destination = context.settings.metrics or ""
        self._destination = context.redactor.text(destination)
        self._warning = ""
        self._is_warned = False
        if not is_endpoint(destination):
            destination = str(resolved_user_path(destination, OPTION))
        # All its output is an error; warnings of libraries are not printed.
        options = ("-P", "-W", "ignore", "-m", __name__)
        command = [sys.executable, *options, destination, str(context.directory / EVENTS)]
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONPATH": python_path()},
                # Ctrl-C reaches all processes of the terminal's session, but the metrics must still report the end of
                # the run.
                start_new_session=True,
            )
        except OSError as error:
            self._fail(f"its process did not start: {error}")
            return
        for stream in (self._process.stdin, self._process.stdout):
            assert stream
            os.set_blocking(stream.fileno(), False)
        self._send(Message(run=_run_facts(context)))

    def send(self, verdict: Verdict) -> None:
        """Send a verdict to the process."""
        self._send(Message(verdict=_verdict_facts(to_plain(verdict))))

    def end(self, document: Document | None) -> None:
        """Report the end of the run to the process, and wait until the process has published it.

        ``document`` is the run's report; None if the run has no report.
        """
        end = None
        if document:
            verdicts = tuple(map(_verdict_facts, document["requirements"]))
            end = RunEnd(exit_code=document["exit_code"], grade=document["grade"], verdicts=verdicts)
        process, self._process = self._process, None
        if process is None:
            return
        try:
            output, _ = process.communicate(_line(Message(end=end, is_end=True)), timeout=_END_SECONDS)
        except subprocess.TimeoutExpired:
            _kill(process)
            self._fail(f"its process did not end within {_END_SECONDS:.0f} s")
            return
        self._read(output)
        if process.returncode:
            self._fail(f"its process {describe_exit(process.returncode)}")

    def warning(self) -> str:
        """Return the warning about metrics once. Later calls, and calls without a warning, return an empty text."""
        if self._process and self._process.stdout and not self._warning:
            self._read(self._process.stdout.read() or b"")
        if not self._warning or self._is_warned:
            return ""
        self._is_warned = True
        return self._warning

    def _send(self, message: Message) -> None:
        """Send a message.

        If the process does not accept the message immediately, end the process and keep the reason as the warning.
        """
        if self._process is None or self._process.stdin is None:
            return
        line = _line(message)
        try:
            written = os.write(self._process.stdin.fileno(), line)
        except OSError as error:
            self._stop(f"its process takes no verdicts ({errno.errorcode.get(error.errno or 0, error)})")
            return
        if written < len(line):
            self._stop("its process takes no verdicts (its pipe is full)")

    def _stop(self, why: str) -> None:
        process, self._process = self._process, None
        if process and process.stdout:
            self._read(process.stdout.read() or b"")
            _kill(process)
        self._fail(why)

    def _read(self, output: bytes) -> None:
        if lines := output.decode(errors="replace").strip().splitlines():
            # The process prints its first failure; in a traceback, the last line is the error.
            self._fail(lines[-1])

    def _fail(self, why: str) -> None:
        self._warning = self._warning or (
            f"METRICS ARE INCOMPLETE: {OPTION} {self._destination}: {why}. The run does not depend on them."
        )


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the process, and wait only briefly for its end. A dead mount may block the process in the kernel."""
    process.kill()
    for stream in (process.stdin, process.stdout):
        with contextlib.suppress(OSError):
            if stream:
                stream.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_KILL_SECONDS)


def _line(message: Message) -> bytes:
    return (json.dumps(to_plain(message)) + "\n").encode()


def _run_facts(context: RunContext) -> RunFacts:
    settings = context.settings
    return RunFacts(
        run_id=context.run_id,
        version=__version__,
        target=context.redactor.text(settings.target or ""),
        profile=settings.profile,
        cluster=str(settings.cluster or ""),
        start_seconds=datetime.datetime.fromisoformat(context.started).timestamp(),
        planned=tuple(
            PlannedOperations(subject=str(c.subject), operation=kind, count=c.operations, limit_seconds=limit)
            for c in context.plan.runnable
            for kind, limit in (("save", c.demand.save_limit_seconds), ("load", c.demand.load_limit_seconds))
        ),
    )


def _verdict_facts(verdict: Document) -> VerdictFacts:
    return VerdictFacts(
        id=verdict["id"],
        subject=verdict["subject"],
        severity=verdict["severity"],
        outcome=verdict["outcome"],
        margin=verdict["margin"],
    )


class _Lines:
    """Splits data, received in pieces, into complete lines."""

    def __init__(self) -> None:
        self._rest = b""

    def of(self, data: bytes) -> list[bytes]:
        """Add ``data``; return the lines that are now complete. An incomplete last line is kept."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        return lines


class _EventsFile:
    """Reads ``events.jsonl`` step by step; the file may not exist yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines = _Lines()
        self._offset = 0

    def new(self) -> Iterator[Event]:
        """Yield the new events that change a metric."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return
        self._offset += len(data)
        for line in self._lines.of(data):
            plain = json.loads(line)
            if is_read(plain["event"]):
                yield event_from_plain(plain)


class _Report:
    """Publishes metrics after a change, and repeats them after some time without a change.

    The class prints only the first failure.
    """

    def __init__(self, destination: str, events: Path) -> None:
        self._destination = destination
        self._events = _EventsFile(events)
        self._metrics: LiveMetrics | None = None
        self._publish = _to_endpoint(destination) if is_endpoint(destination) else _to_file(Path(destination))
        self._is_changed, self._is_told = False, False
        self._change_due = self._repeat_due = 0.0

    def process(self, message: Message) -> None:
        """Process a message of the controller."""
        if message.run:
            self._metrics = LiveMetrics(message.run)
        elif self._metrics and message.verdict:
            self._metrics.judged(message.verdict)
        elif self._metrics and message.is_end:
            self._metrics.ended(message.end)
        self._is_changed = True

    def poll(self, *, is_last: bool = False) -> None:
        """Read new events, and publish metrics if they are due."""
        if self._metrics is None:
            return
        try:
            for event in self._events.new():
                self._metrics.record(event, time.time())
                self._is_changed = True
            if not is_last and time.monotonic() < (self._change_due if self._is_changed else self._repeat_due):
                return
            self._publish(self._metrics)
            self._is_changed = False
            self._change_due, self._repeat_due = (time.monotonic() + s for s in (_LOOK_SECONDS, _REPEAT_SECONDS))
        except Exception as error:
            self._change_due = self._repeat_due = time.monotonic() + _RETRY_SECONDS
            if not self._is_told:
                self._is_told = True
                print(_sentence(error), flush=True)


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno:
        return f"{error.strerror} ({errno.errorcode.get(error.errno, error.errno)})"
    return f"{error}" or type(error).__name__


def _to_file(path: Path) -> Callable[[LiveMetrics], None]:
    return lambda found: write_atomically(path, open_metrics_text(found.run.run_id, found.samples()))


class _FirstMessage(logging.Handler):
    """Keeps the first log message of an export, which states why it failed. Later messages are about retries."""

    text = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the first message, on one line."""
        self.text = self.text or " ".join(record.getMessage().split())


def _to_endpoint(destination: str) -> Callable[[LiveMetrics], None]:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter  # noqa: PLC0415 - an extra
    from opentelemetry.sdk.metrics.export import MetricExportResult  # noqa: PLC0415

    log, messages = logging.getLogger("opentelemetry"), _FirstMessage()
    log.addHandler(messages)
    log.propagate = False
    address = urllib.parse.urlsplit(destination)
    netloc = address.netloc if address.port else f"{address.netloc}:{DEFAULT_PORT}"
    exporter = OTLPMetricExporter(endpoint=f"http://{netloc}/v1/metrics", timeout=_REQUEST_SECONDS)

    def publish(found: LiveMetrics) -> None:
        messages.text = ""
        if exporter.export(otlp_data(found.run, found.samples())) is not MetricExportResult.SUCCESS:
            raise RuntimeError(messages.text or "the collector did not accept them")

    return publish


def main(destination: str, events: str) -> None:
    """Report metrics until the controller reports the end of the run, or until the controller's process ends."""
    os.nice(_LOWEST_PRIORITY)
    report, lines, has_ended = _Report(destination, Path(events)), _Lines(), False
    while not has_ended:
        if select.select([sys.stdin], [], [], _LOOK_SECONDS)[0]:
            data = os.read(sys.stdin.fileno(), 1 << 16)
            messages = [from_plain(Message, json.loads(line)) for line in lines.of(data)]
            if not data:
                # The controller was killed.
                messages.append(Message(is_end=True))
            for message in messages:
                report.process(message)
                has_ended = has_ended or message.is_end
        report.poll(is_last=has_ended)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main(*sys.argv[1:])
