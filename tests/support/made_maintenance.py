"""Upgrades and snapshots made up for their judges."""

from __future__ import annotations

from pytest_ckpt.facts.commands import PAIRS, CommandRun, Snapshots, SnapshotTrial, Upgrade
from pytest_ckpt.facts.measurement import Patterns
from tests.support.made_failover import done
from tests.support.made_measurement import FULL, compared, measurement

CHANGED = CommandRun(command="upgrade", seconds=95.0, exit_code=0)
UPGRADE_REFUSED = CommandRun(command="upgrade", seconds=0.5, exit_code=3, output="a node is down already")
GOES_ON = CommandRun(
    command="upgrade", seconds=9.0, exit_code=None, output="the run ended before it did, and it goes on"
)
TAKEN = CommandRun(command="snapshot", seconds=0.5, exit_code=0, output="/mnt/clone")
NO_SPACE = CommandRun(command="snapshot", seconds=0.5, exit_code=1, output="no space")
REMOVED = CommandRun(command="remove", seconds=0.25, exit_code=0)
STAYS = CommandRun(command="remove", seconds=0.25, exit_code=1, output="the clone is busy")


def upgraded(*, bytes_checked=12 * FULL, fault_count=0, faults=(), **changes):
    """Return a measurement in which the storage was changed while it served."""
    known = {
        "command": "rolling-restart --wait",
        "undisturbed": (done("save", quiet=0.25), done("load", quiet=0.25)),
        "moment_seconds": 4.0,
        "operations": (done("save"), done("load"), done("save", seconds=12.0), done("load")),
        "run": CHANGED,
        "integrity": compared(12 * FULL, bytes_checked, fault_count=fault_count, faults=faults),
        "resident_fraction": 0.0,
    }
    return measurement(patterns=Patterns(upgrade=Upgrade(**known | changes)))


def snapshot(**changes):
    known = {"alone": done("save"), "beside": done("save", seconds=10.5), "moment_seconds": 4.0, "taken": TAKEN,
             "removed": REMOVED}  # fmt: skip
    return SnapshotTrial(**known | changes)


def snapshotted(first=None, *, trials=None, bytes_checked=12 * FULL, fault_count=0, faults=(), **changes):
    """Return a measurement with as many snapshots as there should be; ``first`` is the first."""
    trials = tuple(trials) if trials is not None else (first or snapshot(), *[snapshot()] * (PAIRS - 1))
    known = {
        "command": "take",
        "remove_command": "remove",
        "trials": trials,
        "integrity": compared(12 * FULL, bytes_checked, fault_count=fault_count, faults=faults),
    }
    return measurement(patterns=Patterns(snapshots=Snapshots(**known | changes)))
