"""Records how busy the ranks' hosts are during operations and during complete spans.

A span is a group of operations, such as all operations of a pattern (an additional measurement).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_ckpt.facts.host_load import HostLoad
from pytest_ckpt.support.processor_times import HostTimes, host_times, load_average, seconds_of_this_process

if TYPE_CHECKING:
    from pytest_ckpt.ranks.process.group import Group

_MICROSECONDS = 1_000_000
# The kernel counts in steps of 10 ms, which over this time are at most 4 % of one processor.
_SHORTEST_SECONDS = 0.25
# A single operation of at least this length is evaluated separately; a shorter one is only part of its span.
_SHORTEST_OPERATION_SECONDS = 1.0
_WHOLE = "all operations"


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadReading:
    """The processor times at time ``at``, on the monotonic clock of the host.

    ``own`` is the processor time of this process in seconds. ``host`` contains the processor times of the complete
    host; it is None on ranks that do not lead their host.
    """

    at: float
    own: float
    host: HostTimes | None


class HostLoadWatch:
    """Records this host's load in the busiest operation of each span. All ranks call the methods together.

    The complete span counts as one more operation.
    """

    def __init__(self, group: Group) -> None:
        self._group = group
        self._spans: tuple[str, ...] = ()
        self._worst: dict[str, HostLoad] = {}

    @contextmanager
    def spanning(self, *names: str) -> Iterator[None]:
        """Record the load of the ``with`` block, and of each operation in it, for each of the spans ``names``."""
        self._spans = names
        began = self.begin()
        yield
        self.end(began, _WHOLE)
        self._spans = ()

    def begin(self) -> LoadReading | None:
        """Return the current processor times; None outside of a `spanning` block.

        Call this outside the timed part.
        """
        if not self._spans:
            return None
        host = host_times() if self._group.leads_host else None
        return LoadReading(at=time.monotonic(), own=seconds_of_this_process(), host=host)

    def end(self, began: LoadReading | None, of: str) -> None:
        """Record the load since ``began`` for the operation ``of``. Call this outside the timed part.

        ``began`` is the result of `begin`. Nothing is recorded outside of a `spanning` block, or if the time since
        ``began`` is too short.
        """
        ended = self.begin()
        if began is None or ended is None:
            return
        rank_seconds = self._group.host_sum(round((ended.own - began.own) * _MICROSECONDS)) / _MICROSECONDS
        seconds = ended.at - began.at
        shortest = _SHORTEST_SECONDS if of == _WHOLE else _SHORTEST_OPERATION_SECONDS
        if began.host is None or ended.host is None or seconds < shortest:
            return
        total = ended.host.total - began.host.total
        if total <= 0:
            return
        idle = _share(ended.host.idle - began.host.idle, total)
        steal = _share(ended.host.steal - began.host.steal, total)
        load = HostLoad(
            host=self._group.host,
            span="",
            of=of,
            seconds=seconds,
            cores=ended.host.cores,
            idle_share=idle,
            others_share=_share(total * (1 - idle - steal) - rank_seconds, total),
            steal_share=steal,
            load_average=load_average(),
        )
        for span in self._spans:
            self._add(replace(load, span=span))

    def gathered(self) -> tuple[HostLoad, ...]:
        """Return the loads of all hosts on rank 0, and an empty tuple elsewhere."""
        return tuple(load for of_rank in self._group.gather(list(self._worst.values())) for load in of_rank)

    def _add(self, load: HostLoad) -> None:
        known = self._worst.get(load.span)
        highest = max(load.load_average, known.load_average if known else 0.0)
        if known and (known.is_busy, known.taken_share) >= (load.is_busy, load.taken_share):
            load = known
        self._worst[load.span] = replace(load, load_average=highest)


def _share(part: float, whole: float) -> float:
    return min(1.0, max(0.0, part / whole))
