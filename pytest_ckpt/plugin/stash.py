"""Keys of the values that this package stores in pytest's configuration."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pytest_ckpt.plugin.vendor_hooks import Plugins
    from pytest_ckpt.run.context import RunContext
    from pytest_ckpt.run.open import OpenRun

RUN: pytest.StashKey[RunContext] = pytest.StashKey()
"""The run of this process; missing if there is no target."""

OPEN_RUN: pytest.StashKey[OpenRun] = pytest.StashKey()
"""The open run, only on the controller; missing if pytest only lists tests."""

PLUGINS: pytest.StashKey[Plugins] = pytest.StashKey()

REFUSED: pytest.StashKey[list[str]] = pytest.StashKey()
"""Messages about errors that occurred during collection or in a worker."""

OLD_HANDLERS: pytest.StashKey[dict[signal.Signals, Any]] = pytest.StashKey()
"""The previous handlers of the signals that end a run."""
