"""When the operations of a run ended, as rank 0 reported it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pytest_ckpt.evidence.starts import event_files
from pytest_ckpt.facts.events import MeasurementStarted, OperationDone, event_from_plain
from pytest_ckpt.facts.measurement import Measurement, Operation
from pytest_ckpt.support.strict_json import parse, read_lines


def ends_of(directory: Path, measurement: Measurement) -> tuple[float, ...]:
    """Return when each operation of a measurement had ended, in seconds since its launch began, in their order.

    Empty if ``events.jsonl`` does not contain exactly these operations.
    """
    listed: list[tuple[Operation, float]] = []
    wanted = list(measurement.operations)
    try:
        for line in _lines(directory):
            plain = parse(line)
            event = event_from_plain(plain)
            if isinstance(event, MeasurementStarted) and event.subject == measurement.subject:
                if [operation for operation, _ in listed] == wanted:
                    # Later events were measured to add patterns.
                    break
                listed = []
            elif isinstance(event, OperationDone) and event.subject == measurement.subject:
                listed.append((event.operation, float(plain["seconds"])))
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return ()
    if [operation for operation, _ in listed] != wanted:
        return ()
    return tuple(seconds for _, seconds in listed)


def _lines(directory: Path) -> Iterator[bytes]:
    """Yield the complete lines that all starts of a run wrote."""
    for file in event_files(directory):
        for line in read_lines(file):
            if line.endswith(b"\n"):
                yield line
