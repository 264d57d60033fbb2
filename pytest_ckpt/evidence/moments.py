"""When the operations of a run ended, as rank 0 told it."""

from __future__ import annotations

from pathlib import Path

from pytest_ckpt.evidence.run_files import EVENTS
from pytest_ckpt.facts.events import OperationDone, event_from_plain
from pytest_ckpt.facts.measurement import Measurement
from pytest_ckpt.support.strict_json import parse, read_lines


def ends_of(folder: Path, measurement: Measurement) -> tuple[float, ...]:
    """Return the seconds since its launch began at which each operation of a measurement had ended, in their order.

    Empty where ``events.jsonl`` does not tell of just these operations.
    """
    listed = []
    try:
        for line in read_lines(folder / EVENTS):
            plain = parse(line)
            event = event_from_plain(plain)
            if isinstance(event, OperationDone) and event.subject == measurement.subject:
                listed.append((event.operation, float(plain["seconds"])))
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return ()
    if [operation for operation, _ in listed] != list(measurement.operations):
        return ()
    return tuple(seconds for _, seconds in listed)
