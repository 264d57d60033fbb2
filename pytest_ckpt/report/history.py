"""The history of many runs: one line of JSON a run, and the folder of each, both below one folder."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ckpt.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEMA = "pytest-ckpt/history/1"
LINES, RUNS, _LOCK = "history.jsonl", "runs", "lock"
OPTION = "--ckpt-history"
# What a time depends on besides storage and load: with another value the series is another one.
_CONDITIONS = (
    "--ckpt-target", "--ckpt-hosts", "--ckpt-engine", "--ckpt-request", "--ckpt-depth", "--ckpt-drop-caches",
    "--ckpt-retain", "--ckpt-compressible",
)  # fmt: skip


def check_place(history: Path, target: Path, report: Path) -> None:
    """Refuse a history that cannot be written, or that lies where a run cleans or measures. Raises UsageError."""
    place = history.expanduser().resolve()
    for option, other in (("--ckpt-target", target), ("--ckpt-report", report)):
        inside = other.expanduser().resolve()
        if place == inside or inside in place.parents:
            raise UsageError(
                f"{OPTION} {history} lies in {option} {other}.", "Name a folder elsewhere: /var/lib/ckpt, for example."
            )
    there = next(p for p in (place, *place.parents) if p.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise UsageError(f"{OPTION} {history} cannot be written.", "Name a folder that can be written.")


def entry(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the line of a run: what a trend is made of."""
    run = document["run"]
    settings = {s["option"]: s.get("value") for s in document["settings"]}
    limits = {c["subject"]: c for c in document["checkpoints"]}
    # What a plugin does around a launch, or to it, may be seen in times.
    plugins = [f"{p['name']} {p['version']}".rstrip() for p in document["environment"].get("plugins") or ()]
    return {
        "schema": SCHEMA,
        "id": run["id"],
        "version": run["version"],
        "started": run["started"],
        "finished": run["finished"],
        "grade": document["grade"],
        "exit_code": document["exit_code"],
        "accelerators": document["cluster"]["accelerators"],
        "folder": f"{RUNS}/{run['id']}",
        "subjects": [
            {
                "subject": m["subject"],
                "conditions": {name.removeprefix("--ckpt-"): settings.get(name) for name in _CONDITIONS}
                | {name: m[name] for name in ("processes", "scale", "bytes")}
                | ({"plugins": plugins} if plugins else {}),
                "is_whole": m["failure"] is None,
                "save_seconds": [o["seconds"] for o in m["operations"] if o["kind"] == "save"],
                "load_seconds": [o["seconds"] for o in m["operations"] if o["kind"] == "load"],
                "save_limit_seconds": limits[m["subject"]]["save_limit_seconds"],
                "load_limit_seconds": limits[m["subject"]]["load_limit_seconds"],
            }
            for m in document["measurements"]
        ],
    }


def append_run(history: Path, document: Mapping[str, Any], folder: Path) -> int:
    """Copy a run folder into the history and append its line; return how many lines there are now.

    The copy is whole before the line appears, and the line is on disk before this returns. Raises OSError.
    """
    history = history.expanduser()
    (history / RUNS).mkdir(parents=True, exist_ok=True)
    line = entry(document)
    with (history / _LOCK).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        partial = history / RUNS / f".{line['id']}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        try:
            shutil.copytree(folder, partial)
            partial.rename(history / line["folder"])
        except OSError:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        with (history / LINES).open("a+b") as lines:
            # A line that was cut short by a full disk or a power cut stays one line.
            torn = lines.tell() > 0 and _last_byte(lines.fileno()) != b"\n"
            lines.write((b"\n" if torn else b"") + json.dumps(line).encode() + b"\n")
            lines.flush()
            os.fsync(lines.fileno())
        return sum(1 for text in (history / LINES).read_bytes().splitlines() if text.strip())


def read_history(history: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the entries in the order in which the runs started, and a sentence for each line that is none.

    Raises UsageError when the folder holds no history.
    """
    file = history.expanduser() / LINES
    try:
        lines = file.read_bytes().splitlines()
    except OSError as error:
        raise UsageError(
            f"{file} cannot be read: {error.strerror}.", f"Name a folder that runs were given with {OPTION}."
        ) from None
    entries, notices = [], []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
            if found["schema"] != SCHEMA:
                raise ValueError(f"schema {found['schema']}")
            entries.append(found)
        except (ValueError, KeyError, TypeError) as error:
            notices.append(f"line {number} of {LINES} was passed over: {error}")
    return sorted(entries, key=lambda e: str(e["started"])), notices


def _last_byte(descriptor: int) -> bytes:
    return os.pread(descriptor, 1, os.fstat(descriptor).st_size - 1)
