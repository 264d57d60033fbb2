"""Locates suites and templates in a checkout or an installed package; provides the import path of processes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_PACKAGE = Path(__file__).resolve().parents[1]

PACKAGE_HOME = _PACKAGE.parent
"""The directory that must be on the import path of a run's processes, so that they import this copy of pytest-ckpt."""


def python_path(inherited: Mapping[str, str] = os.environ) -> str:
    """Return a value for PYTHONPATH: the directory of this copy of pytest-ckpt, then the inherited paths."""
    return os.pathsep.join([str(PACKAGE_HOME), *filter(None, [inherited.get("PYTHONPATH")])])


def directory(name: str) -> Path:
    """Return the directory ``suites`` or ``templates``, in a checkout or in an installed package."""
    inside = _PACKAGE / name
    # In a checkout, pytest_ckpt/suites is a link to the directory suites at the top.
    return (inside if inside.is_dir() else _PACKAGE.parent / name).resolve()
