"""What several of the project's own tests share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

CHECKOUT = Path(__file__).resolve().parents[1]

FrontDoor = Callable[..., pytest.RunResult]


@pytest.fixture
def front_door(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> FrontDoor:
    """Run pytest as a user of the plugin does: in a process and a folder of its own, with this checkout's plugin."""
    monkeypatch.setenv("PYTHONPATH", str(CHECKOUT))

    def run(*arguments: object) -> pytest.RunResult:
        words = ("-p", "pytest_ckpt.plugin", "-p", "no:cacheprovider", *map(str, arguments))
        return pytester.runpytest_subprocess(*words)

    return run
