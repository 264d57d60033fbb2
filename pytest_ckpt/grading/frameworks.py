"""The cost of an engine's library compared with our own requests: its saves and loads next to ``stream``'s. Pure."""

from __future__ import annotations

import dataclasses
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ckpt.facts.bounds import Difference, Positive, Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ckpt.facts.measurement import Measurement, OperationKind

BARE = "stream"
"""The engine without a library: its requests go from its buffers to the storage."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FrameworkOverhead:
    """One engine compared with ``against``, the subject of the same checkpoint and strategy by `BARE` in the same run.

    Ratios are of the medians of all saves and of all loads; seconds are by how much the median is longer, negative if
    it is shorter. They decide no verdict.
    """

    subject: Text
    against: Text
    save_ratio: Positive
    save_extra_seconds: Difference
    load_ratio: Positive
    load_extra_seconds: Difference


def framework_overheads(measurements: Sequence[Measurement]) -> list[FrameworkOverhead]:
    """Return a row for each subject whose engine has a library, if both it and `BARE` measured everything."""
    whole = {m.subject: m for m in measurements if _is_whole(m)}
    rows = []
    for subject, m in whole.items():
        bare = whole.get(dataclasses.replace(subject, engine=BARE))
        if subject.engine == BARE or bare is None:
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


def _is_whole(measurement: Measurement) -> bool:
    planned = measurement.operations_planned
    return planned > 0 and all(len(measurement.of_kind(kind)) == planned for kind in ("save", "load"))


def _median(measurement: Measurement, kind: OperationKind) -> float:
    """Return the median over full checkpoints, because the library does not create deltas."""
    return statistics.median(operation.seconds for operation in measurement.whole(kind))
