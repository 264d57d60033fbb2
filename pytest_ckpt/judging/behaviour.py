"""Decides requirements on a target's behaviour from the result of one check. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, cast

from pytest_ckpt.facts.failure import describe_blocked
from pytest_ckpt.facts.observation import SECOND_MOUNT
from pytest_ckpt.judging.decision import Decision, measured_as, not_decided
from pytest_ckpt.support.units import compared, counted, format_count, format_general, format_seconds

if TYPE_CHECKING:
    from pytest_ckpt.facts.checks import Check
    from pytest_ckpt.facts.observation import Observation
    from pytest_ckpt.sizing.plan import FilesOfHost


Memory = Literal["attributes", "names", "negative-names"]
"""The checks of STALE, by the kind of object that a client may cache."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CachePromise:
    """How long a client of a network file system may answer from its cache, by its mount options.

    An old answer within this time is not a fault of the storage.

    - ``seconds``: the maximum time; None if the mount does not show the time.
    - ``basis``: the mount options that set the time, or a documented default.
    - ``shorter``: the option that shortens the time; empty if the time is already short.
    """

    seconds: float | None
    basis: str
    shorter: str = ""

    def text(self, what: Memory, measured: float | None) -> str:
        """Return a sentence on the promise for one kind of object (``what``).

        ``measured`` is the time in seconds that STALE measured. If ``measured`` exceeds the promise, a second sentence
        states that it does.
        """
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
"""The tolerance for a time that STALE measures. It covers a round trip to the other client and that client's
last look.
"""

# Defaults in seconds, and the options that set them. Source: nfs(5), "Data And Metadata Coherence".
_NFS_DEFAULTS = {"acregmin": 3, "acregmax": 60, "acdirmin": 30, "acdirmax": 60}
_NFS_REGULAR, _NFS_DIRECTORY = ("acregmin", "acregmax"), ("acdirmin", "acdirmax")


def _of_nfs(what: Memory, options: Mapping[str, str]) -> CachePromise:
    """Return the promise of an NFS mount for one kind of object (``what``).

    ``options`` has only options that differ from the default, because the kernel lists only these.
    """
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
    """Return the promise of a GlusterFS mount for one kind of object (``what``).

    If the mount does not show an option, the default of mount.glusterfs applies.
    """
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
"""Functions that return a mount's cache promise, by file-system type in the kernel's table of mounts.

Options of other FUSE file systems may also show their cache times.
"""


def promise_of(mount: str, what: Memory) -> CachePromise | None:
    """Return a mount's cache promise for one kind of object (``what``); None for an unknown type of mount.

    ``mount`` contains the file-system type and the options of the mount.
    """
    kind, _, written = mount.partition(" ")
    options = {name: value for name, _, value in (word.partition("=") for word in written.split(","))}
    of = _PROMISES.get(kind, _of_fuse if kind.startswith("fuse") else None)
    return of(what, options) if of else None


def _seconds(value: str | None) -> float | None:
    try:
        return float(value) if value else None
    except ValueError:
        return None


_NEEDS = {
    "second client": "No second client (--ckpt-second-mount, or a second host in --ckpt-hosts).",
    "power cut": "No power-cut command (--ckpt-actions [power_cut] command).",
    "small directory": "No directory to fill (--ckpt-small-volume: one on a small volume or quota).",
}


def without_anomaly(observation: Observation, limit: float | None) -> Decision:
    """Return the decision on the result of a check.

    The decision is "met" if the check observed no anomaly. If the check measured a value and has a ``limit``, the value
    must also be within the limit.
    """
    if observation.blocked:
        because = describe_blocked(observation.blocked)
        stack = tuple(observation.blocked.stack.splitlines())
        detail = (*stack, *_reproduce(observation))
        return Decision(outcome="failed", reason="hung", because=because, detail=detail)
    if observation.not_run:
        because, _, more = observation.not_run.partition("\n")
        detail = (*more.splitlines(), *_reproduce(observation))
        return not_decided("run ended" if observation.errno else "check broke", _sentence(because), detail)
    measured, unit = observation.measured, observation.unit
    detail = (*(anomaly.text for anomaly in observation.anomalies), *_facts(observation), *_reproduce(observation))
    if observation.anomaly_count:
        because = _sentence(observation.anomalies[0].text)
        if observation.anomaly_count > 1:
            because += f" There are {format_count(observation.anomaly_count)} such findings."
        return Decision(
            outcome="failed", reason="anomaly", because=because, measured=measured, unit=unit, detail=detail
        )
    tried = counted(observation.trials, "trial")
    if measured is None:
        if not observation.trials:
            return not_decided("too few", "The check ended before its first trial.")
        return Decision(outcome="met", reason="met", because=f"No fault in {tried}.", detail=detail)
    if limit is None:
        return Decision(
            outcome="met",
            reason="met",
            because=f"No fault in {tried}.",
            measured=measured,
            unit=unit,
            detail=detail,
        )
    took, allowed = compared(measured, limit, format_seconds if unit == "s" else format_general)
    if measured > limit:
        because = f"Took {took}; limit {allowed}, in {tried}."
        return measured_as("over limit", measured, limit, unit, because, detail)
    because = f"Worst: {took}; limit {allowed}, in {tried}."
    return measured_as("met", measured, limit, unit, because, detail)


def creates_in_time(decision: Decision, observation: Observation, demand: FilesOfHost | None) -> Decision:
    """Return a decision on the rate at which a check creates many files.

    ``demand`` states how many files a host creates in a save, and the save limit. At the measured rate, the host must
    create its files within the limit. The check's own total time does not decide, because the check creates more files
    than a host.

    If ``decision`` is not "met", or the check measured no rate, ``decision`` is returned unchanged. If ``demand`` is
    None, the result only adds the rate to the sentence.
    """
    if decision.outcome != "met" or not observation.measured:
        return decision
    rate = observation.trials / observation.measured
    created = f"One client created {format_count(observation.trials)} files, {rate:,.0f} a second."
    if demand is None:
        return replace(decision, because=f"{decision.because} {created}")
    seconds = demand.files / rate
    took, allowed = compared(seconds, demand.save_limit_seconds, format_seconds)
    because = (
        f"{created} At that rate a host ({counted(demand.hosts, 'host')}) creates its "
        f"{counted(demand.files, 'file')} of a checkpoint of {demand.model} in {took}; save limit {allowed}."
    )
    return measured_as(
        "met" if seconds <= demand.save_limit_seconds else "over limit",
        seconds,
        demand.save_limit_seconds,
        "s",
        because,
        decision.detail,
    )


def with_cache_promise(decision: Decision, observation: Observation) -> Decision:
    """Return ``decision`` with the same outcome and with the mount's cache promise in its reason."""
    if decision.outcome == "not run" or SECOND_MOUNT not in observation.facts:
        return decision
    what = cast("Memory", observation.subject)
    promise = promise_of(observation.facts[SECOND_MOUNT], what)
    if promise is None:
        return decision
    return replace(decision, because=f"{decision.because} {promise.text(what, decision.measured)}")


def missing_need(check: Check) -> str:
    """Return a sentence on the input that the check requires and the run does not have."""
    return _NEEDS[check.needs]


def _facts(observation: Observation) -> list[str]:
    return [f"{name}: {value}" for name, value in observation.facts.items()]


def _reproduce(observation: Observation) -> list[str]:
    return [f"to reproduce: {observation.reproduce}"] if observation.reproduce else []


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]
