"""Measurements for tests of requirements. By default a measurement has no faults."""

from __future__ import annotations

import dataclasses

from pytest_ckpt.facts.failure import Failure
from pytest_ckpt.facts.host_load import HostLoad
from pytest_ckpt.facts.measurement import Measurement, Operation, RankFacts
from pytest_ckpt.facts.proofs import CacheFacts, Durability, Integrity
from pytest_ckpt.facts.subject import OperationRef, Subject
from pytest_ckpt.grading.catalogue import REQUIREMENTS
from pytest_ckpt.judging.gates import Gates
from pytest_ckpt.judging.verdicts import decide
from pytest_ckpt.sizing.limits import StatedLimits, cluster_limits
from pytest_ckpt.sizing.reliability import parse_failure_model

STATED = StatedLimits(notice_seconds=120.0, serving_seconds=60.0, consolidate_seconds=3600.0)
LIMITS = dataclasses.replace(cluster_limits(16_000, failures=parse_failure_model("llama3")), stated=STATED)
GATES = Gates(name="as in the catalogue", text="")
FULL = 1_000_000_000
SUBJECT = Subject(model="llama3-8b", mode="full")


def operation(kind, index, seconds, *, ranks=None, size=FULL, resident=0.0):
    ranks = tuple(ranks or [seconds] * 4)
    return Operation(
        kind=kind,
        index=index,
        seconds=seconds,
        slowest_rank=max(range(len(ranks)), key=ranks.__getitem__),
        rank0_seconds=ranks[0],
        rank_seconds=ranks,
        phases={"open": 0.1 * seconds, "fsync": 0.6 * seconds, "write": 0.3 * seconds},
        bytes=size,
        mapped_bytes=None if kind == "save" or resident is None else size,
        resident_bytes=None if kind == "save" or resident is None else int(resident * size),
    )


def measurement(saves=(1.0, 1.0, 1.0), loads=(1.0, 1.0, 1.0), *, size=FULL, resident=0.0, operations=None, **changes):
    done = [operation("save", i, s, size=size) for i, s in enumerate(saves, 1)]
    done += [operation("load", i, s, size=size, resident=resident) for i, s in enumerate(loads, 1)]
    whole = Measurement(
        subject=SUBJECT,
        model="llama3-8b",
        mode="full",
        processes=4,
        hosts=("n1",),
        engine="torch",
        scale=size / FULL,
        seed=1,
        bytes=size,
        full_bytes=FULL,
        rank_bytes=(size // 4,) * 4,
        basis="all ranks",
        operations_planned=3,
        operations=tuple(done if operations is None else operations),
        cache=CacheFacts(
            required=True,
            readings=(),
            policy="auto",
            method="drop_caches",
            probe="cachestat",
            resident_fraction=resident,
        ),
        integrity=compared(3 * size),
        durability=Durability(files=24, files_synced=24, directories=15, directories_synced=15, saves=3, commits=3),
        ranks=tuple(RankFacts(rank=r, host="n1", pid=100 + r) for r in range(4)),
    )
    return dataclasses.replace(whole, **changes)


IDLE_HOST = HostLoad(
    host="n1", span="operations", of="save 2", seconds=4.0, cores=8,
    idle_share=0.4, others_share=0.05, steal_share=0.0, load_average=9.5,
)  # fmt: skip
BUSY_HOST = dataclasses.replace(IDLE_HOST, idle_share=0.02, others_share=0.6, load_average=14.0)


def on_busy_host(of, span="operations"):
    """Return a copy of a measurement in which other work used the host's processors during ``span``.

    ``span`` is the part of the run, such as ``operations``.
    """
    return dataclasses.replace(of, host_loads=(IDLE_HOST, dataclasses.replace(BUSY_HOST, span=span)))


def compared(expected, checked=None, *, fault_count=0, faults=()):
    """Return the integrity record of a load of ``expected`` bytes.

    Of these bytes, ``checked`` were compared; None means all bytes.
    """
    return Integrity(
        bytes_expected=expected,
        bytes_checked=expected if checked is None else checked,
        fault_count=fault_count,
        faults=tuple(faults),
    )


@dataclasses.dataclass(frozen=True)
class ByLimits:
    """A measurement, and the limits that the vendor states for the storage."""

    of: Measurement
    stated: StatedLimits


def judged(requirement, of):
    limits = LIMITS
    if isinstance(of, ByLimits):
        of, limits = of.of, dataclasses.replace(LIMITS, stated=of.stated)
    return decide(REQUIREMENTS[requirement], of, limits, GATES)


def outcome(requirement, of):
    return judged(requirement, of).outcome


def ref(action="", index=None, stage="operation", *, scenario="", level=0.0):
    return OperationRef(subject=SUBJECT, scenario=scenario, action=action, index=index, stage=stage, level=level)


def failed_in(operation=None, kind="error", **facts):
    return Failure(kind=kind, message="No space left on device", rank=2, host="n1", operation=operation, phase="fsync",
                   file="a.pt", errno="ENOSPC", **facts)  # fmt: skip
