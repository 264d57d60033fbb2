"""The process that reports live metrics: the files and requests that it writes, and its failures.

If this process fails, the run continues.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_ckpt.config.options import resolve
from pytest_ckpt.facts.codec import to_plain
from pytest_ckpt.facts.events import OperationDone, event_to_plain
from pytest_ckpt.report.live_metrics import Message, RunEnd, RunFacts, VerdictFacts
from pytest_ckpt.run import live_metrics
from pytest_ckpt.support.errors import UsageError
from tests.support.collector import Values, collector, values_of
from tests.support.machine import eventually, patience
from tests.support.synthetic_measurement import SUBJECT, operation

RUN = RunFacts(run_id="a-run", version="1", target="/mnt/array", profile="smoke", cluster="8", start_seconds=1.0)
END = Message(end=RunEnd(exit_code=0, grade="rehearsal", verdicts=()), is_end=True)
DONE = ("ckpt_operations_total", (("operation", "save"), ("run_id", "a-run"), ("subject", str(SUBJECT))))


# On a busy machine, a process of the lowest priority gets no processor for seconds.
PROGRAM = """
import sys
from pytest_ckpt.run import live_metrics
live_metrics._LOWEST_PRIORITY, live_metrics._REQUEST_SECONDS = 0, float(sys.argv[3])
live_metrics.main(*sys.argv[1:3])
"""


class Reporting:
    """The reporting process, started as a controller starts it, with its usual priority and another time-out."""

    def __init__(self, destination: str, directory: Path, request_seconds: float) -> None:
        self.events = directory / "events.jsonl"
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, destination, str(self.events), str(request_seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.send(Message(run=RUN))

    def send(self, message: Message) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(to_plain(message)) + "\n")
        self.process.stdin.flush()

    def saved(self, index: int = 1) -> None:
        """Append the event of a save to the events file in two writes.

        A reader may therefore see only a part of the line.
        """
        line = json.dumps(event_to_plain(OperationDone(subject=SUBJECT, operation=operation("save", index, 1.0))))
        for part in (line[:40], line[40:] + "\n"):
            with self.events.open("a") as file:
                file.write(part)

    def end(self, message: Message | None = END) -> str:
        """End the process and return its output.

        With a ``message``, the process ends as it does after a complete run. Without it, the process ends as it does
        after a killed run.
        """
        if message:
            self.send(message)
        output, _ = self.process.communicate(timeout=patience(60))
        assert self.process.returncode == 0, output
        return output


@pytest.fixture
def reporting(tmp_path) -> Iterator[Callable[..., Reporting]]:
    with contextlib.ExitStack() as ending:

        def start(destination: str | Path, request_seconds: float = 60.0) -> Reporting:
            started = Reporting(str(destination), tmp_path, request_seconds)
            ending.callback(started.process.wait)
            ending.callback(started.process.kill)
            return started

        yield start


def values(file: Path) -> Values:
    return values_of(file.read_text())


def names(found) -> set[str]:
    return {name for name, _ in found}


def test_the_file_changes_while_the_run_continues_and_shows_its_end(reporting, tmp_path):
    place = tmp_path / "collected"
    place.mkdir()
    file = place / "ckpt.prom"
    working = reporting(file)
    eventually(file.exists, "the file is written")
    assert values(file)["ckpt_run_running", (("run_id", "a-run"),)] == 1
    for index in (1, 2):
        working.saved(index)
        eventually(lambda: values(file).get(DONE) == index, "the save is reported")  # noqa: B023 - called immediately
    working.send(Message(verdict=VerdictFacts(id="SAVE", subject="s", severity="required", outcome="met", margin=None)))
    eventually(lambda: "ckpt_verdicts" in names(values(file)), "the verdict is reported")
    assert working.end() == ""
    assert values(file)["ckpt_run_running", (("run_id", "a-run"),)] == 0
    assert values(file)["ckpt_run_exit_code", (("run_id", "a-run"),)] == 0
    assert [path.name for path in place.iterdir()] == ["ckpt.prom"]


def test_a_reader_never_finds_a_part_of_the_file(reporting, tmp_path):
    file = tmp_path / "ckpt.prom"
    working = reporting(file)
    eventually(file.exists, "the file is written")
    with file.open() as before:
        working.saved()
        eventually(lambda: DONE in values(file), "the save is reported")
        # The file was replaced, so a reader that opened it before still reads the whole old file.
        assert before.read().endswith("# EOF\n")
    working.end()


def test_a_run_whose_controller_was_killed_is_shown_as_ended(reporting, tmp_path):
    file = tmp_path / "ckpt.prom"
    working = reporting(file)
    eventually(file.exists, "the file is written")
    assert working.end(message=None) == ""
    assert values(file)["ckpt_run_running", (("run_id", "a-run"),)] == 0
    assert "ckpt_run_exit_code" not in names(values(file))


def test_a_collector_receives_the_run_while_it_continues(reporting):
    with collector() as seen:
        working = reporting(seen.destination)
        seen.wait_for(1)
        working.saved()
        seen.wait_for(2)
        assert working.end() == ""
        assert set(seen.paths) == {"/v1/metrics"}
        found = seen.values()
    assert found["ckpt_operations", DONE[1]] == 1
    assert found["ckpt_run_running", (("run_id", "a-run"),)] == 0


def test_a_collector_that_refuses_is_one_line(reporting):
    with collector() as seen:
        seen.status = 400
        working = reporting(seen.destination)
        seen.wait_for(1)
        working.saved()
        output = working.end()
    assert len(output.splitlines()) == 1
    assert "400" in output


def test_an_endpoint_that_takes_connections_and_never_answers_is_one_line(reporting):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        output = reporting(f"otlp://127.0.0.1:{silent.getsockname()[1]}", 3.0).end()
    assert len(output.splitlines()) == 1


def test_an_endpoint_that_is_not_there_is_one_line(reporting):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    output = reporting(f"otlp://127.0.0.1:{port}").end()
    assert len(output.splitlines()) == 1
    assert "refused" in output


def test_a_directory_that_takes_nothing_is_one_line_and_the_end_is_tried_again(reporting, tmp_path):
    place = tmp_path / "collected"
    place.write_text("no directory")
    working = reporting(place / "ckpt.prom")
    line = working.process.stdout.readline()
    assert line == "File exists (EEXIST)\n"
    place.unlink()
    assert working.end() == ""
    assert "ckpt_run_exit_code" in names(values(place / "ckpt.prom"))


def test_an_event_that_cannot_be_read_is_one_line_and_the_next_ones_count(reporting, tmp_path):
    file = tmp_path / "ckpt.prom"
    working = reporting(file)
    working.events.write_text('{"event": "operation"\n')
    assert working.process.stdout.readline()
    working.saved()
    assert working.end() == ""
    assert values(file)[DONE] == 1


def settings(tmp_path: Path, metrics: str, **more: str):
    (tmp_path / "target").mkdir(exist_ok=True)
    given = {"ckpt_target": str(tmp_path / "target"), "ckpt_report": str(tmp_path / "report"), "ckpt_metrics": metrics}
    return resolve({**given, **more}, {})


@pytest.mark.parametrize(
    ("file", "sentence"),
    [
        ("target/ckpt.prom", "is inside --ckpt-target"),
        ("report/ckpt.prom", "is inside --ckpt-report"),
        ("nowhere/ckpt.prom", "must be a directory that this user may write"),
    ],
)
def test_a_file_that_no_run_may_write_is_refused(tmp_path, file, sentence):
    with pytest.raises(UsageError, match=sentence):
        live_metrics.check_destination(settings(tmp_path, str(tmp_path / file)))


@pytest.mark.parametrize(
    ("destination", "library"),
    [("ckpt.prom", "prometheus_client"), ("otlp://localhost", "opentelemetry.exporter.otlp.proto.http")],
)
def test_a_missing_library_is_refused_with_the_extra_that_has_it(tmp_path, monkeypatch, destination, library):
    def none(_name: str) -> None:
        raise ModuleNotFoundError

    monkeypatch.setattr(live_metrics.importlib.util, "find_spec", none)
    with pytest.raises(UsageError) as refused:
        live_metrics.check_destination(settings(tmp_path, destination))
    assert library in refused.value.what
    assert "pip install 'pytest-ckpt[metrics]'" in refused.value.remedy


@pytest.mark.parametrize("destination", ["ckpt.prom", "otlp://collector", "otlp://[::1]:4318"])
def test_a_destination_that_can_be_used_is_taken(tmp_path, monkeypatch, destination):
    monkeypatch.chdir(tmp_path)
    live_metrics.check_destination(settings(tmp_path, destination))
