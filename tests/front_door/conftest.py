"""What the end-to-end tests share: one run that meets everything."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.front_door import SMALLEST, TORCH, Run, opened_door


@pytest.fixture(scope="session")
def good(make_home: Callable[[str], Path]) -> Run:
    """A small run that meets all that is required, with everything written that can be."""
    with opened_door(make_home("good")) as opened:
        return opened.run(
            *SMALLEST,
            TORCH,
            "--junitxml=pytest.xml",
            "--benchmark-json=benchmark.json",
            environment={"KEY_OF_THE_USER": "not-for-the-report"},
        )
