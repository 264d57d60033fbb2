"""The folder of the report: refused where it would be measured, and that of an earlier run is set aside."""

from __future__ import annotations

import time
from pathlib import Path

from pytest_ckpt.facts.targets import TargetFacts
from pytest_ckpt.run.crash import CRASH_FILE
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.support.user_files import resolved_user_path
from pytest_ckpt.targets.posix.run_folder import place_on_this_host

_OURS = ("session.json", "report.json", CRASH_FILE)


def check_report_place(report: Path, facts: TargetFacts) -> None:
    """Refuse a report folder on the target, where it would be measured, or around it."""
    place = resolved_user_path(report, "--ckpt-report")
    folder = place_on_this_host(facts)
    if folder and (place == folder or folder in place.parents or place in folder.parents):
        raise UsageError(
            f"--ckpt-report {report} and --ckpt-target {facts.location} lie in each other.",
            "Name a report folder elsewhere: --ckpt-report=/var/tmp/ckpt-report, for example.",
        )
    if place.exists() and not place.is_dir():
        raise UsageError(f"--ckpt-report {report} is a file.", "Name a folder.")
    if place.is_dir() and any(place.iterdir()) and not any((place / name).exists() for name in _OURS):
        raise UsageError(
            f"--ckpt-report {report} holds files that are not of an earlier run.", "Name an empty or a new folder."
        )


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
