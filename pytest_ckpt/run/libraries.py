"""Which libraries and engines there are on this machine, for `doctor`; each is imported in a process of its own."""

from __future__ import annotations

import contextlib
import importlib.metadata
import subprocess
import sys
from typing import TYPE_CHECKING

from pytest_ckpt.config.engines import OPTION, is_installed, missing_packages
from pytest_ckpt.facts.engines import BUILT_IN, DEFAULT
from pytest_ckpt.run.findings import Finding
from pytest_ckpt.support.resources import PACKAGE_HOME

if TYPE_CHECKING:
    from pytest_ckpt.facts.settings import Settings

_IMPORT_SECONDS = 180


def library(name: str, remedy: str, *, needed: bool = True) -> Finding:
    """Import a library in a process of its own: what breaks there breaks nothing here."""
    command = [sys.executable, "-c", f"import {name}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_IMPORT_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return Finding(
            name=name, can=False, needed=needed, description=f"no import in {_IMPORT_SECONDS} s", remedy=remedy
        )
    if done.returncode:
        description = (done.stderr.strip().splitlines() or [f"its import ended with {done.returncode}"])[-1]
        return Finding(name=name, can=False, needed=needed, description=description, remedy=remedy)
    return Finding(name=name, can=True, needed=needed, description=importlib.metadata.version(name))


def engines(settings: Settings) -> Finding:
    """Say which engines can run here, and for stream whether its containers are those of the torch that is there."""
    runs = [spec.name for spec in BUILT_IN if is_installed(spec)]
    runs += [spec.name for spec in settings.engines if spec.owner and is_installed(spec)]
    chosen = ", ".join(spec.name for spec in settings.engines)
    description = f"{', '.join(runs)} can run; chosen: {chosen}"
    missing = [spec for spec in settings.engines if not is_installed(spec)]
    if missing:
        remedy = f"Install {' and '.join(missing_packages(missing[0]))}, or choose another: {OPTION}={runs[0]}."
        return Finding(name="engines", can=False, needed=True, description=description, remedy=remedy)
    # Two seconds of a core, and of interest to who lets stream write what torch is to read.
    if not is_installed(DEFAULT) or all(spec.name != "stream" for spec in settings.engines):
        return Finding(name="engines", can=True, needed=True, description=description)
    command = [sys.executable, "-m", "pytest_ckpt.ranks.engines.container_check"]
    with contextlib.suppress(subprocess.TimeoutExpired):
        done = subprocess.run(
            command, cwd=PACKAGE_HOME, capture_output=True, text=True, timeout=_IMPORT_SECONDS, check=False
        )
        if done.returncode == 1 and done.stdout:
            remedy = "Both can be read by torch.load; for the same bytes install the torch that constraints.txt names."
            description += f"; stream writes other containers than this torch: {done.stdout.strip()}"
            return Finding(name="engines", can=False, needed=False, description=description, remedy=remedy)
    return Finding(name="engines", can=True, needed=True, description=description)
