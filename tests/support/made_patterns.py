"""Measurements made up for judges of what is measured beside a subject's own saves and loads."""

from __future__ import annotations

import dataclasses

from pytest_ckpt.facts.measurement import (
    DataEffect,
    Endurance,
    FillLevel,
    LoadPattern,
    MixedLoad,
    NearFull,
    NoisyNeighbour,
    Patterns,
    Retention,
    SavePace,
)
from pytest_ckpt.facts.proofs import Fault, Integrity
from pytest_ckpt.sizing.near_full import LEVELS
from pytest_ckpt.sizing.pacing import SHARE_OF_LIMIT
from tests.support.made_measurement import FULL, LIMITS, measurement, operation

GIB = 1 << 30
RETENTION = Retention(kept=2, delete_seconds=(0.25, 0.5), save_seconds=10.0, save_while_deleting_seconds=10.5)
DATA = DataEffect(
    unique_save_seconds=(10.0, 10.2, 11.0),
    constant_save_seconds=(10.0, 10.0, 12.0),
    unique_load_seconds=(4.0, 4.1),
    constant_load_seconds=(4.0, 4.0),
)


def with_retention(**changes):
    return measurement(retention=dataclasses.replace(RETENTION, **changes))


def with_data(**changes):
    return measurement(data=dataclasses.replace(DATA, **changes))


PACE = SavePace(seconds=SHARE_OF_LIMIT * LIMITS.save_limit_seconds, bytes=FULL, full_bytes=FULL)
NEIGHBOUR = {"ranks": 2, "neighbour_ranks": 2, "bytes": FULL // 2, "neighbour_bytes": FULL // 2,
             "save_seconds": (1.0, 1.1, 1.2), "neighbour_save_seconds": (1.0, 1.1, 1.3), "concurrent_bytes": 2 * FULL,
             "pace": PACE}  # fmt: skip
MIXED = {"reads": "a data loader a host", "undisturbed_p99_seconds": (0.004, 0.004, 0.005),
         "contended_p99_seconds": (0.006, 0.007, 0.008),
         "undisturbed_reads": (100, 300, 300), "contended_reads": (100, 250, 250),
         "save_seconds": (1.0, 2.0), "loader_bytes_per_second": 10e6, "empty_queue_seconds": (0.0, 0.0, 0.0),
         "undisturbed_empty_queue_seconds": (0.0, 0.0, 0.0), "client_busy": 0.1, "pace": PACE}  # fmt: skip


def with_neighbour(size=FULL, **changes):
    return measurement(size=size, patterns=Patterns(neighbour=NoisyNeighbour(**NEIGHBOUR | changes)))


def with_reads(size=FULL, **changes):
    return measurement(size=size, patterns=Patterns(mixed=MixedLoad(**MIXED | changes)))


def paced(share, seconds=None):
    """Return the pace of saves of a share of the full size, such as a run for the limits of tests makes them."""
    usual = PACE.seconds * share
    return SavePace(seconds=usual if seconds is None else seconds, bytes=round(FULL * share), full_bytes=FULL)


def endured(saves, asked=100.0):
    """Return saves that were spread evenly over the time."""
    whole = 100.0
    began = tuple(whole * n / len(saves) for n in range(len(saves)))
    found = Endurance(requested_seconds=asked, seconds=whole, kept=2, start_seconds=began, save_seconds=tuple(saves))
    return measurement(patterns=Patterns(endurance=found))


def filled(*, empty=1.0, at_80=1.0, at_90=1.0, used=(0.0, 0.8, 0.9)):
    levels = [
        FillLevel(requested=asked, used=u, ballast_bytes=GIB, save_seconds=(s, s, s * 9))
        for asked, u, s in zip((0.0, *LEVELS), used, (empty, at_80, at_90), strict=True)
    ]
    return measurement(patterns=Patterns(near_full=NearFull(capacity_bytes=GIB, levels=tuple(levels))))


FAULT = Fault(kind="misplaced", rank=1, host="n1", checkpoint=1, file="a.pt", tensor="t", offset=0, bytes=4096,
              detail="the page belongs to rank 2")  # fmt: skip


def pattern(*seconds, resident=0.0, ranks=None, size=FULL, **integrity):
    seconds = seconds or (1.0, 1.0, 1.0)
    done = [operation("load", n, s, resident=resident, ranks=ranks, size=size) for n, s in enumerate(seconds, 1)]
    known = {"bytes_expected": 3 * size, "bytes_checked": 3 * size, "fault_count": 0, "faults": (), **integrity}
    return LoadPattern(
        reads="4 ranks read", rank_bytes=(size // 4,) * 4, operations=tuple(done), integrity=Integrity(**known)
    )


def with_patterns(*, size=FULL, failure=None, not_run=None, **found):
    known = {name: pattern(size=size) for name in ("storm", "shifted", "joined", "split")} | found
    return measurement(size=size, patterns=Patterns(**known, not_run=not_run or {}), failure=failure)
