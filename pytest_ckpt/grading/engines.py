"""Statements on engines in a certificate: suppliers, memory, and the overhead of an engine's library. Pure."""

from __future__ import annotations

import dataclasses
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ckpt.facts.bounds import Difference, Positive, Text
from pytest_ckpt.facts.engines import STREAM
from pytest_ckpt.facts.file_rules import AS_RECORDED, AS_SOON
from pytest_ckpt.support.units import counted, format_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ckpt.facts.measurement import Measurement, OperationKind
    from pytest_ckpt.facts.settings import Settings
    from pytest_ckpt.sizing.plan import Plan


# Memory use varies between hosts by allocator and library; a wrong statement exceeds this tolerance by far.
MEMORY_TOLERANCE = 1.25
_DIGITS = 12


def engine_sentences(settings: Settings) -> list[str]:
    """Return a phrase for each engine of another package, and for each replayed pattern of a recorded job."""
    owners = [f"engine {e.name} is of {e.owner}, not of pytest-ckpt" for e in settings.engines if e.owner]
    patterns = [(e.name, e.files.pattern) for e in settings.engines if e.files.pattern]
    paces = {AS_SOON: "", AS_RECORDED: ", with the pauses that the job made"}
    return owners + [
        f"engine {name} replays {p.file} (digest {p.sha256[:_DIGITS]}){paces[p.pace]}" for name, p in patterns
    ]


def memory_sentences(plan: Plan, measurements: Sequence[Measurement]) -> list[str]:
    """Return a phrase for each measurement in which ranks used far more memory than their engine states.

    For such a measurement, the plan required too little memory of the hosts. The kernel records the peak of a process.
    One process may serve several checkpoints in a launch. Therefore the peak is compared with the largest memory stated
    for any of these checkpoints.
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


@dataclass(frozen=True, kw_only=True, slots=True)
class FrameworkOverhead:
    """The comparison of an engine that uses a library (``subject``) with the engine `stream` (``against``), in one run.

    `stream` sends its requests from its own buffers to the storage, without a library. Ratios and seconds compare the
    median of all saves, and the median of all loads. Seconds are negative if the engine with the library is faster.
    Verdicts do not depend on this comparison.
    """

    subject: Text
    against: Text
    save_ratio: Positive
    save_extra_seconds: Difference
    load_ratio: Positive
    load_extra_seconds: Difference


def framework_overheads(measurements: Sequence[Measurement]) -> list[FrameworkOverhead]:
    """Return a comparison with `stream` for each subject whose engine uses a library.

    A comparison requires all planned operations of the subject, and of the subject with `stream`.
    """
    whole = {m.subject: m for m in measurements if _is_complete(m)}
    rows = []
    for subject, m in whole.items():
        bare = whole.get(dataclasses.replace(subject, engine=STREAM))
        if subject.engine == STREAM or bare is None:
            continue
        saves, loads = ([_median(each, kind) for each in (m, bare)] for kind in ("save", "load"))
        rows.append(
            FrameworkOverhead(
                subject=str(subject),
                against=str(bare.subject),
                save_ratio=saves[0] / saves[1],
                save_extra_seconds=saves[0] - saves[1],
                load_ratio=loads[0] / loads[1],
                load_extra_seconds=loads[0] - loads[1],
            )
        )
    return rows


def _is_complete(measurement: Measurement) -> bool:
    planned = measurement.operations_planned
    return planned > 0 and all(len(measurement.of_kind(kind)) == planned for kind in ("save", "load"))


def _median(measurement: Measurement, kind: OperationKind) -> float:
    """Return the median time of the saves or loads (``kind``) that transfer complete checkpoints."""
    return statistics.median(operation.seconds for operation in measurement.whole(kind))
