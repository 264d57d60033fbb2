"""A plugin that writes the markers of the collected tests as JSON to the file named by ``CKPT_TESTS_HOLD``."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

import pytest

VARIABLE = "CKPT_TESTS_HOLD"


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Write the names that the markers of the collected tests list."""
    Path(os.environ[VARIABLE]).write_text(json.dumps(held_by(session.items)))


def held_by(items: Iterable[pytest.Item]) -> dict[str, dict[str, list[str]]]:
    """Return the names that the marker ``covers`` of each test lists, as {test: {kind of entry: names}}."""
    return {item.nodeid: _held(item) for item in items}


def _held(item: pytest.Item) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for marker in item.iter_markers("covers"):
        for kind, names in marker.kwargs.items():
            found.setdefault(kind, []).extend(names)
    return found
