"""The history of many runs in one directory: history.jsonl with one line of JSON per run, and a copy of each run."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, TypedDict

from pytest_ckpt.evidence.manifest import is_as_listed
from pytest_ckpt.facts.bounds import Bounds, CountFromOne, Moment, Positive, Text
from pytest_ckpt.facts.options import with_role
from pytest_ckpt.facts.verdict import Grade
from pytest_ckpt.facts.written import fault
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.support.strict_json import parse, read
from pytest_ckpt.support.user_files import answering, is_there, refuse_inside, user_path

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEMA = "pytest-ckpt/history/1"
LINES, RUNS, _LOCK = "history.jsonl", "runs", "lock"
_REPORT = "report.json"
# Permitted names of runs: without path separators, so that no path leaves the directory of runs.
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_MAXIMUM_NAMED = 5
_REQUESTS = "request_p99_seconds"
OPTION = "--ckpt-history"

Seconds = Annotated[float, Bounds(ge=1e-9, le=1e9)]


class LineSubject(TypedDict):
    """One workload of a run, with the times of its saves and loads.

    ``is_complete`` states whether the measurement was completed. ``conditions`` are the settings and sizes that affect
    times. Only runs with equal conditions are compared. ``request_p99_seconds`` exists only for an object store. It is
    {kind of request: 99th percentile of the request times at the slowest endpoint}.
    """

    subject: Text
    conditions: dict[str, Any]
    is_complete: bool
    save_seconds: list[Seconds]
    load_seconds: list[Seconds]
    save_limit_seconds: Positive
    load_limit_seconds: Positive
    request_p99_seconds: NotRequired[dict[str, Seconds]]


class Line(TypedDict):
    """One line of history.jsonl. The option --ckpt-history appends a line for each run.

    Fields may be added. If the meaning of a field changes, the schema gets a new number.
    """

    schema: Literal["pytest-ckpt/history/1"]
    id: Text
    version: str
    started: Moment
    finished: str | None
    grade: Grade
    exit_code: Literal[0, 1, 2, 3, 4, 8]
    accelerators: CountFromOne
    directory: str
    subjects: list[LineSubject]


def check_place(history: Path, target: Path, report: Path) -> None:
    """Raise UsageError if a history cannot be written, or is in a directory that the run cleans or measures."""
    others = {"--ckpt-target": target, "--ckpt-report": report}
    place = refuse_inside(OPTION, history, others, "Name a directory elsewhere: /var/lib/ckpt, for example.")
    with answering(f"{OPTION} {history}"):
        there = next(p for p in (place, *place.parents) if is_there(p))
        can_be_written = there.is_dir() and os.access(there, os.W_OK | os.X_OK)
    if not can_be_written:
        raise UsageError(f"{OPTION} {history} cannot be written.", "Name a directory that can be written.")


def entry(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the history line of a run. `pytest-ckpt trend` uses its values."""
    run = document["run"]
    settings = {s["option"]: s.get("value") for s in document["settings"]}
    limits = {c["subject"]: c for c in document["checkpoints"]}
    # Plugin hooks that run around or during a launch may affect times.
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
        "directory": f"{RUNS}/{run['id']}",
        "subjects": [
            {
                "subject": m["subject"],
                "conditions": {o.key.replace("_", "-"): settings.get(o.flag) for o in with_role("condition")}
                | {name: m[name] for name in ("processes", "scale", "bytes")}
                | ({"plugins": plugins} if plugins else {})
                | ({"engine of": owner} if (owner := _owner(limits[m["subject"]])) else {}),
                "is_complete": m["failure"] is None,
                "save_seconds": [o["seconds"] for o in m["operations"] if o["kind"] == "save"],
                "load_seconds": [o["seconds"] for o in m["operations"] if o["kind"] == "load"],
                "save_limit_seconds": limits[m["subject"]]["save_limit_seconds"],
                "load_limit_seconds": limits[m["subject"]]["load_limit_seconds"],
            }
            | ({_REQUESTS: times} if (times := _p99_of_requests(m)) else {})
            for m in document["measurements"]
        ],
    }


def _p99_of_requests(measured: Mapping[str, Any]) -> dict[str, float]:
    """Return {kind of request to an object store: 99th percentile of its times in seconds, at the slowest endpoint}."""
    worst: dict[str, float] = {}
    for row in measured.get("requests") or ():
        if row["p99_seconds"] is not None:
            worst[row["kind"]] = max(row["p99_seconds"], worst.get(row["kind"], 0.0))
    return worst


def _owner(checkpoint: Mapping[str, Any]) -> str:
    """Return the package that supplies a checkpoint's engine, with its version; empty for a built-in engine."""
    return str((checkpoint.get("engine") or {}).get("owner", ""))


def append_run(history: Path, document: Mapping[str, Any], directory: Path) -> int:
    """Copy a run directory into the history and append the line of the run. Return the number of lines.

    The line is appended after the copy is complete. When the function returns, the line is on disk. Raises OSError.
    """
    history = user_path(history, OPTION)
    (history / RUNS).mkdir(parents=True, exist_ok=True)
    line = entry(document)
    with (history / _LOCK).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        partial = history / RUNS / f".{line['id']}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        try:
            shutil.copytree(directory, partial)
            partial.rename(history / line["directory"])
        except OSError:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        with (history / LINES).open("a+b") as lines:
            # If a full disk or a power cut truncated the last line, end it first, so that it remains a separate invalid
            # line.
            torn = lines.tell() > 0 and _last_byte(lines.fileno()) != b"\n"
            lines.write((b"\n" if torn else b"") + json.dumps(line).encode() + b"\n")
            lines.flush()
            os.fsync(lines.fileno())
        return sum(1 for text in (history / LINES).read_bytes().splitlines() if text.strip())


def read_history(history: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Return (lines of a history, messages). The lines are sorted by the start time of their runs.

    Each invalid line is left out and causes a message. Raises UsageError if the directory contains no history.
    """
    file = user_path(history, OPTION) / LINES
    try:
        lines = read(file).splitlines()
    except OSError as error:
        raise UsageError(
            f"{file} cannot be read: {error.strerror}.", f"Name a directory that runs were given with {OPTION}."
        ) from None
    entries: dict[str, dict[str, Any]] = {}
    notices = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            entry_of_line = _entry_of(line)
            if entry_of_line["id"] in entries:
                raise ValueError(f"run {entry_of_line['id']} has a line already")
            entries[entry_of_line["id"]] = entry_of_line
        except ValueError as error:
            notices.append(f"line {number} of {LINES} was passed over: {error}")
    return sorted(entries.values(), key=_start_time), notices


def compare_with_reports(history: Path, entries: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return (history lines, sentences on problems). Each line contains the values of its run's report.

    If the directory of a run is missing, its line is kept unchanged. If the report of a run is invalid or does not
    match its manifest, the run is left out. If line and report differ, the values of the report are used. Sentences
    state these problems, and list directories of runs without a line.
    """
    runs = user_path(history, OPTION) / RUNS
    kept, notices, bare = [], [], 0
    for line in entries:
        directory = runs / line["id"]
        if not directory.is_dir():
            bare += 1
            kept.append(line)
            continue
        try:
            # Converted to plain types like a line: without tuples.
            report = parse(read(directory / _REPORT))
            document = parse(json.dumps(entry(report)).encode())
            wrong = fault(document, Line)
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            wrong = f"{_REPORT} is not a report: {error}"
        if not wrong and not is_as_listed(directory, _REPORT):
            wrong = f"{_REPORT} is not as its run left it"
        if wrong:
            notices.append(f"run {line['id']} was left out: {RUNS}/{line['id']}: {wrong}")
            continue
        if _as_old_as(line, document) != line:
            names = ", ".join(name for name in document if document[name] != line.get(name)) or "more than there was"
            notices.append(f"run {line['id']}: its line was changed ({names}); its report counts")
        kept.append(document)
    known = {line["id"] for line in entries}
    lost = sorted(f.name for f in runs.iterdir() if f.name not in known and f.is_dir()) if runs.is_dir() else []
    if lost := [name for name in lost if not name.startswith(".")]:
        more = f" and {len(lost) - _MAXIMUM_NAMED} more" if len(lost) > _MAXIMUM_NAMED else ""
        notices.append(f"in {RUNS}, but without a line in {LINES}: {', '.join(lost[:_MAXIMUM_NAMED])}{more}")
    if bare:
        notices.append(f"{bare} of {len(entries)} runs have no directory in {RUNS}: their lines cannot be checked")
    return sorted(kept, key=_start_time), notices


def _as_old_as(line: Mapping[str, Any], stated: dict[str, Any]) -> dict[str, Any]:
    """Return ``stated`` without the fields that are missing in ``line`` because an older version wrote the line.

    ``stated`` is the line that follows from the report of the same run.
    """
    had = {subject["subject"] for subject in line["subjects"] if _REQUESTS in subject}
    subjects = [
        subject if subject["subject"] in had else {name: subject[name] for name in subject if name != _REQUESTS}
        for subject in stated["subjects"]
    ]
    return stated | {"subjects": subjects}


def _entry_of(line: bytes) -> dict[str, Any]:
    fields: dict[str, Any] = parse(line)
    if wrong := fault(fields, Line):
        raise ValueError(wrong)
    if not _ID.fullmatch(fields["id"]):
        raise ValueError(f"{fields['id']!r:.60} is not a name of a run")
    _start_time(fields)
    return fields


def _start_time(line: Mapping[str, Any]) -> datetime:
    """Return the start time of a run. A time without a zone is UTC. Raises ValueError for an invalid time."""
    moment = datetime.fromisoformat(str(line["started"]))
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _last_byte(descriptor: int) -> bytes:
    return os.pread(descriptor, 1, os.fstat(descriptor).st_size - 1)
