"""A pytest plugin that writes the markers of collected tests as JSON to the file in ``CKPT_TESTS_COVERS``."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

import pytest

VARIABLE = "CKPT_TESTS_COVERS"


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Write the names that the ``covers`` markers of the collected tests contain."""
    Path(os.environ[VARIABLE]).write_text(json.dumps(covered_names(session.items)))


def covered_names(items: Iterable[pytest.Item]) -> dict[str, dict[str, list[str]]]:
    """Return {test: {kind of entry: names}}, read from the marker ``covers`` of each test."""
    return {item.nodeid: _covered(item) for item in items}


def _covered(item: pytest.Item) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for marker in item.iter_markers("covers"):
        for kind, names in marker.kwargs.items():
            found.setdefault(kind, []).extend(names)
    return found
