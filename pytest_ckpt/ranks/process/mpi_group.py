"""The group of all ranks of a launch, over MPI.

A blocking MPI call would use a core that working ranks need. So each call is non-blocking: it is started, then polled
between short sleeps. If a host has more ranks than cores, the sleeps are longer, so polling does not use all cores.
"""

from __future__ import annotations

import array
import ctypes
import operator
import os
import pickle
import socket
import time
from typing import TYPE_CHECKING, Any, NoReturn

from mpi4py import MPI

from pytest_ckpt.support.processes import boot_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.targets.protocol import Buffer

# Usually most ranks have already arrived: the first sleeps are short, and each is twice as long as the previous one.
_SHORTEST_POLL_SECONDS = 0.00005
# A poll takes 25 microseconds, so polling uses a twentieth of a rank's core. With several ranks per core, ranks poll
# less often, so polling uses a twentieth of the cores too.
_POLL_SECONDS = 0.0005
# A rank that has waited this long waits for a save to end, so it may notice the end a little later.
_LONG_WAIT_SECONDS = 0.25
_LONG_WAIT_POLLS = 2
# After this number of poll intervals, all ranks of a host have received the moment at which they start together.
_POLLS_OF_NOTICE = 2 * _LONG_WAIT_POLLS
_MOMENT_TAG, _VALUE_TAG, _SUM_TAG, _COPY_TAG, _SIZE_TAG = 1, 2, 3, 4, 5


class MpiGroup:
    """All ranks of a launch, in an MPI communicator. ``activity`` records when this rank waits for other ranks."""

    def __init__(self, activity: Activity, world: MPI.Intracomm = MPI.COMM_WORLD) -> None:
        self._world = world
        self._activity = activity
        self.rank: int = self._world.rank
        self.size: int = self._world.size
        self.host = socket.gethostname()
        self._longest_poll = _POLL_SECONDS
        # Until the hosts of the ranks are known, all ranks count as ranks of one host.
        self._of_host, self._leaders = list(range(self.size)), [0]
        # Ranks are grouped by kernel and by host name, because containers of one kernel count as separate hosts.
        own = f"{self.host} {boot_id()}"
        hosts = self._shared(self._gathered(own))
        self._of_host = [rank for rank, other in enumerate(hosts) if other == own]
        self._leaders = [hosts.index(host) for host in dict.fromkeys(hosts)]
        crowding = len(self._of_host) / len(os.sched_getaffinity(0))
        self._longest_poll = _POLL_SECONDS * max(1.0, crowding)

    @property
    def leads_host(self) -> bool:
        """Whether this rank is the leader of its host. The leader acts for all ranks of the host."""
        return self._of_host[0] == self.rank

    @property
    def ranks_of_host(self) -> Sequence[int]:
        """The ranks of this rank's host, in ascending order."""
        return self._of_host

    @property
    def spans_hosts(self) -> bool:
        """Whether the ranks are on more than one host."""
        return len(self._of_host) < self.size

    def duplicate(self, activity: Activity) -> MpiGroup:
        """Return a second group of the same ranks, with a separate communicator, for work in another thread.

        The second group reports its waits to ``activity``. Raises RuntimeError if MPI does not support calls from
        several threads.
        """
        if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
            raise RuntimeError("this MPI takes no calls from several threads, which a save in the background needs")
        world, request = self._world.Idup()
        self._finish(request)
        twin = MpiGroup(activity, world)
        # Ranks may have been bound to some of the cores that they all share.
        twin._longest_poll = self._longest_poll
        return twin

    def wait(self) -> None:
        """Wait until all ranks have called this. The ranks return within one or two poll intervals of each other."""
        self._finish(self._world.Ibarrier())

    def start_together(self) -> None:
        """Wait until all ranks have called this. The ranks of one host return at the same time.

        The leader of a host chooses this time on the host's clock. Clocks of different hosts are not compared, so hosts
        return within one or two poll intervals of each other.
        """
        self.wait()
        moment = array.array("d", [time.monotonic() + _POLLS_OF_NOTICE * self._longest_poll])
        self._send_to_host(moment, _MOMENT_TAG)
        time.sleep(max(0.0, moment[0] - time.monotonic()))

    def gather(self, value: Any) -> list[Any]:
        """Return every rank's value on rank 0, in rank order, and an empty list elsewhere."""
        self.wait()
        return self._gathered(value)

    def share(self, value: Any) -> Any:
        """Return rank 0's value on every rank."""
        self.wait()
        return self._shared(value)

    def exchange(self, outgoing: Sequence[tuple[int, Buffer]], incoming: Sequence[tuple[int, Buffer]]) -> None:
        """Send each outgoing buffer to a rank, and fill each incoming buffer with data that a rank has sent.

        ``outgoing`` contains (receiving rank, buffer), ``incoming`` contains (sending rank, buffer). Messages between
        two ranks are received in the order of sending.
        """
        self._finish(
            *(self._world.Irecv(data, source=rank, tag=_COPY_TAG) for rank, data in incoming),
            *(self._world.Isend(data, dest=rank, tag=_COPY_TAG) for rank, data in outgoing),
        )

    def host_sum(self, value: int) -> int:
        """Return the sum of ``value`` over the ranks of this host."""
        self.wait()
        total = array.array("q", [value])
        if self.leads_host:
            others = [array.array("q", [0]) for _ in self._of_host[1:]]
            pairs = zip(self._of_host[1:], others, strict=True)
            self._finish(*(self._world.Irecv(other, source=rank, tag=_SUM_TAG) for rank, other in pairs))
            total[0] += sum(other[0] for other in others)
        else:
            self._finish(self._world.Isend(total, dest=self._of_host[0], tag=_SUM_TAG))
        self._send_to_host(total, _SUM_TAG)
        return total[0]

    def largest(self, value: int) -> int:
        """Return the largest value of all ranks."""
        own, largest = array.array("q", [value]), array.array("q", [value])
        self._finish(self._world.Iallreduce(own, largest, op=MPI.MAX))
        return largest[0]

    def from_host_leader(self, value: Any) -> Any:
        """Return the host leader's value on every rank of its host."""
        self.wait()
        data = bytearray(pickle.dumps(value) if self.leads_host else b"")
        count = array.array("q", [len(data)])
        self._send_to_host(count, _VALUE_TAG)
        data = data or bytearray(count[0])
        self._send_to_host(data, _VALUE_TAG)
        return pickle.loads(data)

    def any_of(self, value: bool) -> bool:
        """Return whether the value is true on any rank."""
        return bool(self.largest(int(value)))

    def leave(self) -> NoReturn:
        """End this process after all ranks have called this method. The objects of the process are not freed first."""
        self.wait()
        MPI.Finalize()
        if "MPICH" in MPI.Get_library_version():
            # MPICH's launcher reports a process as killed if it ends without the C library's exit handlers. The
            # interpreter stays locked, so no thread of ours runs during this call.
            ctypes.PyDLL(None).exit(0)
        os._exit(0)

    def abort(self) -> None:
        """End all ranks."""
        self._world.Abort(1)

    def _finish(self, *requests: MPI.Request) -> None:
        """Wait until ``requests`` are complete, without using a core.

        The caller must keep references to the buffers until this method returns, because a request has no reference to
        its buffer.
        """
        with self._activity.wait():
            poll, waited = _SHORTEST_POLL_SECONDS, 0.0
            while not MPI.Request.Testall(list(requests)):
                time.sleep(poll)
                waited += poll
                longest = self._longest_poll * (_LONG_WAIT_POLLS if waited > _LONG_WAIT_SECONDS else 1)
                poll = min(2 * poll, longest)

    def _gathered(self, value: Any) -> list[Any]:
        """Return the values of all ranks on rank 0, and an empty list elsewhere.

        Values are sent in two steps: the ranks of a host send to the leader of the host, and the leaders send to rank
        0.
        """
        pairs = [(self.rank, value)]
        if self.leads_host:
            pairs += self._received(self._of_host[1:])
        if self.rank == 0:
            pairs += self._received(self._leaders[1:])
            return [of_rank for _, of_rank in sorted(pairs, key=operator.itemgetter(0))]
        data, to = pickle.dumps(pairs), 0 if self.leads_host else self._of_host[0]
        size = array.array("q", [len(data)])
        self._finish(self._world.Isend(size, dest=to, tag=_SIZE_TAG), self._world.Isend(data, dest=to, tag=_VALUE_TAG))
        return []

    def _received(self, ranks: Sequence[int]) -> list[tuple[int, Any]]:
        """Receive values that ``ranks`` send. Return (rank, value) for each value.

        Each of ``ranks`` sends its own value, and may forward values of other ranks.
        """
        sizes = [array.array("q", [0]) for _ in ranks]
        pairs_of_sizes = zip(ranks, sizes, strict=True)
        self._finish(*(self._world.Irecv(size, source=rank, tag=_SIZE_TAG) for rank, size in pairs_of_sizes))
        buffers = [bytearray(size[0]) for size in sizes]
        self._finish(
            *(self._world.Irecv(of, source=rank, tag=_VALUE_TAG) for rank, of in zip(ranks, buffers, strict=True))
        )
        return [pair for data in buffers for pair in pickle.loads(data)]

    def _shared(self, value: Any) -> Any:
        data = bytearray(pickle.dumps(value) if self.rank == 0 else b"")
        count = array.array("q", [len(data)])
        self._finish(self._world.Ibcast(count))
        data = data or bytearray(count[0])
        self._finish(self._world.Ibcast(data))
        return pickle.loads(data)

    def _send_to_host(self, data: array.array[Any] | bytearray, tag: int) -> None:
        """Send ``data`` from the leader to the other ranks of this host."""
        if self.leads_host:
            self._finish(*(self._world.Isend(data, dest=rank, tag=tag) for rank in self._of_host[1:]))
        else:
            self._finish(self._world.Irecv(data, source=self._of_host[0], tag=tag))
