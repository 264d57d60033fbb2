"""Consequences of an untrusted fsync or clock of a client: no certificate, and no blame for the storage. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ckpt.facts.proofs import unsafe_options
from pytest_ckpt.support.units import counted, format_bytes, format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_ckpt.facts.measurement import Measurement
    from pytest_ckpt.facts.proofs import ClientProofs, ClockSpan, FsyncEffect, Interposed, RankSpan
    from pytest_ckpt.judging.clients import Clients

_FSYNCS = frozenset({"fsync", "fdatasync", "sync_file_range", "syncfs", "sync", "os.fsync", "os.fdatasync"})
_MAXIMUM_CALLS_SHOWN = 4
_MAXIMUM_HOSTS_SHOWN = 4


def replaced_fsync(proofs: ClientProofs) -> str:
    """Return a sentence if something on a host answers fsync in place of its C library; empty otherwise."""
    found = next((i for i in proofs.interposed if _FSYNCS.intersection(i.calls)), None)
    return f"On {found.host}, {found.by} answers {_calls(found)} in place of the C library." if found else ""


def missing_effect(proofs: ClientProofs) -> FsyncEffect | None:
    """Return an fsync after which pages were still dirty; None without such an fsync."""
    return next((effect for effect in proofs.fsyncs if effect.is_missing), None)


def describe_missing(effect: FsyncEffect) -> str:
    """Return a sentence on the pages that fsync left dirty."""
    return (
        f"fsync returned on {effect.host} (rank {effect.rank}), and {format_bytes(effect.left_bytes)} of "
        f"{format_bytes(effect.dirty_bytes)} were still not written back (counted by {_counter(effect)})"
    )


def unsafe_effect(proofs: ClientProofs) -> str:
    """Return a sentence if fsync does not wait for the storage by an option of the mount; empty otherwise."""
    unsafe = next((effect for effect in proofs.fsyncs if effect.unsafe_option), None)
    return _unsafe_sentence(unsafe.unsafe_option, [unsafe.host]) if unsafe else ""


def describe_effect(proofs: ClientProofs) -> str:
    """Return the kernel's count of fsync's effect, in words; empty if no file was fsynced for that."""
    if not proofs.fsyncs:
        return ""
    if missing := missing_effect(proofs):
        return f"{describe_missing(missing)}."
    unseen = [effect for effect in proofs.fsyncs if effect.unobservable]
    if unseen:
        return f"The effect of fsync was not observable: {unseen[0].unobservable}."
    return (
        f"The kernel counted no byte that was left to write back after fsync ({_counter(proofs.fsyncs[0])}, "
        f"{counted(len({e.host for e in proofs.fsyncs}), 'host')}, before and after the saves)."
    )


def has_proven_fsync(measurements: Iterable[Measurement]) -> bool:
    """Whether the kernel of each host showed the effect of fsync, before and after the saves of every measurement."""
    proofs = [m.client_proofs for m in measurements]
    return bool(proofs) and all(p and p.fsyncs and all(e.is_seen for e in p.fsyncs) for p in proofs)


def client_reasons(measurements: Sequence[Measurement]) -> list[str]:
    """Return why the records of these clients certify no system, a sentence for each cause."""
    proofs = [m.client_proofs for m in measurements if m.client_proofs]
    found = [_interposed_sentence(i) for p in proofs for i in p.interposed]
    found += [_clock_sentence(span) for p in proofs for span in p.clocks if span.is_wrong][:1]
    found += [
        _span_sentence(span, p.controller_seconds)
        for p in proofs
        for span in p.spans
        if span.is_unlike(p.controller_seconds)
    ][:1]
    found += [
        f"The proof of fsync failed: {describe_missing(effect)}."
        for p in proofs
        if (effect := missing_effect(p)) is not None
    ][:1]
    return list(dict.fromkeys(found))


def unsafe_mounts(clients: Clients) -> list[str]:
    """Return a sentence for each option of the target's mount that takes fsync its effect."""
    found: dict[str, list[str]] = {}
    for host, facts in clients.items():
        for option in unsafe_options(facts):
            found.setdefault(option, []).append(host)
    return [_unsafe_sentence(option, hosts) for option, hosts in found.items()]


def disclosures(measurements: Iterable[Measurement]) -> list[str]:
    """Return the code that could act in the ranks' processes before their program started, each phrase once."""
    return list(dict.fromkeys(p for m in measurements if m.client_proofs for p in m.client_proofs.disclosed))


def _interposed_sentence(found: Interposed) -> str:
    return (
        f"On {found.host}, {found.by} answers {_calls(found)} in place of the C library: "
        "the recorded times and results are not proven."
    )


def _clock_sentence(span: ClockSpan) -> str:
    sentence = (
        f"The clock of rank {span.rank} on {span.host} cannot be believed: {format_seconds(span.clock_seconds)} in "
        f"{span.of} were {format_seconds(span.uptime_seconds)} by the kernel's uptime."
    )
    if not span.fits_sleep:
        return sentence
    return (
        f"{sentence} A possible cause is that the host slept: CLOCK_BOOTTIME ran "
        f"{format_seconds(span.asleep_seconds)} ahead of CLOCK_MONOTONIC."
    )


def _unsafe_sentence(option: str, hosts: Sequence[str]) -> str:
    shown = ", ".join(hosts[:_MAXIMUM_HOSTS_SHOWN])
    return f"The target is mounted with '{option}' on {shown}: fsync does not wait for the storage."


def _span_sentence(span: RankSpan, controller_seconds: float) -> str:
    return (
        f"The clocks of rank {span.rank} on {span.host} and of the controller differ: the measurement took "
        f"{format_seconds(span.seconds)} by the one and {format_seconds(controller_seconds)} by the other. "
        "Either a clock is wrong, or the controller's process was stopped meanwhile."
    )


def _calls(found: Interposed) -> str:
    shown = ", ".join(found.calls[:_MAXIMUM_CALLS_SHOWN])
    more = len(found.calls) - _MAXIMUM_CALLS_SHOWN
    return f"{shown} and {counted(more, 'other call')}" if more > 0 else shown


def _counter(effect: FsyncEffect) -> str:
    return effect.counter if effect.counter == "cachestat" else "the counters of the device"
