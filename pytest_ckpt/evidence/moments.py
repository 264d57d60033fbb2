"""When the operations of a run ended, as rank 0 told it."""

from __future__ import annotations

from pathlib import Path

from pytest_ckpt.evidence.cross_check import EVENTS
from pytest_ckpt.evidence.event_log import read_log
from pytest_ckpt.facts.events import OperationDone
from pytest_ckpt.facts.measurement import Measurement
from pytest_ckpt.support.strict_json import read_lines


def ends_of(folder: Path, measurement: Measurement) -> tuple[float, ...]:
    """Return the seconds since its launch began at which each operation of a measurement had ended, in their order.

    Empty where ``events.jsonl`` does not tell of just these operations.
    """
    try:
        listed = [
            (entry.event.operation, entry.seconds)
            for entry in read_log(read_lines(folder / EVENTS))
            if isinstance(entry.event, OperationDone) and entry.event.subject == measurement.subject
        ]
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return ()
    if [operation for operation, _ in listed] != list(measurement.operations):
        return ()
    return tuple(float(seconds) for _, seconds in listed)
