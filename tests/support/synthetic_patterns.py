"""Measurements for tests of requirements on I/O patterns such as restart storms, scaling and failovers."""

from __future__ import annotations

import dataclasses

from pytest_ckpt.facts.commands import (
    BREAKS,
    PAIRS,
    CommandRun,
    Failover,
    FailoverTrial,
    OperationTrial,
    Snapshots,
    SnapshotTrial,
    Upgrade,
)
from pytest_ckpt.facts.many_names import Metadata, NameFault, NamesStep
from pytest_ckpt.facts.measurement import (
    ClientCount,
    Consolidation,
    DataEffect,
    Endurance,
    FillLevel,
    LoadPattern,
    MixedLoad,
    NearFull,
    NoisyNeighbour,
    Patterns,
    Resized,
    RestartReads,
    Retention,
    SavePace,
    ScaledOperation,
    Scaling,
    Serving,
    WeightsLoad,
)
from pytest_ckpt.facts.proofs import Fault, Integrity
from pytest_ckpt.sizing.limits import StatedLimits
from pytest_ckpt.sizing.near_full import LEVELS
from pytest_ckpt.sizing.pacing import SHARE_OF_LIMIT
from tests.support.synthetic_measurement import FULL, LIMITS, ByLimits, compared, measurement, operation

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
    """Return the pace (time and size) of saves of a checkpoint with this ``share`` of the full size.

    ``seconds`` is the time of one save. The default is the usual time of a full-size save, multiplied by ``share``.
    """
    usual = PACE.seconds * share
    return SavePace(seconds=usual if seconds is None else seconds, bytes=round(FULL * share), full_bytes=FULL)


def endured(saves, asked=100.0):
    """Return a measurement of an endurance test that ran for 100 s.

    ``saves`` contains the time of each save in seconds. The saves started at equal intervals. ``asked`` is the
    requested duration of the test in seconds.
    """
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


def pattern(*seconds, resident=0.0, ranks=None, size=FULL, restart=None, **integrity):
    seconds = seconds or (1.0, 1.0, 1.0)
    loads = [operation("load", n, s, resident=resident, ranks=ranks, size=size) for n, s in enumerate(seconds, 1)]
    known = {"bytes_expected": 3 * size, "bytes_checked": 3 * size, "fault_count": 0, "faults": (), **integrity}
    return LoadPattern(
        reads="4 ranks read",
        rank_bytes=(size // 4,) * 4,
        operations=tuple(loads),
        integrity=Integrity(**known),
        restart=restart,
    )


def resized(**changes):
    """Return a measurement in which the library loaded a checkpoint of 4 ranks with 2 ranks and with 8 ranks."""
    known = {"saved_by": 4, "halved": pattern(), "doubled": pattern()}
    return measurement(patterns=Patterns(resized=Resized(**known | changes)))


def copies_read(read, *, needed=4, copy_bytes=FULL // 4):
    """Return the reads of a restart of a cluster with 16,000 accelerators and ``needed`` copies of the model.

    ``read`` is the number of copies that the run read concurrently.
    """
    return RestartReads(
        copies=read, accelerators_per_copy=16_000 // needed, first_copy_bytes=FULL, copy_bytes=copy_bytes
    )


def with_patterns(*, size=FULL, failure=None, not_run=None, **found):
    known = {name: pattern(size=size) for name in ("storm", "shifted", "joined", "split")} | found
    return measurement(size=size, patterns=Patterns(**known, not_run=not_run or {}), failure=failure)


# --- scaling: saves and loads by 1, 2, 4 and 8 clients ----------------------------------------------------------------

PART = 1_000_000_000
LINEAR = {1: 1e9, 2: 2e9, 4: 4e9, 8: 8e9}
SATURATED = {1: 1e9, 2: 2e9, 4: 3e9, 8: 3.1e9}


def operations_at(size, rate, *, resident=None, mapped=None):
    """Return three operations on ``size`` bytes. The median of their rates is ``rate`` bytes a second."""
    return tuple(
        ScaledOperation(seconds=size / rate * factor, resident_bytes=resident, mapped_bytes=mapped)
        for factor in (1.1, 1.0, 0.9)
    )


def scaled(saves=LINEAR, loads=LINEAR, *, unit="ranks", resident=0, checked=None, faults=(), **changes):
    """Return a measurement of scaling. ``saves`` and ``loads`` are {number of clients: rate in bytes a second}."""
    counts = tuple(
        ClientCount(
            clients=clients,
            ranks=clients,
            bytes=clients * PART,
            saves=operations_at(clients * PART, saves[clients]),
            loads=operations_at(clients * PART, loads[clients], resident=resident, mapped=clients * PART),
        )
        for clients in saves
    )
    found = Scaling(
        unit=unit,
        counts=counts,
        integrity=compared(3 * PART * sum(saves), checked, fault_count=len(faults), faults=faults),
    )
    return measurement(**{"patterns": Patterns(scaling=found), **changes})


def up_to(measured, save_ceiling, load_ceiling):
    """Return a measurement with the maximum rates that the vendor declares for saves and loads, in bytes a second."""
    return ByLimits(measured, StatedLimits(save_bytes_per_second=save_ceiling, load_bytes_per_second=load_ceiling))


def grown(rates):
    """Return a function that adds the results of the scaling pattern to a measurement.

    ``rates`` is {number of ranks: rate of saves and loads in bytes a second}. The numbers of ranks must increase.
    """

    def change(m):
        counts = tuple(
            ClientCount(
                clients=n,
                ranks=n,
                bytes=sum(m.rank_bytes[:n]),
                saves=operations_at(sum(m.rank_bytes[:n]), rate),
                loads=operations_at(sum(m.rank_bytes[:n]), rate, resident=0, mapped=1),
            )
            for n, rate in rates.items()
        )
        moved = 3 * sum(count.bytes for count in counts)
        found = Scaling(
            unit="ranks",
            counts=counts,
            integrity=compared(moved),
        )
        return dataclasses.replace(m, patterns=Patterns(scaling=found))

    return change


# --- serving: 1/100 of a model's weights, loaded by four replicas and rewritten ---------------------------------------

WEIGHTS, FULL_WEIGHTS, REPLICAS = 160_000_000, 16_000_000_000, 4


def loaded(way, seconds, *, is_warm=False, resident=0, stalled=0.0, checked=None, fault_count=0, faults=()):
    """Return one load of the weights by all replicas. ``way`` is ``reads`` or ``mmap``."""
    expected = WEIGHTS * REPLICAS
    return WeightsLoad(
        io_mode=way,
        is_warm=is_warm,
        seconds=seconds,
        slowest_rank=5,
        resident_bytes=resident,
        mapped_bytes=expected,
        stalled_seconds=stalled,
        integrity=compared(expected, checked, fault_count=fault_count, faults=faults),
    )


WARM = loaded("reads", 0.1, is_warm=True, resident=WEIGHTS * REPLICAS)


def served(*loads, **changes):
    """Return a measurement of the serving pattern with ``loads`` of a model's weights.

    The default is four loads: one by reads and one by mmap, each from the storage and from the page cache.
    """
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
    """Return a measurement in which one client rewrote the model's weights in ``seconds``."""
    integrity = compared(WEIGHTS, checked, fault_count=fault_count, faults=faults)
    found = Consolidation(bytes=WEIGHTS, full_bytes=FULL_WEIGHTS, seconds=seconds, integrity=integrity)
    return measurement(**{"patterns": Patterns(consolidation=found), **changes})


# --- many names: 100,000 files ----------------------------------------------------------------------------------------

NAMES = {"mkdir": 1_000, "create": 100_000, "stat": 100_000, "list": 100_000, "unlink": 100_000, "rmdir": 1_000}
NOT_LISTED = NameFault(kind="not listed", rank=5, host="n2", name="group-0000/directory-0000007/file-00000701", count=1)
STILL_LISTED = NameFault(
    kind="still listed", rank=0, host="n1", name="group-0000/directory-0000000/file-00000000", count=40
)


def named(calls=tuple(NAMES), *, failure=None, **changes):
    """Return a measurement of the pattern with 100,000 files. Each step, such as all ``create`` calls, took 20 s."""
    known = {
        "files": 100_000,
        "directories": 1_000,
        "by_other_hosts": True,
        "names_dropped": True,
        "steps": tuple(NamesStep(call=call, count=NAMES[call], seconds=20.0, slowest_rank=3) for call in calls),
        "late": 0,
        "faults": (),
        "checkpoint_files": 16,
        "removal_seconds": (0.5, 0.25, 0.5),
        "failure": failure,
    }
    faults = changes.get("faults", ())
    found = Metadata(fault_count=sum(fault.count for fault in faults), **known | changes)
    return measurement(patterns=Patterns(metadata=found))


# --- failovers --------------------------------------------------------------------------------------------------------

FAULT_INJECTED = CommandRun(command="fault", seconds=0.5, exit_code=0)
FAULT_REPAIRED = CommandRun(command="repair", seconds=2.0, exit_code=0)
REFUSED = CommandRun(command="fault", seconds=0.5, exit_code=3, output="no such drive")


def attempt(kind, *, seconds=10.0, quiet=0.5, error=""):
    return OperationTrial(kind=kind, seconds=seconds, longest_stall_seconds=quiet, stalled_rank=2, error=error)


def trial(kind="save", **changes):
    known = {"moment_seconds": 4.0, "fault": FAULT_INJECTED, "operations": (attempt(kind),), "repaired": FAULT_REPAIRED,
             "after": attempt("save")}  # fmt: skip
    return FailoverTrial(kind=kind, **known | changes)


def failed_over(first=None, *, trials=None, bytes_checked=12 * FULL, fault_count=0, faults=(), failure=None, **changes):
    """Return a measurement with one trial for each required fault of the storage.

    ``trials`` replaces all trials, and ``first`` replaces only the first trial.
    """
    trials = tuple(trials) if trials is not None else (first or trial(), *(trial(kind) for kind in BREAKS[1:]))
    known = {
        "fault_command": "fail-drive 7",
        "repair_command": "replace-drive 7",
        "undisturbed": (attempt("save", quiet=0.25), attempt("load", quiet=0.25)),
        "trials": trials,
        "integrity": compared(12 * FULL, bytes_checked, fault_count=fault_count, faults=faults),
        "resident_fraction": 0.0,
        "failure": failure,
    }
    return measurement(patterns=Patterns(failover=Failover(**known | changes)))


# --- upgrades and snapshots -------------------------------------------------------------------------------------------

CHANGED = CommandRun(command="upgrade", seconds=95.0, exit_code=0)
UPGRADE_REFUSED = CommandRun(command="upgrade", seconds=0.5, exit_code=3, output="a node is down already")
UPGRADE_RUNNING = CommandRun(
    command="upgrade", seconds=9.0, exit_code=None, output="the run ended before the command, which is still running"
)
SNAPSHOT_CREATED = CommandRun(command="snapshot", seconds=0.5, exit_code=0, output="/mnt/clone")
NO_SPACE = CommandRun(command="snapshot", seconds=0.5, exit_code=1, output="no space")
CLONE_REMOVED = CommandRun(command="remove", seconds=0.25, exit_code=0)
CLONE_BUSY = CommandRun(command="remove", seconds=0.25, exit_code=1, output="the clone is busy")


def upgraded(*, bytes_checked=12 * FULL, fault_count=0, faults=(), **changes):
    """Return a measurement in which an upgrade command ran during saves and loads."""
    known = {
        "command": "rolling-restart --wait",
        "undisturbed": (attempt("save", quiet=0.25), attempt("load", quiet=0.25)),
        "moment_seconds": 4.0,
        "operations": (
            attempt("save"),
            attempt("load"),
            attempt("save", seconds=12.0),
            attempt("load"),
        ),
        "run": CHANGED,
        "integrity": compared(12 * FULL, bytes_checked, fault_count=fault_count, faults=faults),
        "resident_fraction": 0.0,
    }
    return measurement(patterns=Patterns(upgrade=Upgrade(**known | changes)))


def snapshot(**changes):
    known = {"plain": attempt("save"), "snapshotted": attempt("save", seconds=10.5), "moment_seconds": 4.0,
             "taken": SNAPSHOT_CREATED, "removed": CLONE_REMOVED}  # fmt: skip
    return SnapshotTrial(**known | changes)


def snapshotted(first=None, *, trials=None, bytes_checked=12 * FULL, fault_count=0, faults=(), **changes):
    """Return a measurement with the required number of snapshots. ``first`` replaces the first snapshot."""
    trials = tuple(trials) if trials is not None else (first or snapshot(), *[snapshot()] * (PAIRS - 1))
    known = {
        "command": "take",
        "remove_command": "remove",
        "trials": trials,
        "integrity": compared(12 * FULL, bytes_checked, fault_count=fault_count, faults=faults),
    }
    return measurement(patterns=Patterns(snapshots=Snapshots(**known | changes)))
