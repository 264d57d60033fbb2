"""Internal errors of pytest-ckpt: a message of one sentence, exit code 3, a traceback in a file, a clean target."""

from __future__ import annotations

import pytest

from tests.support import CHECKOUT
from tests.support.end_to_end import SUBJECT, TINY, Runner
from tests.support.machine import patience

# A directory is created in place of a file that a run reads or writes.
BREAKS = """
from pathlib import Path

def pytest_runtest_setup():
    Path({place!r}).mkdir(parents=True, exist_ok=True)
"""


@pytest.mark.parametrize("place", ["report.json", f"measurements/{SUBJECT}+stream.json"])
def test_an_error_of_ours_is_one_sentence_and_its_traceback_is_kept(runner: Runner, place: str) -> None:
    broken = runner.home / "ckpt-report" / place
    (runner.home / "breaks.py").write_text(BREAKS.format(place=str(broken)))
    environment = {"PYTHONPATH": f"{runner.home}:{CHECKOUT}"}
    started = runner.start(*TINY, "-p", "breaks", "-k", "SAVE", environment=environment)
    assert started.process.wait(patience(240)) == 3, started.text
    assert "INTERNALERROR" not in started.text
    assert "Traceback" not in started.text
    assert "IsADirectoryError" in started.text
    assert "Traceback" in (started.report / "crash.txt").read_text()
    assert list(runner.target.iterdir()) == []
