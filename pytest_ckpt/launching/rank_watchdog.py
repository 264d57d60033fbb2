"""Watches the ranks of a launch, and reports ranks that failed, make no progress or are too slow.

The deadline ends an operation that makes no progress. An operation that transfers a few kilobytes from time to time
would never reach the deadline. Therefore an operation also has a maximum time. The maximum is 50 deadlines (4 h by
default) or ten times the operation's time limit, whichever is longer.

After a fifth of the maximum time, the watchdog estimates the total time from the rank's present pace. If the estimate
exceeds the maximum, the rank is reported. With the defaults, storage that takes 100 times a limit of two minutes is
still measured.
"""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_ckpt.facts.events import Beat, Failed, Hello
from pytest_ckpt.facts.failure import Failure
from pytest_ckpt.ranks.process.activity import beat_seconds
from pytest_ckpt.support.processes import blocked_in
from pytest_ckpt.support.units import counted, format_bytes, format_rate, format_seconds

if TYPE_CHECKING:
    from pytest_ckpt.facts.subject import Action, OperationRef, Subject
    from pytest_ckpt.sizing.plan import PlannedCheckpoint

MAXIMUM_DEADLINES, MAXIMUM_LIMITS = 50, 10
_WAITED_SHARE = 1 / 5

# Messages of the launchers when a rank is killed: Open MPI, MPICH.
_KILLED = (
    re.compile(
        r"process rank (?P<rank>\d+).{0,80}?on node (?P<host>\S+) exited on\s+signal (?P<signal>\d+)", re.DOTALL
    ),
    re.compile(r"BAD TERMINATION.*?RANK (?P<rank>\d+).*?EXIT CODE: (?P<signal>\d+)", re.DOTALL),
)
# Slurm reports every task that ended, including tasks that it ended itself because another one had ended. It also
# reports a cancelled job, whose tasks receive a signal.
_TASK = re.compile(r"error: (?P<host>\S+): task (?P<rank>\d+): (?P<signal>(?!Exited)[A-Z]\w+)")
_CANCELLED = re.compile(r"CANCELLED AT \S+( DUE TO TIME LIMIT)?|Force Terminated job")
_REQUESTED_TO_END = "Terminated"
# Messages of the launchers when they no longer reach a host: Open MPI, Slurm.
_LOST_HOST = (
    re.compile(
        r"lost communication with a remote daemon.{0,400}?Remote daemon\s*:.{0,200}? on node (?P<host>\S+)", re.S
    ),
    re.compile(r"daemon failed to report back after being spawned.{0,600}?Remote host:\s*(?P<host>\S+)", re.S),
    re.compile(r"error: Node failure on (?P<host>\S+)"),
)
_START_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Allowance:
    """The maximum time of a subject's saves or loads, and the bytes of each rank's own files.

    ``seconds`` is the maximum time of one operation, and ``why`` explains it. In some patterns a rank loads files of
    other ranks; ``rank_bytes`` is then only an estimate of the bytes that the rank loads.
    """

    seconds: float
    why: str
    rank_bytes: tuple[int, ...]

    def exceeded_by(self, rank: int, moved: int, seconds: float) -> str:
        """Return a sentence if a rank would exceed the maximum time at its present pace; otherwise empty.

        The rank has moved ``moved`` bytes in ``seconds``.
        """
        # Without any progress, the deadline decides.
        if not moved or seconds < self.seconds * _WAITED_SHARE:
            return ""
        whole = max((*self.rank_bytes[rank : rank + 1], moved))
        needed = seconds * whole / moved
        if needed <= self.seconds:
            return ""
        return (
            f"it moved {format_bytes(moved)} of {format_bytes(whole)} in {format_seconds(seconds)} "
            f"({format_rate(moved / seconds)}) and would take {format_seconds(needed)} at that pace; at most "
            f"{format_seconds(self.seconds)} are waited for ({self.why})"
        )


Allowances = Mapping[tuple["Subject", "Action"], Allowance]


def allowances_of(checkpoints: Iterable[PlannedCheckpoint], deadline_seconds: float) -> Allowances:
    """Return the maximum times of each subject's saves and of its loads, for a launch that measures ``checkpoints``."""
    allowances: dict[tuple[Subject, Action], Allowance] = {}
    patient = MAXIMUM_DEADLINES * deadline_seconds
    for planned in checkpoints:
        demand = planned.demand
        limits: dict[Action, float] = {"save": demand.save_limit_seconds, "load": demand.load_limit_seconds}
        for action, limit in limits.items():
            why = f"{MAXIMUM_DEADLINES} x --ckpt-io-timeout {format_seconds(deadline_seconds)}"
            if (generous := MAXIMUM_LIMITS * limit) > patient:
                why = f"{MAXIMUM_LIMITS} x the limit of {format_seconds(limit)}"
            allowances[planned.subject, action] = Allowance(
                seconds=max(patient, generous), why=why, rank_bytes=planned.layout.rank_bytes
            )
    return allowances


@dataclass(slots=True)
class Pace:
    """The pace of one lane of a rank in its present operation: the bytes transferred and the seconds spent.

    A rank has one lane for its own work, and a lane for each concurrent activity, such as background saves. Each lane
    has its own `Pace`. The seconds exclude the time in which the rank waits for other ranks. They also exclude the time
    between two steps of a load.
    """

    operation: OperationRef | None = None
    moved: int = 0
    seconds: float = 0.0

    def record(self, before: Beat | None, now: Beat, seconds: float) -> None:
        """Add the report ``now``, which arrived ``seconds`` after the previous report ``before``.

        If ``now`` belongs to a new operation, restart from zero.
        """
        operation = now.operation.at("operation") if now.operation else None
        if operation != self.operation:
            self.operation, self.moved, self.seconds = operation, 0, 0.0
        elif before and before.operation == operation and not before.waiting:
            self.seconds += seconds
            self.moved += now.progress[0] - before.progress[0]

    def exceeds(self, allowances: Allowances, rank: int) -> str:
        """Return a sentence if the present operation of ``rank`` is too slow; otherwise return an empty text."""
        at = self.operation
        allowed = allowances.get((at.subject, at.action)) if at else None
        return allowed.exceeded_by(rank, self.moved, self.seconds) if allowed else ""


@dataclass(slots=True)
class _Lane:
    """The state of one lane of a rank (see `Pace`). All times are monotonic.

    ``last_event`` is the time of the last report. ``moved`` is the time of the last progress. ``began`` is the time of
    the first report of the present operation. ``doing`` is the last report.
    """

    last_event: float
    moved: float
    began: float
    doing: Beat | None = None
    pace: Pace = field(default_factory=Pace)

    @property
    def since(self) -> float:
        """The time of the last report or the last progress, whichever is earlier."""
        return min(self.last_event, self.moved)


@dataclass(slots=True)
class _RankState:
    host: str = ""
    pid: int = 0
    lanes: dict[str, _Lane] = field(default_factory=dict)

    @property
    def slowest(self) -> _Lane:
        """The lane (see `Pace`) without progress or without a report for the longest time."""
        return min(self.lanes.values(), key=lambda lane: lane.since)


class RankWatchdog:
    """Watches the ranks of one launch.

    A rank fails if it sends no message or makes no progress for ``deadline_seconds``. ``allowances`` limit the total
    time of each operation. ``processes`` is the number of ranks. ``local_host`` is the name of this host.
    """

    def __init__(
        self, processes: int, deadline_seconds: float, local_host: str, allowances: Allowances | None = None
    ) -> None:
        self._processes = processes
        self._deadline = deadline_seconds
        self._allowances = allowances or {}
        self._local_host = local_host
        self._ranks: dict[int, _RankState] = {}
        self._began = time.monotonic()
        self._failures: list[Failure] = []
        self._confirmed: set[object] = set()
        self._exits: list[tuple[float, int]] = []
        # Whether the deadline has passed and no rank has started.
        self.is_silent = False

    def record(self, event: Hello | Beat | Failed) -> None:
        """Record a report of a rank."""
        now = time.monotonic()
        if isinstance(event, Failed):
            self._failures.append(
                Failure(
                    kind=event.kind,
                    message=event.message,
                    rank=event.rank,
                    host=event.host,
                    operation=event.operation,
                    phase=event.phase,
                    file=event.file,
                    errno=event.errno,
                    lane=event.lane,
                )
            )
            return
        if event.rank is None:
            return
        rank = self._ranks.setdefault(event.rank, _RankState())
        name = event.lane if isinstance(event, Beat) else ""
        lane = rank.lanes.setdefault(name, _Lane(last_event=now, moved=now, began=now))
        if isinstance(event, Beat):
            lane.pace.record(lane.doing, event, now - lane.last_event)
        lane.last_event = now
        if isinstance(event, Hello):
            rank.host, rank.pid, lane.moved = event.host, event.pid, now
            return
        if event.waiting or event != lane.doing:
            lane.moved = now
        if lane.doing is None or event.operation != lane.doing.operation:
            lane.began = now
        lane.doing = event

    def confirm(self, rank: object) -> None:
        """Record that all messages of a rank have arrived. ``rank`` is any unique identifier of the rank."""
        self._confirmed.add(rank)

    def add_exit(self, rank: int, ended: float) -> None:
        """Record that a rank's connection ended at the time ``ended``.

        If several ranks end without a final message, the rank whose connection ended first is reported as the cause.
        """
        self._exits.append((ended, rank))

    def hung(self) -> Failure | None:
        """Return the failure of a rank that has not started, is blocked or is too slow; otherwise None."""
        now = time.monotonic()
        allowed = max(self._deadline, _START_SECONDS)
        if len(self._ranks) < self._processes:
            if now - self._began < allowed:
                return None
            missing = sorted(set(range(self._processes)) - set(self._ranks))
            self.is_silent = not self._ranks
            return Failure(
                kind="launch",
                message=f"{len(missing)} of {counted(self._processes, 'rank')} had not started after "
                f"{format_seconds(allowed)}",
                # If no rank has started, the failure is not attributed to a rank.
                rank=missing[0] if self._ranks else None,
            )
        late = [
            (state.slowest.since, number)
            for number, state in self._ranks.items()
            if now - state.slowest.since > self._deadline
        ]
        if not late:
            return self._too_slow()
        since, number = min(late)
        state = self._ranks[number]
        others = f", and {counted(len(late) - 1, 'other rank')}" if len(late) > 1 else ""
        waited = f"for {format_seconds(now - since)} (--ckpt-io-timeout {format_seconds(self._deadline)})"
        if state.slowest.doing is None:
            # The rank has sent no request to the storage yet, so the storage is not the cause.
            message = f"no job has reached it {waited}: its network or MPI hangs"
            return Failure(kind="launch", message=message + others, rank=number, host=state.host)
        is_silent = now - state.slowest.last_event > self._deadline
        message = f"no {'word' if is_silent else 'progress'} {waited}"
        if is_silent:
            message += ": the process, its host or its network is stalled"
        stack = blocked_in(state.pid) if state.host == self._local_host else ""
        failure = Failure(kind="hung", message=message + others, rank=number, host=state.host, stack=stack)
        return _with_place(state.slowest, failure)

    def waits_for(self) -> str:
        """Return a sentence on the rank for which the launch waits.

        If all ranks have started, this rank is the one without progress for the longest time. The sentence states the
        time without progress only after two equal reports of the rank. After a single report, the sentence states the
        age of the report. If reports are overdue, the sentence states the time since the last report.
        """
        now = time.monotonic()
        if missing := self._processes - len(self._ranks):
            seconds = format_seconds(round(now - self._began))
            return f"starting the ranks: {missing} of {self._processes} have not called back for {seconds}"
        number, state = min(self._ranks.items(), key=lambda rank: rank[1].slowest.since)
        lane, who = state.slowest, f"rank {number} on {state.host}"
        silent = now - lane.last_event
        stands, reported = format_seconds(round(now - lane.moved)), format_seconds(round(silent))
        if lane.doing is None:
            return f"{who} has been waiting for its job for {stands}"
        doing = (
            f"in {lane.doing.phase}{f' of {lane.doing.file}' if lane.doing.file else ''}" if lane.doing.phase else ""
        )
        name = " ".join(filter(None, [str(lane.doing.operation or ""), lane.doing.lane and f"({lane.doing.lane})"]))
        begins = f"{name}: " if name else ""
        if silent > 2 * beat_seconds(self._deadline):
            return f"{begins}{who}{f', last {doing},' if doing else ''} has not sent a message for {reported}"
        if lane.last_event > lane.moved:
            return f"{begins}{who} has {f'been {doing}' if doing else 'made no progress'} for {stands}"
        last = "waiting for other ranks" if lane.doing.waiting else doing or "starting it"
        return f"{begins}{format_seconds(round(now - lane.began))}; {who} was {last} {reported} ago"

    def _too_slow(self) -> Failure | None:
        """Return the failure of a rank that is too slow; None if there is no such rank.

        Such a rank makes progress, but would exceed the maximum time of its operation.
        """
        for number, state in self._ranks.items():
            for lane in state.lanes.values():
                if message := lane.pace.exceeds(self._allowances, number):
                    return _with_place(lane, Failure(kind="too slow", message=message, rank=number, host=state.host))
        return None

    def may_be_tried_again(self, failure: Failure) -> bool:
        """Return whether a launch with the failure ``failure`` can be repeated.

        It can be repeated if no rank has sent a message and all processes of the launch have ended.
        """
        has_no_reports = failure.rank is None and not self._ranks and not self._failures
        return failure.kind == "launch" and has_no_reports and not failure.stack

    def ended(self, exit_code: int, launcher_output: str) -> Failure | None:
        """Return the failure of a launch that has ended; None if the launch ended normally.

        ``exit_code`` and ``launcher_output`` are the launcher's exit code and output.
        """
        lost_host = self._lost_host(launcher_output)
        if self._failures:
            first = self._failures[0]
            if lost_host and not first.errno and first.host != lost_host.host:
                # Ranks of other hosts notice first that the connection to another rank has ended, and report this.
                return lost_host
            others = len({f.rank for f in self._failures}) - 1
            message = f"{first.message} (and {counted(others, 'other rank')})" if others else first.message
            return dataclasses.replace(first, message=message)
        if lost_host:
            return lost_host
        if exit_code == 0:
            lost = len(self._ranks) - len(self._confirmed)
            text = f"{counted(lost, 'rank')} ended without a complete report, and the launcher reports success"
            return self._of_first_exit(text) if lost > 0 else None
        for pattern in _KILLED:
            if match := pattern.search(launcher_output):
                number = int(match["rank"])
                state = self._ranks.get(number, _RankState())
                message = f"the process was killed by signal {match['signal']}"
                host = state.host or match.groupdict().get("host", "")
                lane = state.slowest if state.lanes else None
                return _with_place(lane, Failure(kind="killed", message=message, rank=number, host=host))
        if task := _TASK.search(launcher_output):
            return self._of_task(task, launcher_output)
        output = launcher_output.strip()[-1000:] or "no output"
        started = len(self._ranks) == self._processes
        # If the launcher itself was killed, its ranks end with it, and the failure is not attributed to a rank.
        if started and self._exits and exit_code >= 0:
            return self._of_first_exit("the process ended without a message, before the processes of other ranks")
        how = f"exit code {exit_code}" if exit_code >= 0 else f"the launcher was killed by signal {-exit_code}"
        return Failure(kind="killed" if started else "launch", message=f"{how}: {output}")

    def _of_task(self, first: re.Match[str], launcher_output: str) -> Failure:
        """Return the failure that Slurm's messages describe: the job was cancelled, or a task ended first.

        ``first`` is the first message in ``launcher_output`` on a task that a signal ended.
        """
        cancelled = _CANCELLED.search(launcher_output)
        if cancelled and first["signal"] == _REQUESTED_TO_END:
            why = "at its time limit" if cancelled[1] else "from outside"
            return Failure(kind="killed", message=f"Slurm ended the job: it was cancelled {why}")
        signals = {int(task["rank"]): task["signal"] for task in _TASK.finditer(launcher_output)}
        number = self._first_exit() if self._exits else int(first["rank"])
        if number not in signals:
            return self._of_first_exit("the process ended without a message, before the processes of other ranks")
        state = self._ranks.get(number, _RankState())
        failure = Failure(
            kind="killed",
            message=f"the process was killed by signal {signals[number]}",
            rank=number,
            host=state.host or first["host"],
        )
        return _with_place(state.slowest if state.lanes else None, failure)

    def _first_exit(self) -> int:
        """Return the rank whose connection ended first, according to the times passed to `add_exit`."""
        return min(self._exits)[1]

    def _of_first_exit(self, message: str) -> Failure:
        """Return the failure of the rank whose connection ended first."""
        if not self._exits:
            return Failure(kind="killed", message=message)
        number = self._first_exit()
        state = self._ranks[number]
        return _with_place(state.slowest, Failure(kind="killed", message=message, rank=number, host=state.host))

    def _lost_host(self, launcher_output: str) -> Failure | None:
        """Return the failure of a host that the launcher lost while ranks were running; None without such a host.

        The failure names the first rank of the host.
        """
        if not self._ranks:
            return None
        for pattern in _LOST_HOST:
            if match := pattern.search(launcher_output):
                host = match["host"]
                there = sorted(number for number, state in self._ranks.items() if state.host == host)
                lane = self._ranks[there[0]].slowest if there else None
                message = f"the launcher has lost {host}: that host, its network or the launcher's daemon there is gone"
                failure = Failure(kind="killed", message=message, rank=there[0] if there else None, host=host)
                return _with_place(lane, failure)
        return None


def _with_place(lane: _Lane | None, failure: Failure) -> Failure:
    """Return ``failure`` with the operation, phase and file of the lane's last report."""
    doing = lane.doing if lane else None
    if doing is None:
        return failure
    return dataclasses.replace(failure, operation=doing.operation, phase=doing.phase, file=doing.file, lane=doing.lane)
