"""Clearing what a run made on the target, within a time that the target cannot stretch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ckpt.support.resources import PACKAGE_HOME

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def remove_in_time(
    target: Path, identity: Sequence[int], names: Iterable[str], seconds: float, *, keep_folder: bool = False
) -> list[str]:
    """Remove a run's folder from another process, so that a target that does not answer cannot hold this one.

    Return what was left, one sentence each. With ``keep_folder`` only what is in it is removed.
    """
    asked = json.dumps(
        {"path": str(target), "identity": list(identity), "names": sorted(names), "keep_folder": keep_folder}
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest_ckpt.targets.posix.run_folder"],
        cwd=PACKAGE_HOME,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(asked, timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        return [f"{target} stays: the target did not answer for {seconds:g} s"]
    left: list[str] = json.loads(said) if process.returncode == 0 else [f"{target} was not removed"]
    return left
