"""Each host's view of a shared target, and the waits of hosts for each other's files.

These waits end before a clock starts, so the measured times of saves and loads exclude these waits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from pytest_ckpt.facts.bounds import Count, NotNegative


@dataclass(frozen=True, kw_only=True, slots=True)
class Marker:
    """A file that the controller creates in the target, so that other hosts can recognise the target.

    ``word`` is the content of the file.
    """

    name: str
    word: str

    def of_rank(self, rank: int) -> Marker:
        """Return the marker that the host of a rank creates next to the controller's marker.

        Another host looks for this file. The first line of the file is the content of the controller's marker.
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
    """A host's view of the directory of its local tier.

    - ``unavailable_reason``: why the host cannot create files in the directory; empty if it can create files.
    - ``shared_with``: other hosts whose files are in the directory.
    """

    host: str
    free_bytes: int
    unavailable_reason: str
    shared_with: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetView:
    """A host's view of the target, and the host's version of pytest-ckpt (``package``).

    A text is empty if there is no problem.

    - ``misses``: the controller's file is missing or wrong on this host.
    - ``mismatch_of_other``: the file of the host ``other`` is missing or wrong on this host.
    - ``cannot_write``: why this host cannot create files in the target.
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
    """A host that did not see an entry at its first look, and waited for ``waited_seconds``.

    ``is_seen`` is true if the host saw the entry in a later look.
    """

    host: str
    waited_seconds: float
    is_seen: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class HostWait:
    """All waits of one host for one kind of entry: count (``times``), total time and longest wait.

    ``unseen`` is the number of waits that ended before the host saw the entry.
    """

    host: str
    awaited: Awaited
    times: Count
    waited_seconds: NotNegative
    longest_seconds: NotNegative
    unseen: Count = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class HostWaits:
    """The waits of all hosts for entries that other hosts created, over one measurement.

    ``looks`` counts how often all hosts looked for an entry. ``late`` lists the hosts that waited. The time of a save
    or load excludes these waits.
    """

    looks: Count
    late: tuple[HostWait, ...] = ()


def added_up(looks: Iterable[tuple[Awaited, tuple[DelayedHost, ...]]]) -> HostWaits | None:
    """Return the waits of all ``looks``, summed by host and kind of entry; None without looks, as on a single host.

    A look is (kind of entry, hosts that did not see the entry at their first query).
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
