"""Evidence that a measured time is real: uncached reads, compared bytes, durable files, commits, correct clocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pytest_ckpt.facts.bounds import Count, NotNegative, Share
from pytest_ckpt.facts.targets import StorageStack

Observer = Literal["store", "counted calls", "declared by the library", "unseen"]
CommitMethod = Literal["rename", "marker", "copy", "engine"]
ColdBasis = Literal["declared", "seen", "other client", "timed canary", "volume"]
FaultKind = Literal["flipped", "torn", "zeros", "stale", "misplaced", "foreign", "short", "unreadable"]


@dataclass(frozen=True, kw_only=True, slots=True)
class CacheReading:
    """One interpretation of the published rule on caches, applied to one host.

    If ``requires_drop``, this interpretation requires that caches are dropped between saves and loads.
    """

    rule: str
    host: str
    memory_bytes: Count
    bytes_compared: Count
    requires_drop: bool


COLD_BASES: Mapping[ColdBasis, str] = {
    "declared": "the target declares that its clients do not cache reads",
    "seen": "the kernel counted the cached pages of the files",
    "other client": "a host that neither wrote nor read the files before loaded them",
    "timed canary": "timed reads of checkpoints saved for this show that no cache of the client serves them",
    "volume": "more bytes were moved between a file's save and its load than the client's caches can store",
}
"""The kinds of evidence that loads came from the storage, strongest first, and the meaning of each."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CanaryReads:
    """Timed reads of canaries on one host. A canary is a part of an extra checkpoint, saved for these reads.

    Each list of seconds has one value per canary, in the same order. ``bytes`` is the size of a canary. A drop is a
    drop of the caches on this host. The lists, in the order of the reads:

    - ``judged_seconds``: reads after a drop. These reads use parts of the judged checkpoints instead of canaries.
    - ``judged_reread_seconds``: immediate second reads of the same parts.
    - ``first_read_seconds``: reads of the canaries after their save and a drop.
    - ``reread_seconds``: immediate second reads of the canaries.
    - ``dropped_read_seconds``: reads of the canaries after another drop.
    - ``dropped_reread_seconds``: immediate second reads of the canaries; empty in reports of older versions.
    - ``other_client_seconds``: reads of the canaries by another client, named ``client``; empty without another client.
    - ``client_own_seconds``: more reads by the other client, for comparison. If this client is a second mount, it
      immediately reads the same canaries again. If this client is a host, these are its first reads of the canaries
      that it saved itself.

    The two judged lists are empty in reports of older versions, and if the judged files have another layout (deltas,
    compressed files). ``cache_growth_bytes`` is the growth of this host's page cache from before the save to the first
    read. ``not_read_reason`` is why there are no reads.
    """

    host: str
    bytes: Count
    first_read_seconds: tuple[NotNegative, ...] = ()
    reread_seconds: tuple[NotNegative, ...] = ()
    dropped_read_seconds: tuple[NotNegative, ...] = ()
    dropped_reread_seconds: tuple[NotNegative, ...] = ()
    other_client_seconds: tuple[NotNegative, ...] = ()
    client: str = ""
    client_own_seconds: tuple[NotNegative, ...] = ()
    judged_seconds: tuple[NotNegative, ...] = ()
    judged_reread_seconds: tuple[NotNegative, ...] = ()
    cache_growth_bytes: Count = 0
    not_read_reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class MovedBytes:
    """The minimum number of bytes that one host moved between the save and the load of the same checkpoint.

    The bytes were moved by saves and loads. ``memory_bytes`` is the size of the host's memory.
    """

    host: str
    memory_bytes: Count
    minimum_bytes: Count


def is_served_by_process(kind: str) -> bool:
    """Return whether a user-space process serves this kind of mount (FUSE).

    For such a mount, the kernel drops and counts only its own pages. The process may have another cache in memory or on
    disk, which the kernel cannot see.
    """
    return kind.startswith("fuse")


@dataclass(frozen=True, kw_only=True, slots=True)
class CacheFacts:
    """How the clients' page caches were dropped before loads, and the evidence that loads were not cached.

    - ``probe``: the call that counted cached pages. It is empty if no call counted a page of a file that had just been
      read. The number of cached pages is then unknown.
    - ``resident_fraction``: the largest cached share of a load's bytes, over all loads; None if not measured.
    - ``is_declared_cold``: the target declares that its clients do not cache reads, so pages were not counted.
    - ``names_dropped``: before each load, all kernels dropped names and attributes of files; None if not tried.
    - ``storages``: the storage below the target on each host.

    If there is no probe, the evidence consists of:

    - ``by_other_hosts``: every file was loaded exactly once, by a host that had not written the file.
    - ``canaries``: timed reads. They also run if the probe misses pages and another client is available for comparison.
    - ``moved``: the bytes that each host moved between a save and its load.
    - ``client_cache_bytes``: the size of caches on a client's disks, as the user declares it; None if not declared.
    """

    required: bool
    readings: tuple[CacheReading, ...]
    policy: str
    method: str
    probe: str
    resident_fraction: Share | None
    detail: str = ""
    is_declared_cold: bool = False
    by_other_hosts: bool = False
    canaries: tuple[CanaryReads, ...] = ()
    moved: tuple[MovedBytes, ...] = ()
    client_cache_bytes: Count | None = None
    storages: tuple[StorageStack, ...] = ()
    names_dropped: bool | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """A difference between loaded and saved bytes. ``offset`` is in bytes from the start of the tensor."""

    kind: FaultKind
    rank: Count
    host: str
    checkpoint: Count
    file: str
    tensor: str
    offset: Count
    bytes: Count
    detail: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Integrity:
    """The comparison of loaded with saved bytes. ``faults`` has the first faults, ``fault_count`` counts all faults."""

    bytes_expected: Count
    bytes_checked: Count
    fault_count: Count
    faults: tuple[Fault, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Durability:
    """The counts of files, directories and commits that became durable, over all ranks and saves.

    - ``files``, ``directories``: the number that must become durable.
    - ``files_synced``, ``directories_synced``: the number for which the call that makes them durable returned without
      error.
    - ``observed``: the weakest kind of evidence among the ranks.
    - ``commit_methods``: the methods by which saves were committed.
    - ``acknowledged``: how an object store acknowledged the objects; empty if files are fsynced.
    """

    files: Count
    files_synced: Count
    directories: Count
    directories_synced: Count
    saves: Count
    commits: Count
    observed: Observer = "store"
    commit_methods: tuple[CommitMethod, ...] = ("rename",)
    acknowledged: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """A finished file or object.

    ``checksum`` is the checksum that the store confirmed, with its method; empty if none.
    """

    name: str
    bytes: int
    checksum: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class DurabilityProof:
    """The calls by which one rank made its shard durable in one save.

    - ``files_attempted``: the number of files that must become durable. A file counts as soon as its write starts.
    - ``files_returned``: the number of files for which the call that makes them durable returned without error.
    - ``directories_attempted``, ``directories_returned``: the same counts for directories.
    - ``observed``: the evidence for the calls: the store made them, the library's calls were counted, the library
      declares them, or there is no evidence.
    - ``acknowledged``: how an object store acknowledged its objects.
    - ``names_pending``: files are durable, but their names are not. One rank of each host fsyncs the directory later,
      for all ranks of the host.
    """

    files_attempted: int
    files_returned: int
    directories_attempted: int
    directories_returned: int
    observed: Observer = "store"
    acknowledged: tuple[str, ...] = ()
    names_pending: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class NamesProof:
    """The fsyncs of directories by which one rank made names durable for its host.

    ``directories_attempted`` counts the fsyncs that began, ``directories_returned`` the fsyncs that returned.
    """

    directories_attempted: int
    directories_returned: int


@dataclass(frozen=True, kw_only=True, slots=True)
class CommitProof:
    """The method by which a checkpoint was committed, and the fsyncs of directories in the commit.

    ``directories_attempted`` counts the fsyncs that began, ``directories_returned`` the fsyncs that returned.
    """

    method: CommitMethod
    directories_attempted: int = 0
    directories_returned: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class SaveTiming:
    """One save on one rank. All times are in seconds.

    Four times run from the rank's own start to a point of the save. A time is None if the save did not reach the point.

    - ``returned_seconds``: the job may continue. A blocking save reaches this point last.
    - ``staged_seconds``: the job may change its state.
    - ``stored_seconds``: the bytes of this rank are durable.
    - ``committed_seconds``: the checkpoint is committed (only on the rank that commits).

    Other times:

    - ``names_seconds``: this rank's fsync of the directory for all ranks of its host; 0 on other ranks.
    - ``waited_for_previous``: the wait for the end of the previous save.
    - ``copying_seconds``: the time in which the job waited for the copy of its state in memory.
    """

    returned_seconds: float | None = None
    staged_seconds: float | None = None
    stored_seconds: float | None = None
    committed_seconds: float | None = None
    names_seconds: float = 0.0
    waited_for_previous: float = 0.0
    copying_seconds: float = 0.0
    staged_bytes: int = 0
    stored_bytes: int = 0
    phases: dict[str, float] = field(default_factory=dict)


Moment = Literal["before the saves", "after the saves"]
FsyncCounter = Literal["cachestat", "device counters"]

MAXIMUM_DRIFT = 0.005
DRIFT_FLOOR_SECONDS = 0.02
"""The absolute part of the permitted drift of a clock, in seconds: two steps of the kernel's uptime (10 ms each)."""

CONTROLLER_FLOOR_SECONDS = 5.0
"""The maximum time in seconds for which messages of ranks may wait for a busy controller."""

# Mount options with which fsync does not wait, in this order: of overlay (older kernels write "volatile"); of ext3/4,
# btrfs, GFS2, NILFS and older XFS; of reiserfs; of f2fs.
_UNSAFE_OPTIONS = (
    *(("volatile", "yes"), ("fsync", "volatile")),
    *(("nobarrier", "yes"), ("barrier", "0"), ("barrier", "none"), ("fsync_mode", "nobarrier")),
)


def unsafe_options(options: Mapping[str, str]) -> tuple[str, ...]:
    """Return the mount options with which fsync does not wait for the storage, spelled as the mount shows them.

    ``options`` is {option: value} of the mount. An option without a value has the value ``yes``.
    """
    found = (pair for pair in _UNSAFE_OPTIONS if options.get(pair[0]) == pair[1])
    return tuple(name if value == "yes" else f"{name}={value}" for name, value in found)


@dataclass(frozen=True, kw_only=True, slots=True)
class FsyncCounts:
    """The bytes of a test file that the kernel had not yet written back, before and after an fsync.

    - ``dirty_bytes``, ``left_bytes``: the bytes before the fsync, and after the fsync returned.
    - ``unobservable``: why these counts cannot show the effect of fsync on this file system; empty if they can.
    - ``unsafe_option``: a mount option with which fsync does not wait for the storage; empty if none.
    """

    counter: FsyncCounter = "cachestat"
    dirty_bytes: Count = 0
    left_bytes: Count = 0
    unobservable: str = ""
    unsafe_option: str = ""

    @property
    def is_missing(self) -> bool:
        """Whether fsync returned before the kernel had written back all bytes."""
        return not self.unobservable and self.left_bytes > 0

    @property
    def is_seen(self) -> bool:
        """Whether fsync wrote back all dirty bytes, on a mount whose fsync waits for the storage."""
        return not self.unobservable and self.left_bytes == 0 and not self.unsafe_option


@dataclass(frozen=True, kw_only=True, slots=True)
class FsyncEffect(FsyncCounts):
    """The kernel's counts for a test file that one rank fsynced. ``moment`` is before or after the saves."""

    rank: Count
    host: str
    moment: Moment


@dataclass(frozen=True, kw_only=True, slots=True)
class ClockSpan:
    """The duration of one period, by a rank's clock and by the uptime of the rank's kernel, in seconds.

    ``of`` names the period. ``asleep_seconds`` is the time in which the host slept. CLOCK_BOOTTIME includes sleep,
    CLOCK_MONOTONIC does not.
    """

    rank: Count
    host: str
    of: str
    clock_seconds: float
    uptime_seconds: float
    asleep_seconds: NotNegative = 0.0

    @property
    def difference_seconds(self) -> float:
        """The difference between clock and uptime, minus the permitted resolution and drift.

        The clock agrees with the uptime if the result is 0 or less.
        """
        return self._beyond(self.uptime_seconds - self.clock_seconds)

    @property
    def is_wrong(self) -> bool:
        """Whether the rank's clock differs from the kernel's uptime."""
        return self.difference_seconds > 0

    @property
    def fits_sleep(self) -> bool:
        """Whether the host's sleep explains why the rank's clock is behind the uptime.

        The uptime includes sleep; the rank's clock excludes it.
        """
        ahead = self.uptime_seconds - self.clock_seconds
        return self.is_wrong and self.asleep_seconds > 0 and self._beyond(ahead - self.asleep_seconds) <= 0

    def _beyond(self, seconds: float) -> float:
        allowed = DRIFT_FLOOR_SECONDS + MAXIMUM_DRIFT * max(self.clock_seconds, self.uptime_seconds)
        return abs(seconds) - allowed


@dataclass(frozen=True, kw_only=True, slots=True)
class RankSpan:
    """The duration of a measurement by one rank's clock, in seconds."""

    rank: Count
    host: str
    seconds: float

    def is_unlike(self, controller_seconds: float) -> bool:
        """Whether the difference to ``controller_seconds`` exceeds the permitted drift and delay of the controller.

        If ``controller_seconds`` is 0 (unknown), the result is False.
        """
        allowed = CONTROLLER_FLOOR_SECONDS + MAXIMUM_DRIFT * max(self.seconds, controller_seconds)
        return controller_seconds > 0 and abs(self.seconds - controller_seconds) > allowed


@dataclass(frozen=True, kw_only=True, slots=True)
class Interposed:
    """I/O or clock functions (``calls``) that an unexpected library (``by``) answers in a rank's process.

    The expected library is the C library or Python.
    """

    host: str
    by: str
    calls: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientProofs:
    """The evidence on the ranks of one measurement: their fsync, their clocks and their loaded libraries.

    - ``fsyncs``: the worst rank of each host, before and after the saves.
    - ``clocks``: the worst rank of each host.
    - ``disclosed``: a phrase for each piece of code that may act in the ranks' processes: Python's start-up hooks and
      environment variables, preloaded and auditing libraries, a C library of LD_LIBRARY_PATH, I/O profilers.
    - ``spans``: for each host, the rank with the most unusual duration of the measurement.
    - ``controller_seconds``: the duration of the measurement by the controller's clock; 0 if the controller did not
      observe the beginning.
    """

    fsyncs: tuple[FsyncEffect, ...] = ()
    clocks: tuple[ClockSpan, ...] = ()
    interposed: tuple[Interposed, ...] = ()
    disclosed: tuple[str, ...] = ()
    spans: tuple[RankSpan, ...] = ()
    controller_seconds: float = 0.0
