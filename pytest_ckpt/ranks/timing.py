"""From what each rank measured of an operation to the operation's result. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_ckpt.facts.measurement import Operation, OperationKind


@dataclass(frozen=True, kw_only=True, slots=True)
class Own:
    """One operation as one rank saw it, on its own monotonic clock.

    ``steps`` are the seconds of each step, from its barrier until this rank was done; a save has one. On rank 0
    ``commit_seconds`` are those of the commit alone and ``committed_seconds`` run from the barrier until the
    checkpoint was committed. ``is_committed`` says that it then stood there under its final
    name. ``resident`` are the resident and all bytes of the files, before a load.
    """

    steps: tuple[float, ...]
    phases: dict[str, float]
    bytes: int
    files: int = 0
    files_synced: int = 0
    directories: int = 0
    directories_synced: int = 0
    commit_seconds: float = 0.0
    committed_seconds: float = 0.0
    is_committed: bool = False
    resident: tuple[int, int] | None = None

    @property
    def seconds(self) -> float:
        """This rank's own time, over all steps."""
        return sum(self.steps)


def combine(kind: OperationKind, index: int, checkpoint: int, ranks: Sequence[Own]) -> Operation:
    """Join what all ranks saw, in rank order.

    In every step the slowest rank counts. Rank 0 waits for the slowest before it commits, so its clock holds the whole
    save; but it may have started a little after that of the slowest.
    """
    rank_seconds = tuple(o.seconds for o in ranks)
    slowest = max(range(len(ranks)), key=rank_seconds.__getitem__)
    commit = ranks[0].commit_seconds
    by_step = sum(max(o.steps[step] for o in ranks) for step in range(len(ranks[0].steps)))
    seconds = max(by_step + commit, ranks[0].committed_seconds)
    phases = dict(ranks[slowest].phases)
    if kind == "save":
        phases |= {"coordination": seconds - commit - rank_seconds[slowest], "commit": commit}
    elif len(ranks[0].steps) > 1:
        phases["coordination"] = seconds - rank_seconds[slowest]
    known = [o.resident for o in ranks if o.resident is not None]
    whole = len(known) == len(ranks)
    return Operation(
        kind=kind,
        index=index,
        checkpoint=checkpoint,
        seconds=seconds,
        slowest_rank=slowest,
        rank0_seconds=rank_seconds[0],
        rank_seconds=rank_seconds,
        phases=phases,
        bytes=sum(o.bytes for o in ranks),
        resident_bytes=sum(r[0] for r in known) if whole else None,
        mapped_bytes=sum(r[1] for r in known) if whole else None,
    )
