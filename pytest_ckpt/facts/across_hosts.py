"""How each host sees a shared target, and how long hosts waited for each other's files before a clock started."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from pytest_ckpt.facts.bounds import Count, NotNegative


@dataclass(frozen=True, kw_only=True, slots=True)
class Marker:
    """A file that the controller created in the target, so that other hosts can recognise the target.

    ``word`` is its content.
    """

    name: str
    word: str

    def of_rank(self, rank: int) -> Marker:
        """Return the marker that a rank's host creates next to the controller's marker. Another host looks it up.

        The first line of its content is the content of the controller's marker.
        """
        return Marker(name=f"{self.name}.{rank}", word=f"{self.word}\n{rank}")


@dataclass(frozen=True, kw_only=True, slots=True)
class HostMount:
    """A mount, as reported by a host's kernel."""

    kind: str
    source: str
    options: str


@dataclass(frozen=True, kw_only=True, slots=True)
class TierView:
    """One host's view of its local tier's directory: the free space, and other hosts whose files are in it.

    ``unavailable_reason`` is why this host cannot create files in the directory; empty if it can.
    """

    host: str
    free_bytes: int
    unavailable_reason: str
    shared_with: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetView:
    """One host's view of the target, and the version of pytest-ckpt on the host.

    ``misses`` describes a file of the controller that is missing or wrong on this host; ``mismatch_of_other`` describes
    such a file of the host ``other``. ``cannot_write`` is the reason why the host cannot create files in the target.
    Each text is empty if there is no problem.
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
"""The kind of entry for which a host waits. ``directory``: the directory of a save; ``name``: the committed name of a
checkpoint; ``data``: a complete file of a checkpoint.
"""

VISIBLE_WITHIN_SECONDS = 2.0
"""The maximum wait for an entry, in seconds: twice the time for which STALE allows a client to see an old state."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DelayedHost:
    """A host that did not see an entry at its first look.

    ``is_seen``: the host saw the entry in a later look. ``waited_seconds`` is the time for which it waited.
    """

    host: str
    waited_seconds: float
    is_seen: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class HostWait:
    """All waits of one host for one kind of entry: their number (``times``), their total time and the longest wait.

    ``unseen`` is the number of waits that ended without the entry.
    """

    host: str
    awaited: Awaited
    times: Count
    waited_seconds: NotNegative
    longest_seconds: NotNegative
    unseen: Count = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class HostWaits:
    """The waits of the hosts of a measurement for entries that other hosts created.

    All hosts looked for such entries ``looks`` times; ``late`` lists the hosts that had to wait. These waits are not
    part of the time of a save or load.
    """

    looks: Count
    late: tuple[HostWait, ...] = ()


def added_up(looks: Iterable[tuple[Awaited, tuple[DelayedHost, ...]]]) -> HostWaits | None:
    """Return the sums over all ``looks``; None if there are no looks, as on a single host.

    A look is a kind of entry and the hosts that did not see the entry at first.
    """
    count = 0
    waits: dict[tuple[str, Awaited], HostWait] = {}
    for awaited, late in looks:
        count += 1
        for of in late:
            before = waits.get((of.host, awaited)) or HostWait(
                host=of.host, awaited=awaited, times=0, waited_seconds=0.0, longest_seconds=0.0
            )
            waits[of.host, awaited] = HostWait(
                host=of.host,
                awaited=awaited,
                times=before.times + 1,
                waited_seconds=before.waited_seconds + of.waited_seconds,
                longest_seconds=max(before.longest_seconds, of.waited_seconds),
                unseen=before.unseen + (not of.is_seen),
            )
    return HostWaits(looks=count, late=tuple(waits.values())) if count else None
