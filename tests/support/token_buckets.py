"""Arrays that are token buckets, and clients that use them together: the times of operations, without chance. Pure.

An array gives a rate to all clients together, after a burst that it takes at any speed. It may cap each client, which
is a host.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tests.support.simulated_runs import Row, Timed


@dataclass(frozen=True, kw_only=True, slots=True)
class Bucket:
    """Rates and the burst are multiples of what an operation needs: its bytes / its limit, and its bytes."""

    rate: float
    burst: float = 0.0
    rate_of_client: float = math.inf


@dataclass(frozen=True, kw_only=True, slots=True)
class Clients:
    """``speed``: what one host can send or receive, as a multiple of what an operation needs."""

    ranks: int = 8
    hosts: int = 1
    speed: float = 3.0

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the hosts."""
        return tuple(f"n{i + 1}" for i in range(self.hosts))


def series_on(bucket: Bucket, clients: Clients, row: Row) -> list[list[Timed]]:
    """Return the operations of a run of a row, one after the other without a pause."""
    return [_operations(bucket, clients, limit, n) for limit, n in zip(row.limits, row.operations, strict=True)]


def _operations(bucket: Bucket, clients: Clients, limit: float, count: int) -> Sequence[Timed]:
    """All ranks have the same number of bytes and share fairly, so they end together."""
    asked = clients.hosts * min(clients.speed, bucket.rate_of_client)
    level, found = bucket.burst, []
    for _ in range(count):
        if asked <= bucket.rate:
            used, seconds = 0.0, 1 / asked
        else:
            # The burst lasts until its bytes are taken faster than they return.
            until_empty = level / (asked - bucket.rate)
            seconds = min(1 / asked, until_empty)
            used = seconds * (asked - bucket.rate)
            seconds += (1 - seconds * asked) / bucket.rate
        level -= used
        found.append(Timed(seconds=seconds * limit, ranks=(seconds * limit,) * clients.ranks))
    return found
