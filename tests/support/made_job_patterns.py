"""Patterns made up for tests, as the texts of their files."""

from __future__ import annotations

import json

ONE_FILE = json.dumps(
    {
        "form": 1,
        "made_by": "a test",
        "label": "one file",
        "ranks": 1,
        "read_bytes": 0,
        "left_out": {},
        "files": [[0, 100_000, True]],
        "steps": [
            [0, 0, 0, "create", 0, 0, 0, 1],
            [0, 0, 0, "write", 0, 0, 50_000, 2],
            [0, 0, 0, "close", 0, 0, 0, 1],
        ],
    }
)
