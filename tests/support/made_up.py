"""Made-up report documents: every grade, any number of ranks, failures, and strings that try to break out."""

from __future__ import annotations

import math
import random
from typing import Any

from pytest_ckpt.facts.targets import MOUNTED

Document = dict[str, Any]

HOSTILE = """<script>alert("1")</script> 'é 日本' & {{ 7*7 }} ]]> \u202e\u0007 </style><img src=x onerror=alert(1)>"""

FAILURES_PER_ACCELERATOR_DAY = 419 / 54 / 16_000

# model, mode: processes, bytes of one checkpoint, files, as published
LAYOUTS: dict[str, tuple[str, str, int, int, int, str]] = {
    "llama3-8b-full": ("llama3-8b", "full", 8, 112_425_623_552, 16, "105 GB"),
    "llama3-70b-full": ("llama3-70b", "full", 64, 978_406_572_032, 128, "912 GB"),
    "llama3-405b-full": ("llama3-405b", "full", 512, 5_682_508_791_808, 1_544, "5.29 TB"),
    "llama3-1t-full": ("llama3-1t", "full", 1_024, 16_564_174_094_592, 2_072, "15 TB"),
    "llama3-70b-subset": ("llama3-70b", "subset", 8, 122_300_821_504, 16, "114 GB"),
    "llama3-405b-subset": ("llama3-405b", "subset", 8, 105_811_532_800, 26, "94 GB"),
    "llama3-1t-subset": ("llama3-1t", "subset", 8, 154_322_342_880, 22, "144 GB"),
}
FULL_BYTES = {
    "llama3-8b": 112_425_623_552,
    "llama3-70b": 978_406_572_032,
    "llama3-405b": 5_682_508_791_808,
    "llama3-1t": 16_564_174_094_592,
}
CLIENT_LOCAL = ("llama3-8b-full", "llama3-70b-subset", "llama3-405b-subset", "llama3-1t-subset")
FULL_SIZE = ("llama3-8b-full", "llama3-70b-full", "llama3-405b-full", "llama3-1t-full")

CATALOGUE = [
    (
        "SAVE",
        "save meets the budget",
        "required",
        "Every save, from the barrier until the slowest rank is done and the checkpoint is committed, takes no longer "
        "than the save limit of the cluster. One slow save stops the whole cluster, so each of the ten counts.",
        "the overhead budget over the checkpoint interval",
    ),
    (
        "LOAD",
        "cold restore meets the budget",
        "required",
        "Every load, from the barrier until the slowest rank holds its state, takes no longer than the load limit.",
        "the restore budget over the mean time between failures",
    ),
    (
        "INTEGRITY",
        "every byte of every shard",
        "required",
        "Every byte that was read is compared with what was written. Zero tolerance; each fault is classified.",
        "",
    ),
    (
        "COLD",
        "loads come from storage",
        "required",
        "At most 1 % of what is about to be read is resident in the clients' page caches when the clock starts.",
        "MLPerf Storage Rules 4.7",
    ),
    (
        "DURABLE-CALLS",
        "saves are synced before they count",
        "required",
        "Every file and every directory of a checkpoint was fsynced, and the calls returned, before the save ended.",
        "IO500 rule 6",
    ),
    (
        "STRAGGLER",
        "rank skew",
        "advisory",
        "Slowest rank over median rank is at most 1.5 in every operation.",
        "our own proposal",
    ),
    (
        "REPEAT",
        "repeatability",
        "advisory",
        "The coefficient of variation over the saves, and over the loads, is at most 10 %.",
        "our own proposal",
    ),
]


def cluster(accelerators: int = 16_000) -> Document:
    failures = FAILURES_PER_ACCELERATOR_DAY * accelerators
    mttf = 86_400 / failures
    interval = mttf / 20
    return {
        "accelerators": accelerators,
        "failure_model": "llama3",
        "failures_per_day": failures,
        "mttf_seconds": mttf,
        "checkpoints_per_failure": 20,
        "checkpoints_per_day": 20 * failures,
        "interval_seconds": interval,
        "failures_per_day_in_slots": -math.expm1(-1 / 20) * 20 * failures,
        "overhead": 0.05,
        "restore_budget": 0.01,
        "save_limit_seconds": 0.05 * interval,
        "load_limit_seconds": 0.01 * mttf,
        "reasons": {
            "failures_per_day": "Llama 3 405B: 419 unexpected interruptions in 54 days on 16,000 accelerators, scaled "
            f"linearly to {accelerators:,} accelerators.",
            "mttf_seconds": f"One day over {failures:.2f} failures a day.",
            "interval_seconds": "20 checkpoints per failure: a failure costs half an interval on average, 2.5 %.",
            "save_limit_seconds": "Saving may cost 5 % of training time: 5 % of the checkpoint interval.",
            "load_limit_seconds": "Loading may cost 1 % of the time between failures: one load a failure.",
        },
    }


def document(
    grade: str = "certified",
    *,
    subjects: tuple[str, ...] = CLIENT_LOCAL,
    accelerators: int = 16_000,
    ranks: int | None = None,
    operations: int = 10,
    share_of_limit: float = 0.42,
    scale: float = 1.0,
    seed: int = 1,
    text: str = "",
    fail_after: int | None = None,
    not_run: tuple[str, ...] = (),
) -> Document:
    """Return a document of this grade.

    ``ranks`` replaces every layout's own count, ``share_of_limit`` is how slow the target is, ``text`` is put into
    every string that comes from outside, ``fail_after`` ends the first subject with a failure after so many
    operations, ``not_run`` names subjects that could not run.
    """
    rng = random.Random(seed)
    if grade == "not certified":
        share_of_limit = max(share_of_limit, 1.2)
    if grade == "rehearsal" and scale == 1.0:
        scale, operations = 0.001, min(operations, 3)
    if grade == "incomplete" and not not_run:
        not_run = (subjects[-1],)
    limits = cluster(accelerators)
    checkpoints, measurements, verdicts, sizes, training = [], [], [], [], []
    for position, subject in enumerate(subjects):
        model, mode, processes, size, files, published = LAYOUTS[subject]
        processes = ranks or processes
        hosts = [f"client{n + 1:02d}{text}" for n in range(max(1, processes // 8))]
        full, size = size, int(size * scale)
        save_limit, load_limit = limits["save_limit_seconds"] * scale, limits["load_limit_seconds"] * scale
        whole = FULL_BYTES[model] if mode == "subset" else full
        per_save = whole / limits["save_limit_seconds"]
        writers = {"llama3-8b": 8, "llama3-70b": 64, "llama3-405b": 512, "llama3-1t": 1_024}[model]
        reason = f"{model} in full has {writers} ranks and 8 were asked for{text}" if subject in not_run else None
        checkpoints.append(
            {
                "subject": subject,
                "model": model,
                "mode": mode,
                "processes": processes,
                "scale": scale,
                "operations": operations,
                "bytes": size,
                "full_bytes": full,
                "files": files,
                "save_bytes_per_second": size / save_limit,
                "load_bytes_per_second": size / load_limit,
                "save_limit_seconds": save_limit,
                "load_limit_seconds": load_limit,
                "space_bytes": size * operations,
                "memory_bytes": {"largest_rank": size // processes * 2, "largest_host": size * 2 // len(hosts)},
                "demand": {
                    "subject": subject,
                    "cluster_bytes": whole,
                    "bytes_per_day": whole * limits["checkpoints_per_day"],
                    "sustained_bytes_per_second": whole * limits["checkpoints_per_day"] / 86_400,
                    "cluster_save_bytes_per_second": per_save,
                    "writers": writers,
                    "nodes": writers // 8,
                    "per_writer_bytes_per_second": per_save / writers,
                    "per_node_bytes_per_second": per_save / (writers // 8),
                    "restore_all_bytes_per_second": per_save * 6,
                },
                "not_run": reason,
                "published": published,
            }
        )
        failed_early = fail_after is not None and position == 0
        ran = None
        if reason is None:
            ran = _measurement(
                rng,
                subject,
                model,
                mode,
                processes,
                hosts,
                size,
                full,
                scale,
                operations,
                files,
                save_limit * share_of_limit * (1 + position * 0.05),
                load_limit * share_of_limit * 0.6,
                text,
                fail_after if failed_early else None,
            )
            measurements.append(ran)
        verdicts += _verdicts(subject, ran, save_limit, load_limit, scale, reason, text)
        sizes.append(_sizes(subject, ran, accelerators, save_limit, load_limit, scale))
        if ran and not ran["failure"]:
            training.append(_training(ran, limits, scale))
    result: Document = {
        "schema": "pytest-ckpt/report/2",
        "run": {
            "id": "2031-05-06T07-08-09-a1b2c3",
            "version": "0.2.0",
            "started": "2031-05-06T07:08:09+00:00",
            "finished": "2031-05-06T08:19:20+00:00",
            "command": ["pytest", f"--ckpt-target=/mnt/array one/ü{text}", f"--cluster={accelerators}"],
            "seconds": 4271.0,
            "folder": f"/srv/reports/ckpt-report{text}",
        },
        "grade": grade,
        "grade_reasons": _grade_reasons(grade, verdicts, scale),
        "exit_code": {"certified": 0, "rehearsal": 0, "not certified": 1, "incomplete": 8}[grade],
        "cluster": limits,
        "checkpoints": checkpoints,
        "requirements": verdicts,
        "catalogue": [
            {"id": i, "title": t, "severity": s, "text": x + text, "source": o} for i, t, s, x, o in CATALOGUE
        ],
        "measurements": measurements,
        "certified_cluster": sizes,
        "training": training,
        "environment": {
            "hosts": [
                {
                    "host": h,
                    "cpu": f"EPYC 9554 64-Core Processor{text}",
                    "cores": 64,
                    "memory_bytes": 1_622_722_613_248,
                    "kernel": "6.8.0-45-generic",
                    "os": "Ubuntu 24.04.1 LTS",
                    "python": "3.12.3",
                }
                for h in sorted({h for m in measurements for h in m["hosts"]})
            ],
            "target": {
                "location": f"/mnt/array one/ü{text}",
                "kind": "nfs4",
                "gate_kind": "posix-shared",
                "is_local": False,
                "capacity": {
                    "total_bytes": 1_099_511_627_776_000,
                    "used_bytes": 111_856_985_776_000,
                    "free_bytes": 987_654_321_000_000,
                },
                "capabilities": sorted(MOUNTED),
                "source": f"array:/export/ckpt{text}",
                "mount_point": "/mnt/array one",
                "options": f"rw,relatime,vers=4.2,rsize=1048576,wsize=1048576,hard,proto=tcp,nconnect=16{text}",
                "plugin": "",
            },
            "versions": {
                "pytest-ckpt": "0.2.0",
                "pytest": "9.2.0",
                "torch": "2.13.0",
                "mpi4py": "4.1.1",
                "Open MPI": f"5.0.8{text}",
                "numpy": "2.3.4",
            },
            "launcher": "mpiexec -n 8 --host client01:8" + text,
        },
        "settings": [
            {"option": "--ckpt-target", "value": f"/mnt/array one/ü{text}", "default": "", "source": "command line"},
            {"option": "--cluster", "value": str(accelerators), "default": "", "source": "command line"},
            {"option": "--ckpt-overhead", "value": "5%", "default": "5%", "source": "default"},
            {
                "option": "--ckpt-profile",
                "value": "acceptance" if scale == 1 else "smoke",
                "default": "acceptance",
                "source": "default" if scale == 1 else f"pytest.ini{text}",
            },
        ],
        "disclosures": [
            *(
                [f"--ckpt-profile=smoke (acceptance by default): scale {scale:g}, 3 + 3 operations."]
                if scale < 1
                else []
            ),
            f"--ckpt-drop-caches=/usr/local/bin/drop{text} (auto by default), from the command line.",
        ],
        "stages": {
            "saves": 1800.5,
            "loads": 1204.2,
            "drop caches": 61.0,
            "content": 420.4,
            "verify": 522.8,
            "launch": 31.2,
            "remove": 58.8,
            "other": 12.1,
        },
        "left_behind": [f"/mnt/array one/pytest-ckpt-old{text}"] if text else [],
    }
    return result


def empty() -> Document:
    """Return what is left of a run that ended before the first rank started."""
    whole = document("incomplete", subjects=("llama3-8b-full",))
    return {
        **whole,
        "measurements": [],
        "certified_cluster": [{"subject": "llama3-8b-full", "save": None, "load": None, "overall": None}],
        "training": [],
        "environment": {"hosts": [], "target": whole["environment"]["target"], "versions": {}, "launcher": ""},
        "settings": [],
        "disclosures": [],
        "stages": {},
        "left_behind": [],
    }


def bare() -> Document:
    """Return a document with nothing but the fields of the contract, as early or foreign ones may be."""
    whole = document("incomplete", subjects=("llama3-8b-full",), not_run=("llama3-70b-full",))
    kept = ("schema", "run", "grade", "cluster", "requirements", "measurements", "certified_cluster")
    slim = {name: whole[name] for name in kept}
    slim["run"] = {name: whole["run"][name] for name in ("id", "version", "started", "finished", "command")}
    later = {"reasons", "failure_model", "failures_per_day_in_slots"}
    slim["cluster"] = {n: v for n, v in whole["cluster"].items() if n not in later}
    for measurement in slim["measurements"]:
        for name in (
            "stages",
            "ranks",
            "engine_facts",
            "patterns",
            "failure",
            "rank_bytes",
            "full_bytes",
            "operations_planned",
        ):
            measurement.pop(name)
        measurement["cache"] = {"required": True, "method": "none", "resident_fraction": None}
        measurement["integrity"] = {"bytes_checked": 0, "faults": []}
        measurement["durability"] = {"files": 16, "files_synced": 0}
        measurement["basis"] = "rank 0 only"
        for operation in measurement["operations"]:
            operation["rank_seconds"], operation["phases"] = [], {}
            operation.pop("bytes")
    return slim


def _measurement(
    rng: random.Random,
    subject: str,
    model: str,
    mode: str,
    processes: int,
    hosts: list[str],
    size: int,
    full: int,
    scale: float,
    operations: int,
    files: int,
    save: float,
    load: float,
    text: str,
    fail_after: int | None,
) -> Document:
    done = []
    for kind, target in (("save", save), ("load", load)):
        for index in range(1, operations + 1):
            base = target * rng.uniform(0.86, 0.97)
            seconds = [base * rng.triangular(0.78, 1.0, 0.93) for _ in range(processes)]
            slow = rng.randrange(processes)
            seconds[slow] = base * 1.02
            commit = base * 0.004 if kind == "save" else 0.0
            mine = seconds[slow]
            phases = (
                {
                    "open": mine * 0.01,
                    "write": mine * 0.62,
                    "fsync": mine * 0.33,
                    "close": mine * 0.01,
                    "directory": mine * 0.03,
                    "commit": commit,
                }
                if kind == "save"
                else {"open": mine * 0.02, "read": mine * 0.97, "close": mine * 0.01}
            )
            done.append(
                {
                    "kind": kind,
                    "index": index,
                    "seconds": mine + commit,
                    "slowest_rank": slow,
                    "rank0_seconds": seconds[0],
                    "rank_seconds": seconds,
                    "phases": phases,
                    "bytes": size,
                    "mapped_bytes": size if kind == "load" else None,
                    "resident_bytes": int(size * 0.0004) if kind == "load" else None,
                }
            )
    failure = None
    if fail_after is not None:
        done = done[:fail_after]
        failure = {
            "kind": "error",
            "message": f"No space left on device{text}",
            "rank": 3,
            "host": hosts[0],
            "operation": {
                "subject": subject,
                "scenario": "",
                "action": "save",
                "index": fail_after + 1,
                "stage": "operation",
                "level": 0.0,
            },
            "phase": "write",
            "file": f"zero_pp_rank_3_mp_rank_00_model_states.pt{text}",
            "errno": "ENOSPC",
            "stack": f'File "engine.py", line 12, in save\n  os.write(file, view){text}',
        }
    ended = failure is None
    return {
        "subject": subject,
        "model": model,
        "mode": mode,
        "processes": processes,
        "hosts": hosts,
        "engine": "torch",
        "scale": scale,
        "seed": 421,
        "bytes": size,
        "full_bytes": full,
        "rank_bytes": [size // processes] * processes,
        "basis": "all ranks",
        "operations_planned": operations,
        "operations": done,
        "cache": {
            "required": True,
            "readings": [
                {
                    "rule": f"one checkpoint of the host x 3 < memory{text}",
                    "host": hosts[0],
                    "memory_bytes": 1_622_722_613_248,
                    "bytes_compared": 3 * size,
                    "requires_drop": True,
                },
                {
                    "rule": "all checkpoints of the host < 3 x memory",
                    "host": hosts[0],
                    "memory_bytes": 1_622_722_613_248,
                    "bytes_compared": 10 * size,
                    "requires_drop": True,
                },
            ],
            "policy": "auto",
            "method": "drop_caches",
            "gauge": "cachestat",
            "resident_fraction": 0.0004,
            "detail": text,
        }
        if ended
        else None,
        "integrity": {
            "bytes_expected": size * operations,
            "bytes_checked": size * operations,
            "fault_count": 0,
            "faults": [],
        }
        if ended
        else None,
        "durability": {
            "files": files * operations,
            "files_synced": files * operations,
            "directories": operations,
            "directories_synced": operations,
            "saves": operations,
            "commits": operations,
        }
        if ended
        else None,
        "stages": {"save": 10 * save, "load": 10 * load, "drop": 3.0, "verify": 22.0, "content": 12.0},
        "ranks": [
            {
                "rank": r,
                "host": hosts[min(r // 8, len(hosts) - 1)],
                "pid": 1000 + r,
                "peak_memory_bytes": size // processes * 2,
            }
            for r in range(processes)
        ],
        "engine_facts": {"torch": "2.13.0", "note": text},
        "patterns": _patterns(done, processes, size, text) if done and processes > 1 and operations > 3 else None,
        "failure": failure,
        "launch": "launches/1",
    }


def _patterns(done: list[Document], processes: int, size: int, text: str) -> Document:
    """Return loads of other ranks' files; one pattern could not be measured."""
    load = {
        "reads": f"each of {processes} ranks reads the files of the rank that is 8 further{text}",
        "rank_bytes": [size // processes] * processes,
        "operations": [{**done[-1], "kind": "load", "index": n, "bytes": size} for n in (1, 2, 3)],
        "integrity": {"bytes_expected": 3 * size, "bytes_checked": 3 * size, "fault_count": 0, "faults": []},
    }
    neighbour = {
        "ranks": processes // 2,
        "neighbour_ranks": processes - processes // 2,
        "bytes": size // 2,
        "alone_seconds": [10.0, 11.0, 10.5],
        "contended_seconds": [12.0, 12.5, 12.2],
        "bursts": 12,
        "neighbour_bytes": size,
    }
    mixed = {
        "reads": f"4 readers a host{text}",
        "alone_p99_seconds": [0.004, 0.005, 0.0045],
        "contended_p99_seconds": [0.006, 0.0065, 0.007],
        "alone_reads": [3_000, 3_010, 3_005],
        "contended_reads": [2_900, 2_870, 2_880],
        "save_seconds": [13.0, 13.2, 13.4],
    }
    endurance = {
        "requested_seconds": 14_400.0,
        "seconds": 14_412.0,
        "kept": 2,
        "start_seconds": [40.0 * n for n in range(360)],
        "save_seconds": [13.0 + n % 3 for n in range(360)],
    }
    levels = [{"requested": a, "used": a or 0.01, "ballast_bytes": int(a * 1e12), "save_seconds": [13.0, 13.1, 13.2]}
              for a in (0.0, 0.8, 0.9)]  # fmt: skip
    near_full = {"capacity_bytes": 10**12, "levels": levels}
    beside = {"neighbour": neighbour, "mixed": mixed, "endurance": endurance, "near_full": near_full}
    return beside | {
        "storm": load,
        "shifted": load,
        "joined": None,
        "split": load,
        "not_run": {"joined": f"One rank{text}."},
    }


def _verdicts(
    subject: str,
    ran: Document | None,
    save_limit: float,
    load_limit: float,
    scale: float,
    reason: str | None,
    text: str,
) -> list[Document]:
    def verdict(
        name: str,
        measured: float | None,
        limit: float | None,
        unit: str,
        because: str,
        *,
        severity: str = "required",
        outcome: str = "",
    ) -> Document:
        margin = None if measured is None or not limit else (limit - measured) / limit
        outcome = outcome or ("met" if measured is None or limit is None or measured <= limit else "failed")
        return {
            "id": name,
            "subject": subject,
            "severity": severity,
            "outcome": outcome,
            "reason": {"met": "met", "failed": "over limit"}.get(outcome, "run ended"),
            "measured": measured,
            "limit": limit,
            "unit": unit,
            "margin": margin,
            "because": because + text,
            "detail": "limit: 5 % of the interval\nslowest: rank 5 on client01, in write" + text
            if outcome == "failed"
            else "",
        }

    advisory = {"STRAGGLER", "REPEAT"}
    failure = ran and ran["failure"]
    if ran is None or failure:
        found = []
        for name, *_ in CATALOGUE:
            blamed = bool(failure) and name == "SAVE"
            why = f"Rank 3 on client01 failed in save, write: {failure['message']}." if failure else str(reason)
            found.append(
                verdict(
                    name,
                    None,
                    save_limit if name == "SAVE" else None,
                    "s" if name == "SAVE" else "",
                    why if blamed or not failure else "The run ended before this was measured: " + why,
                    severity="advisory" if name in advisory else "required",
                    outcome="failed" if blamed else "not run",
                )
            )
        return found
    saves = [o["seconds"] for o in ran["operations"] if o["kind"] == "save"]
    loads = [o["seconds"] for o in ran["operations"] if o["kind"] == "load"]
    skew = max(
        max(o["rank_seconds"]) / sorted(o["rank_seconds"])[len(o["rank_seconds"]) // 2] for o in ran["operations"]
    )
    mean = sum(saves) / len(saves)
    variation = math.sqrt(sum((s - mean) ** 2 for s in saves) / len(saves)) / mean
    return [
        verdict("SAVE", max(saves), save_limit, "s", f"The slowest of {len(saves)} saves took {max(saves):.4g} s."),
        verdict("LOAD", max(loads), load_limit, "s", f"The slowest of {len(loads)} loads took {max(loads):.4g} s."),
        verdict("INTEGRITY", 0.0, 0.0, "faults", "All loaded bytes matched what was saved."),
        verdict(
            "COLD", 0.0004, 0.01, "fraction", "At most 0.04 % of what a load was about to read lay in a page cache."
        ),
        verdict("DURABLE-CALLS", 160.0, 160.0, "files", "fsync returned for all 160 files and 10 folders."),
        verdict(
            "STRAGGLER",
            skew,
            1.5,
            "slowest / median",
            f"At worst slowest / median {skew:.2f} (at most 1.5).",
            severity="advisory",
        ),
        verdict(
            "REPEAT",
            variation * 2.2,
            0.10,
            "fraction",
            "Coefficient of variation: high over the saves (at most 10 %).",
            severity="advisory",
        ),
    ]


def _sizes(
    subject: str, ran: Document | None, accelerators: int, save_limit: float, load_limit: float, scale: float
) -> Document:
    if ran is None or ran["failure"]:
        return {"subject": subject, "save": None, "load": None, "overall": None, "projected": False}
    slowest = {k: max(o["seconds"] for o in ran["operations"] if o["kind"] == k) for k in ("save", "load")}
    save, load = int(accelerators * save_limit / slowest["save"]), int(accelerators * load_limit / slowest["load"])
    return {"subject": subject, "save": save, "load": load, "overall": min(save, load), "projected": scale < 1}


def _training(ran: Document, limits: Document, scale: float) -> Document:
    slowest = {k: max(o["seconds"] for o in ran["operations"] if o["kind"] == k) / scale for k in ("save", "load")}
    mttf = limits["mttf_seconds"]
    young = math.sqrt(2 * slowest["save"] * mttf)
    intervals = {"rule": limits["interval_seconds"], "Young": young, "Daly": young * 1.02 - slowest["save"]}
    return {
        "subject": ran["subject"],
        "save_seconds": slowest["save"],
        "load_seconds": slowest["load"],
        "projected": scale < 1,
        "intervals": [
            {
                "name": n,
                "interval_seconds": i,
                "effective_training_time_ratio": 1 - slowest["save"] / i - (i / 2 + slowest["load"] + 60) / mttf,
            }
            for n, i in intervals.items()
        ],
    }


def _grade_reasons(grade: str, verdicts: list[Document], scale: float) -> list[str]:
    failed = [
        f"{v['id']} failed for {v['subject']}: {v['because']}"
        for v in verdicts
        if v["outcome"] == "failed" and v["severity"] == "required"
    ]
    missing = {
        (v["subject"], v["because"]): f"SAVE, LOAD did not run for {v['subject']}: {v['because']}"
        for v in verdicts
        if v["outcome"] == "not run"
    }
    if grade == "certified":
        return ["Every required requirement was met, at full scale, with at least 10 saves and 10 loads."]
    rehearsal = [
        f"The run was at {scale:.4g} of the full size; limits were judged by bandwidth.",
        "The run had 3 saves and loads; acceptance needs 10 of each.",
    ]
    return failed + list(missing.values()) + (rehearsal if grade == "rehearsal" else [])
