"""Whether a report of this version fits this version's own tables, and adds up: gates, options, catalogue, stages."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_ckpt.config.gate_files import built_in, load_gates
from pytest_ckpt.evidence.differences import differences, short
from pytest_ckpt.facts.codec import to_plain
from pytest_ckpt.facts.options import OPTIONS
from pytest_ckpt.facts.subject import Subject
from pytest_ckpt.grading.catalogue import CATALOGUE_NAMES
from pytest_ckpt.judging.gates import BUILT_IN
from pytest_ckpt.support.strict_json import parse, read

_TOP = frozenset(
    ("schema", "run", "grade", "grade_reasons", "exit_code", "cluster", "checkpoints", "requirements", "catalogue",
     "catalogue_names",
     "gates", "waivers", "measurements", "observations", "certified_cluster", "scope", "certified_for", "training",
     "forecast",
     "framework_overhead", "system", "system_lacks", "environment", "settings", "disclosures",
     "relevance", "untried", "sections", "stages", "left_behind")
)  # fmt: skip
_RUN = frozenset(("id", "version", "started", "finished", "seconds", "command", "folder", "seed"))


def gate_faults(report: Mapping[str, Any]) -> list[str]:
    """Return where a table of gates bears the name of one that ships, and is another."""
    gates = report["gates"]
    names = {built_in(word).name: word for word in BUILT_IN}
    if gates["name"] not in names:
        return []
    ours = to_plain(load_gates(names[gates["name"]], report["environment"]["target"]["gate_kind"]))
    return [
        f"{place}: report.json says {short(stated)}, the table of that name says {short(shipped)}"
        for place, stated, shipped in differences(gates, ours, "gates")
    ]


def option_faults(report: Mapping[str, Any]) -> list[str]:
    """Return where the settings are not those of the options that there are, each with its default."""
    stated = {s["option"]: s["default"] for s in report["settings"]}
    ours = {option.flag: option.default for option in OPTIONS}
    found = [
        f"settings[{flag}].default: report.json says {short(stated.get(flag))}, the option has {short(default)}"
        for flag, default in ours.items()
        if stated.get(flag) != default
    ]
    if len(report["settings"]) != len(ours) or set(stated) != set(ours):
        found.append("settings: report.json names other options than there are")
    return found


def catalogue_faults(report: Mapping[str, Any]) -> list[str]:
    """Return which requirements and checks of this version the report does not list, and which others it lists."""
    stated = report["catalogue_names"]
    found = [f"catalogue_names: report.json does not list {name}" for name in CATALOGUE_NAMES if name not in stated]
    if not found and tuple(stated) != CATALOGUE_NAMES:
        found.append("catalogue_names: report.json lists other requirements and checks than there are")
    return found


def stage_faults(report: Mapping[str, Any]) -> list[str]:
    """Return where the stages of the run are not those of its measurements, or not of its seconds."""
    stages, total = report["stages"], report["run"].get("seconds")
    sums: dict[str, float] = {}
    for measurement in report["measurements"]:
        for name, seconds in measurement["stages"].items():
            sums[name] = sums.get(name, 0.0) + seconds
    found = [
        f"stages.{name}: report.json says {short(stages.get(name))}, the measurements say {short(seconds)}"
        for name, seconds in sums.items()
        if stages.get(name) != seconds
    ]
    whole = sum(stages.values())
    if total is not None and not math.isclose(whole, total, rel_tol=1e-6) and (stages.get("other") or whole < total):
        found.append(f"stages: they have {whole:.6g} s in all, and the run had {total:.6g} s")
    return found


def name_faults(report: Mapping[str, Any]) -> list[str]:
    """Return what a report holds at its top, or of its run, that this version does not write."""
    return [
        f"{place}{name}: no run of this version writes it"
        for place, table, known in (("", report, _TOP), ("run.", report["run"], _RUN))
        for name in table
        if name not in known
    ]


def record_faults(folder: Path, report: Mapping[str, Any]) -> list[str]:
    """Return which files of measurements and observations hold more than the report of them, judged again."""
    files = {f"measurements/{Subject.from_text(m['subject']).slug}.json": m for m in report["measurements"]}
    files |= {f"observations/{o['requirement']}.{o['subject']}.json": o for o in report["observations"]}
    found = [
        f"{name} holds more than a run writes" for name, record in files.items() if _plain(folder / name) != record
    ]
    for measurement in report["measurements"]:
        hosts = list(dict.fromkeys(rank["host"] for rank in measurement["ranks"]))
        if measurement["seed"] != report["run"]["seed"]:
            found.append(f"{measurement['subject']} was measured with another seed than the run's")
        if hosts and measurement["hosts"] != hosts:
            found.append(f"{measurement['subject']} names other hosts than those of its ranks")
    return found


def _plain(file: Path) -> Any:
    return parse(read(file))
