"""Time to evaluate and report a run with many ranks: ``python benchmarks/report_size.py [--ranks N]``.

The measurement is invented. It has the format and the size of a run of llama3-1t on 1,024 ranks with 10 saves and 10
loads. Times are random, and a few ranks are slow. The benchmark processes the measurement as after a real run: it reads
the file, evaluates every requirement, creates the report, and writes report.json, the certificate, JUnit and the
digests. With ``--pdf`` it also writes the certificate as PDF; the time limit excludes the PDF.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from pytest_ckpt.config.gate_files import built_in
from pytest_ckpt.config.options import resolve
from pytest_ckpt.facts.codec import to_plain
from pytest_ckpt.facts.measurement import Measurement, Operation, RankFacts
from pytest_ckpt.facts.proofs import CacheFacts, CacheReading, Durability, Integrity
from pytest_ckpt.grading.catalogue import requirements_of_run
from pytest_ckpt.grading.document import create_document
from pytest_ckpt.grading.grading import judge_run
from pytest_ckpt.judging.verdicts import decide
from pytest_ckpt.launching.measurements import read_measurement
from pytest_ckpt.report.pdf import write_pdf
from pytest_ckpt.run.close import write_report
from pytest_ckpt.sizing.plan import Plan, plan_run

_HOST_RANKS = 8
_BYTES_PER_SECOND = 2e9
_PHASES = {
    "save": ("open", "write", "fsync", "close", "directory", "coordination", "commit"),
    "load": ("open", "read", "close", "coordination"),
}
_MAXIMUM_SECONDS, _MAXIMUM_BYTES = 3.0, 3_000_000


def made_up(plan: Plan, operations: int, chance: random.Random) -> Measurement:
    """Return an invented measurement of ``operations`` saves and ``operations`` loads of the planned checkpoint."""
    shards = plan.checkpoints[0].layout
    hosts = [f"node-{n:04}.cluster.example" for n in range(-(-shards.processes // _HOST_RANKS))]
    rank_bytes = tuple(rank.bytes for rank in shards.ranks())
    done = []
    for kind in ("save", "load"):
        for index in range(1, operations + 1):
            seconds = tuple(
                count / _BYTES_PER_SECOND * chance.lognormvariate(0, 0.05) * (1.7 if chance.random() < 0.002 else 1.0)
                for count in rank_bytes
            )
            slowest = max(range(len(seconds)), key=seconds.__getitem__)
            names = _PHASES[kind]
            shares = [chance.random() for _ in names]
            whole = max(seconds) * 1.01
            done.append(
                Operation(
                    kind=kind,  # type: ignore[arg-type]
                    index=index,
                    checkpoint=index,
                    seconds=whole,
                    slowest_rank=slowest,
                    rank0_seconds=seconds[0],
                    rank_seconds=seconds,
                    phases={n: s / sum(shares) * whole for n, s in zip(names, shares, strict=True)},
                    bytes=shards.bytes,
                    mapped_bytes=shards.bytes if kind == "load" else None,
                    resident_bytes=0 if kind == "load" else None,
                )
            )
    written = shards.bytes * operations
    return Measurement(
        subject=shards.subject("stream", "sync"),
        model=shards.model.name,
        mode=shards.mode,
        processes=shards.processes,
        hosts=tuple(hosts),
        engine="stream",
        scale=shards.scale,
        seed=1,
        bytes=shards.bytes,
        full_bytes=shards.full_bytes,
        rank_bytes=rank_bytes,
        basis="all ranks",
        operations_planned=operations,
        operations=tuple(done),
        cache=CacheFacts(
            required=True,
            readings=tuple(
                CacheReading(rule=rule, host=host, memory_bytes=2**40, bytes_compared=3 * 2**40, requires_drop=True)
                for rule in ("host", "rank")
                for host in hosts
            ),
            policy="auto",
            method="/proc/sys/vm/drop_caches = 3",
            probe="cachestat(2)",
            resident_fraction=0.0,
        ),
        integrity=Integrity(bytes_expected=written, bytes_checked=written, fault_count=0, faults=()),
        durability=Durability(
            files=shards.files * operations,
            files_synced=shards.files * operations,
            directories=(shards.processes + 1) * operations,
            directories_synced=(shards.processes + 1) * operations,
            saves=operations,
            commits=operations,
        ),
        stages={name: chance.uniform(1, 900) for name in ("launch", "import", "content", "saves", "verify", "loads")},
        ranks=tuple(
            RankFacts(rank=r, host=hosts[r // _HOST_RANKS], pid=10_000 + r, peak_memory_bytes=chance.randrange(10**8))
            for r in range(shards.processes)
        ),
        engine_facts={"requests": "4096 KiB, 2 in flight for each rank", "direct": "O_DIRECT"},
        launch="launches/1",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--operations", type=int, default=10, help="saves, and as many loads")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--pdf", action="store_true", help="print the certificate as PDF too")
    parser.add_argument("--raw", metavar="FILE")
    asked = parser.parse_args()
    fields: dict[str, str | None] = {
        "ckpt_target": "/mnt/made-up",
        "ckpt_cluster": "16000",
        "ckpt_model": "llama3-1t",
        "ckpt_mode": "open" if asked.ranks != 1024 else "full",
        "ckpt_ranks": str(asked.ranks),
        "ckpt_operations": str(asked.operations),
        "ckpt_engine": "stream",
    }
    settings = resolve(fields, {})
    plan = plan_run(settings, None)
    assert not plan.checkpoints[0].not_run, plan.checkpoints[0].not_run
    rows = [one_run(settings, plan, asked.operations, seed, pdf=asked.pdf) for seed in range(asked.runs)]
    print(f"{asked.ranks} ranks, {2 * asked.operations} operations, made up; median of {asked.runs} runs")
    for name in rows[0]["seconds"]:
        bound = f" (bound: {_MAXIMUM_SECONDS:g} s)" if name == "all" else ""
        print(f"{name:>18} {statistics.median(r['seconds'][name] for r in rows):8.2f} s{bound}")
    for name in rows[0]["bytes"]:
        bound = f" (bound: {_MAXIMUM_BYTES / 1e6:g} MB)" if name == "certificate.html" else ""
        print(f"{name:>18} {statistics.median(r['bytes'][name] for r in rows) / 1e6:8.2f} MB{bound}")
    if asked.raw:
        Path(asked.raw).write_text(json.dumps(rows, indent=1) + "\n")


def one_run(settings: Any, plan: Plan, operations: int, seed: int, *, pdf: bool = False) -> dict[str, Any]:
    """Evaluate and report one invented run; return the seconds of each step and the bytes of each written file."""
    gates = built_in("speed-only")
    measurement = made_up(plan, operations, random.Random(seed))
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        file = directory / "measurements" / f"{measurement.subject}.json"
        file.parent.mkdir()
        file.write_text(json.dumps(to_plain(measurement), indent=1) + "\n")
        marks = [time.perf_counter()]
        facts = read_measurement(file)
        marks.append(time.perf_counter())
        findings = [decide(r, facts, plan.limits, gates) for r in requirements_of_run(settings, gates)]
        judgement = judge_run(plan, settings, gates, findings, [facts])
        marks.append(time.perf_counter())
        document = create_document(
            run={"id": "made-up", "version": "0", "started": "2026-01-01T00:00:00+00:00", "seconds": 3600.0,
                 "finished": "2026-01-01T01:00:00+00:00", "command": ["pytest"], "directory": name, "seed": seed},
            plan=plan,
            settings=settings,
            gates=gates,
        waivers=(),
            judgement=judgement,
            exit_code=judgement.exit_code,
            measurements=[facts],
            observations=[],
            environment={
                "hosts": [
                    {"host": host, "ranks": _HOST_RANKS, "cores": 96, "memory_bytes": 2**40, "kernel": "6.8.0"}
                    for host in facts.hosts
                ],
                "target": {"path": "/mnt/made-up", "file_system": "nfs", "local": False},
                "versions": {},
                "launcher": "made up",
            },
            stages=facts.stages,
            left_behind=[],
        )  # fmt: skip
        marks.append(time.perf_counter())
        write_report(document, directory)
        marks.append(time.perf_counter())
        spent = (after - before for before, after in itertools.pairwise(marks))
        steps = dict(zip(("read", "judge", "document", "write"), spent, strict=True)) | {"all": marks[-1] - marks[0]}
        if pdf:
            write_pdf(document, directory / "certificate.pdf")
            steps["pdf"] = time.perf_counter() - marks[-1]
        names = ("report.json", "certificate.html", "junit.xml", *(["certificate.pdf"] if pdf else []))
        sizes = {n: (directory / n).stat().st_size for n in names}
    return {"seconds": steps, "bytes": sizes}


if __name__ == "__main__":
    main()
