"""Verdicts of made-up report documents, and what follows from them: sizes, goodput, the grade's reasons."""

from __future__ import annotations

import math
from typing import Any

Document = dict[str, Any]


CATALOGUE = [
    (
        "SAVE",
        "save meets the budget",
        "required",
        "Every save, from the barrier until the slowest rank is done and the checkpoint is committed, takes no longer "
        "than the save limit of the cluster. One slow save stops the whole cluster, so each of the ten counts.",
        "the save budget over the checkpoint interval",
    ),
    (
        "LOAD",
        "cold restore meets the budget",
        "required",
        "Every load, from the barrier until the slowest rank holds its state, takes no longer than the load limit.",
        "the load budget over the mean time between failures",
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


def verdicts_of(
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
        verdict("DURABLE-CALLS", 160.0, 160.0, "files", "fsync returned for all 160 files and 10 directories."),
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


def sizes_of(
    subject: str, ran: Document | None, accelerators: int, save_limit: float, load_limit: float, scale: float
) -> Document:
    if ran is None or ran["failure"]:
        return {"subject": subject, "save": None, "load": None, "overall": None, "projected": False}
    slowest = {k: max(o["seconds"] for o in ran["operations"] if o["kind"] == k) for k in ("save", "load")}
    save, load = int(accelerators * save_limit / slowest["save"]), int(accelerators * load_limit / slowest["load"])
    return {"subject": subject, "save": save, "load": load, "overall": min(save, load), "projected": scale < 1}


def training_of(ran: Document, limits: Document, scale: float) -> Document:
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


def reasons_of(grade: str, verdicts: list[Document], scale: float) -> list[str]:
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
