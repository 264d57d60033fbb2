"""Measurements made up for judges of serving: 1/100 of a model's weights, loaded by four replicas and rewritten."""

from __future__ import annotations

from pytest_ckpt.facts.measurement import Consolidation, Patterns, Serving, WeightsLoad
from pytest_ckpt.facts.proofs import Integrity
from tests.support.made_measurement import measurement

WEIGHTS, FULL_WEIGHTS, REPLICAS = 160_000_000, 16_000_000_000, 4


def loaded(way, seconds, *, is_warm=False, resident=0, stalled=0.0, checked=None, fault_count=0, faults=()):
    """Return one load of the weights by all replicas."""
    expected = WEIGHTS * REPLICAS
    return WeightsLoad(
        io_mode=way,
        is_warm=is_warm,
        seconds=seconds,
        slowest_rank=5,
        resident_bytes=resident,
        mapped_bytes=expected,
        stalled_seconds=stalled,
        integrity=Integrity(
            bytes_expected=expected,
            bytes_checked=expected if checked is None else checked,
            fault_count=fault_count,
            faults=faults,
        ),
    )


WARM = loaded("reads", 0.1, is_warm=True, resident=WEIGHTS * REPLICAS)


def served(*loads, **changes):
    """Return a measurement of loads; without any, of one cold and one warm in each way."""
    found = Serving(
        bytes=WEIGHTS,
        full_bytes=FULL_WEIGHTS,
        files=4,
        replicas=REPLICAS,
        readers=2,
        loads=loads or (loaded("reads", 0.4), WARM, loaded("mmap", 0.5), loaded("mmap", 0.25, is_warm=True)),
    )
    return measurement(**{"patterns": Patterns(serving=found), **changes})


def consolidated(seconds=30.0, *, checked=WEIGHTS, fault_count=0, faults=(), **changes):
    """Return a measurement in which one client rewrote the weights."""
    integrity = Integrity(bytes_expected=WEIGHTS, bytes_checked=checked, fault_count=fault_count, faults=faults)
    found = Consolidation(bytes=WEIGHTS, full_bytes=FULL_WEIGHTS, seconds=seconds, integrity=integrity)
    return measurement(**{"patterns": Patterns(consolidation=found), **changes})
