"""Timed reads of extra checkpoints, which detect a cache that the kernel does not report.

Extra checkpoints are saved like all other checkpoints. A canary is a part of an extra checkpoint. After the save and a
drop of caches, each canary is read twice in succession. After a second drop, each canary is again read twice. Finally
another client reads the canaries, if there is another client.

The judged checkpoints are the subject's own. A cache could treat extra checkpoints differently, because of their number
or time. So parts of the judged checkpoints are read before the canaries: after a drop of caches, twice in succession.
`judging.cold` evaluates the times.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ckpt.facts.proofs import CanaryReads
from pytest_ckpt.ranks.engines.protocol import Clock
from pytest_ckpt.ranks.process.job import OF_CANARIES
from pytest_ckpt.sizing.files import files_of
from pytest_ckpt.support.host_state import memory_of_host
from pytest_ckpt.support.processes import boot_id
from pytest_ckpt.support.units import format_binary_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_ckpt.facts.file_rules import FileRule
    from pytest_ckpt.ranks.operations import Operations
    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.ranks.process.host_cache import Files
    from pytest_ckpt.ranks.strategies.protocol import Strategy
    from pytest_ckpt.sizing.models import Layout
    from pytest_ckpt.targets.protocol import ReadableFile, Store

CANARY_BYTES = 64 << 20
"""The size of a timed read: large enough that clock resolution and chance do not matter."""

MINIMUM_CANARIES = 10
_MAXIMUM_CANARIES = 16
_READ_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a checkpoint's file: `CANARY_BYTES` bytes from ``offset`` on."""

    checkpoint: int
    name: str
    offset: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Canaries:
    """Performs the timed reads on all hosts concurrently.

    The first rank of each host reads parts of files that it saved. ``second`` is the run's directory through another
    mount of this host; None if the host has no other mount. ``drop`` drops caches in the same way as before every load.
    ``files`` defines the files of a checkpoint. ``judged`` are numbers of the subject's own checkpoints. If the
    subject's checkpoints are stored differently from extra checkpoints, ``judged`` is empty.

    ``make_room`` deletes the subject's own checkpoints. After that, there is space for ``maximum`` extra checkpoints.
    The numbers of extra checkpoints are larger than ``after``.
    """

    group: Group
    activity: Activity
    do: Operations
    layout: Layout
    strategy: Strategy
    store: Store
    second: Store | None
    drop: Callable[[Sequence[Files]], None]
    after: int
    maximum: int
    files: FileRule
    judged: Sequence[int]
    make_room: Callable[[], None]

    def measure(self) -> tuple[CanaryReads, ...]:
        """Return the timed reads of every host on rank 0, and an empty tuple elsewhere."""
        hosts: list[str] = self.group.share(self.group.gather(self.group.host))
        leaders = [hosts.index(host) for host in dict.fromkeys(hosts)]
        count, reason = self._checkpoints(leaders)
        is_leader = self.group.rank in leaders
        judged, judged_behind = self._of_judged(self.judged[:count], is_leader=is_leader)
        self.make_room()
        if reason:
            return tuple(
                CanaryReads(host=hosts[leader], bytes=CANARY_BYTES, not_read_reason=reason) for leader in leaders
            )
        numbers = [self.after + OF_CANARIES + number for number in range(count)]
        below = memory_of_host()["Cached"]
        for number in numbers:
            self.do.save(self.strategy, number, role="canary")
        self.strategy.release()
        self.strategy.engine.release()
        files = [self.do.files(number) for number in numbers]
        self.drop(files)
        # A file system below the target may keep pages in this page cache that the count for the target misses.
        below = memory_of_host()["Cached"] - below
        mine = self._parts(self.group.rank, numbers) if is_leader else []
        with self.do.stage("canaries", self.do.all("canaries")):
            saved, again = self._read_twice(self.store, mine)
            self.group.wait()
        self.drop(files)
        with self.do.stage("canaries", self.do.all("canaries")):
            # Reads that are minutes apart may differ because of other work on the host; reads in pairs do not.
            dropped, behind = self._read_twice(self.store, mine)
            self.group.wait()
            elsewhere, client, theirs = self._elsewhere(leaders, numbers, mine, saved)
        reads = CanaryReads(
            host=self.group.host,
            bytes=CANARY_BYTES,
            first_read_seconds=saved,
            reread_seconds=again,
            dropped_read_seconds=dropped,
            dropped_reread_seconds=behind,
            other_client_seconds=elsewhere,
            client=client,
            client_own_seconds=theirs,
            judged_seconds=judged,
            judged_reread_seconds=judged_behind,
            cache_growth_bytes=max(0, below),
        )
        gathered = self.group.gather(reads if mine else None)
        for number in numbers:
            self.do.delete(number)
        return tuple(each for each in gathered if each)

    def _of_judged(self, numbers: Sequence[int], *, is_leader: bool) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Drop caches, and read parts of the judged checkpoints ``numbers``, each part twice in succession.

        Return (seconds of the first reads, seconds of the second reads).
        """
        if not numbers:
            return (), ()
        self.drop([self.do.files(number) for number in numbers])
        with self.do.stage("canaries", self.do.all("canaries")):
            seconds = self._read_twice(self.store, self._parts(self.group.rank, numbers) if is_leader else [])
            self.group.wait()
        return seconds

    def _checkpoints(self, leaders: Sequence[int]) -> tuple[int, str]:
        """Return (number of extra checkpoints, empty text). If timed reads are not possible, return (0, reason).

        Together, the extra checkpoints contain enough parts for every host. ``leaders`` are the first ranks of the
        hosts.
        """
        minimum = min(len(self._parts(leader, [0])) for leader in leaders)
        wanted = -(-MINIMUM_CANARIES // minimum) if minimum else 0
        if minimum and wanted <= self.maximum:
            return wanted, ""
        if not self.maximum:
            return 0, "the checkpoints are kept (--ckpt-keep-files), and the space may not suffice for more"
        return 0, (
            f"{MINIMUM_CANARIES} parts of {format_binary_bytes(CANARY_BYTES)} on each host are needed for timed reads, "
            f"and {self.maximum} checkpoints of this size contain {minimum * self.maximum}"
        )

    def _parts(self, rank: int, numbers: Sequence[int]) -> list[_Part]:
        parts = [
            _Part(number, name, offset)
            for number in numbers
            for name, size in files_of(self.layout.rank(rank), self.files)
            for offset in range(0, size - CANARY_BYTES + 1, CANARY_BYTES)
        ]
        return parts[:_MAXIMUM_CANARIES]

    def _read_twice(self, store: Store, parts: Sequence[_Part]) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Read each part twice in succession. Return (seconds of the first reads, seconds of the second reads).

        Even a tiny cache can serve the second read.
        """
        pairs = [self._read(store, [part, part]) for part in parts]
        return tuple(first for first, _ in pairs), tuple(second for _, second in pairs)

    def _elsewhere(
        self, leaders: Sequence[int], numbers: Sequence[int], mine: Sequence[_Part], saved: tuple[float, ...]
    ) -> tuple[tuple[float, ...], str, tuple[float, ...]]:
        """Let another client read the parts that each host's first rank saved.

        The client is the next host or a second mount. On the first rank of each host, return (seconds of the other
        client's reads, name of the client, comparison times). The comparison times are measured on the same client. If
        the client is a host, they are the host's first reads of the parts that it saved itself. If the client is a
        mount, they are second reads through this mount, immediately after the first reads. If there is no other client,
        all values are empty. The storage may serve the other client's reads from its memory, because the parts were
        read before.
        """
        kernels: list[str] = self.group.share(self.group.gather(boot_id()))
        # Containers on one kernel may share a client, so another container does not count as another client.
        if all(kernels[leader] != kernels[leaders[at - 1]] for at, leader in enumerate(leaders)):
            at = leaders.index(self.group.rank) if mine else 0
            theirs = self._parts(leaders[at - 1], numbers) if mine else []
            read = self._read(self.store, theirs)
            of_all = self.group.share(self.group.gather((read, self.group.host, saved)))
            elsewhere, host, own = of_all[leaders[(at + 1) % len(leaders)]]
            return (elsewhere, f"host {host}", own) if mine else ((), "", ())
        if self.second and mine:
            first, again = self._read_twice(self.second, mine)
            return first, "the second mount of this host", again
        return (), "", ()

    def _read(self, store: Store, parts: Sequence[_Part]) -> tuple[float, ...]:
        """Return the seconds to read each part.

        Like most libraries, this method opens each file again and does not bypass or drop caches.
        """
        seconds = []
        buffer = memoryview(bytearray(_READ_BYTES))
        for part in parts:
            clock = Clock(activity=self.activity)
            start = time.perf_counter()
            file = store.open(self.do.ref(part.checkpoint), clock).file(part.name)
            try:
                _read_part(file, part.offset, buffer)
            finally:
                file.close()
            seconds.append(time.perf_counter() - start)
        return tuple(seconds)


def _read_part(file: ReadableFile, offset: int, buffer: memoryview) -> None:
    file.seek(offset)
    left = CANARY_BYTES
    while left:
        count = file.readinto(buffer[: min(left, len(buffer))])
        if not count:
            raise file.error or OSError(f"a file that was saved ends {left} bytes too early")
        left -= count
