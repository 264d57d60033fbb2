"""Resolves ``module:function`` references in the process that uses them."""

from __future__ import annotations

import importlib
from typing import Any


def load(reference: str) -> Any:
    """Return the object that ``module:name`` names. Raises ImportError or AttributeError if there is no such object."""
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(module), name)
