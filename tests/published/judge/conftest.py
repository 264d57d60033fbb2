"""Fixtures for tests of ``pytest-ckpt judge`` on published results, with JSON output and with text output."""

from __future__ import annotations

import json

import pytest

from pytest_ckpt.cli import main as cli
from tests.support.jsonschema_validation import violations


@pytest.fixture
def judge(capsys):
    """Return a function that runs ``judge --json`` and returns (exit code, document or None, standard error)."""

    def run(directory, *words, cluster=16000):
        code = cli.main(["judge", str(directory), f"--cluster={cluster}", "--json", *words])
        output = capsys.readouterr()
        document = json.loads(output.out, parse_constant=pytest.fail) if output.out else None
        if document:
            assert not violations(document, "report" if "grade" in document else "published")
        return code, document, output.err

    return run


@pytest.fixture
def lines(capsys):
    """Return a function that runs ``judge`` and returns its text output as one line."""

    def run(directory, *words, cluster=16000):
        cli.main(["judge", str(directory), f"--cluster={cluster}", *words])
        return " ".join(capsys.readouterr().out.split())

    return run
