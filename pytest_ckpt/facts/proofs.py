"""Evidence for a measured time: uncached reads, compared bytes, calls that make data durable, commits."""

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
    """One interpretation of the published cache rule, applied to one host. ``requires_drop``: by this interpretation,
    caches must be dropped.
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
    """Timed reads of canaries on one host. A canary is a part of an extra checkpoint that was saved for these reads.

    Values are seconds, one per canary, in the same order. ``bytes`` is the size of a canary.

    ``first_read_seconds``: after the save and a drop of the caches; ``reread_seconds``: repeated immediately.
    ``dropped_read_seconds``: after another drop; ``dropped_reread_seconds``: repeated immediately; empty in reports of
    versions without it. ``other_client_seconds``: then by another client, which ``client`` names; empty without another
    client. ``client_own_seconds`` shows the speed of the other client: a host reads the canaries that it saved itself,
    a second mount repeats its previous reads. ``judged_seconds``: parts of the judged checkpoints, after a drop and
    before all other reads; ``judged_reread_seconds``: repeated immediately. Both are empty in reports of versions
    without them, and if the judged files have another layout (deltas, compressed files). ``cache_growth_bytes`` is the
    growth of this host's page cache from before the save to the first read. ``not_read_reason`` is why there are no
    reads.
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
    """The minimum number of bytes that one host moved between the save of a checkpoint and its load.

    ``memory_bytes`` is the memory of the host.
    """

    host: str
    memory_bytes: Count
    minimum_bytes: Count


def is_served_by_process(kind: str) -> bool:
    """Return whether a user-space process serves this kind of mount (FUSE).

    The kernel then drops and counts only its own pages. Caches of that process, in memory or on its own disk, are
    invisible to every probe.
    """
    return kind.startswith("fuse")


@dataclass(frozen=True, kw_only=True, slots=True)
class CacheFacts:
    """How the clients' page caches were dropped before loads, and the evidence that loads were not cached.

    ``probe`` is the call that counted resident pages; empty if no probe showed a resident page of a file that had just
    been read, so that residency is unknown. ``resident_fraction`` is the largest cached share of a load's bytes, over
    all loads; None if it was not measured. ``is_declared_cold``: no pages were counted because the target declares that
    its clients do not cache their reads.

    Without a probe, other fields are the evidence. ``by_other_hosts``: every file was loaded, once, by a host that had
    not written it. ``canaries`` are timed reads; they are also made if a probe misses pages and another client is
    available for comparison. ``moved`` are the bytes that each host moved between a save and its load.
    ``client_cache_bytes`` is the user's declaration about caches on disks of a client; None without one. ``storages``
    is the storage below the target on each host. ``names_dropped``: before each load the kernels also dropped names and
    attributes of files; None if not tried.
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
    """A difference between read and written bytes. ``offset`` is in bytes from the tensor's start."""

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
    """The amount of compared data. ``faults`` contains the first faults, ``fault_count`` the number of all."""

    bytes_expected: Count
    bytes_checked: Count
    fault_count: Count
    faults: tuple[Fault, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Durability:
    """The calls that made saves durable and returned without error, counted over all ranks and saves.

    ``observed`` is the weakest kind of evidence among the ranks' proofs. ``commit_methods`` are the methods by which
    saves were committed. ``acknowledged`` describes the object store's answers about the objects; empty if files are
    fsynced.
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
    """A finished file or object. ``checksum`` is the checksum that the store confirmed, with its method;
    empty if none.
    """

    name: str
    bytes: int
    checksum: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class DurabilityProof:
    """The observed calls by which one rank made its shard durable in one save.

    ``observed`` names the observer: the store that performed the calls, counted calls, a library that declares them, or
    no observer. ``files_attempted`` counts the files that must become durable, from the start of their write.
    ``files_returned`` counts the files whose durable call returned without error. ``directories_attempted`` and
    ``directories_returned`` count directories in the same way. ``acknowledged`` describes an object store's answers
    about its objects. ``names_pending``: the files are durable but their names are not yet. One rank of each host
    fsyncs the directory for all ranks of the host.
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
    """The directories whose names one rank made durable for its host.

    ``directories_attempted`` counts the fsyncs that began, ``directories_returned`` the fsyncs that returned.
    """

    directories_attempted: int
    directories_returned: int


@dataclass(frozen=True, kw_only=True, slots=True)
class CommitProof:
    """How a checkpoint was committed.

    ``directories_attempted`` counts the fsyncs of directories that began, ``directories_returned`` those that returned.
    """

    method: CommitMethod
    directories_attempted: int = 0
    directories_returned: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class SaveTiming:
    """One save on one rank, in seconds from its own start; None: not reached.

    ``returned_seconds``: the job may continue; ``staged_seconds``: the job may change its state; ``stored_seconds``:
    the bytes of this rank are durable; ``committed_seconds``: the checkpoint is committed (on the rank that commits). A
    blocking save reaches ``returned_seconds`` last. ``names_seconds`` is the time of this rank's fsync of the
    directory, for all ranks of its host; 0 on other ranks. ``waited_for_previous`` is the time for which the save
    waited for the previous save. ``copying_seconds`` is the time in which the job waited for the copy of its state in
    memory.
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
    """Return the mount options with which fsync does not wait for the storage, as they are written.

    ``options`` are by name; an option without a value has the value ``yes``.
    """
    found = (pair for pair in _UNSAFE_OPTIONS if options.get(pair[0]) == pair[1])
    return tuple(name if value == "yes" else f"{name}={value}" for name, value in found)


@dataclass(frozen=True, kw_only=True, slots=True)
class FsyncCounts:
    """How many bytes of a test file the kernel had not yet written back, before and after an fsync.

    ``dirty_bytes`` were not yet written back before fsync, ``left_bytes`` after it returned. ``unobservable`` is
    the reason if these counts cannot show the effect of fsync on this file system; else empty. ``unsafe_option`` is a
    mount option with which fsync does not wait for the storage; empty if there is none.
    """

    counter: FsyncCounter = "cachestat"
    dirty_bytes: Count = 0
    left_bytes: Count = 0
    unobservable: str = ""
    unsafe_option: str = ""

    @property
    def is_missing(self) -> bool:
        """Whether fsync returned before all bytes were written back."""
        return not self.unobservable and self.left_bytes > 0

    @property
    def is_seen(self) -> bool:
        """Whether bytes were dirty before fsync and clean after it, on a mount whose fsync waits for the storage."""
        return not self.unobservable and self.left_bytes == 0 and not self.unsafe_option


@dataclass(frozen=True, kw_only=True, slots=True)
class FsyncEffect(FsyncCounts):
    """The kernel's counts of a file that one rank fsynced, before or after the saves (``moment``)."""

    rank: Count
    host: str
    moment: Moment


@dataclass(frozen=True, kw_only=True, slots=True)
class ClockSpan:
    """The duration of one period by a rank's clock and by the uptime of the rank's kernel, in seconds.

    ``of`` names the period. ``asleep_seconds`` is how far CLOCK_BOOTTIME, which counts the sleep of a host, advanced
    more than CLOCK_MONOTONIC.
    """

    rank: Count
    host: str
    of: str
    clock_seconds: float
    uptime_seconds: float
    asleep_seconds: NotNegative = 0.0

    @property
    def difference_seconds(self) -> float:
        """The difference between clock and uptime that their resolution and drift do not explain; 0 or less means
        agreement.
        """
        return self._beyond(self.uptime_seconds - self.clock_seconds)

    @property
    def is_wrong(self) -> bool:
        """Whether the rank's clock differs from the kernel's uptime."""
        return self.difference_seconds > 0

    @property
    def fits_sleep(self) -> bool:
        """Whether sleep of the host explains the difference: the uptime counts sleep, the clock does not."""
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
        """Whether the controller's clock gives a different duration, apart from delays in the controller."""
        allowed = CONTROLLER_FLOOR_SECONDS + MAXIMUM_DRIFT * max(self.seconds, controller_seconds)
        return controller_seconds > 0 and abs(self.seconds - controller_seconds) > allowed


@dataclass(frozen=True, kw_only=True, slots=True)
class Interposed:
    """Calls of I/O or clocks in a rank's process that a library other than the C library or Python answers.

    ``by`` names the library.
    """

    host: str
    by: str
    calls: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientProofs:
    """The evidence from the ranks of one measurement about their fsync, their clocks and their loaded libraries.

    ``fsyncs`` and ``clocks`` contain the rank with the worst result of each host, at each moment. ``disclosed`` lists
    code that may act in the ranks' processes, one phrase each: Python's start-up hooks and environment variables,
    preloaded and auditing libraries, a C library of LD_LIBRARY_PATH, and I/O profilers. ``spans`` contains the rank of
    each host whose duration of the measurement is the most unusual. ``controller_seconds`` is the duration of the
    measurement by the controller's clock; 0 if the controller did not observe its beginning.
    """

    fsyncs: tuple[FsyncEffect, ...] = ()
    clocks: tuple[ClockSpan, ...] = ()
    interposed: tuple[Interposed, ...] = ()
    disclosed: tuple[str, ...] = ()
    spans: tuple[RankSpan, ...] = ()
    controller_seconds: float = 0.0
