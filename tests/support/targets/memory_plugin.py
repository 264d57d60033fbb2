"""The plugin that brings ``memory:``; a run is given it with ``-p tests.support.targets.memory_plugin``."""

from __future__ import annotations

from pytest_ckpt.vendors import TargetSpec
from tests.support.targets.memory_store import SPEC

__version__ = "1"


def pytest_ckpt_targets() -> list[TargetSpec]:
    """Bring it."""
    return [SPEC]
