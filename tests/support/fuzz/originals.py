"""Run directories and published trees as they are before an attack."""

from __future__ import annotations

import dataclasses
import shutil
from datetime import timedelta
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pytest_ckpt.evidence.history import append_run
from pytest_ckpt.evidence.manifest import MANIFEST
from pytest_ckpt.evidence.signing import Signer
from pytest_ckpt.facts.measurement import Measurement
from pytest_ckpt.facts.proofs import Fault
from tests.support import made_up_run
from tests.support.made_results import MadeRun, describe, published

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
_FLIPPED = Fault(kind="flipped", rank=0, host="n1", checkpoint=1, file="f", tensor="t", offset=0, bytes=1, detail="")
_SEALED = ("report.json", MANIFEST, "certificate.html", "junit.xml")


def make_runs(home: Path) -> None:
    """Write run directories below ``home``, and a history of four runs."""
    made_up_run.make_run(home / "good")
    made_up_run.make_run(home / "late", save=100.0, load=100.0)
    made_up_run.make_run(home / "unproven", change=unproven)
    made_up_run.make_run(home / "one-late", change=one_late)
    made_up_run.make_run(home / "two", options={"ckpt_model": "llama3-8b,llama3-70b", "ckpt_ranks": "8"}, save=100.0)
    made_up_run.make_run(home / "signed", signer=Signer(key=KEY), options={"ckpt_sign": "/keys/key.pem"}, save=100.0)
    killed = home / "killed"
    made_up_run.make_run(killed, save=100.0)
    for name in _SEALED:
        (killed / name).unlink()
    for number in range(1, 5):
        run = home / f"night-{number}"
        document = made_up_run.make_run(run, seed=number, started=f"2031-05-{number:02d}T01:00:00+00:00")
        append_run(home / "history", document, run)
        shutil.rmtree(run)


def unproven(found: Measurement) -> Measurement:
    """Fail every proof: bytes, caches, durable calls."""
    assert found.integrity
    assert found.durability
    assert found.cache
    loads = [dataclasses.replace(o, resident_bytes=o.mapped_bytes) if o.kind == "load" else o for o in found.operations]
    return dataclasses.replace(
        found,
        operations=tuple(loads),
        integrity=dataclasses.replace(found.integrity, fault_count=1, faults=(_FLIPPED,)),
        durability=dataclasses.replace(found.durability, files_synced=found.durability.files - 1),
        cache=dataclasses.replace(found.cache, resident_fraction=1.0),
    )


def one_late(found: Measurement) -> Measurement:
    """Have one rank take very long in one save and one load: what is easiest to improve."""
    operations = list(found.operations)
    for number in (1, 4):
        o = operations[number]
        operations[number] = dataclasses.replace(
            o,
            seconds=1e5,
            slowest_rank=1,
            rank_seconds=(o.rank_seconds[0], 1e5),
            rank0_seconds=o.rank_seconds[0],
            phases=dict.fromkeys(o.phases, 1e5),
        )
    return dataclasses.replace(found, operations=tuple(operations))


def make_published(home: Path) -> None:
    """Write results below ``home``: a directory with one, and a tree of several systems."""

    def one_late(kind: str, number: int, rank: int, late: int = 4) -> float:
        return 400.0 if (number, rank) == (late, 3) else (5.0 if kind == "save" else 4.0) + 0.01 * rank + 0.003 * number

    def last_late(kind: str, number: int, rank: int) -> float:
        return one_late(kind, number, rank, 10)

    parts = ("summary", "config", "metadata", "snapshots", "separation", "series")
    MadeRun(seconds=lambda *_: 400.0).write(home / "late" / "20260301_120000", parts=parts)
    MadeRun(seconds=one_late).write(home / "one-late" / "20260301_120000", parts=parts)
    MadeRun(seconds=last_late).write(home / "last-late" / "20260301_120000", parts=parts)
    MadeRun(seconds=one_late).write(home / "rank-0" / "20260301_120000", ranks=[0], parts=(*parts, "log"))
    tree, start = home / "tree", MadeRun().started
    run = MadeRun(seconds=one_late, saves=10, loads=0)
    run.write(published(tree, "Maker", "array", "llama3-8b", "20260301_120000"), parts=parts)
    later = MadeRun(seconds=one_late, saves=0, loads=10, started=start + timedelta(hours=1))
    later.write(published(tree, "Maker", "array", "llama3-8b", "20260301_130000"), parts=parts)
    big = MadeRun(model="llama3-70b", processes=8, seconds=one_late, started=start + timedelta(days=1))
    big.write(published(tree, "Other", "box", "llama3-70b", "20260302_120000"), parts=parts)
    describe(tree, "Maker", "array")
