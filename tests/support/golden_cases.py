"""Cases for the expected (golden) texts of requirements on saves and loads.

The table is {requirement: {name of the case: measurement to judge}}.
"""

from __future__ import annotations

import dataclasses

from pytest_ckpt.facts.proofs import CacheFacts, CacheReading, Durability, Fault, Integrity
from pytest_ckpt.facts.settings import Assurance
from pytest_ckpt.sizing.limits import StatedLimits
from tests.support.synthetic_measurement import (
    FULL,
    LIMITS,
    ByLimits,
    failed_in,
    measurement,
    on_busy_host,
    operation,
    ref,
)
from tests.support.synthetic_patterns import (
    FAULT,
    with_data,
    with_retention,
)

SAVE, LOAD = LIMITS.save_limit_seconds, LIMITS.load_limit_seconds


FLIPPED = Fault(kind="flipped", rank=1, host="n1", checkpoint=2, file="a.pt", tensor="t", offset=4096, bytes=1,
                detail="1 bit differs in 1 byte")  # fmt: skip


ENDED = failed_in(ref("save", 2))


CACHE = CacheFacts(
    required=True, policy="auto", method="drop_caches", probe="cachestat", resident_fraction=0.0,
    readings=(
        CacheReading(rule="rule 1", host="n1", memory_bytes=1 << 34, bytes_compared=1 << 33, requires_drop=True),
        CacheReading(rule="rule 2", host="n1", memory_bytes=1 << 34, bytes_compared=1 << 33, requires_drop=False),
    ),
)  # fmt: skip


def timed(kind, limit):
    """Return the cases of the requirement SAVE (``kind`` is ``save``) or LOAD (``kind`` is ``load``).

    ``limit`` is the time limit of the requirement in seconds.
    """
    done = {"saves": (1.0,) * 3, "loads": (1.0,) * 3}
    return {
        "met": measurement(),
        "too slow at a thousandth of the size": measurement(size=FULL // 1000),
        "one is too slow": measurement(**done | {f"{kind}s": (1.0, 2.0, 1.5 * limit)}),
        "met on a busy host": on_busy_host(measurement()),
        "one is too slow on a busy host": on_busy_host(measurement(**done | {f"{kind}s": (1.0, 2.0, 1.5 * limit)})),
        "ten that differ": measurement(
            operations=[operation(of, n, 1 + n / 10) for of in ("save", "load") for n in range(1, 11)],
            operations_planned=10,
        ),
        "as sure as was asked for": ByLimits(
            measurement(
                operations=[operation(of, n, 1.0) for of in ("save", "load") for n in range(1, 60)],
                operations_planned=59,
            ),
            StatedLimits(assurance=Assurance(confidence=0.95, share=0.95)),
        ),
        **{
            f"planned misses: {late} of 1": ByLimits(
                measurement(
                    operations=[
                        operation(of, n, 1.5 * limit if of == kind and n <= late else 1.0)
                        for of in ("save", "load")
                        for n in range(1, 94)
                    ],
                    operations_planned=93,
                ),
                StatedLimits(assurance=Assurance(confidence=0.95, share=0.95, misses=1)),
            )
            for late in (0, 1, 2)
        },
        "one moved fewer bytes": measurement(
            operations=[operation("save", n, 1.0, size=FULL - (n == 2 and kind == "save")) for n in (1, 2, 3)]
            + [operation("load", n, 1.0, size=FULL - (n == 2 and kind == "load")) for n in (1, 2, 3)]
        ),
        "the only one is too slow": measurement(
            operations=[operation("save", 1, 1.5 * limit), operation("load", 1, 1.5 * limit)], operations_planned=1
        ),
        "the only one is missing": measurement(saves=(), loads=(), operations_planned=1),
        "one is missing": measurement(**done | {f"{kind}s": (1.0, 1.0)}),
        **{
            f"a rank ended: {how}": measurement(
                **done | {f"{kind}s": (1.0,)},
                failure=failed_in(ref(kind, 2), how, stack="state D\nin nfs_wait"),
            )
            for how in ("error", "killed", "hung", "too slow")
        },
        "the run ended elsewhere": measurement(
            saves=(), loads=(), failure=failed_in(ref(kind, 1, "content"), "killed")
        ),
        "the launch failed": measurement(saves=(), loads=(), failure=failed_in(kind="launch")),
        "a hook failed": measurement(failure=failed_in(kind="hook")),
    }


def loads_of(*seconds):
    done = [operation("save", n, 1.0) for n in range(1, len(seconds) + 1)]
    done += [operation("load", n, s) for n, s in enumerate(seconds, 1)]
    return measurement(operations=done, operations_planned=len(seconds))


CASES_OF_SAVES_AND_LOADS = {
    "SAVE": timed("save", SAVE),
    "LOAD": timed("load", LOAD),
    "INTEGRITY": {
        "met": measurement(),
        "wrong bytes": measurement(integrity=Integrity(
            bytes_expected=3 * FULL, bytes_checked=3 * FULL, fault_count=2, faults=(FLIPPED, FAULT))),
        "one wrong byte": measurement(integrity=Integrity(
            bytes_expected=3 * FULL, bytes_checked=3 * FULL, fault_count=1, faults=(FLIPPED,))),
        "bytes are missing": measurement(integrity=Integrity(
            bytes_expected=3 * FULL, bytes_checked=3 * FULL - 1, fault_count=0, faults=())),
        "the run ended before": measurement(loads=(), integrity=None, failure=ENDED),
    },
    "COLD": {
        "met": measurement(cache=CACHE),
        "cached": measurement(resident=0.5, cache=CACHE),
        "one was not counted": measurement(operations=[
            *(operation("save", n, 1.0) for n in (1, 2, 3)),
            *(operation("load", n, 1.0, resident=None if n == 3 else 0.0) for n in (1, 2, 3)),
        ]),
        "no probe": measurement(cache=dataclasses.replace(CACHE, probe="", detail="neither call saw the file")),
        "a load is missing": measurement(loads=(1.0,)),
    },
    "DURABLE-CALLS": {
        "met": measurement(),
        "a file was not synced": measurement(durability=Durability(
            files=24, files_synced=23, directories=15, directories_synced=15, saves=3, commits=3)),
        "one of each": measurement(durability=Durability(
            files=1, files_synced=1, directories=1, directories_synced=1, saves=1, commits=1)),
        "the only file was not synced": measurement(durability=Durability(
            files=1, files_synced=0, directories=1, directories_synced=1, saves=1, commits=1)),
        "not counted": measurement(durability=None),
    },
    "STRAGGLER": {
        "met": measurement(),
        "one rank is slow": measurement(operations=[operation("save", 1, 4.0, ranks=[1.0, 1.0, 4.0, 1.0])]),
        "even on a busy host": on_busy_host(measurement()),
        "one rank is slow on a busy host": on_busy_host(
            measurement(operations=[operation("save", 1, 4.0, ranks=[1.0, 1.0, 4.0, 1.0])])),
        "two ranks": measurement(processes=2),
        "ranks wait for each other": measurement(engine="dcp"),
        "nothing was measured": measurement(operations=()),
    },
    "REPEAT": {
        "met": measurement(),
        "it varies": measurement(saves=(1.0, 2.0, 1.0)),
        "met on a busy host": on_busy_host(measurement()),
        "it varies on a busy host": on_busy_host(measurement(saves=(1.0, 2.0, 1.0))),
        "later loads were cached": loads_of(3.0, 3.0, 3.0, 1.0, 0.9),
        "one load was cached": loads_of(3.0, 1.0, 3.0),
        "one of each": loads_of(1.0),
        "the run ended before": measurement(saves=(1.0,), loads=(), failure=ENDED),
    },
    "RETENTION": {
        "met": with_retention(),
        "no deletion between saves": with_retention(delete_seconds=()),
        "one is kept": with_retention(kept=1),
        "too slow": with_retention(save_while_deleting_seconds=12.0),
        "too slow on a busy host": on_busy_host(with_retention(save_while_deleting_seconds=12.0)),
        "the run ended before": measurement(failure=ENDED),
    },
    "DATA": {
        "met": with_data(),
        "too slow": with_data(unique_save_seconds=(30.0, 30.0, 30.0)),
        "too slow on a busy host": on_busy_host(with_data(unique_save_seconds=(30.0, 30.0, 30.0)), "data"),
        "met on a busy host": on_busy_host(with_data(), "data"),
        "wrong bytes on a busy host": on_busy_host(with_data(fault_count=3), "data"),
        "wrong bytes": with_data(fault_count=3),
        "one fault": with_data(fault_count=1),
        "the run ended before": measurement(failure=ENDED),
    },
}  # fmt: skip
