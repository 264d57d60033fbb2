"""The protocol of a group of ranks, with collective calls such as barrier, gather and broadcast."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.targets.protocol import Buffer


_MICROSECONDS = 1_000_000


class Group(Protocol):
    """The protocol of a group of ranks, which contains all ranks of a launch.

    All ranks call each method together, except `abort`. If several threads of a rank call methods concurrently, each
    thread needs its own group.
    """

    rank: int
    size: int
    host: str

    @property
    def leads_host(self) -> bool:
        """Whether this rank is the leader of its host. The leader acts for all ranks of the host."""

    @property
    def ranks_of_host(self) -> Sequence[int]:
        """The ranks of this rank's host, in ascending order."""

    @property
    def spans_hosts(self) -> bool:
        """Whether the ranks are on more than one host."""

    def duplicate(self, activity: Activity) -> Group:
        """Return a second group of the same ranks, for concurrent work.

        The second group reports its waits to ``activity``. Call this method before the first save.
        """

    def wait(self) -> None:
        """Wait until all ranks have called this. The ranks may return at slightly different times."""

    def start_together(self) -> None:
        """Wait until all ranks have called this. The ranks of one host return at the same time."""

    def gather(self, value: Any) -> list[Any]:
        """Return every rank's value on rank 0, in rank order, and an empty list elsewhere."""

    def share(self, value: Any) -> Any:
        """Return rank 0's value on every rank."""

    def exchange(self, outgoing: Sequence[tuple[int, Buffer]], incoming: Sequence[tuple[int, Buffer]]) -> None:
        """Send each outgoing buffer to a rank, and fill each incoming buffer with data that a rank has sent.

        ``outgoing`` contains (receiving rank, buffer), ``incoming`` contains (sending rank, buffer). Messages between
        two ranks are received in the order of sending.
        """

    def host_sum(self, value: int) -> int:
        """Return the sum of ``value`` over the ranks of this host."""

    def largest(self, value: int) -> int:
        """Return the largest value of all ranks."""

    def from_host_leader(self, value: Any) -> Any:
        """Return the host leader's value on every rank of its host."""

    def any_of(self, value: bool) -> bool:
        """Return whether the value is true on any rank."""

    def leave(self) -> NoReturn:
        """End this process after all ranks have called this."""

    def abort(self) -> None:
        """End all ranks."""


def longest_seconds(group: Group, seconds: float) -> float:
    """Return the largest ``seconds`` of all ranks, rounded up to whole microseconds."""
    return group.largest(math.ceil(seconds * _MICROSECONDS)) / _MICROSECONDS
