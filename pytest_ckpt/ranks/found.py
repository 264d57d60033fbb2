"""What a measurement has found so far, beside what was told at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_ckpt.facts.measurement import DataEffect, Retention
from pytest_ckpt.facts.proofs import CacheReading, CanaryReads, Fault, Integrity, MovedBytes
from pytest_ckpt.sizing.record import MAXIMUM_FAULTS

if TYPE_CHECKING:
    from pytest_ckpt.ranks.operations import Loaded


@dataclass(slots=True)
class Found:
    """What has been found so far; on rank 0 the figures are those of all ranks."""

    bytes_checked: int = 0
    fault_count: int = 0
    faults: list[Fault] = field(default_factory=list)
    worst_resident: float | None = None
    drops: list[str] = field(default_factory=list)
    readings: dict[tuple[str, str], CacheReading] = field(default_factory=dict)
    retention: Retention | None = None
    data: DataEffect | None = None
    by_other_hosts: bool = False
    moved: tuple[MovedBytes, ...] = ()
    canaries: tuple[CanaryReads, ...] = ()

    def take(self, loaded: Loaded, expected_bytes: int) -> Integrity:
        """Take in one of the subject's own loads; return what was compared so far, of so many bytes in all."""
        if loaded.operation and loaded.operation.mapped_bytes:
            resident = (loaded.operation.resident_bytes or 0) / loaded.operation.mapped_bytes
            self.worst_resident = max(self.worst_resident or 0.0, resident)
        self.bytes_checked += loaded.bytes_checked
        self.fault_count += loaded.fault_count
        self.faults = (self.faults + loaded.faults)[:MAXIMUM_FAULTS]
        return Integrity(
            bytes_expected=expected_bytes,
            bytes_checked=self.bytes_checked,
            fault_count=self.fault_count,
            faults=tuple(self.faults),
        )
