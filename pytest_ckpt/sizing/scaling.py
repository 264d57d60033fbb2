"""Which ranks take part in saves and loads by growing counts of clients. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ckpt.facts.scaling import ClientUnit
    from pytest_ckpt.facts.settings import Settings

TURNS_OF_A_COUNT = 3
"""Saves, and loads, of each count of clients; in turns, so that a drift of the storage favours none."""


def client_counts(clients: int) -> tuple[int, ...]:
    """Return the counts that are measured: 1, 2, 4 and so on, and all clients."""
    counts = [2**power for power in range(clients.bit_length()) if 2**power < clients]
    return (*counts, clients)


def clients_of(hosts: Sequence[str]) -> tuple[ClientUnit, tuple[int, ...]]:
    """Return what counts as a client, and the number of each rank's; ``hosts`` are those of the ranks, in order."""
    named = list(dict.fromkeys(hosts))
    if len(named) > 1:
        return "hosts", tuple(named.index(host) for host in hosts)
    return "ranks", tuple(range(len(hosts)))


def planned_counts(processes: int, settings: Settings) -> tuple[int, ...]:
    """Return the counts that a run with these settings will measure: launchers fill a host's slots first."""
    slots = [host.name for host in settings.hosts for _ in range(host.slots)]
    hosts = (slots + [settings.hosts[-1].name if slots else ""] * processes)[:processes]
    return client_counts(max(clients_of(hosts)[1]) + 1)
