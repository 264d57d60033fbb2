"""User commands that change the storage, and the results of saves and loads during these commands.

Three patterns (sequences of saves and loads, each in a separate launch) run such commands. The pattern failover injects
a fault during saves and loads, and repairs the fault. The pattern upgrade changes the storage while it serves. The
pattern snapshots takes a snapshot during a save.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pytest_ckpt.facts.bounds import Count, NotNegative, Share
from pytest_ckpt.facts.failure import Failure
from pytest_ckpt.facts.host_load import HostLoad
from pytest_ckpt.facts.proofs import Integrity

Command = Literal["fault", "repair", "upgrade", "snapshot", "remove"]
"""The purpose of a user command: fail or repair a component, change the storage in service, take or remove a
snapshot.
"""

TriedKind = Literal["save", "load"]


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandRun:
    """One run of a user command. ``exit_code`` is None if the command did not end or could not be started.

    ``output`` depends on the end of the command:

    - A successful snapshot command: the last line of its standard output.
    - A command that did not end or could not be started: the reason.
    - Any other command: the end of its error output, or of its standard output if the error output is empty.
    """

    command: Command
    seconds: NotNegative
    exit_code: int | None
    output: str = ""

    @property
    def is_good(self) -> bool:
        """Whether the command ended with exit code 0."""
        return self.exit_code == 0

    @property
    def sentence(self) -> str:
        """The failure of the command, as a sentence with its exit code and output."""
        output = f": {self.output}" if self.output else ""
        if self.exit_code is None:
            return f"The {self.command} command did not end well{output.rstrip('.')}."
        return f"The {self.command} command ended with exit code {self.exit_code}{output.rstrip('.')}."


@dataclass(frozen=True, kw_only=True, slots=True)
class OperationTrial:
    """A save or load while a user command may change the storage. Seconds are by the clock of the slowest rank.

    - ``longest_stall_seconds``: the longest time in which ``stalled_rank`` transferred no bytes and completed no call.
      Waits for other ranks are left out.
    - ``error``: the error that ended the operation; empty if the operation succeeded.
    """

    kind: TriedKind
    seconds: NotNegative
    longest_stall_seconds: NotNegative
    stalled_rank: Count
    error: str = ""


BREAKS: tuple[TriedKind, ...] = ("save", "save", "save", "load", "load", "load")
"""The operations during which faults are injected, in order."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FailoverTrial:
    """One injected fault, the operations during the fault, the repair, and a save after the repair.

    - ``operations``: saves or loads (``kind``), in sequence until the fault command returned or an operation failed.
    - ``moment_seconds``: the time from the start of the first operation to the start of the fault command.
    - ``after``: a save after the repair command, while the storage may still rebuild.
    - ``committed_in_error``: a save failed before its commit, but its checkpoint existed.
    - ``commit_answer_lost``: the commit ended with an error, but the checkpoint existed after the repair. The
      checkpoint counts as committed.
    - ``lost``: why a committed checkpoint could not be loaded after the repair; empty if all were loaded.
    """

    kind: TriedKind
    moment_seconds: NotNegative
    fault: CommandRun
    operations: tuple[OperationTrial, ...]
    repaired: CommandRun | None = None
    after: OperationTrial | None = None
    committed_in_error: bool = False
    commit_answer_lost: bool = False
    lost: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Failover:
    """The results of the pattern failover: saves and loads in a separate launch, with injected faults.

    - ``undisturbed``: a save and a load before the first fault.
    - ``integrity``: the comparison of every loaded checkpoint with the saved bytes.
    - ``resident_fraction``: the largest share of a checkpoint in a page cache before its load; None if unknown.
    - ``not_run``: why there are fewer trials than planned.
    - ``failure``: how the ranks ended, if they did not complete their work.
    - ``repaired_after``: the run of the repair command, if the command ran after the end of the ranks.
    - ``host_loads``: as in `Measurement`.
    """

    fault_command: str
    repair_command: str
    undisturbed: tuple[OperationTrial, ...] = ()
    trials: tuple[FailoverTrial, ...] = ()
    integrity: Integrity | None = None
    resident_fraction: Share | None = None
    is_declared_cold: bool = False
    not_run: str = ""
    failure: Failure | None = None
    repaired_after: CommandRun | None = None
    host_loads: tuple[HostLoad, ...] = ()


PAIRS = 6
"""The number of saves with a snapshot in their middle. A save without a snapshot precedes each."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Upgrade:
    """The results of the pattern upgrade: saves and loads in a separate launch, while a command changes the storage.

    - ``undisturbed``: a save and a load before the command.
    - ``operations``: saves and loads in turn, beginning with a save, until the command returned or an operation failed.
    - ``moment_seconds``: the time from the start of the first operation to the start of the command.
    - ``lost``: why the newest committed checkpoint could not be loaded at the end.
    - ``integrity``: the comparison of every loaded checkpoint.
    - ``resident_fraction``: the largest share of a checkpoint in a page cache before its load; None if unknown.
    - ``failure``: how the ranks ended, if they did not complete.
    - ``ran_after``: the run of the command, if it ended or was abandoned after the end of the ranks.
    - ``host_loads``: as in `Measurement`.
    """

    command: str
    undisturbed: tuple[OperationTrial, ...] = ()
    moment_seconds: NotNegative = 0.0
    operations: tuple[OperationTrial, ...] = ()
    run: CommandRun | None = None
    lost: str = ""
    integrity: Integrity | None = None
    resident_fraction: Share | None = None
    is_declared_cold: bool = False
    failure: Failure | None = None
    ran_after: CommandRun | None = None
    host_loads: tuple[HostLoad, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class SnapshotTrial:
    """A save without a snapshot (``plain``), then a save during which a snapshot was taken (``snapshotted``).

    The clone is the directory of the snapshot, whose path the snapshot command prints.

    - ``moment_seconds``: the time from the start of the second save to the start of the snapshot command.
    - ``taken``, ``removed``: the runs of the commands that take and remove the snapshot.
    - ``is_before_commit``: the snapshot command returned before the commit of the save.
    - ``is_committed``: the clone contains the save as committed.
    - ``lost``: why a committed checkpoint, in the clone or on the target, could not be loaded.
    - ``not_judged``: why the clone cannot be judged as a snapshot.
    """

    plain: OperationTrial
    snapshotted: OperationTrial
    moment_seconds: NotNegative
    taken: CommandRun
    is_before_commit: bool = False
    is_committed: bool = False
    lost: str = ""
    not_judged: str = ""
    removed: CommandRun | None = None

    @property
    def cost(self) -> float:
        """The additional time of the save with a snapshot, as a share of the time of the save without a snapshot."""
        return self.snapshotted.seconds / self.plain.seconds - 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshots:
    """The results of the pattern snapshots: saves in a separate launch, during which snapshots were taken.

    - ``integrity``: the comparison of every loaded checkpoint, from clones and from the target.
    - ``not_run``: why there are fewer trials than planned.
    - ``failure``: how the ranks ended, if they did not complete.
    - ``ran_after``: the command that removes a snapshot, if it ran after the end of the ranks.
    - ``host_loads``: as in `Measurement`.
    """

    command: str
    remove_command: str
    trials: tuple[SnapshotTrial, ...] = ()
    integrity: Integrity | None = None
    not_run: str = ""
    failure: Failure | None = None
    ran_after: CommandRun | None = None
    host_loads: tuple[HostLoad, ...] = ()


Changed = Failover | Upgrade | Snapshots
"""The results of all launches in which user commands change the storage."""
