"""The statements of a certificate on the engine: its supplier, and whether it took the memory that it states. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ckpt.facts.file_rules import AS_RECORDED, AS_SOON
from pytest_ckpt.support.units import counted, format_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ckpt.facts.measurement import Measurement
    from pytest_ckpt.facts.settings import Settings
    from pytest_ckpt.sizing.plan import Plan

# Allocators and libraries differ from host to host; a statement that is wrong for a model is wrong by far more.
MEMORY_TOLERANCE = 1.25
_DIGITS = 12


def engine_sentences(settings: Settings) -> list[str]:
    """Name every engine that another package brings, and every pattern that is replayed."""
    owners = [f"engine {e.name} is of {e.owner}, not of pytest-ckpt" for e in settings.engines if e.owner]
    patterns = [(e.name, e.files.pattern) for e in settings.engines if e.files.pattern]
    paces = {AS_SOON: "", AS_RECORDED: ", with the pauses that the job made"}
    return owners + [
        f"engine {name} replays {p.file} (digest {p.sha256[:_DIGITS]}){paces[p.pace]}" for name, p in patterns
    ]


def memory_sentences(plan: Plan, measurements: Sequence[Measurement]) -> list[str]:
    """Name ranks that took far more memory than their engine states: the plan then required too little of the hosts.

    The kernel counts the peak of a process, so ranks are compared with the largest statement for a checkpoint of their
    launch.
    """
    sentences = []
    for m in measurements:
        of_launch = [plan.of(other.subject) for other in measurements if other.launch == m.launch]
        over = [
            (rank.peak_memory_bytes, stated, rank.rank)
            for rank in m.ranks
            if (stated := max((c.rank_memory_bytes[rank.rank : rank.rank + 1] or (0,))[0] for c in of_launch))
            and rank.peak_memory_bytes > stated * MEMORY_TOLERANCE
        ]
        if over:
            peak, stated, rank_number = max(over)
            sentences.append(
                f"engine {m.engine} took more memory than it states: rank {rank_number} of {m.subject} peaked at "
                f"{format_bytes(peak)}, stated are {format_bytes(stated)} (tolerance {MEMORY_TOLERANCE - 1:.0%}; "
                f"{len(over)} of {counted(len(m.ranks), 'rank')})"
            )
    return sentences
