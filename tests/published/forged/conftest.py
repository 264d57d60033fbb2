"""Fixtures: a published result with a slow rank, and a function that judges such results."""

from __future__ import annotations

import json

import pytest

from pytest_ckpt.cli import main as cli
from tests.support.synthetic_results import SyntheticRun


def slow_rank_3(kind, number, rank):
    """Return the seconds of an operation. Rank 3 saves far slower than all other ranks."""
    base = 5.0 if kind == "save" else 4.0
    return base + 0.01 * rank + 0.003 * number + (35.0 if (kind, rank) == ("save", 3) else 0.0)


@pytest.fixture
def directory(tmp_path):
    return SyntheticRun(seconds=slow_rank_3).write(tmp_path / "run", parts=("summary", "config", "metadata"))


@pytest.fixture
def judge(capsys):
    """Return a function that runs ``pytest-ckpt judge --json`` and returns (document or None, messages as text)."""

    def run(directory, *words):
        code = cli.main(["judge", str(directory), "--cluster=16000", "--json", *words])
        output = capsys.readouterr()
        assert "Traceback" not in output.err
        document = json.loads(output.out, parse_constant=pytest.fail) if output.out else None
        if document is None:
            assert code == 4
            return None, output.err
        messages = document["messages"] if "messages" in document else document["published"]["messages"]
        return document, "\n".join(f"{m['path']}: {m['text']}" for m in messages)

    return run
