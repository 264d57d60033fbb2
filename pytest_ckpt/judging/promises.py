"""How long a mount lets its client answer from its cache, which STALE reports next to its measured value. Pure.

A client of a network file system answers from its cache for as long as the mount allows. Such a time is not a fault of
the storage: the mount states it, and an option shortens it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from pytest_ckpt.support.units import format_seconds

Memory = Literal["attributes", "names", "negative-names"]
"""The checks of STALE, by the cached object."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CachePromise:
    """How long a client may answer from its cache.

    ``seconds`` is None if the mount does not show it. ``basis`` are the options that state it, as the mount shows them,
    or a documented default; ``shorter`` is the option that shortens it, empty if there is no need.
    """

    seconds: float | None
    basis: str
    shorter: str = ""

    def text(self, what: Memory, measured: float | None) -> str:
        """Return the promise in a sentence or two, with the measured time."""
        remembered = what.replace("-", " ")
        if self.seconds is None:
            return f"The mount of the second client does not show how long it remembers {remembered}: {self.basis}."
        if self.seconds == 0:
            sentence = f"The mount of the second client promises current {remembered} ({self.basis})."
        else:
            allowed = format_seconds(self.seconds)
            shorter = f"; {self.shorter} shortens that" if self.shorter else ""
            sentence = (
                f"The mount of the second client remembers {remembered} for up to {allowed} ({self.basis}){shorter}."
            )
        if measured is not None and measured > self.seconds + _ANSWER_SECONDS:
            sentence += " The measured time is longer than that."
        return sentence


_ANSWER_SECONDS = 1.0
"""A time measured by STALE includes the way to the other client and back, and its last look."""

# nfs(5), "Data And Metadata Coherence": seconds, and the options that state them.
_NFS_DEFAULTS = {"acregmin": 3, "acregmax": 60, "acdirmin": 30, "acdirmax": 60}
_NFS_REGULAR, _NFS_DIRECTORY = ("acregmin", "acregmax"), ("acdirmin", "acdirmax")


def _of_nfs(what: Memory, options: Mapping[str, str]) -> CachePromise:
    """The times of attribute caches; the kernel lists only values that differ from the default."""
    if "noac" in options:
        return CachePromise(seconds=0.0, basis="noac")
    if what == "negative-names" and (look := options.get("lookupcache")) in ("none", "pos", "positive"):
        return CachePromise(seconds=0.0, basis=f"lookupcache={look}")
    names = _NFS_REGULAR if what == "attributes" else _NFS_DIRECTORY
    times = {name: _seconds(options.get(name)) for name in names}
    basis = ", ".join(
        f"{name}={_NFS_DEFAULTS[name]} by default" if seconds is None else f"{name}={seconds:g}"
        for name, seconds in times.items()
    )
    longest = max(_NFS_DEFAULTS[name] if seconds is None else seconds for name, seconds in times.items())
    shorter = "actimeo=1, or lookupcache=positive for new names," if what == "negative-names" else "actimeo=1"
    return CachePromise(seconds=float(longest), basis=basis, shorter=shorter if longest > 1 else "")


def _of_ceph(what: Memory, options: Mapping[str, str]) -> CachePromise:
    del what, options
    return CachePromise(seconds=0.0, basis="CephFS: the servers withdraw what a client remembers before a change")


def _of_gluster(what: Memory, options: Mapping[str, str]) -> CachePromise:
    """The documented defaults of mount.glusterfs; the kernel does not show its options."""
    shown = _of_fuse(what, options)
    if shown.seconds is not None:
        return shown
    option, default = {"attributes": ("attribute-timeout", 1.0), "names": ("entry-timeout", 1.0)}.get(
        what, ("negative-timeout", 0.0)
    )
    shorter = f"{option}=0, with performance.stat-prefetch off of the volume," if default else ""
    return CachePromise(seconds=default, basis=f"{option}={default:g} by default", shorter=shorter)


_FUSE_OPTIONS: Mapping[Memory, tuple[str, ...]] = {
    "attributes": ("attr_timeout", "attribute-timeout", "ac_attr_timeout"),
    "names": ("entry_timeout", "entry-timeout"),
    "negative-names": ("negative_timeout", "negative-timeout"),
}


def _of_fuse(what: Memory, options: Mapping[str, str]) -> CachePromise:
    for name in _FUSE_OPTIONS[what]:
        seconds = _seconds(options.get(name))
        if seconds is not None:
            return CachePromise(seconds=seconds, basis=f"{name}={seconds:g}", shorter=f"{name}=0" if seconds else "")
    names = _FUSE_OPTIONS[what]
    return CachePromise(seconds=None, basis=f"{names[0]} is not among its options, and its default may be 1 s")


_PROMISES: Mapping[str, Callable[[Memory, Mapping[str, str]], CachePromise]] = {
    "nfs": _of_nfs,
    "nfs4": _of_nfs,
    "ceph": _of_ceph,
    "fuse.ceph": _of_ceph,
    "fuse.ceph-fuse": _of_ceph,
    "fuse.glusterfs": _of_gluster,
}
"""By the kind of a file system in the kernel's table of mounts; others by FUSE show their times or do not."""


def promise_of(mount: str, what: Memory) -> CachePromise | None:
    """Return a mount's promise; ``mount`` is its kind and its options, None for a kind without a known promise."""
    kind, _, written = mount.partition(" ")
    options = {name: value for name, _, value in (word.partition("=") for word in written.split(","))}
    of = _PROMISES.get(kind, _of_fuse if kind.startswith("fuse") else None)
    return of(what, options) if of else None


def _seconds(value: str | None) -> float | None:
    try:
        return float(value) if value else None
    except ValueError:
        return None
