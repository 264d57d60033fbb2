"""Made-up runs, and ``judge`` on several of them."""

from __future__ import annotations

import json

import pytest

from pytest_ckpt.cli.main import main
from tests.support import made_up_run


@pytest.fixture
def make(tmp_path):
    """Make a run of a day; returns its folder."""

    def made(number, **words):
        folder = tmp_path / f"run-{number}"
        made_up_run.make_run(folder, seed=number, started=made_up_run.day_of(number), **words)
        return folder

    return made


@pytest.fixture
def judge(capsys):
    """Judge folders together; returns exit code and report."""

    def judged(*words):
        capsys.readouterr()
        code = main(["judge", *map(str, words), "--json"])
        shown = capsys.readouterr()
        return code, json.loads(shown.out) if shown.out else shown.err

    return judged
