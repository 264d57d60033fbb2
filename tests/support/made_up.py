"""Made-up report documents: every grade, any number of ranks, failures, and strings that try to break out."""

from __future__ import annotations

import math
import random
from typing import Any

from pytest_ckpt.facts.targets import MOUNTED
from tests.support.made_up_measurements import measurement_of
from tests.support.made_up_verdicts import CATALOGUE, reasons_of, sizes_of, training_of, verdicts_of

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
        "save_budget": 0.05,
        "load_budget": 0.01,
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
        "inputs": [],
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
                    "copies": 6,
                    "restore_all_bytes_per_second": per_save * 6,
                },
                "not_run": reason,
                "published": published,
            }
        )
        failed_early = fail_after is not None and position == 0
        ran = None
        if reason is None:
            ran = measurement_of(
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
        verdicts += verdicts_of(subject, ran, save_limit, load_limit, scale, reason, text)
        sizes.append(sizes_of(subject, ran, accelerators, save_limit, load_limit, scale))
        if ran and not ran["failure"]:
            training.append(training_of(ran, limits, scale))
    result: Document = {
        "schema": "pytest-ckpt/report/1",
        "run": {
            "id": "2031-05-06T07-08-09-a1b2c3",
            "version": "0.2.0",
            "started": "2031-05-06T07:08:09+00:00",
            "finished": "2031-05-06T08:19:20+00:00",
            "command": ["pytest", f"--ckpt-target=/mnt/array one/ü{text}", f"--cluster={accelerators}"],
            "seconds": 4271.0,
            "directory": f"/srv/reports/ckpt-report{text}",
        },
        "grade": grade,
        "grade_reasons": reasons_of(grade, verdicts, scale),
        "exit_code": {"certified": 0, "rehearsal": 0, "not certified": 1, "incomplete": 8}[grade],
        "cluster": limits,
        "checkpoints": checkpoints,
        "requirements": verdicts,
        "catalogue": [
            {"id": i, "title": t, "severity": s, "text": x + text, "source": o} for i, t, s, x, o in CATALOGUE
        ],
        "catalogue_names": [row[0] for row in CATALOGUE],
        "measurements": measurements,
        "sufficient_up_to_accelerators": sizes,
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
            {"option": "--ckpt-save-budget", "value": "5%", "default": "5%", "source": "default"},
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
        "sufficient_up_to_accelerators": [{"subject": "llama3-8b-full", "save": None, "load": None, "overall": None}],
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
    kept = (
        "schema", "run", "grade", "cluster", "requirements", "catalogue_names", "measurements",
        "sufficient_up_to_accelerators",
    )  # fmt: skip
    slim = {name: whole[name] for name in kept}
    slim["run"] = {name: whole["run"][name] for name in ("id", "version", "started", "finished", "command")}
    later = {"reasons", "inputs", "failure_model", "failures_per_day_in_slots"}
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
