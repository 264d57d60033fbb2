"""A pytest plugin that writes the markers of collected tests as JSON to the file in ``CKPT_TESTS_HOLD``."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

import pytest

VARIABLE = "CKPT_TESTS_HOLD"


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Write the names in the ``covers`` markers of the collected tests."""
    Path(os.environ[VARIABLE]).write_text(json.dumps(held_by(session.items)))


def held_by(items: Iterable[pytest.Item]) -> dict[str, dict[str, list[str]]]:
    """Return {test: {kind of entry: names}} from the marker ``covers`` of each test."""
    return {item.nodeid: _held(item) for item in items}


def _held(item: pytest.Item) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for marker in item.iter_markers("covers"):
        for kind, names in marker.kwargs.items():
            found.setdefault(kind, []).extend(names)
    return found
