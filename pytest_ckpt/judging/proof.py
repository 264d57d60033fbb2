"""Judges of integrity, uncached reads and durable calls. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_ckpt.judging.client_proofs import (
    describe_effect,
    describe_missing,
    missing_effect,
    replaced_fsync,
    unsafe_effect,
)
from pytest_ckpt.judging.cold import BASIS_WORDS, is_drop_proven, prove_cold, refuted
from pytest_ckpt.judging.decision import Decision, is_decided_by, measured_as, not_decided, undecided
from pytest_ckpt.judging.wording import describe_failure, describe_fault
from pytest_ckpt.support.units import counted, format_bytes, format_count, format_percent, format_rate

if TYPE_CHECKING:
    from pytest_ckpt.facts.measurement import Measurement, Operation
    from pytest_ckpt.facts.proofs import CacheFacts
    from pytest_ckpt.sizing.limits import ClusterLimits

MAXIMUM_RESIDENT = 0.01
# What a storage answers that no longer has the bytes; others say that it cannot be reached.
_LOST = frozenset({"EBADMSG", "EILSEQ", "EIO", "ENODATA", "ENOENT", "EREMOTEIO", "EUCLEAN"})


def judge_integrity(measurement: Measurement, _limits: ClusterLimits) -> Decision:
    """Every byte that was loaded is the byte that was saved."""
    integrity, failure = measurement.integrity, measurement.failure
    if failure and failure.errno in _LOST and failure.kind == "error" and is_decided_by(failure, "load"):
        because = f"Acknowledged bytes could not be read. {describe_failure(failure)}"
        return Decision(outcome="failed", reason="error", because=because)
    if integrity is None:
        return undecided(measurement, "load")
    if integrity.fault_count:
        first = integrity.faults[0]
        return Decision(
            outcome="failed",
            reason="wrong bytes",
            measured=float(integrity.fault_count),
            limit=0.0,
            unit="faults",
            because=f"{counted(integrity.fault_count, 'faulty place')} in the loaded data; "
            f"first: {describe_fault(first)}.",
            detail=(
                f"{format_count(integrity.bytes_checked)} of {counted(integrity.bytes_expected, 'byte')} compared",
                *(describe_fault(f) for f in integrity.faults),
            ),
        )
    if len(measurement.of_kind("load")) < measurement.operations_planned:
        return undecided(measurement, "load")
    if integrity.bytes_checked != integrity.bytes_expected:
        return Decision(
            outcome="failed",
            reason="missing bytes",
            measured=float(integrity.bytes_checked),
            limit=float(integrity.bytes_expected),
            unit="bytes",
            because=f"Only {format_count(integrity.bytes_checked)} of "
            f"{counted(integrity.bytes_expected, 'byte')} could be compared.",
        )
    return Decision(
        outcome="met",
        reason="met",
        measured=0.0,
        limit=0.0,
        unit="faults",
        because=f"All {counted(integrity.bytes_checked, 'loaded byte')} matched what was saved.",
    )


def judge_cold(measurement: Measurement, _limits: ClusterLimits) -> Decision:
    """No load found its data in a client's page cache, and the storage is not memory of a client."""
    cache = measurement.cache
    if cache and (memory := next((s for s in cache.storages if s.memory), None)):
        because = f"Loads are no proof of a storage: on {memory.host} the target is {memory.sentence}."
        return Decision(outcome="failed", reason="cached", because=because)
    if cache is not None and cache.is_declared_cold:
        return _cold_as_declared(measurement, cache)
    loads = [o for o in measurement.of_kind("load") if o.mapped_bytes and o.resident_bytes is not None]
    if cache is not None and not cache.gauge:
        return _cold_without_gauge(measurement, cache)
    if not loads:
        return undecided(measurement, "load")
    warmest = max(loads, key=_resident)
    fraction = _resident(warmest)
    method = f" (dropped by: {cache.method}; seen by {cache.gauge})" if cache else ""
    detail = tuple(
        f"load {o.index}: {format_percent(_resident(o))} resident, {format_rate(o.bytes_per_second)}" for o in loads
    ) + tuple(
        f"{r.host}: {r.rule}: {format_bytes(r.bytes_compared)} against {format_bytes(r.memory_bytes)} of memory, "
        + ("caches must be dropped" if r.requires_drop else "no drop needed")
        for r in (cache.readings if cache else ())
    )
    if fraction > MAXIMUM_RESIDENT:
        because = (
            f"{format_percent(fraction)} of what load {warmest.index} was about to read was cached on the client"
            f"{method}, so its time is not the storage's."
        )
        return measured_as("cached", fraction, MAXIMUM_RESIDENT, "fraction", because, detail)
    if cache and (kept := refuted(cache)):
        because = f"The kernel counts none of it, and yet loads are no proof of the storage: {kept.because}."
        return Decision(outcome="failed", reason="cached", because=because, detail=detail)
    every = measurement.of_kind("load")
    if len(every) < measurement.operations_planned:
        return undecided(measurement, "load")
    if len(loads) < len(every):
        unknown = ", ".join(str(o.index) for o in every if o not in loads)
        return not_decided("unproven", f"The cached share before load {unknown} was not measured.")
    cached = f"At most {format_percent(fraction)}" if fraction else "None"
    because = f"{cached} of the data to be read was cached{method}."
    if cache and cache.names_dropped is False:
        because += " Names and attributes of files could not be dropped: this process may not write to drop_caches."
    if cache and is_drop_proven(cache):
        because += f" What the kernel does not count, timed reads show: {prove_cold(cache).because}."
    met = measured_as("met", fraction, MAXIMUM_RESIDENT, "fraction", because, detail)
    return replace(met, basis="seen")


def _cold_as_declared(measurement: Measurement, cache: CacheFacts) -> Decision:
    """The target's word stands for what cannot be counted, where nothing better shows it: its clients keep no cache."""
    if len(measurement.of_kind("load")) < measurement.operations_planned:
        return undecided(measurement, "load")
    because, proof = "The target declares that its clients keep no cache of what they read", prove_cold(cache)
    if proof.basis:
        because = f"{because}, and {proof.because}"
    met = measured_as("met", 0.0, MAXIMUM_RESIDENT, "fraction", f"{because}; nothing was counted.", ())
    return replace(met, basis=proof.basis or "declared")


def _cold_without_gauge(measurement: Measurement, cache: CacheFacts) -> Decision:
    """Another proof stands for what the kernel does not show."""
    proof = prove_cold(cache)
    if proof.found == "cached":
        return Decision(
            outcome="failed", reason="cached", because=f"Loads are no proof of the storage: {proof.because}."
        )
    if len(measurement.of_kind("load")) < measurement.operations_planned:
        return undecided(measurement, "load")
    if proof.basis is None:
        return not_decided("unproven", f"Cannot prove uncached reads: {cache.detail}. Besides, {proof.because}.")
    return Decision(
        outcome="met",
        reason="met",
        because=f"Shown by {BASIS_WORDS[proof.basis]}: {proof.because}.",
        detail=(f"dropped by: {cache.method}", cache.detail),
        basis=proof.basis,
    )


def judge_durable_calls(measurement: Measurement, _limits: ClusterLimits) -> Decision:
    """Every file and folder of every save became durable, as whoever saw it says, and the checkpoint was committed."""
    durability = measurement.durability
    if durability is None:
        return undecided(measurement, "save")
    if durability.observed in ("declared by the library", "unseen"):
        because = "Nobody saw that files became durable" + (
            ": only the library that wrote them says so." if durability.observed != "unseen" else "."
        )
        return not_decided("unproven", because)
    proofs = measurement.client_proofs
    if proofs and (effect := missing_effect(proofs)):
        if replaced := replaced_fsync(proofs):
            return not_decided("unproven", f"{replaced} {describe_missing(effect)}, which says nothing of the storage.")
        return measured_as(
            "not durable",
            float(effect.left_bytes),
            0.0,
            "bytes",
            f"{describe_missing(effect)}: a power cut may take acknowledged checkpoints.",
            (),
        )
    if proofs and (unsafe := unsafe_effect(proofs)):
        return not_decided("unproven", unsafe)
    # Without folders a name is as durable as what it names.
    has_folders = "rename" in durability.commit_methods or durability.directories > 0
    counts = (
        ("files", durability.files_synced, durability.files),
        *((("folders", durability.directories_synced, durability.directories),) if has_folders else ()),
        ("commits", durability.commits, durability.saves),
    )
    detail = tuple(f"{format_count(done)} of {counted(of, name[:-1])}" for name, done, of in counts)
    short = next(((n, d, of) for n, d, of in counts if d != of or of == 0), None)
    if short:
        name, done, of = short
        because = f"Of {counted(of, name[:-1])} only {counted(done, 'was', 'were')} made durable: " + (
            "a power cut may take acknowledged checkpoints."
        )
        return measured_as("not durable", float(done), float(of), name, because, detail)
    files = counted(durability.files, "file") if durability.files == 1 else f"all {durability.files:,} files"
    text = " or ".join(durability.acknowledged)
    return Decision(
        outcome="met",
        reason="met",
        measured=float(durability.files_synced),
        limit=float(durability.files),
        unit="files",
        because=(
            f"fsync returned for {files} and {counted(durability.directories, 'folder')}"
            if has_folders
            else f"The store acknowledged {files}{f' by {text}' if text else ''}"
        )
        + f", and {counted(durability.commits, 'checkpoint was', 'checkpoints were')} committed by "
        f"{' and '.join(durability.commit_methods)}."
        + (f" {shown}" if proofs and (shown := describe_effect(proofs)) else ""),
        detail=detail,
    )


def _resident(operation: Operation) -> float:
    return (operation.resident_bytes or 0) / operation.mapped_bytes if operation.mapped_bytes else 0.0
