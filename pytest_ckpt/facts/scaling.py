"""How rates grow with the clients that save and load at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pytest_ckpt.facts.proofs import Integrity

ClientUnit = Literal["hosts", "ranks"]
"""What counts as a client: a host where several took part, else a rank."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScaledOperation:
    """A save or a load by some of the clients: until the slowest of their ranks was done, a save committed."""

    seconds: float
    resident_bytes: int | None = None
    mapped_bytes: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientCount:
    """What so many ``clients`` saved and loaded at once, several times: ``bytes`` each time, of ``ranks`` ranks."""

    clients: int
    ranks: int
    bytes: int
    saves: tuple[ScaledOperation, ...]
    loads: tuple[ScaledOperation, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Scaling:
    """Saves and loads by growing counts of clients, taken in turns.

    ``save_ceiling`` and ``load_ceiling`` are bytes a second that the vendor states as the maximum; 0: none stated.
    """

    unit: ClientUnit
    save_ceiling: float
    load_ceiling: float
    counts: tuple[ClientCount, ...]
    integrity: Integrity
