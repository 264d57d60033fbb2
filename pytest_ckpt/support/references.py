"""Imports the object that a text ``module:name`` refers to."""

from __future__ import annotations

import importlib
from typing import Any


def load(reference: str) -> Any:
    """Return the object that a text ``module:name`` refers to. Raises ImportError or AttributeError."""
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(module), name)
