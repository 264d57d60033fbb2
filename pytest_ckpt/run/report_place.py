"""The folder of the report: held to be usable before a run, and cleared of the report of an earlier one."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ckpt.run.crash import CRASH_FILE
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.support.user_files import answering, is_there, resolved_user_path
from pytest_ckpt.targets.posix.run_folder import place_on_this_host

if TYPE_CHECKING:
    from pytest_ckpt.facts.targets import TargetFacts

_OURS = frozenset(("session.json", "report.json", CRASH_FILE))


def check_report_place(report: Path, facts: TargetFacts) -> None:
    """Refuse a report folder on the target, where it would be measured, or around it."""
    place = resolved_user_path(report, "--ckpt-report")
    folder = place_on_this_host(facts)
    if folder and (place == folder or folder in place.parents or place in folder.parents):
        raise UsageError(
            f"--ckpt-report {report} and --ckpt-target {facts.location} lie in each other.",
            "Name a report folder elsewhere: --ckpt-report=/var/tmp/ckpt-report, for example.",
        )
    with answering(f"--ckpt-report {report}"):
        names = _names_in(place, report)
    if names and not names & _OURS:
        raise UsageError(
            f"--ckpt-report {report} holds files that are not of an earlier run.", "Name an empty or a new folder."
        )


def _names_in(place: Path, report: Path) -> set[str]:
    """Return the names in a folder, none where it does not exist yet. Raises UsageError and OSError."""
    if not is_there(place):
        return set()
    try:
        return {entry.name for entry in place.iterdir()}
    except NotADirectoryError:
        raise UsageError(f"--ckpt-report {report} is a file.", "Name a folder.") from None


def set_aside(report: Path) -> Path | None:
    """Give the report folder of an earlier run another name; return that name, or None where there was none."""
    if not report.is_dir() or not any(report.iterdir()):
        return None
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(report.stat().st_mtime))
    aside = report.with_name(f"{report.name}-{stamp}")
    number = 1
    while aside.exists():
        number += 1
        aside = report.with_name(f"{report.name}-{stamp}-{number}")
    report.rename(aside)
    return aside
