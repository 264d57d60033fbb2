"""``pytest-ckpt judge`` on published results: for scripts, and for people."""

from __future__ import annotations

import json

import pytest

from pytest_ckpt.cli import main as cli
from tests.support.by_the_library import faults


@pytest.fixture
def judge(capsys):
    """Run the command and return (exit code, document, standard error)."""

    def run(directory, *words, cluster=16000):
        code = cli.main(["judge", str(directory), f"--cluster={cluster}", "--json", *words])
        output = capsys.readouterr()
        document = json.loads(output.out, parse_constant=pytest.fail) if output.out else None
        if document:
            assert not faults(document, "report" if "grade" in document else "published")
        return code, document, output.err

    return run


@pytest.fixture
def lines(capsys):
    """Run the command and return its output for people, unwrapped."""

    def run(directory, *words, cluster=16000):
        cli.main(["judge", str(directory), f"--cluster={cluster}", *words])
        return " ".join(capsys.readouterr().out.split())

    return run
