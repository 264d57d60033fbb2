"""Combines what each rank saw of operations, times and durable calls, into their result. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import get_args

from pytest_ckpt.facts.measurement import Operation, OperationKind
from pytest_ckpt.facts.proofs import CommitProof, Durability, DurabilityProof, Observer

_FROM_STRONG_TO_WEAK: tuple[Observer, ...] = get_args(Observer)


@dataclass(frozen=True, kw_only=True, slots=True)
class RankOperation:
    """One operation as one rank saw it, on its own monotonic clock.

    ``steps`` are the seconds of each step, from its barrier until this rank was done; a save has one, until its bytes
    were durable. On a rank that commits ``commit_seconds`` are those of the commit alone and ``committed_seconds`` run
    from the barrier until the checkpoint was committed. ``returned_seconds`` and ``staged_seconds`` of a save run from
    the barrier until the job could go on, and change its state. ``resident`` are the resident and all bytes of the
    files, before a load.
    """

    steps: tuple[float, ...]
    phases: dict[str, float]
    bytes: int
    commit_seconds: float = 0.0
    committed_seconds: float = 0.0
    returned_seconds: float | None = None
    staged_seconds: float | None = None
    resident: tuple[int, int] | None = None

    @property
    def seconds(self) -> float:
        """This rank's own time, over all steps."""
        return sum(self.steps)


def combine(kind: OperationKind, index: int, checkpoint: int, ranks: Sequence[RankOperation]) -> Operation:
    """Join what all ranks saw, in rank order.

    In every step the slowest rank counts. Rank 0 waits for the slowest before it commits, so its clock holds the whole
    save; but it may have started a little after that of the slowest.
    """
    rank_seconds = tuple(o.seconds for o in ranks)
    slowest = max(range(len(ranks)), key=rank_seconds.__getitem__)
    commit = ranks[0].commit_seconds
    by_step = sum(max(o.steps[step] for o in ranks) for step in range(len(ranks[0].steps)))
    seconds = max(by_step + commit, *(of_rank.committed_seconds for of_rank in ranks))
    phases = {name: spent for name, spent in ranks[slowest].phases.items() if name != "commit"}
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
        returned_seconds=_last(o.returned_seconds for o in ranks),
        staged_seconds=_last(o.staged_seconds for o in ranks),
        stored_seconds=by_step if kind == "save" else None,
        committed_seconds=seconds if kind == "save" else None,
    )


def _last(seconds: Iterable[float | None]) -> float | None:
    """Return when the last rank reached a point; None where one did not."""
    reached = list(seconds)
    return None if None in reached else max(s for s in reached if s is not None)


def summed(
    pairs: Sequence[tuple[DurabilityProof | None, CommitProof | None]], *, saves: int, commits: int
) -> Durability:
    """Add up the durable calls of so many saves, of which so many were committed; pairs are those of every rank."""
    own = [durability for durability, _ in pairs if durability]
    of_commits = [commit for _, commit in pairs if commit]
    folders: list[DurabilityProof | CommitProof] = [*own, *of_commits]
    return Durability(
        files=sum(d.files_attempted for d in own),
        files_synced=sum(d.files_returned for d in own),
        directories=sum(f.folders_attempted for f in folders),
        directories_synced=sum(f.folders_returned for f in folders),
        saves=saves,
        commits=commits,
        observed=max((d.observed for d in own), key=_FROM_STRONG_TO_WEAK.index, default="unseen"),
        commit_methods=tuple(dict.fromkeys(c.method for c in of_commits)),
        acknowledged=tuple(sorted({word for d in own for word in d.acknowledged})),
    )
