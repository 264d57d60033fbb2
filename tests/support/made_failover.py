"""Failovers made up for their judge."""

from __future__ import annotations

from pytest_ckpt.facts.commands import BREAKS, CommandRun, Failover, FailoverTrial, OperationTrial
from pytest_ckpt.facts.measurement import Patterns
from tests.support.made_measurement import FULL, compared, measurement

BROKE = CommandRun(command="break", seconds=0.5, exit_code=0)
MENDED = CommandRun(command="repair", seconds=2.0, exit_code=0)
REFUSED = CommandRun(command="break", seconds=0.5, exit_code=3, output="no such drive")


def done(kind, *, seconds=10.0, quiet=0.5, error=""):
    return OperationTrial(kind=kind, seconds=seconds, longest_stall_seconds=quiet, stalled_rank=2, error=error)


def trial(kind="save", **changes):
    known = {"moment_seconds": 4.0, "fault": BROKE, "operations": (done(kind),), "repaired": MENDED,
             "after": done("save")}  # fmt: skip
    return FailoverTrial(kind=kind, **known | changes)


def failed_over(first=None, *, trials=None, bytes_checked=12 * FULL, fault_count=0, faults=(), failure=None, **changes):
    """Return a measurement in which something was broken as often as it should be; ``first`` is the first time."""
    trials = tuple(trials) if trials is not None else (first or trial(), *(trial(kind) for kind in BREAKS[1:]))
    known = {
        "fault_command": "fail-drive 7",
        "repair_command": "replace-drive 7",
        "undisturbed": (done("save", quiet=0.25), done("load", quiet=0.25)),
        "trials": trials,
        "integrity": compared(12 * FULL, bytes_checked, fault_count=fault_count, faults=faults),
        "resident_fraction": 0.0,
        "failure": failure,
    }
    return measurement(patterns=Patterns(failover=Failover(**known | changes)))
