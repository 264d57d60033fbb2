"""How long a rank may move bytes, but so few that nobody would wait for the end of its save or load.

A storage that gives a few kilobytes now and then is never without progress, so the deadline never ends what it does. An
operation of a rank may take 50 deadlines (4 h by default) or ten times its limit, whichever is longer. A fifth of that
is waited for; a rank that would take longer than the whole, at the pace that it has had since its operation began, is
ended then. So storage that misses its limit a hundred times is still measured, and no operation goes on for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ckpt.support.units import format_bytes, format_rate, format_seconds

if TYPE_CHECKING:
    from pytest_ckpt.facts.events import Beat
    from pytest_ckpt.facts.subject import Action, OperationRef, Subject
    from pytest_ckpt.ranks.process.job import Job

MAXIMUM_DEADLINES, MAXIMUM_LIMITS = 50, 10
_WAITED_SHARE = 1 / 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Allowance:
    """What the saves, or the loads, of a subject may take, and the bytes of each rank's own files.

    A load in a pattern may move other files than a rank's own: then its pace is that of its own.
    """

    seconds: float
    why: str
    rank_bytes: tuple[int, ...]

    def exceeded_by(self, rank: int, moved: int, seconds: float) -> str:
        """Say that a rank which moved so many bytes in so many seconds takes too long; empty where it does not."""
        # Without any progress, the deadline decides.
        if not moved or seconds < self.seconds * _WAITED_SHARE:
            return ""
        whole = max(self.rank_bytes[rank], moved)
        needed = seconds * whole / moved
        if needed <= self.seconds:
            return ""
        return (
            f"it moved {format_bytes(moved)} of {format_bytes(whole)} in {format_seconds(seconds)} "
            f"({format_rate(moved / seconds)}) and would take {format_seconds(needed)} at that pace; at most "
            f"{format_seconds(self.seconds)} are waited for ({self.why})"
        )


Allowances = Mapping[tuple["Subject", "Action"], Allowance]


def allowances_of(job: Job) -> Allowances:
    """Return what the operations of a job may take."""
    found: dict[tuple[Subject, Action], Allowance] = {}
    patient = MAXIMUM_DEADLINES * job.deadline_seconds
    for task in job.tasks:
        shards = task.layout()
        limits: dict[Action, float] = {"save": task.save_limit_seconds, "load": task.load_limit_seconds}
        for action, limit in limits.items():
            why = f"{MAXIMUM_DEADLINES} x --ckpt-deadline {format_seconds(job.deadline_seconds)}"
            if (generous := MAXIMUM_LIMITS * limit) > patient:
                why = f"{MAXIMUM_LIMITS} x the limit of {format_seconds(limit)}"
            found[task.subject, action] = Allowance(
                seconds=max(patient, generous), why=why, rank_bytes=shards.rank_bytes
            )
    return found


@dataclass(slots=True)
class Pace:
    """What one piece of work of a rank did in its present operation: bytes moved, and seconds on its clock.

    Waiting for other ranks is no part of them, nor what comes between two steps of a load.
    """

    operation: OperationRef | None = None
    moved: int = 0
    seconds: float = 0.0

    def take(self, before: Beat | None, now: Beat, seconds: float) -> None:
        """Take in what was told now, so many seconds after what was told before."""
        operation = now.operation.at("operation") if now.operation else None
        if operation != self.operation:
            self.operation, self.moved, self.seconds = operation, 0, 0.0
        elif before and before.operation == operation and not before.waiting:
            self.seconds += seconds
            self.moved += now.progress[0] - before.progress[0]

    def exceeds(self, allowances: Allowances, rank: int) -> str:
        """Say that the operation takes too long, and by what; empty where it does not."""
        at = self.operation
        allowed = allowances.get((at.subject, at.action)) if at else None
        return allowed.exceeded_by(rank, self.moved, self.seconds) if allowed else ""
