"""Errors of our own: one sentence, exit code 3, the traceback in the run folder, and a clean target."""

from __future__ import annotations

import pytest

from tests.support import CHECKOUT
from tests.support.front_door import SUBJECT, TINY, FrontDoor, Run

# Where a run wants to read or write a file, it finds a folder.
BREAKS = """
from pathlib import Path

def pytest_runtest_setup():
    Path({place!r}).mkdir(parents=True, exist_ok=True)
"""


def _crashed(door: FrontDoor, place: str) -> Run:
    (door.home / "breaks.py").write_text(BREAKS.format(place=str(door.home / "ckpt-report" / place)))
    environment = {"PYTHONPATH": f"{door.home}:{CHECKOUT}"}
    return door.run(*TINY, "-p", "breaks", "-k", "integrity", environment=environment)


@pytest.mark.parametrize("place", ["report.json", f"measurements/{SUBJECT}.json"])
def test_an_error_of_ours_is_one_sentence_and_its_traceback_is_kept(door: FrontDoor, place: str) -> None:
    run = _crashed(door, place)
    assert run.code == 3, run.text
    assert "INTERNALERROR" not in run.text
    assert "Traceback" not in run.text
    assert f"IsADirectoryError: [Errno 21] Is a directory: '{run.report / place}'" in run.text.replace("\n", "")
    assert "Traceback" in (run.report / "crash.txt").read_text()
    assert run.left_on_target == []
