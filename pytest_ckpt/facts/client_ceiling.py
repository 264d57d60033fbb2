"""The rates of a host's ranks without storage. With storage, a save or load cannot be faster."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_ckpt.facts.bounds import CountFromOne, Positive

NEAR_CEILING = 0.9
"""A host counts as the limit of a measurement if it reached at least this share of its ceiling. Chosen by this
program.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientCeiling:
    """The ceiling of one host. It was measured right before the first save, on all ranks of all hosts at the same time.

    ``makes_bytes_per_second`` is the rate at which the engine generated the content of a checkpoint in its buffers,
    without writing it. ``compares_bytes_per_second`` is the rate at which the engine compared content that was in its
    buffers already. Each rate is the bytes of all ``ranks`` divided by the time of the slowest rank. Of two rounds, the
    higher rate counts.
    """

    host: str
    ranks: CountFromOne
    makes_bytes_per_second: Positive
    compares_bytes_per_second: Positive
