"""Finds the suites and templates: at the top of a checkout or inside the installed package."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]

PACKAGE_HOME = _PACKAGE.parent
"""The directory that a process of ours needs on its path to import this copy of the package."""


def directory(name: str) -> Path:
    """Return the directory ``suites`` or ``templates``, in a checkout or in an installed package."""
    inside = _PACKAGE / name
    # In a checkout, pytest_ckpt/suites is a link to the directory suites at the top.
    return (inside if inside.is_dir() else _PACKAGE.parent / name).resolve()
