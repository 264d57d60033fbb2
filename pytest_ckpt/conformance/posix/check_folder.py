"""Where the checks of one run work: a folder in the run's area, which the first check makes.

The controller names it and never touches it: on a target that hangs, it would hang too.
"""

from __future__ import annotations

from pathlib import Path

from pytest_ckpt.facts.targets import AreaRef
from pytest_ckpt.targets.posix.run_folder import folder_of

CHECKS_FOLDER = "checks"
"""Below the run's folder on the target; all that is in it was made by checks."""


def check_folder(area: AreaRef) -> tuple[Path, str]:
    """Return (the folder that the user named, the way from there), as `run_check` takes them apart."""
    folder = folder_of(area)
    return folder.parent, f"{folder.name}/{CHECKS_FOLDER}"
