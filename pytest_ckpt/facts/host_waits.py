"""What a host had to wait for before a clock started: names and bytes that another host had just made."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Awaited = Literal["folder", "name", "data"]
"""The folder that a save goes into, the name that its commit gave it, or a file of it with all of its bytes."""

SEEN_WITHIN_SECONDS = 2.0
"""What STALE allows a client to remember what it knew, and as long again: nobody waits for longer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LateHost:
    """A host that did not see something at its first look. ``is_seen``: it did in the end, after so many seconds."""

    host: str
    waited_seconds: float
    is_seen: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class HostWait:
    """All waits of a host for one kind of thing. ``unseen``: so often it had not come when nobody waited any longer."""

    host: str
    awaited: Awaited
    times: int
    waited_seconds: float
    longest_seconds: float
    unseen: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class HostWaits:
    """How often the hosts of a measurement looked for what another one had made, and which of them had to wait.

    None of it is in the time of a save or load.
    """

    looks: int
    late: tuple[HostWait, ...] = ()


def added_up(looks: Iterable[tuple[Awaited, tuple[LateHost, ...]]]) -> HostWaits | None:
    """Add up what came of each look; None where there was none, as on a single host."""
    count = 0
    found: dict[tuple[str, Awaited], HostWait] = {}
    for awaited, late in looks:
        count += 1
        for of in late:
            before = found.get((of.host, awaited)) or HostWait(
                host=of.host, awaited=awaited, times=0, waited_seconds=0.0, longest_seconds=0.0
            )
            found[of.host, awaited] = HostWait(
                host=of.host,
                awaited=awaited,
                times=before.times + 1,
                waited_seconds=before.waited_seconds + of.waited_seconds,
                longest_seconds=max(before.longest_seconds, of.waited_seconds),
                unseen=before.unseen + (not of.is_seen),
            )
    return HostWaits(looks=count, late=tuple(found.values())) if count else None
