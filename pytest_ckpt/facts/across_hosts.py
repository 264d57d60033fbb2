"""The view of several hosts on a shared target, and how long they waited for each other before a clock started.

They wait for names and bytes that another host has just made.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from pytest_ckpt.facts.bounds import Count, NotNegative


@dataclass(frozen=True, kw_only=True, slots=True)
class Marker:
    """A file that the controller made in the target, by which other hosts recognise it: its name and its content."""

    name: str
    word: str

    def of_rank(self, rank: int) -> Marker:
        """Return the file that the host of a rank makes next to it, for another host; its first line is the same."""
        return Marker(name=f"{self.name}.{rank}", word=f"{self.word}\n{rank}")


@dataclass(frozen=True, kw_only=True, slots=True)
class HostMount:
    """A mount as a host's kernel describes it."""

    kind: str
    source: str
    options: str


@dataclass(frozen=True, kw_only=True, slots=True)
class TierView:
    """The directory of a local tier as one host sees it: its free space, and the host of foreign files in it.

    ``unavailable_reason`` is why this host cannot create files there; empty if it can.
    """

    host: str
    free_bytes: int
    unavailable_reason: str
    shared_with: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetView:
    """The target as one host sees it, and the version of this package there.

    ``misses`` describes what the host found instead of the controller's file, ``mismatch_of_other`` the same for the
    file that the host ``other`` made; ``cannot_write`` is why the host cannot create files there. Each is empty without
    a problem.
    """

    host: str
    package: str
    mount: HostMount
    is_directory: bool = True
    misses: str = ""
    other: str = ""
    mismatch_of_other: str = ""
    cannot_write: str = ""


Awaited = Literal["directory", "name", "data"]
"""The directory that a save goes into, the name that its commit gave it, or a file of it with all of its bytes."""

SEEN_WITHIN_SECONDS = 2.0
"""The time that STALE allows a client for old facts, and as long again: the maximum of a wait."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DelayedHost:
    """A host whose first look did not see an entry. ``is_seen``: a later look saw it, after so many seconds."""

    host: str
    waited_seconds: float
    is_seen: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class HostWait:
    """All waits of a host for one kind of event. ``unseen``: how often it had not come at the end of the wait."""

    host: str
    awaited: Awaited
    times: Count
    waited_seconds: NotNegative
    longest_seconds: NotNegative
    unseen: Count = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class HostWaits:
    """How often the hosts of a measurement looked for another host's entries, and the hosts that had to wait.

    These waits are not part of the time of a save or load.
    """

    looks: Count
    late: tuple[HostWait, ...] = ()


def added_up(looks: Iterable[tuple[Awaited, tuple[DelayedHost, ...]]]) -> HostWaits | None:
    """Add up the results of all looks; None without any, as on a single host."""
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
