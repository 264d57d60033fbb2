"""Starts ranks that send much data just before they end, and prints the data that arrived.

Run it as ``python -m tests.support.hosts.final_messages HOSTS all|less [LAUNCHER]``. With ``less``, the last rank omits
its final message and exits with code 0. The ranks also run this module, with only the argument ``all`` or ``less``.
"""

from __future__ import annotations

import dataclasses
import json
import socket
import sys

from pytest_ckpt.facts.events import Event, HostsSeen
from pytest_ckpt.launching.launcher import Launcher
from pytest_ckpt.wire.caller import call
from tests.support.hosts.large_job import launched, parse_launcher

WORDS, BYTES = 30, 200_000
_MODULE = "tests.support.hosts.final_messages"
_LESS = "less"


class _ThisModuleLauncher(Launcher):
    """A launcher that starts this module as ranks, with the argument ``all`` or ``less``."""

    def command(self, processes: int, module: str = _MODULE, *, calls_back: bool = True) -> list[str]:
        return [*Launcher.command(self, processes, module, calls_back=calls_back), sys.argv[2]]


def _be_a_rank(how_much: str) -> None:
    from mpi4py import MPI  # noqa: PLC0415 - starts MPI; otherwise a launcher counts ranks as lost

    rank, ranks = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
    caller = call()
    caller.send({"event": "hello", "rank": rank, "host": socket.gethostname(), "pid": 1})
    if rank == 0:
        caller.receive()
    # No rank ends before all have sent their data, because the launcher would end the others.
    MPI.COMM_WORLD.Barrier()
    facts = {
        "host": f"{socket.gethostname()} ".ljust(BYTES, "x"),
        "ranks": [rank],
        "cpu": "",
        "cores": 1,
        "memory_bytes": 1,
        "memory_available_bytes": 1,
        "kernel": "",
        "os": "",
        "python": "",
        "target_is_reached": True,
    }
    for _ in range(WORDS):
        caller.send({"event": "hosts", "hosts": [facts]})
    if how_much == _LESS and rank == ranks - 1:
        return
    caller.send("end")
    caller.receive()


def _launch() -> None:
    hosts, _, *command = sys.argv[1:]
    found = parse_launcher(hosts, *command)
    launcher = _ThisModuleLauncher(**{field.name: getattr(found, field.name) for field in dataclasses.fields(found)})
    told: dict[str, list[int]] = {}

    def hear(event: Event) -> None:
        if isinstance(event, HostsSeen):
            told.setdefault(event.hosts[0].host.split()[0], []).append(len(event.hosts[0].host))

    failure = launched(launcher, "last-words", hear)
    whole = {host: sizes.count(BYTES) for host, sizes in sorted(told.items())}
    print(json.dumps({"failure": failure and [failure.kind, failure.message], "whole": whole}))


if __name__ == "__main__":
    if len(sys.argv) == 2:
        _be_a_rank(sys.argv[1])
    else:
        _launch()
