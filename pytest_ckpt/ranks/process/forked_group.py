"""Processes that ranks forked, as a group of their own without MPI: what they tell each other goes by the ranks.

Each call of a process is one value that it hands its rank. When all have handed theirs, the ranks exchange them and
answer each with all. A process that was killed is asked nothing more, and those that wait for it are killed, too.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.connection import Connection

    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.ranks.process.forked import Forked
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.targets.protocol import Buffer


def hand_on(group: Group, child: Forked) -> None:
    """Answer the processes of all ranks, where each of them has asked; called by all ranks together."""
    if not group.any_of(not child.asks()):
        child.answer(group.share(group.gather(child.take())))


class ForkedGroup:
    """The group of a forked process, of as many as there are ``ranks``; one thread of it makes all calls."""

    def __init__(self, ranks: Group, connection: Connection) -> None:
        self._connection = connection
        self.rank, self.size, self.host = ranks.rank, ranks.size, ranks.host
        self.leads_host, self.spans_hosts = ranks.leads_host, ranks.spans_hosts
        self.ranks_of_host = ranks.ranks_of_host

    def duplicate(self, activity: Activity) -> ForkedGroup:
        """Return this group: nothing is waited for beside a save."""
        del activity
        return self

    def wait(self) -> None:
        """Return when all processes are here."""
        self._all(None)

    def start_together(self) -> None:
        """Return when all processes are here."""
        self.wait()

    def gather(self, value: Any) -> list[Any]:
        """Return every process's value on rank 0, in rank order, and an empty list elsewhere."""
        found = self._all(value)
        return found if self.rank == 0 else []

    def share(self, value: Any) -> Any:
        """Return rank 0's value in every process."""
        return self._all(value if self.rank == 0 else None)[0]

    def exchange(self, outgoing: Sequence[tuple[int, Buffer]], incoming: Sequence[tuple[int, Buffer]]) -> None:
        """Send buffers to ranks and fill others with what these sent."""
        found = self._all([(rank, bytes(data)) for rank, data in outgoing])
        sent = [[data for to, data in of_rank if to == self.rank] for of_rank in found]
        for rank, data in incoming:
            memoryview(data).cast("B")[:] = sent[rank].pop(0)

    def sum_of_host(self, value: int) -> int:
        """Return the sum over the processes of this host."""
        return sum(other for host, other in self._all((self.host, value)) if host == self.host)

    def largest(self, value: int) -> int:
        """Return the largest value of all processes."""
        return int(max(self._all(value)))

    def from_host_leader(self, value: Any) -> Any:
        """Return the value of the host leader's process on every process of its host."""
        found = self._all((self.host, self.leads_host, value))
        return next(other for host, leads, other in found if leads and host == self.host)

    def any_of(self, value: bool) -> bool:
        """Return whether any process says so."""
        return any(self._all(value))

    def leave(self) -> NoReturn:
        """End this process when all are here."""
        self.wait()
        os._exit(0)

    def abort(self) -> None:
        """End this process; its rank sees that."""
        os._exit(1)

    def _all(self, value: Any) -> list[Any]:
        self._connection.send(value)
        found: list[Any] = self._connection.recv()
        return found
