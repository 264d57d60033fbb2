"""Recorded job patterns for tests, as the JSON text of pattern files."""

from __future__ import annotations

import json

ONE_FILE = json.dumps(
    {
        "form": 1,
        "created_by": "a test",
        "label": "one file",
        "ranks": 1,
        "read_bytes": 0,
        "omitted": {},
        "files": [[0, 100_000, True]],
        "steps": [
            [0, 0, 0, "create", 0, 0, 0, 1],
            [0, 0, 0, "write", 0, 0, 50_000, 2],
            [0, 0, 0, "close", 0, 0, 0, 1],
        ],
    }
)

PAUSED = json.dumps(
    json.loads(ONE_FILE)
    | {
        "steps": [
            [0, 0, 0, "create", 0, 0, 0, 1, 20_000],
            # A sequence of writes, with half of the pause before each.
            [0, 0, 0, "write", 0, 0, 50_000, 2, 40_000],
            [0, 0, 0, "close", 0, 0, 0, 1],
        ]
    }
)

TWO_RANKS = json.dumps(
    {
        "form": 1,
        "created_by": "a test",
        "label": "two ranks, one with two threads, which commits",
        "ranks": 2,
        "read_bytes": 100_000,
        "omitted": {},
        "files": [[0, 400_000, True], [0, 200_000, True], [0, 3_000, True], [0, 10, False], [1, 600_000, True]],
        "steps": [
            [0, 0, 0, "create", 0, 0, 0, 1],
            [0, 0, 0, "write", 0, 0, 100_000, 4],
            [0, 0, 0, "fsync", 0, 0, 0, 1],
            [0, 0, 0, "close", 0, 0, 0, 1],
            [0, 0, 1, "create new", 1, 0, 0, 1],
            [0, 0, 1, "set size", 1, 0, 200_000, 1],
            # The second half first.
            [0, 0, 1, "write", 1, 100_000, 100_000, 1],
            [0, 0, 1, "write", 1, 0, 100_000, 1],
            [0, 0, 1, "close", 1, 0, 0, 1],
            [0, 1, 0, "create", 4, 0, 0, 1],
            [0, 1, 0, "write", 4, 0, 600_000, 1],
            [0, 1, 0, "fdatasync", 4, 0, 0, 1],
            [0, 1, 0, "close", 4, 0, 0, 1],
            [1, 0, 0, "create", 3, 0, 0, 1],
            [1, 0, 0, "write", 3, 0, 10, 1],
            [1, 0, 0, "close", 3, 0, 0, 1],
            [1, 0, 0, "unlink", 3, 0, 0, 1],
            [1, 0, 0, "create", 2, 0, 0, 1],
            [1, 0, 0, "write", 2, 0, 3_000, 1],
            [1, 0, 0, "close", 2, 0, 0, 1],
            [1, 0, 0, "rename", 2, 0, 0, 1],
            [1, 0, 0, "fsync directory", -1, 0, 0, 1],
        ],
    }
)

RENAMED = json.dumps(
    {
        "form": 1,
        "created_by": "a test",
        "label": "a file that is renamed three times, and one that is renamed and removed",
        "ranks": 1,
        "read_bytes": 0,
        "omitted": {},
        "files": [[0, 2_000_000, True], [0, 3_000, False]],
        "steps": [
            [0, 0, 0, "create", 0, 0, 0, 1],
            [0, 0, 0, "rename", 0, 0, 0, 1],
            [0, 0, 0, "write", 0, 0, 1_000_000, 1],
            [0, 0, 0, "rename", 0, 0, 0, 1],
            [0, 0, 0, "open", 0, 0, 0, 1],
            [0, 0, 0, "write", 0, 1_000_000, 1_000_000, 1],
            [0, 0, 0, "close", 0, 0, 0, 1],
            [0, 0, 0, "close", 0, 0, 0, 1],
            [0, 0, 0, "create", 1, 0, 0, 1],
            [0, 0, 0, "write", 1, 0, 3_000, 1],
            [0, 0, 0, "close", 1, 0, 0, 1],
            [0, 0, 0, "rename", 1, 0, 0, 1],
            [0, 0, 0, "unlink", 1, 0, 0, 1],
            [0, 0, 0, "rename", 0, 0, 0, 1],
        ],
    }
)
