"""Requests to endpoints of an object store: the counts of each process, and the sums over all processes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from pytest_ckpt.facts.bounds import Count, NotNegative

_STEP = 1.01
"""The ratio of neighbouring classes of times. An answer is counted in the class of its time, so a percentile is at most
1 % above the measured value.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Requests:
    """The requests of one kind that all ranks sent to one endpoint for a subject.

    - ``sent``: the number of all requests, including repetitions.
    - ``again``: the number of repetitions after temporary errors, such as 429, 503 or a broken connection.
    - ``busy``: the number of answers with 503 or 429.
    - ``waited_seconds``: the total time in which ranks waited before they repeated requests.
    - ``median_seconds``, ``p99_seconds``: exact to 1 %; None without answers. The time of a request ends with the last
      byte of its answer.
    """

    endpoint: str
    kind: str
    sent: Count
    again: Count
    busy: Count
    waited_seconds: NotNegative
    bytes: Count
    median_seconds: NotNegative | None
    p99_seconds: NotNegative | None
    slowest_seconds: NotNegative | None


@dataclass(kw_only=True, slots=True)
class Tally:
    """One process's counts of one kind of request to one endpoint.

    ``times`` is {class of answer times: number of answers}. A class is 1 % wide.
    """

    sent: int = 0
    again: int = 0
    busy: int = 0
    waited_seconds: float = 0.0
    bytes: int = 0
    slowest_seconds: float = 0.0
    times: Counter[int] = field(default_factory=Counter)

    def answered(self, seconds: float, moved: int) -> None:
        """Count an answer that took ``seconds`` and moved ``moved`` bytes."""
        self.times[math.ceil(math.log(max(seconds, 1e-6), _STEP))] += 1
        self.slowest_seconds = max(self.slowest_seconds, seconds)
        self.bytes += moved

    def add(self, other: Tally) -> None:
        """Add the counts of another process."""
        self.sent += other.sent
        self.again += other.again
        self.busy += other.busy
        self.waited_seconds += other.waited_seconds
        self.bytes += other.bytes
        self.slowest_seconds = max(self.slowest_seconds, other.slowest_seconds)
        self.times.update(other.times)

    def percentile(self, share: float) -> float | None:
        """Return the time in seconds within which the share ``share`` of the answers arrived; None without answers."""
        wanted = math.ceil(share * self.times.total())
        if not wanted:
            return None
        seen = 0
        for step in sorted(self.times):
            seen += self.times[step]
            if seen >= wanted:
                return min(_STEP**step, self.slowest_seconds)
        raise AssertionError("a share is at most 1")


Tallies = dict[tuple[str, str], Tally]
"""Tallies by (endpoint, kind of request)."""


def together(of_processes: Iterable[Tallies]) -> tuple[Requests, ...]:
    """Return the requests of all processes, summed by endpoint and kind of request, and sorted."""
    joined: Tallies = {}
    for tallies in of_processes:
        for key, tally in tallies.items():
            joined.setdefault(key, Tally()).add(tally)
    return tuple(
        Requests(
            endpoint=endpoint,
            kind=kind,
            sent=tally.sent,
            again=tally.again,
            busy=tally.busy,
            waited_seconds=tally.waited_seconds,
            bytes=tally.bytes,
            median_seconds=tally.percentile(0.5),
            p99_seconds=tally.percentile(0.99),
            slowest_seconds=tally.slowest_seconds if tally.times else None,
        )
        for (endpoint, kind), tally in sorted(joined.items())
    )
