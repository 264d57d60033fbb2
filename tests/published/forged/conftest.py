"""A published result with a slow rank, and ``judge`` on it."""

from __future__ import annotations

import json

import pytest

from pytest_ckpt.cli import main as cli
from tests.support.made_results import MadeRun


def slow_rank_3(kind, number, rank):
    """Every rank takes a slightly different time; rank 3 is far slower in saves."""
    base = 5.0 if kind == "save" else 4.0
    return base + 0.01 * rank + 0.003 * number + (35.0 if (kind, rank) == ("save", 3) else 0.0)


@pytest.fixture
def directory(tmp_path):
    return MadeRun(seconds=slow_rank_3).write(tmp_path / "run", parts=("summary", "config", "metadata"))


@pytest.fixture
def judge(capsys):
    """Run the command; return its document and its messages."""

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
