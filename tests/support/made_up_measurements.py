"""Measurements of made-up report documents: operations of every rank, failures, patterns."""

from __future__ import annotations

import random
from typing import Any

Document = dict[str, Any]


def measurement_of(
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
            "probe": "cachestat",
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
        "patterns": patterns_of(done, processes, size, text) if done and processes > 1 and operations > 3 else None,
        "failure": failure,
        "launch": "launches/1",
    }


def patterns_of(done: list[Document], processes: int, size: int, text: str) -> Document:
    """Return loads of other ranks' files; one pattern could not be measured."""
    load = {
        "reads": f"each of {processes} ranks reads the files of the rank that is 8 further{text}",
        "rank_bytes": [size // processes] * processes,
        "operations": [{**done[-1], "kind": "load", "index": n, "bytes": size} for n in (1, 2, 3)],
        "integrity": {"bytes_expected": 3 * size, "bytes_checked": 3 * size, "fault_count": 0, "faults": []},
    }
    pace = {"seconds": 11.5, "bytes": size, "full_bytes": size}
    neighbour = {
        "ranks": processes // 2,
        "neighbour_ranks": processes - processes // 2,
        "bytes": size // 2,
        "neighbour_bytes": size // 2,
        "save_seconds": [12.0, 12.5, 12.2],
        "neighbour_save_seconds": [12.1, 12.3, 12.4],
        "concurrent_bytes": 3 * size,
        "pace": pace,
    }
    mixed = {
        "reads": f"a data loader a host{text}",
        "undisturbed_p99_seconds": [0.004, 0.005, 0.0045],
        "contended_p99_seconds": [0.006, 0.0065, 0.007],
        "undisturbed_reads": [3_000, 3_010, 3_005],
        "contended_reads": [2_900, 2_870, 2_880],
        "save_seconds": [13.0, 13.2, 13.4],
        "loader_bytes_per_second": 10e6,
        "empty_queue_seconds": [0.0, 0.0, 0.0],
        "undisturbed_empty_queue_seconds": [0.0, 0.0, 0.0],
        "client_busy": 0.1,
        "pace": pace,
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
