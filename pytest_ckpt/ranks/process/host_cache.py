"""Dropping the clients' page caches between saves and loads, and proving that they are empty."""

from __future__ import annotations

import errno
import os
import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ckpt.facts.proofs import CacheFacts, CacheReading
from pytest_ckpt.sizing.caches import cache_readings
from pytest_ckpt.targets.posix import residency

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.ranks.process.group import Group

_DROP_CACHES = Path("/proc/sys/vm/drop_caches")
_COMMAND_SECONDS = 600


class HostCache:
    """The page cache of this rank's host, as far as this rank's files are concerned."""

    def __init__(self, group: Group, activity: Activity, folder: Path) -> None:
        self._group = group
        self._activity = activity
        gauge: residency.Gauge | None = None
        if group.leads_host:
            with activity.in_phase("residency gauge"):
                gauge = residency.find_gauge(folder)
        self.gauge: residency.Gauge | None = group.from_host_leader(gauge)

    def resident(self, files: Sequence[Path]) -> tuple[int, int] | None:
        """Return (resident, all) bytes of this rank's files, or None where no gauge tells the truth."""
        if self.gauge is None:
            return None
        counts = [residency.resident_bytes(path, self.gauge) for path in files]
        return sum(c[0] for c in counts), sum(c[1] for c in counts)

    def readings(self, rank_bytes: int, operations: int) -> tuple[CacheReading, ...]:
        """Apply the cache rule to this host; the leader's answer counts."""
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return cache_readings(self._group.host, memory, self._group.sum_of_host(rank_bytes), operations)

    def drop(self, policy: str, files: Sequence[Path]) -> str:
        """Drop what this rank's files have in the cache and return the ways that were used.

        ``policy`` is ``auto`` or a command, which the leader of every host runs without a shell. Raises RuntimeError
        when the command fails.
        """
        if policy == "auto":
            way = self._group.from_host_leader(self._drop_all() if self._group.leads_host else None)
            if way:
                return str(way)
            with self._activity.in_phase("fadvise"):
                residency.evict(files)
            return "posix_fadvise(DONTNEED) on every file after its fsync"
        if self._group.leads_host:
            self._run(policy)
        self._group.wait()
        return f"command on every host: {policy}"

    def _drop_all(self) -> str | None:
        try:
            with self._activity.in_phase("drop_caches"):
                _DROP_CACHES.write_text("3")
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT):
                return None
            raise
        return f"{_DROP_CACHES} = 3"

    def _run(self, command: str) -> None:
        with self._activity.in_phase("drop command"):
            try:
                done = subprocess.run(
                    shlex.split(command), capture_output=True, text=True, timeout=_COMMAND_SECONDS, check=False
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                raise RuntimeError(f"the command that drops caches could not be run: {error}") from error
            if done.returncode:
                says = (done.stderr or done.stdout).strip()[-500:]
                raise RuntimeError(f"the command that drops caches ended with {done.returncode}: {command}: {says}")


def cache_facts(
    policy: str,
    ways: Sequence[str],
    readings: Sequence[CacheReading],
    gauges: Sequence[str | None],
    worst: float | None,
) -> CacheFacts:
    """Join what every host's ranks did and saw; ``worst`` is the largest resident fraction of a load."""
    required = any(r.requires_drop for r in readings)
    blind = None in gauges
    detail = ""
    if blind:
        detail = (
            "neither cachestat(2) nor mincore(2) saw a file in the page cache that had just been read from the target, "
            "so whether data are cached on the client cannot be known"
        )
    return CacheFacts(
        required=required,
        readings=tuple(readings),
        policy=policy,
        method="; ".join(dict.fromkeys(ways)) or "none",
        gauge="" if blind else ", ".join(dict.fromkeys(g for g in gauges if g)),
        resident_fraction=None if blind else worst,
        detail=detail,
    )
