"""A fixture that runs ``pytest-ckpt plan``."""

from __future__ import annotations

import pytest

from pytest_ckpt.cli.main import main


@pytest.fixture
def plan(capsys):
    """Return a function that runs ``pytest-ckpt plan`` with the given arguments and returns its output."""

    def run(*arguments, cluster="16000"):
        code = main(["plan", "--ckpt-engine=torch", *([f"--cluster={cluster}"] if cluster else []), *arguments])
        output = capsys.readouterr()
        assert (code, output.err) == (0, "")
        return output.out

    return run
