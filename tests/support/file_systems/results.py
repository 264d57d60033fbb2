"""The recorded test results of all file systems, in docs/file_systems.json.

docs/file_systems.md is generated from these results.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from tests.support import CHECKOUT

FILE = CHECKOUT / "docs" / "file_systems.json"
UPDATE = "CKPT_UPDATE_FILE_SYSTEMS"
"""The environment variable with the file in which tests record their results, usually FILE."""

_CACHED_SECONDS = 1.0
# A replaced file may be refused as stale, and is then opened again.
_ALLOWED = {
    "replaced": ("times looked", "ESTALE"),
    "renamed_directory": ("times looked", "ESTALE"),
    "created_once": ("winners", "loser was told EEXIST"),
}
"""Counts of the reproductions that are not faults."""


def recorded(where: Path = FILE) -> dict[str, Any]:
    """Return {name of the file system: recorded results} from the JSON file ``where``; {} if there is no such file."""
    found: dict[str, Any] = json.loads(where.read_text() or "{}") if where.exists() else {}
    return found


def record(seen: Mapping[str, Any]) -> None:
    """Record the results of a run on one file system, if the environment variable that `UPDATE` names is set."""
    kept = {
        "date": _today(),
        **{name: seen[name] for name in ("how", "kernel", "versions", "kind", "gates", "exit_code", "grade", "shown")},
        "not_met": {
            name: {key: v[key] for key in ("outcome", "severity", "reason")}
            | {"because": _anywhere(v["because"], seen)}
            for name, v in not_met(seen).items()
        },
        "met": sorted(name_of(v) for v in seen["verdicts"] if v["outcome"] == "met"),
    }
    _keep(seen["name"], kept)


def record_loss(seen: Mapping[str, Any]) -> None:
    """Record the end of a run whose file server was killed, if the environment variable that `UPDATE` names is set."""
    fields = {
        "date": _today(),
        "because": _anywhere(seen["save"]["because"], seen),
        "left": [_anywhere(line, seen) for line in seen["left_behind"]],
    }
    _keep(seen["name"], {"server_lost": fields})


def record_cold(seen: Mapping[str, Any], way: Literal["cold", "volume"] = "cold") -> None:
    """Record the verdict and the values of the requirement COLD, if the variable that `UPDATE` names is set.

    ``way`` is ``cold`` for a test with timed reads, and ``volume`` for a test with more data than memory.
    """
    fields = {"date": _today(), **seen["cold"], "because": _anywhere(seen["cold"]["because"], seen)}
    _keep(seen["name"], {way: fields})


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


def _keep(name: str, what: Mapping[str, Any]) -> None:
    """Replace the fields ``what`` of the file system ``name`` in the recorded results. Other fields stay unchanged.

    Do nothing if the environment variable that `UPDATE` names is not set.
    """
    if not os.environ.get(UPDATE):
        return
    where = CHECKOUT / os.environ[UPDATE]
    # Rows may be tested concurrently.
    with where.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        rows = recorded(where)
        rows[name] = rows.get(name, {}) | what
        where.write_text(json.dumps(rows, indent=1, sort_keys=True) + "\n")


def not_met(seen: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return {name: verdict} for all verdicts that are neither met nor deselected. `name_of` defines the names."""
    return {name_of(v): v for v in seen["verdicts"] if v["outcome"] != "met" and v["reason"] != "not selected"}


def failed(seen: Mapping[str, Any]) -> set[str]:
    return {name for name, v in not_met(seen).items() if (v["outcome"], v["severity"]) == ("failed", "required")}


def is_undecided(verdict: Mapping[str, Any]) -> bool:
    """Return true if a required requirement was not run, and the necessary options were given."""
    return (verdict["outcome"], verdict["severity"]) == ("not run", "required") and verdict["reason"] != "not given"


def name_of(verdict: Mapping[str, Any]) -> str:
    """Return the name that the table shows for a verdict.

    The name is REQUIREMENT.CHECK for the verdict of a check, and REQUIREMENT for every other verdict.
    """
    is_check = "/" not in verdict["subject"] and not verdict["subject"].startswith("llama3-")
    return f"{verdict['id']}.{verdict['subject']}" if is_check else str(verdict["id"])


def _anywhere(text: str, seen: Mapping[str, Any]) -> str:
    """Return the text with /mnt in place of the directories of the run."""
    mounts = str(seen["directory"]).partition("/mounts/")[0] + "/mounts"
    return text.replace(str(seen["directory"]), "/mnt").replace(mounts, "/mnt")


def is_shown(way: str, counts: Mapping[str, Any]) -> bool:
    """Return true if a reproduction shows a fault: a violation of POSIX, or a delay of more than 1 s.

    ``way`` is the name of the reproduction. ``counts`` contains its results.
    """
    if "longest seconds" in counts:
        return bool(counts["longest seconds"] > _CACHED_SECONDS or counts.get("old bytes at the first read"))
    if way == "lengthened":
        return bool(counts["cut off at the first read"])
    if way == "shared_mapping":
        return bool(counts["mmap(MAP_SHARED)"] != "works")
    if way == "filled":
        return bool(counts["a full volume says"] not in ("ENOSPC", "EDQUOT"))
    if way == "committed":
        return bool(counts["with wrong bytes or none"])
    if way == "directory_made_once":
        return bool(counts["made by nobody, and there"] or counts["made by both"])
    if way == "listed":
        return bool(counts["not in the next listing"])
    return any(count for name, count in counts.items() if not name.startswith(_ALLOWED[way]))
