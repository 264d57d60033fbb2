"""The output in docs/published_results.md is the output of the command on constructed results."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest

from pytest_ckpt.cli import main as cli
from tests.support.synthetic_results import SyntheticRun, published, steady

PAGE = Path(__file__).resolve().parents[2] / "docs" / "published_results.md"
COMMAND = re.compile(r"^    \$ pytest-ckpt (.*)\n((?:    .*\n|\n)+)", re.MULTILINE)
NOT_OF_DLIO = re.compile(r"not run: ([A-Z-]+) of .*: DLIO does not test this\.")


def save_and_load(kind, number, rank):
    """Return the seconds of an operation. Rank 41 is the slowest rank, and a cache serves load 7 and later loads."""
    if kind == "save":
        return 19.0 + 0.1 * (number % 3) + (12.5 if rank == 41 else 0.0)
    return (22.0 if number < 7 else 8.0) + 0.1 * (number % 2) + (1.5 if rank == 41 else 0.0)


@pytest.fixture
def results(tmp_path, monkeypatch):
    start = SyntheticRun().started
    write = published(tmp_path, "Vendor-A", "array-one", "llama3-8b", "20260301_120000")
    read = published(tmp_path, "Vendor-A", "array-one", "llama3-8b", "20260301_130000")
    SyntheticRun(loads=0).write(write)
    SyntheticRun(saves=0, started=start + timedelta(hours=1)).write(read)
    slow = published(tmp_path, "Vendor-B", "array-two", "llama3-70b", "20260304_090000")
    SyntheticRun(model="llama3-70b", processes=64, seconds=save_and_load).write(slow, ranks=[0])
    small = published(tmp_path, "Vendor-B", "array-two", "llama3-8b", "20260304_080000")
    SyntheticRun(seconds=steady(2.1, 1.9)).write(small, ranks=[0])
    monkeypatch.chdir(tmp_path)


def commands():
    return [
        (words, "\n".join(line[4:] for line in block.rstrip().split("\n")))
        for words, block in COMMAND.findall(PAGE.read_text())
    ]


@pytest.mark.parametrize(("words", "shown"), commands(), ids=[words for words, _ in commands()])
def test_the_command_prints_what_the_page_shows(words, shown, results, capsys):
    cli.main(words.split())
    lines = [line.rstrip() for line in capsys.readouterr().out.rstrip().split("\n")]
    # DLIO does not test requirements that were added later, so the page need not name them.
    added = [line for line in lines if (found := NOT_OF_DLIO.fullmatch(line)) and found[1] not in shown]
    assert "\n".join(line for line in lines if line not in added) == shown


def test_the_page_shows_one_result_and_a_tree():
    assert len(commands()) == 2
