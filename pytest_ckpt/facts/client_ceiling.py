"""The rates of a host's ranks without storage: an upper bound for the rates of saves and loads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ckpt.facts.bounds import CountFromOne, Positive

if TYPE_CHECKING:
    from pytest_ckpt.facts.measurement import OperationKind

NEAR_CEILING = 0.9
"""A host counts as the limit of a measurement if it reached at least this share of its ceiling. Chosen by this
program.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientCeiling:
    """The ceiling of one host: the highest rates that its ranks reach without storage.

    All ranks of all hosts measure these rates at the same time, right before the first save. A rate is the bytes of all
    ``ranks`` divided by the time of the slowest rank. The higher rate of two rounds is used.

    - ``makes_bytes_per_second``: the engine generates the content of a checkpoint in its buffers, without writing.
    - ``compares_bytes_per_second``: the engine compares content that is already in its buffers.
    """

    host: str
    ranks: CountFromOne
    makes_bytes_per_second: Positive
    compares_bytes_per_second: Positive

    def rate(self, kind: OperationKind) -> float:
        """Return the highest rate of saves or of loads, in bytes per second."""
        return self.makes_bytes_per_second if kind == "save" else self.compares_bytes_per_second
