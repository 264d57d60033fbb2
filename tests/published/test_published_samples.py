"""Published results from the directory in PYTEST_CKPT_PUBLISHED; the tests are skipped if the variable is not set.

The directory is a tree of closed/SUBMITTER/results/SYSTEM/checkpointing/MODEL/TIME.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest

from pytest_ckpt.cli import main as cli
from pytest_ckpt.published.directory import find_runs, read_run
from pytest_ckpt.published.runs import examine

DIRECTORY = os.environ.get("PYTEST_CKPT_PUBLISHED", "")
pytestmark = pytest.mark.skipif(not DIRECTORY, reason="PYTEST_CKPT_PUBLISHED names no directory of published results")


def test_every_result_is_judged(capsys):
    code = cli.main(["judge", DIRECTORY, "--cluster=16000", "--json"])
    document = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert code in (1, 8)
    for row in document["results"]:
        assert row["grade"] in ("rehearsal", "incomplete", "not certified")
        for figure in row["figures"]:
            if figure["operations"]:
                assert figure["judged_seconds"] >= figure["published_seconds"]
                assert math.isfinite(figure["judged_seconds"])


def test_the_inference_is_accurate_to_2_ms_if_all_ranks_are_known():
    errors = []
    for directory in find_runs(Path(DIRECTORY)):
        run, _ = examine(read_run(directory))
        if run and run.inference_error_seconds is not None:
            errors.append(run.inference_error_seconds)
    assert errors, "no run in the directory has all ranks"
    assert max(errors) <= 0.002


# Words of messages about changed files or impossible values.
SUSPICIONS = (
    "too short",
    "a copy",
    "time is used",
    "was changed",
    "contradict the time",
    "another run",
    "names no rank",
)


def test_nothing_in_them_is_suspected():
    for directory in find_runs(Path(DIRECTORY)):
        _, messages = examine(read_run(directory))
        suspected = [m.text for m in messages if any(word in m.text for word in SUSPICIONS)]
        assert not suspected, directory


def test_a_last_save_before_loads_is_bounded_by_what_the_others_took():
    """The upper bound of the last save's time is plausible when compared with the other saves.

    It is over 0.5 times the time of the fastest other save, and under 1.5 times the time of the slowest other save.
    """
    tried = 0
    for directory in find_runs(Path(DIRECTORY)):
        run, _ = examine(read_run(directory))
        saves = run.of_kind("save") if run else ()
        if not saves or saves[-1].at_least_seconds is None:
            continue
        *others, last = saves
        assert last.at_least_seconds <= last.seconds
        assert 0.5 * min(o.seconds for o in others) < last.seconds < 1.5 * max(o.seconds for o in others)
        tried += 1
    assert tried, "no run in the directory saves and loads, with ranks missing"
