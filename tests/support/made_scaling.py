"""Measurements made up for the judge of scaling: saves and loads by 1, 2, 4 and 8 clients."""

from __future__ import annotations

import dataclasses

from pytest_ckpt.facts.measurement import ClientCount, Patterns, ScaledOperation, Scaling
from pytest_ckpt.sizing.limits import StatedLimits
from tests.support.made_measurement import ByLimits, compared, measurement

PART = 1_000_000_000
LINEAR = {1: 1e9, 2: 2e9, 4: 4e9, 8: 8e9}
SATURATED = {1: 1e9, 2: 2e9, 4: 3e9, 8: 3.1e9}


def operations(size, rate, *, resident=None, mapped=None):
    """Return three operations whose median has this rate."""
    return tuple(
        ScaledOperation(seconds=size / rate * factor, resident_bytes=resident, mapped_bytes=mapped)
        for factor in (1.1, 1.0, 0.9)
    )


def scaled(saves=LINEAR, loads=LINEAR, *, unit="ranks", resident=0, checked=None, faults=(), **changes):
    """Return a measurement in which so many clients saved and loaded at these rates, in bytes a second."""
    counts = tuple(
        ClientCount(
            clients=clients,
            ranks=clients,
            bytes=clients * PART,
            saves=operations(clients * PART, saves[clients]),
            loads=operations(clients * PART, loads[clients], resident=resident, mapped=clients * PART),
        )
        for clients in saves
    )
    found = Scaling(
        unit=unit,
        counts=counts,
        integrity=compared(3 * PART * sum(saves), checked, fault_count=len(faults), faults=faults),
    )
    return measurement(**{"patterns": Patterns(scaling=found), **changes})


def up_to(measured, save_ceiling, load_ceiling):
    """Have a measurement judged by maximum rates that the vendor declares."""
    return ByLimits(measured, StatedLimits(save_bytes_per_second=save_ceiling, load_bytes_per_second=load_ceiling))


def grown(rates):
    """Have growing counts of ranks save and load at these rates."""

    def change(m):
        counts = tuple(
            ClientCount(
                clients=n,
                ranks=n,
                bytes=sum(m.rank_bytes[:n]),
                saves=operations(sum(m.rank_bytes[:n]), rate),
                loads=operations(sum(m.rank_bytes[:n]), rate, resident=0, mapped=1),
            )
            for n, rate in rates.items()
        )
        moved = 3 * sum(count.bytes for count in counts)
        found = Scaling(
            unit="ranks",
            counts=counts,
            integrity=compared(moved),
        )
        return dataclasses.replace(m, patterns=Patterns(scaling=found))

    return change
