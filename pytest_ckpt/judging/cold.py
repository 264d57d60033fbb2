"""Proofs that loads came from the storage, for clients whose cache the kernel does not report. Pure.

The proofs, strongest first:

- Other hosts loaded files that they had neither written nor read.
- Timed reads of canaries. Canaries are parts of extra checkpoints, which are saved only for these reads.
- Between a save and its load, more bytes were moved than the client's caches can store.

A target fails only if, after a drop of the caches, a client reads bytes faster than another client reads them for the
first time. Fast reads alone are not a failure, because fast memory in the storage itself is legitimate.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from pytest_ckpt.facts.proofs import CacheFacts, CanaryReads, ColdBasis, MovedBytes, is_served_by_process
from pytest_ckpt.support.units import format_binary_bytes, format_bytes

FASTER = 0.8
"""One set of reads counts as faster than another if the ratio of their medians is below this, and the sign test agrees.
"""

HELPS = 0.5
"""The maximum ratio of medians that proves a cache: reading again is slightly faster even without one."""

MAXIMUM_RESIDENT = 0.01
"""The maximum share of a load's bytes that may be in a client's page cache before the load."""

MAXIMUM_PROBABILITY = 0.02
MINIMUM = 10
VOLUME_FACTOR = 3

BASIS_WORDS: Mapping[ColdBasis, str] = {
    "declared": "the target's declaration",
    "seen": "the kernel's count",
    "other client": "loads on other hosts",
    "timed canary": "timed reads",
    "volume": "the volume moved",
}

OTHER_PROOFS = (
    "several hosts (--ckpt-hosts), each of which then loads files that another host saved; a means for timed reads: a "
    "second client (--ckpt-second-mount) or the command that empties the client's cache (--ckpt-drop-caches); or the "
    f"size of every cache between clients and storage (--ckpt-client-cache) and checkpoints of {VOLUME_FACTOR} times "
    "the size of these caches and the clients' memory"
)
"""The kinds of evidence that a user can provide if the kernel cannot count cached pages, as text."""

Found = Literal["proven", "cached", "unknown"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Proof:
    """The conclusion (``found``) from a proof. ``because`` is the reason as a phrase.

    ``basis`` is the kind of evidence; None if nothing is proven.
    """

    found: Found
    because: str
    basis: ColdBasis | None = None


def prove_cold(cache: CacheFacts) -> Proof:
    """Return whether loads were uncached, for a target whose cached pages the kernel cannot count."""
    if cache.by_other_hosts:
        because = "every file was loaded by a host that had neither written nor read it before"
        return Proof(found="proven", because=because, basis="other client")
    if cached := refuted(cache):
        return cached
    canaries = [of_canaries(reads) for reads in cache.canaries]
    open_ = next((each for each in canaries if each.found == "unknown"), None)
    if canaries and not open_:
        return canaries[0]
    volume = of_volume(cache.moved, cache.client_cache_bytes)
    if volume.found == "proven":
        return volume
    return Proof(found="unknown", because="; ".join(each.because for each in (open_, volume) if each))


def uncounted(kind: str, caches: Iterable[CacheFacts | None]) -> list[str]:
    """Return a sentence for each mount with a cache that the kernel's count of cached pages does not include.

    If a process serves a mount (FUSE), the kernel drops and counts only its own pages. If a process serves the target's
    mount, only this mount is reported; otherwise the mounts below the target are examined. Loads by other hosts need no
    count.
    """
    counted = [cache for cache in caches if cache is not None and _rests_on_count(cache)]
    served = {f"this mount ({kind})"} if is_served_by_process(kind) else set()
    below = served or {text for cache in counted for stack in cache.storages for text in stack.processes}
    return [
        f"COLD rests on the kernel's count of cached pages. The process that serves {mount} may cache in memory or on "
        "a disk; such a cache is neither dropped nor counted; loads on other hosts would show it (--ckpt-hosts), and "
        "timed reads with a second client (--ckpt-second-mount)"
        for mount in sorted(below)
        if counted
    ]


def _rests_on_count(cache: CacheFacts) -> bool:
    if not cache.probe or cache.by_other_hosts:
        return False
    return not is_drop_proven(cache) and refuted(cache) is None


def refuted(cache: CacheFacts) -> Proof | None:
    """Return the evidence from timed reads that a cache survived a drop; None without such evidence.

    The kernel does not count the pages of this cache.
    """
    return next((proof for proof in map(of_canaries, cache.canaries) if proof.found == "cached"), None)


def is_drop_proven(cache: CacheFacts) -> bool:
    """Return whether timed reads on every host show that reads after a drop of the caches come from the storage.

    The proof applies to all loads, because the same drop precedes each load.
    """
    return bool(cache.canaries) and all(of_canaries(reads).found == "proven" for reads in cache.canaries)


def of_canaries(reads: CanaryReads) -> Proof:
    """Return the conclusion from the timed reads of canaries on one host."""
    proof = _of_timed_reads(reads)
    if proof.found != "proven" or not _cache_differs(reads):
        return proof
    because = (
        f"after a drop, parts of the judged checkpoints on {reads.host} took {_each(reads.judged_seconds)}, and parts "
        f"of checkpoints saved for timed reads {_each(reads.dropped_read_seconds)}: a cache may contain only some of "
        "these parts"
    )
    return Proof(found="unknown", because=because)


def _cache_differs(reads: CanaryReads) -> bool:
    """Return whether a cache seems to contain parts of the judged checkpoints, but not the canaries.

    This is the case if, after a drop, reads of these parts are faster than reads of the canaries. In addition, an
    immediate second read of the parts must not be much faster than the first read.
    """
    judged = reads.judged_seconds
    if not judged or _helps(reads.judged_reread_seconds, judged):
        return False
    return all(_faster(judged, canaries) for canaries in (reads.first_read_seconds, reads.dropped_read_seconds))


def _of_timed_reads(reads: CanaryReads) -> Proof:
    if reads.not_read_reason:
        return Proof(found="unknown", because=f"no reads were timed on {reads.host}: {reads.not_read_reason}")
    saved, again, dropped, elsewhere = (
        reads.first_read_seconds, reads.reread_seconds, reads.dropped_read_seconds, reads.other_client_seconds,
    )  # fmt: skip
    # Two reads in succession have the same background load; reads before and after the drop may not.
    pairs = ((saved, again), (dropped, reads.dropped_reread_seconds or again))
    if len(saved) < MINIMUM:
        return Proof(found="unknown", because=f"only {len(saved)} of {MINIMUM} reads were timed on {reads.host}")
    many = f"{len(saved)} parts of {format_binary_bytes(reads.bytes)}"
    took = (
        f"{many} on {reads.host} took {_each(saved)} after the save and a drop, {_each(again)} again immediately, "
        f"{_each(dropped)} after another drop"
    )
    if reads.dropped_reread_seconds:
        took += f", {_each(reads.dropped_reread_seconds)} again immediately"
    if elsewhere:
        took += f", {_each(elsewhere)} on {reads.client}"
        # If the other client is never faster, it proves no difference; if it is only a little faster, it may be
        # disturbed.
        is_able_elsewhere = not reads.client_own_seconds or _helps(reads.client_own_seconds, elsewhere)
        # If a cache still serves reads after the drop, their times are close to reads without a drop, and far from the
        # other client's.
        survived = [own for own, warm in pairs if _is_near(own, warm, elsewhere) and _faster(own, elsewhere)]
        if survived and is_able_elsewhere:
            times = max(median(elsewhere) / median(own) for own in survived)
            because = (
                f"a cache of the client survived the drop: {took}. The storage had read these parts before, but this "
                f"client was {times:.3g} times as fast as the other one"
            )
            return Proof(found="cached", because=because)
    helps = _helps(again, dropped) and (
        not reads.dropped_reread_seconds or all(_helps(warm, own) for own, warm in pairs)
    )
    is_far = not elsewhere or not any(_is_near(own, warm, elsewhere) for own, warm in pairs)
    if helps and is_far and _ratio(saved, dropped) >= FASTER:
        because = f"{took}: reading again is faster only without a drop, so the drop works"
        return Proof(found="proven", because=because, basis="timed canary")
    below = reads.cache_growth_bytes >= reads.bytes * len(saved) / 2
    if elsewhere and below:
        because = (
            f"{took}, and this host's page cache contained {format_bytes(reads.cache_growth_bytes)} more than before "
            "the save: something below the target on this host caches"
        )
        return Proof(found="unknown", because=because)
    if elsewhere and reads.dropped_reread_seconds and _caches_more(reads):
        because = (
            f"{took}, {_each(reads.client_own_seconds)} again immediately: reading again is faster only on the other "
            "client, so other work on this host may have slowed its reads"
        )
        return Proof(found="unknown", because=because)
    if elsewhere and min(_ratio(saved, elsewhere), _ratio(dropped, elsewhere)) >= FASTER:
        because = f"{took}: no read is faster than another client's, so no cache of this client helps"
        return Proof(found="proven", because=because, basis="timed canary")
    because = f"{took}: the storage's cache and the client's cannot be distinguished" + (
        "" if elsewhere else "; another client could distinguish them (--ckpt-second-mount, or a second host)"
    )
    return Proof(found="unknown", because=because)


def of_volume(moved: Sequence[MovedBytes], client_cache_bytes: int | None) -> Proof:
    """Return the conclusion from the bytes that each host moved between a save and its load.

    On each host, these bytes must be at least `VOLUME_FACTOR` times the size of the host's memory and of the client's
    caches. Then they displaced every earlier file, and the loads are proven to be uncached.
    """
    if client_cache_bytes is None:
        because = "the size of caches on the clients' disks was not stated (--ckpt-client-cache)"
        return Proof(found="unknown", because=because)
    if not moved:
        return Proof(found="unknown", because="how much was moved between save and load is not known")
    host = min(moved, key=lambda each: each.minimum_bytes / (each.memory_bytes + client_cache_bytes))
    wanted = VOLUME_FACTOR * (host.memory_bytes + client_cache_bytes)
    compared = (
        f"{format_bytes(host.minimum_bytes)} were moved on {host.host} between the save of a checkpoint and its load, "
        f"and {VOLUME_FACTOR} times its memory and stated caches are {format_bytes(wanted)}"
    )
    if host.minimum_bytes < wanted:
        return Proof(found="unknown", because=compared)
    return Proof(found="proven", because=compared, basis="volume")


def _faster(first: Sequence[float], second: Sequence[float]) -> bool:
    """Return whether the reads ``first`` are faster than the reads ``second``, by their medians and by the sign test.

    The sign test compares pairs of reads. If two hosts read different parts, the lists may have different lengths. The
    sign test then omits the reads without a partner.
    """
    if _ratio(first, second) >= FASTER:
        return False
    wins = sum(a < b for a, b in zip(first, second, strict=False))
    count = min(len(first), len(second))
    return sum(math.comb(count, k) for k in range(wins, count + 1)) <= MAXIMUM_PROBABILITY * (1 << count)


def _helps(repeated: Sequence[float], first: Sequence[float]) -> bool:
    """Return whether ``repeated`` reads are so much faster than ``first`` reads that a cache must have served them."""
    return _faster(repeated, first) and _ratio(repeated, first) <= HELPS


def _caches_more(reads: CanaryReads) -> bool:
    """Return whether the speed-up of a second read is clearly larger on the other client than on this client.

    The speed-up on the other client is compared with the larger speed-up of two pairs of reads on this client.
    """
    theirs, first = reads.client_own_seconds, reads.other_client_seconds
    if not theirs or not _faster(theirs, first):
        return False
    smallest = min(
        _ratio(reads.reread_seconds, reads.first_read_seconds),
        _ratio(reads.dropped_reread_seconds, reads.dropped_read_seconds),
    )
    return _ratio(theirs, first) < FASTER * smallest


def _is_near(times: Sequence[float], warm: Sequence[float], cold: Sequence[float]) -> bool:
    """Return whether ``times`` are nearer to ``warm`` reads than to ``cold`` reads, by the ratio of medians."""
    return median(times) ** 2 < median(warm) * median(cold)


def _ratio(first: Sequence[float], second: Sequence[float]) -> float:
    return median(first) / median(second)


def _each(seconds: Sequence[float]) -> str:
    return f"{median(seconds) * 1000:.0f} ms"
