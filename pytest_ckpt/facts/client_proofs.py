"""Evidence that the fsync and the clock of a client can be trusted, and the code that could have changed them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pytest_ckpt.facts.bounds import Count, NotNegative

if TYPE_CHECKING:
    from collections.abc import Mapping

Moment = Literal["before the saves", "after the saves"]
FsyncCounter = Literal["cachestat", "device counters"]

MAXIMUM_DRIFT = 0.005
DRIFT_FLOOR_SECONDS = 0.02
"""A clock may differ from the kernel's uptime by this share of the time, plus two steps of the uptime (10 ms each)."""

CONTROLLER_FLOOR_SECONDS = 5.0
"""How long messages of ranks may wait for a controller that is busy."""

# overlay (older kernels write "volatile"); ext3/4, btrfs, GFS2, NILFS and older XFS; reiserfs; f2fs.
_UNSAFE_OPTIONS = (
    *(("volatile", "yes"), ("fsync", "volatile")),
    *(("nobarrier", "yes"), ("barrier", "0"), ("barrier", "none"), ("fsync_mode", "nobarrier")),
)


def unsafe_options(options: Mapping[str, str]) -> tuple[str, ...]:
    """Return the options of a mount with which fsync does not wait for the storage, as they are written.

    ``options`` are by name, ``yes`` for one without a value.
    """
    found = (pair for pair in _UNSAFE_OPTIONS if options.get(pair[0]) == pair[1])
    return tuple(name if value == "yes" else f"{name}={value}" for name, value in found)


@dataclass(frozen=True, kw_only=True, slots=True)
class FsyncCounts:
    """The kernel's counts of one file that was written through the page cache and fsynced. Bytes.

    ``dirty_bytes`` waited to be written back before fsync, ``left_bytes`` still did after it returned.
    ``unobservable`` is why the kernel's counts show no effect on this file system; it is empty if they do.
    ``unsafe_option`` is the option of the mount with which fsync does not wait for the storage; empty without one.
    """

    counter: FsyncCounter = "cachestat"
    dirty_bytes: Count = 0
    left_bytes: Count = 0
    unobservable: str = ""
    unsafe_option: str = ""

    @property
    def is_missing(self) -> bool:
        """Whether fsync returned although bytes were not written back."""
        return not self.unobservable and self.left_bytes > 0

    @property
    def is_seen(self) -> bool:
        """Whether bytes were dirty before fsync and clean after it, on a mount whose fsync waits for the storage."""
        return not self.unobservable and self.left_bytes == 0 and not self.unsafe_option


@dataclass(frozen=True, kw_only=True, slots=True)
class FsyncEffect(FsyncCounts):
    """The kernel's counts of one rank's file."""

    rank: Count
    host: str
    moment: Moment


@dataclass(frozen=True, kw_only=True, slots=True)
class ClockSpan:
    """The same span of time by a rank's clock and by the uptime of its kernel, in seconds; ``of`` names the span.

    ``asleep_seconds`` is how far CLOCK_BOOTTIME, which counts the sleep of a host, ran ahead of CLOCK_MONOTONIC.
    """

    rank: Count
    host: str
    of: str
    clock_seconds: float
    uptime_seconds: float
    asleep_seconds: NotNegative = 0.0

    @property
    def difference_seconds(self) -> float:
        """Difference of clock and uptime beyond their resolutions; 0 or less means agreement."""
        return self._beyond(self.uptime_seconds - self.clock_seconds)

    @property
    def is_wrong(self) -> bool:
        """Whether the clock is not the kernel's."""
        return self.difference_seconds > 0

    @property
    def fits_sleep(self) -> bool:
        """Whether a host that slept explains the difference: its uptime counts sleep, and its clock does not."""
        ahead = self.uptime_seconds - self.clock_seconds
        return self.is_wrong and self.asleep_seconds > 0 and self._beyond(ahead - self.asleep_seconds) <= 0

    def _beyond(self, seconds: float) -> float:
        allowed = DRIFT_FLOOR_SECONDS + MAXIMUM_DRIFT * max(self.clock_seconds, self.uptime_seconds)
        return abs(seconds) - allowed


@dataclass(frozen=True, kw_only=True, slots=True)
class RankSpan:
    """How long a measurement took by the clock of one rank, in seconds."""

    rank: Count
    host: str
    seconds: float

    def is_unlike(self, controller_seconds: float) -> bool:
        """Whether the controller's clock gives another length; its own delays do not count as a difference."""
        allowed = CONTROLLER_FLOOR_SECONDS + MAXIMUM_DRIFT * max(self.seconds, controller_seconds)
        return controller_seconds > 0 and abs(self.seconds - controller_seconds) > allowed


@dataclass(frozen=True, kw_only=True, slots=True)
class Interposed:
    """Calls of I/O or clocks that something other than the C library or Python itself answers in a rank's process."""

    host: str
    by: str
    calls: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientProofs:
    """The evidence from the ranks of one measurement about their fsync, their clocks and their loaded libraries.

    ``fsyncs`` and ``clocks`` contain, for each host (and moment), the rank with the worst result. ``disclosed`` are
    start-up hooks of Python, its variables, preloaded and auditing libraries, a C library of LD_LIBRARY_PATH, and
    profilers of I/O, a phrase each. ``spans`` contain, for each host, the rank whose clock gives the most unusual
    length to the whole measurement, and ``controller_seconds`` its length by the controller's clock; 0 if the
    controller did not see its beginning.
    """

    fsyncs: tuple[FsyncEffect, ...] = ()
    clocks: tuple[ClockSpan, ...] = ()
    interposed: tuple[Interposed, ...] = ()
    disclosed: tuple[str, ...] = ()
    spans: tuple[RankSpan, ...] = ()
    controller_seconds: float = 0.0
