"""The rates of a host's ranks without storage: the most that a save or a load of theirs can reach."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_ckpt.facts.bounds import CountFromOne, Positive

NEAR_CEILING = 0.9
"""If a host reaches this share of its ceiling, the client was the limit. Chosen by this program."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientCeiling:
    """The ceiling of one host: all ranks of all hosts worked at the same time, right before the first save.

    ``makes_bytes_per_second``: the engine made the content of a checkpoint in its own buffers, and discarded it instead
    of writing it. ``compares_bytes_per_second``: the engine compared content that was in its buffers already. Each rate
    is the bytes of all ``ranks`` divided by the time of the slowest rank. Of two rounds, the higher rate counts.
    """

    host: str
    ranks: CountFromOne
    makes_bytes_per_second: Positive
    compares_bytes_per_second: Positive
