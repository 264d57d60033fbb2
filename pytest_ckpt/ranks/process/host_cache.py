"""Drops the page cache of a host before loads, and counts the pages that remain in the cache."""

from __future__ import annotations

import shlex
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from pytest_ckpt.facts.proofs import CacheFacts, CacheReading, MovedBytes, is_served_by_process
from pytest_ckpt.facts.targets import CheckpointRef
from pytest_ckpt.sizing.caches import cache_readings
from pytest_ckpt.support.host_state import memory_of_host

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_ckpt.facts.targets import StorageStack
    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.targets.protocol import AreaView, Store

_COMMAND_SECONDS = 600


@dataclass(frozen=True, kw_only=True, slots=True)
class Files:
    """Names of files of one checkpoint."""

    ref: CheckpointRef
    names: tuple[str, ...]


class HostCache:
    """Counts and drops the pages of this rank's files in the host's page cache.

    All ranks create the object together. ``probe`` is the name of the method that counts cached pages on this host;
    None if no method works.
    """

    def __init__(self, group: Group, activity: Activity, store: Store, subject: str, policy: str = "auto") -> None:
        self._group = group
        self._activity = activity
        self._store = store
        self._policy = policy
        host_view = getattr(store, "host_view", None)
        # The devices, files and processes below the target on this host; None for a target without a path.
        self.storage: StorageStack | None = cast("AreaView", host_view()).storage if host_view else None
        # Whether names and attributes were dropped before every load so far; None before the first load.
        self.names_dropped: bool | None = None
        probe: str | None = None
        if group.leads_host and "page cache" in store.capabilities:
            with activity.in_phase("residency probe"):
                probe = store.find_cache_probe(subject)
        self.probe: str | None = group.from_host_leader(probe)
        # If the target declares that clients do not cache, counts and drops are not needed.
        self.is_declared_cold = "page cache" not in store.capabilities
        # Whether a host has no probe, so that another proof is needed that loads come from the storage.
        self.is_blind = group.any_of(self.probe is None and not self.is_declared_cold)
        # Whether a host's probe counts only the kernel's own pages, on a mount with further caches.
        self.is_counted_in_part = group.any_of(
            self.probe is not None
            and (is_served_by_process(_kind(store)) or bool(self.storage and self.storage.processes))
        )
        # Whether loads should also prove that they come from the storage, if the proof costs no extra time. If the
        # target declares that clients do not cache, this checks the declaration.
        self.wants_proof = self.is_blind or self.is_declared_cold

    def resident(self, files: Iterable[Files]) -> tuple[int, int] | None:
        """Return (cached bytes, all bytes) of ``files``. Return None if cached pages cannot be counted on this host."""
        if self.probe is None:
            return None
        counts = [self._store.cached(of.ref, of.names, self.probe) for of in files]
        return sum(c.resident_bytes for c in counts), sum(c.bytes for c in counts)

    def caches_more_than(self, share: float, files: Iterable[Files]) -> bool:
        """Return whether more than the fraction ``share`` of any checkpoint in ``files`` is cached.

        If cached pages cannot be counted on this host, return False. Checkpoints are not averaged, because each
        checkpoint is loaded separately.
        """
        counts = [self.resident([of]) for of in files]
        return any(count is not None and count[0] > share * count[1] for count in counts)

    def forget_names(self) -> None:
        """Drop file names and attributes from the kernel's caches, because counting cached pages has added them.

        All ranks call this together, immediately before an operation is timed.
        """
        if self._policy == "never" or self.is_declared_cold:
            return
        self._group.wait()
        dropped = self._group.from_host_leader(self._store.drop_names() if self._group.leads_host else None)
        self.names_dropped = bool(dropped) and self.names_dropped is not False

    def readings(self, rank_bytes: int, operations: int) -> tuple[CacheReading, ...]:
        """Return whether this host must drop its caches before loads, by each of two interpretations of the cache rule.

        The rule compares the host's part of checkpoints with the host's memory (`sizing.caches`). ``rank_bytes`` is the
        size in bytes of this rank's part of a checkpoint. ``operations`` is the number of saved checkpoints.
        """
        return cache_readings(
            self._group.host, memory_of_host()["MemTotal"], self._group.host_sum(rank_bytes), operations
        )

    def moved(self, rank_bytes: int, checkpoints: int) -> MovedBytes:
        """Return the minimum number of bytes that this host saves or loads with ``checkpoints`` checkpoints.

        ``rank_bytes`` is the size in bytes of this rank's part of one checkpoint.
        """
        memory = memory_of_host()["MemTotal"]
        minimum = self._group.host_sum(rank_bytes) * checkpoints
        return MovedBytes(host=self._group.host, memory_bytes=memory, minimum_bytes=minimum)

    def drop(self, policy: str, files: Iterable[Files]) -> str:
        """Drop this rank's files from the cache. Return the methods that were used, as text.

        ``policy`` is ``auto`` or a command. The leader of every host runs the command without a shell. Raises
        RuntimeError if the command fails.
        """
        if policy == "auto":
            method = self._group.from_host_leader(self._drop_all() if self._group.leads_host else None)
            if method or self.is_declared_cold:
                return str(method or "")
            with self._activity.in_phase("fadvise"):
                methods = [self._store.evict(of.ref, of.names) for of in files]
            return "; ".join(dict.fromkeys(methods))
        if self._group.leads_host:
            self._run(policy)
        self._group.wait()
        return f"command on every host: {policy}"

    def _drop_all(self) -> str | None:
        if self.is_declared_cold:
            return None
        with self._activity.in_phase("drop_caches"):
            return self._store.drop_cache()

    def _run(self, command: str) -> None:
        with self._activity.in_phase("drop command"):
            try:
                done = subprocess.run(
                    shlex.split(command), capture_output=True, text=True, timeout=_COMMAND_SECONDS, check=False
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                raise RuntimeError(f"the command that drops caches could not be run: {error}") from error
            if done.returncode:
                output = (done.stderr or done.stdout).strip()[-500:]
                described = f": {output}" if output else ", without output"
                raise RuntimeError(f"the command that drops caches ended with {done.returncode}: {command}{described}")


def _kind(store: Store) -> str:
    """Return the file system type of the mount that contains a store; empty for a store without paths."""
    host_view = getattr(store, "host_view", None)
    return cast("AreaView", host_view()).mount.kind if host_view else ""


def cache_facts(
    policy: str,
    methods: Sequence[str],
    readings: Sequence[CacheReading],
    probes: Sequence[str | None],
    worst: float | None,
    *,
    is_declared_cold: bool = False,
    storages: Sequence[StorageStack] = (),
    **proofs: Any,
) -> CacheFacts:
    """Return the facts on the caches of all hosts, combined from the results of their ranks.

    ``methods`` are the methods that dropped caches. ``probes`` contains, for each host, the method that counted cached
    pages, or None if no method worked. ``worst`` is the largest fraction of a load that was cached. ``proofs`` contains
    other evidence that loads were not cached.
    """
    required = any(r.requires_drop for r in readings)
    blind = None in probes
    detail = ""
    if is_declared_cold:
        detail = "the target declares that its clients do not cache reads"
    elif blind:
        detail = (
            "neither cachestat(2) nor mincore(2) saw a file in the page cache that had just been read from the target, "
            "so whether data are cached on the client cannot be known"
        )
        if files := dict.fromkeys(file for storage in storages for file in storage.files):
            detail = (
                "a file that had just been read from the target was not seen in the page cache both there and, as "
                f"pages of {', '.join(files)}, below: a cache between them may have served the read"
            )
        if causes := dict.fromkeys(cause for storage in storages for cause in storage.blind):
            detail = f"cached data cannot be counted: {'; '.join(causes)}"
    return CacheFacts(
        required=required,
        readings=tuple(readings),
        policy=policy,
        method="; ".join(dict.fromkeys(methods)) or "none",
        probe="" if blind else ", ".join(dict.fromkeys(g for g in probes if g)),
        resident_fraction=None if blind else worst,
        detail=detail,
        is_declared_cold=is_declared_cold,
        storages=tuple(storages),
        **proofs,
    )
