"""The ranks of a launch as torch.distributed knows them: a process group of gloo, made by the ranks of MPI."""

from __future__ import annotations

import os
import socket
import sys
from datetime import timedelta
from typing import TYPE_CHECKING

import torch.distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined]

if TYPE_CHECKING:
    from pytest_ckpt.ranks.process.group import Group

# Who hangs is ended by the controller, which names the rank and its file; gloo would only say that somebody did.
_PATIENCE = timedelta(days=30)
_UNTIL_MET = timedelta(minutes=5)
_LOOPBACK = "127.0.0.1"


class GlooRanks:
    """There is at most one such group in a process: what an engine joins, it leaves before another one joins."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._store: TCPStore | None = None

    @property
    def is_joined(self) -> bool:
        """Whether the process group is there."""
        return self._store is not None

    def join(self) -> None:
        """Make the process group; called by all ranks together."""
        group = self._group
        hosts: list[str] = group.share(group.gather(group.host))
        if len(set(hosts)) == 1:
            # The name of a host need not be known to itself; a user may name another interface.
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
            address = _LOOPBACK
        else:
            address = group.share(_address(hosts[0]) if group.rank == 0 else "")
        if group.rank == 0:
            self._store = _store(address, 0, group.size, leads=True)
        port = group.share(self._store.port if self._store else 0)
        if self._store is None:
            self._store = _store(address, port, group.size, leads=False)
        hook = sys.excepthook
        dist.init_process_group("gloo", store=self._store, rank=group.rank, world_size=group.size, timeout=_PATIENCE)
        # It is wrapped each time, to print the rank before a traceback; a rank tells the controller why it ends.
        sys.excepthook = hook

    def leave(self) -> None:
        """Take the process group down, when no rank uses it any more."""
        if self._store is not None:
            dist.destroy_process_group()
            self._store = None


def _store(address: str, port: int, size: int, *, leads: bool) -> TCPStore:
    return TCPStore(address, port, size, is_master=leads, timeout=_UNTIL_MET, wait_for_workers=False)


def _address(host: str) -> str:
    """Return by which name other hosts reach this one; where nobody knows it, they are simulated here."""
    try:
        socket.getaddrinfo(host, None)
    except OSError:
        return _LOOPBACK
    return host
