"""A run of all four models in one launch."""

from __future__ import annotations

import pytest

from tests.support.end_to_end import REQUIRED, Runner, progress_lines

pytestmark = pytest.mark.thorough

LAYOUTS = ["llama3-8b-full", "llama3-70b-subset", "llama3-405b-subset", "llama3-1t-subset"]


def test_all_four_models_are_met_in_one_launch_of_eight_ranks(runner: Runner) -> None:
    run = runner.run("--ckpt-profile=smoke")
    assert run.code == 0, run.text
    assert [m["subject"] for m in run.document["measurements"]] == [f"{layout}/stream" for layout in LAYOUTS]
    assert {m["processes"] for m in run.document["measurements"]} == {8}
    for subject in LAYOUTS:
        assert run.outcomes(subject) == dict.fromkeys(REQUIRED, "met")
        assert run.verdict("STRAGGLER", subject)["outcome"] in {"met", "failed"}
    assert run.launches == ["1"]
    assert {m["launch"] for m in run.document["measurements"]} == {"launches/1"}
    assert len(progress_lines(run.text)) == 4 * 2 * 3
    assert run.left_on_target == []
