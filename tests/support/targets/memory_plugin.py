"""The plugin that adds the scheme ``memory:``; used with ``-p tests.support.targets.memory_plugin``."""

from __future__ import annotations

from pytest_ckpt.vendors import TargetSpec
from tests.support.targets.memory_store import SPEC

__version__ = "1"


def pytest_ckpt_targets() -> list[TargetSpec]:
    """Return the specification of the scheme ``memory:``."""
    return [SPEC]
