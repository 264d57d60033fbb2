"""The ranks of a launch together, over MPI."""

from __future__ import annotations

import os
import socket
import time
from typing import TYPE_CHECKING, Any, NoReturn

from mpi4py import MPI

if TYPE_CHECKING:
    from pytest_ckpt.ranks.process.activity import Activity

# Ranks that wait in MPI's own barrier take the cores from the ranks that still work.
_POLL_SECONDS = 0.0005


class MpiGroup:
    """All ranks of a launch, in a communicator; ``activity`` is told when this rank waits for others."""

    def __init__(self, activity: Activity, world: MPI.Intracomm = MPI.COMM_WORLD) -> None:
        self._world = world
        self._activity = activity
        self.rank: int = self._world.rank
        self.size: int = self._world.size
        self.host = socket.gethostname()
        self._of_host = self._world.Split_type(MPI.COMM_TYPE_SHARED)

    @property
    def leads_host(self) -> bool:
        """Whether this rank is the one that acts for its host."""
        return bool(self._of_host.rank == 0)

    def duplicate(self, activity: Activity) -> MpiGroup:
        """Return the same ranks in a communicator of their own, for work in another thread.

        Raises RuntimeError where MPI does not take calls from several threads.
        """
        if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
            raise RuntimeError("this MPI takes no calls from several threads, which a save in the background needs")
        self.wait()
        return MpiGroup(activity, self._world.Dup())

    def wait(self) -> None:
        """Return when all ranks are here. On return the ranks are at most a poll apart."""
        with self._activity.wait():
            request = self._world.Ibarrier()
            while not request.Test():
                time.sleep(_POLL_SECONDS)

    def start_together(self) -> None:
        """Return on all ranks at once: the sleeping wait first, then the exact one, for which all are ready."""
        self.wait()
        self._world.Barrier()

    def gather(self, value: Any) -> list[Any]:
        """Return every rank's value on rank 0, in rank order, and an empty list elsewhere."""
        self.wait()
        return self._world.gather(value, root=0) or []

    def share(self, value: Any) -> Any:
        """Return rank 0's value on every rank."""
        self.wait()
        return self._world.bcast(value, root=0)

    def sum_of_host(self, value: int) -> int:
        """Return the sum over the ranks of this host."""
        self.wait()
        return int(self._of_host.allreduce(value, op=MPI.SUM))

    def largest(self, value: int) -> int:
        """Return the largest value of all ranks."""
        self.wait()
        return int(self._world.allreduce(value, op=MPI.MAX))

    def from_host_leader(self, value: Any) -> Any:
        """Return the host leader's value on every rank of its host."""
        self.wait()
        return self._of_host.bcast(value, root=0)

    def any_of(self, value: bool) -> bool:
        """Return whether any rank says so."""
        self.wait()
        return bool(self._world.allreduce(int(value), op=MPI.MAX))

    def leave(self) -> NoReturn:
        """End this process when all ranks are here: its memory goes back at once and not object by object."""
        self.wait()
        MPI.Finalize()
        os._exit(0)

    def abort(self) -> None:
        """End all ranks."""
        self._world.Abort(1)
