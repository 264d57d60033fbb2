"""User commands that change the storage, and the results of saves and loads during them.

Failover: a component of the storage is failed and repaired during saves and loads. Maintenance: the storage is changed
while it serves, or a snapshot is taken.
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
    """One run of a user command. ``exit_code`` is None if the command did not end, or could not be started.

    ``output`` is the end of the command's error output, or of its standard output if the error output is empty. For a
    successful snapshot, ``output`` is the last line of the standard output. If the command did not end, ``output`` is
    the reason.
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
        """The reason why the command did not succeed, as a sentence."""
        output = f": {self.output}" if self.output else ""
        if self.exit_code is None:
            return f"The {self.command} command did not end well{output.rstrip('.')}."
        return f"The {self.command} command ended with exit code {self.exit_code}{output.rstrip('.')}."


@dataclass(frozen=True, kw_only=True, slots=True)
class OperationTrial:
    """A save or a load, with or without an injected fault. Times are in seconds on the clock of the slowest rank.

    ``stalled_rank`` is the rank that made no progress for the longest time: it transferred no bytes and completed no
    call for ``longest_stall_seconds``. Waits for other ranks do not count. ``error`` is the error that ended the
    operation; empty if it succeeded.
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
    """One injected fault. The command was started ``moment_seconds`` after the start of the first of ``operations``.

    ``kind`` is the kind of these operations. The operations ran in sequence until the command had returned or an
    operation failed. Then the repair command ran, and a save while the storage was rebuilding (``after``).
    ``committed_in_error``: a save failed before its commit, but its checkpoint existed. ``commit_answer_lost``: the
    commit ended with an error, and the checkpoint existed after the repair, so the checkpoint counts as committed.
    ``lost`` is why a committed checkpoint could not be loaded after the repair; empty if all were loaded.
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
    """All saves and loads with injected faults, in addition to the subject's own saves and loads.

    ``undisturbed`` are a save and a load before the first fault. ``integrity`` covers every checkpoint that was loaded
    and compared. ``resident_fraction`` is the largest share of a checkpoint in a page cache before its load; None if
    unknown. ``not_run`` is why there are fewer trials than planned. ``failure`` is how the ranks ended if they did not
    complete; ``repaired_after`` is the repair command if it ran after the end of the ranks. ``host_loads`` is as in a
    `Measurement`.
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
    """Saves and loads while a command restarts or upgrades the storage, in addition to the subject's own saves and
    loads.

    ``undisturbed`` are a save and a load before the command. ``operations`` are alternating saves and loads; the first
    one is a save, and the command was started ``moment_seconds`` after its start. The operations end when the command
    has returned, or with the first failure. ``lost`` is why the newest committed checkpoint could not be loaded at the
    end. ``integrity`` covers every checkpoint that was loaded and compared. ``resident_fraction`` is the largest share
    of a checkpoint in a page cache before its load; None if unknown. ``failure`` is how the ranks ended if they did not
    complete. If the command ended or was abandoned after the end of the ranks, ``ran_after`` is its run. ``host_loads``
    is as in a `Measurement`.
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

    The snapshot command was started ``moment_seconds`` after the start of the second save; ``taken`` is its run.
    ``is_before_commit``: the command had returned before the save was committed. ``is_committed``: the clone contains
    the save as committed. ``lost`` is why a committed checkpoint, in the clone or on the target, could not be loaded.
    ``not_judged`` is the reason if the clone cannot be judged as a snapshot. ``removed`` is the run of the command that
    removed the snapshot.
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
    """Saves during which snapshots were taken, in addition to the subject's own saves.

    ``integrity`` covers every checkpoint that was loaded and compared, from clones and from the target. ``not_run`` is
    why there are fewer trials than planned. ``failure`` is how the ranks ended if they did not complete; ``ran_after``
    is the command that removed a snapshot after the end of the ranks. ``host_loads`` is as in a `Measurement`.
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
