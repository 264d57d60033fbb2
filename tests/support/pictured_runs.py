"""Made-up runs of an array that does not exist, judged and written by what judges and writes real ones.

For pictures and for tests of pages: times are drawn, everything that follows from them is decided as in a run. The
vendor's name says in every picture that nothing of it was measured.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from typing import Any

from pytest_ckpt.config.gate_files import load_gates
from pytest_ckpt.config.options import resolve
from pytest_ckpt.facts.measurement import (
    LoadPattern,
    Measurement,
    MixedLoad,
    NoisyNeighbour,
    Operation,
    OperationKind,
    Patterns,
    RankFacts,
    SavePace,
)
from pytest_ckpt.facts.observation import Anomaly, Observation
from pytest_ckpt.facts.proofs import CacheFacts, CacheReading, Durability, Integrity
from pytest_ckpt.facts.targets import Capacity
from pytest_ckpt.grading.catalogue import REQUIREMENTS, offered
from pytest_ckpt.grading.completeness import asked_checks, asked_requirements, chosen_suites, is_given
from pytest_ckpt.grading.document import make_document
from pytest_ckpt.grading.grading import judge_run
from pytest_ckpt.judging.verdicts import decide, decide_observed
from pytest_ckpt.judging.waivers import Waiver
from pytest_ckpt.sizing.pacing import SHARE_OF_LIMIT
from pytest_ckpt.sizing.plan import PlannedCheckpoint, plan_run
from tests.support.made_target import mounted

VENDOR = "Made-up figures"
SYSTEM = {
    "system": {"vendor": VENDOR, "product": "Example Array, no real system", "firmware": "0.0"},
    "topology": {"nodes": 16, "drives": 384, "protection": "8+2 erasure coding", "usable_capacity": "4.6 PB"},
    "clients": {"hosts": 8, "model": "2 x 64 cores, 1.5 TiB", "software": "nfs, kernel 6.8"},
    "network": {"fabric": "Ethernet, RoCE v2", "client_links": "2 x 200 Gb/s"},
}
STARTED, FINISHED = "2031-05-06T07:08:09+00:00", "2031-05-06T09:47:12+00:00"
SECONDS = 9543.0
_HOST_RANKS = 8
_PHASES = {
    "save": {"open": 0.01, "write": 0.66, "fsync": 0.28, "close": 0.005, "directory": 0.01, "coordination": 0.005},
    "load": {"open": 0.02, "read": 0.95, "close": 0.005, "coordination": 0.025},
}

Seconds = Callable[[random.Random, OperationKind, int], float]


def certified() -> dict[str, Any]:
    """Return the report of an array that meets everything with some room."""
    return run(_steady(0.72, 0.45), _shared(64, "llama3-8b,llama3-70b"))


def not_certified() -> dict[str, Any]:
    """Return that of one with a slow host, late saves, a torn rename, and a waiver."""

    def late(rng: random.Random, kind: OperationKind, index: int) -> float:
        return rng.uniform(0.82, 0.96) + (0.42 if kind == "save" and index in (4, 8) else 0.0)

    torn = Anomaly(
        kind="a file was torn",
        where="COMMIT.file-second-client-4711/latest",
        seen="old bytes up to offset 65,536, new ones behind",
        expected="the old bytes or the new ones",
    )
    stale = Anomaly(kind="an old size", where="after 3.2 s", seen="4,096 bytes", expected="8,192 bytes")
    return run(
        late,
        _shared(64, "llama3-8b,llama3-70b"),
        slow_ranks=range(40, 48),
        seen={
            "COMMIT.file-second-client": {"anomaly_count": 3, "anomalies": (torn,)},
            "STALE.attributes": {"measured": 3.2, "anomaly_count": 0, "anomalies": (stale,)},
        },
        waivers=(
            Waiver(
                requirement="STALE",
                subject="attributes",
                reason="Our jobs wait five seconds at the barrier; ticket 4711",
                expires="2031-12-31",
            ),
        ),
    )


def thousand_ranks() -> dict[str, Any]:
    """Return the report of llama3-1t on 1,024 ranks of 128 hosts."""
    return run(_steady(0.6, 0.5), _shared(1024, "llama3-1t"), slow_ranks=range(712, 720), slower=1.35)


def incomplete() -> dict[str, Any]:
    """Return that of a run without a second client, a power cut and a volume to fill, on too few ranks."""
    fields = {**_shared(8, "llama3-8b,llama3-70b"), "ckpt_power_cut": None, "ckpt_small_volume": None}
    return run(_steady(0.72, 0.45), fields)


def rehearsal() -> dict[str, Any]:
    """Return that of a run at 1/1000 of the size on a local disk."""
    fields = {"ckpt_target": "/mnt/made-up", "ckpt_cluster": "16000", "ckpt_profile": "smoke"}
    return run(_steady(0.4, 0.3), fields, file_system="ext4")


def run(
    seconds: Seconds,
    expected_text: dict[str, str | None],
    *,
    slow_ranks: range = range(0),
    slower: float = 1.6,
    seen: dict[str, dict[str, Any]] | None = None,
    waivers: tuple[Waiver, ...] = (),
    file_system: str = "nfs4",
    started: str = STARTED,
    run_id: str = "20310506T070809-made-up",
    seed: int = 1,
) -> dict[str, Any]:
    """Return the report of a run whose operations take ``seconds``, as shares of their limits.

    ``slow_ranks`` take ``slower`` times as long as the others. ``seen`` changes what checks of behaviour saw, by name.
    """
    is_local = file_system == "ext4"
    settings = resolve(expected_text, {})
    target = mounted(
        file_system,
        expected_text["ckpt_target"] or "",
        source="/dev/made-up" if is_local else "array.example:/ckpt",
        options="rw,relatime" if is_local else "rw,relatime,vers=4.2,hard,nconnect=16,nosharecache",
        capacity=Capacity(
            total_bytes=4_600_000_000_000_000, used_bytes=500_000_000_000_000, free_bytes=4_100_000_000_000_000
        ),
    )
    gates = load_gates(settings.gate_table, target.gate_kind)
    settings = dataclasses.replace(settings, suites=chosen_suites(settings, gates))
    plan = plan_run(settings, target)
    rng = random.Random(seed)
    measurements = [_measurement(rng, c, seconds, slow_ranks, slower, settings) for c in plan.runnable]
    catalogue = offered(REQUIREMENTS, target.capabilities)
    asked = asked_requirements(settings, gates, catalogue)
    observations = [
        _observation(rng, check, (seen or {}).get(check.name, {}))
        for requirement in asked
        for check in asked_checks(requirement, settings, gates)
        if is_given(check, settings)
    ]
    judged = [r for r in asked if r.is_measured and r.is_asked(settings)]
    findings = [decide(r, m, plan.limits, gates) for m in measurements for r in judged]
    findings += [decide_observed(REQUIREMENTS[o.requirement], o, gates) for o in observations]
    judgement = judge_run(plan, settings, gates, findings, measurements, waivers, started, catalogue)
    hosts = sorted({h for m in measurements for h in m.hosts})
    return make_document(
        run={
            "id": run_id,
            "version": "0.2.0",
            "started": started,
            "finished": FINISHED,
            "seconds": SECONDS,
            "command": ["pytest", *(f"--{n.replace('_', '-')}={v}" for n, v in expected_text.items() if v)],
            "directory": "/srv/made-up/ckpt-report",
            "seed": seed,
        },
        plan=plan,
        settings=settings,
        gates=gates,
        waivers=waivers,
        judgement=judgement,
        exit_code=judgement.exit_code,
        measurements=measurements,
        observations=observations,
        environment={
            "hosts": [
                {"host": host, "ranks": list(range(_HOST_RANKS)), "cpu": "2 x 64 cores", "cores": 128,
                 "memory_bytes": 1536 << 30, "kernel": "6.8.0-45-generic", "os": "Ubuntu 24.04.1 LTS",
                 "python": "3.12.3"}
                for host in hosts
            ],
            "target": target,
            "versions": {"pytest-ckpt": "0.2.0", "python": "3.12.3", "torch": "2.13.0", "mpi4py": "4.1.1"},
            "launcher": "mpiexec (Open MPI) 5.0.11",
        },
        stages={"preflight": 4.1, "launch": 31.2, "content": 320.4, "save": 1830.5, "drop caches": 61.0, "load": 2204.2,
                "verify": 422.8, "patterns": 2800.0, "checks": 1650.0, "clean-up": 58.8, "other": 160.0},
        left_behind=[],
        system=SYSTEM,
    )  # fmt: skip


def _shared(processes: int, models: str) -> dict[str, str | None]:
    """Return the options of a whole run on shared storage."""
    hosts = max(1, processes // _HOST_RANKS)
    return {
        "ckpt_target": "/mnt/made-up",
        "ckpt_cluster": "16000",
        "ckpt_model": models,
        "ckpt_hosts": ",".join(f"node{n + 1:03}:{_HOST_RANKS}" for n in range(hosts)),
        "ckpt_engine": "stream",
        "ckpt_power_cut": "/usr/local/bin/cut-power",
        "ckpt_small_volume": "/mnt/made-up-small",
    }


def _steady(save: float, load: float) -> Seconds:
    return lambda rng, kind, _index: (save if kind == "save" else load) * rng.uniform(0.94, 1.03)


def _measurement(
    rng: random.Random, planned: PlannedCheckpoint, seconds: Seconds, slow_ranks: range, slower: float, settings: Any
) -> Measurement:
    shards, count = planned.layout, planned.operations
    hosts = tuple(f"node{n + 1:03}" for n in range(-(-shards.processes // _HOST_RANKS)))
    rank_bytes = tuple(rank.bytes for rank in shards.ranks())
    limits = {"save": planned.demand.save_limit_seconds, "load": planned.demand.load_limit_seconds}

    def operation(kind: OperationKind, index: int) -> Operation:
        took = limits[kind] * seconds(rng, kind, index)
        paces = [rng.triangular(0.84, 1.0, 0.95) * (slower if r in slow_ranks else 1.0) for r in range(len(rank_bytes))]
        paces = [pace * b for pace, b in zip(paces, rank_bytes, strict=True)]
        commit = 0.012 if kind == "save" else 0.0
        each = tuple((took - commit) * pace / max(paces) for pace in paces)
        phases = {name: share * (took - commit) for name, share in _PHASES[kind].items()}
        return Operation(
            kind=kind,
            index=index,
            seconds=took,
            slowest_rank=each.index(max(each)),
            rank0_seconds=each[0],
            rank_seconds=each,
            phases=phases | ({"commit": commit} if commit else {}),
            bytes=shards.bytes,
            checkpoint=index,
            mapped_bytes=shards.bytes if kind == "load" else None,
            resident_bytes=0 if kind == "load" else None,
        )

    done = [operation(kind, n) for kind in ("save", "load") for n in range(1, count + 1)]
    written = shards.bytes * count
    whole = Integrity(bytes_expected=written, bytes_checked=written, fault_count=0, faults=())
    return Measurement(
        subject=planned.subject,
        model=shards.model.name,
        mode=shards.mode,
        processes=shards.processes,
        hosts=hosts,
        engine=settings.engines[0].name,
        scale=shards.scale,
        seed=1,
        bytes=shards.bytes,
        full_bytes=shards.full_bytes,
        rank_bytes=rank_bytes,
        basis="all ranks",
        operations_planned=count,
        operations=tuple(done),
        cache=CacheFacts(
            required=True,
            readings=tuple(
                CacheReading(rule=rule, host=host, memory_bytes=1536 << 30, bytes_compared=3 << 40, requires_drop=True)
                for rule in ("one checkpoint of the host x 3 < memory", "all checkpoints of the host < 3 x memory")
                for host in hosts
            ),
            policy="auto",
            method="/proc/sys/vm/drop_caches",
            probe="cachestat",
            resident_fraction=0.0,
        ),
        integrity=whole,
        durability=Durability(
            files=shards.files * count,
            files_synced=shards.files * count,
            directories=2 * count,
            directories_synced=2 * count,
            saves=count,
            commits=count,
        ),
        stages={"launch": 15.0, "content": 160.0, "save": 900.0, "drop caches": 30.0, "load": 1100.0, "verify": 210.0},
        ranks=tuple(
            RankFacts(rank=r, host=hosts[r // _HOST_RANKS], pid=4000 + r, peak_memory_bytes=91_000_000)
            for r in range(shards.processes)
        ),
        engine_facts={"requests": "4 MiB, 2 in flight for each rank", "direct": "O_DIRECT"},
        patterns=_patterns(operation, whole, rank_bytes, limits["save"]) if settings.asks_contention else None,
        launch="launches/1",
    )


def _patterns(
    operation: Callable[[OperationKind, int], Operation],
    whole: Integrity,
    rank_bytes: tuple[int, ...],
    save_limit: float,
) -> Patterns:
    ranks = len(rank_bytes)

    def loads(reads: str) -> LoadPattern:
        done = tuple(operation("load", n) for n in (1, 2, 3))
        return LoadPattern(reads=reads, rank_bytes=rank_bytes, operations=done, integrity=whole)

    pace = SavePace(seconds=SHARE_OF_LIMIT * save_limit, bytes=sum(rank_bytes), full_bytes=sum(rank_bytes))
    return Patterns(
        storm=loads("every rank of all replicas reads its file"),
        shifted=loads("each rank reads the files of the rank that is 8 further"),
        joined=loads("every second rank reads the files of two"),
        split=loads("two ranks read each file, one half each"),
        neighbour=NoisyNeighbour(
            ranks=ranks // 2,
            neighbour_ranks=ranks // 2,
            bytes=sum(rank_bytes) // 2,
            neighbour_bytes=sum(rank_bytes) // 2,
            save_seconds=(0.81 * save_limit, 0.84 * save_limit, 0.82 * save_limit),
            neighbour_save_seconds=(0.82 * save_limit, 0.83 * save_limit, 0.82 * save_limit),
            concurrent_bytes=sum(rank_bytes) * 3,
            pace=pace,
        ),
        mixed=MixedLoad(
            reads="a data loader a host, 10 MB/s, samples of 128 KiB",
            undisturbed_p99_seconds=(0.0041, 0.0043, 0.0042),
            contended_p99_seconds=(0.0062, 0.0066, 0.0064),
            undisturbed_reads=(30_120, 30_087, 30_211),
            contended_reads=(28_002, 27_884, 27_930),
            save_seconds=(0.82 * save_limit, 0.84 * save_limit, 0.83 * save_limit),
            loader_bytes_per_second=10e6,
            empty_queue_seconds=(0.0, 0.0, 0.0),
            undisturbed_empty_queue_seconds=(0.0, 0.0, 0.0),
            client_busy=0.1,
            pace=pace,
        ),
    )


def _observation(rng: random.Random, check: Any, changes: dict[str, Any]) -> Observation:
    healthy = Observation(
        requirement=check.requirement,
        subject=check.subject,
        trials=1000,
        seconds=rng.uniform(0.5, 60.0),
        measured=None if check.limit is None else check.limit * rng.uniform(0.05, 0.4),
        unit=check.unit,
        reproduce=f"python -m pytest_ckpt.conformance {check.name} --directory=/mnt/made-up",
    )
    return dataclasses.replace(healthy, **changes)
