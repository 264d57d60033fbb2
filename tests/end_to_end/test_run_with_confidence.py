"""A run that plans the number of its operations for a requested confidence."""

from __future__ import annotations

import pytest

from tests.support.end_to_end import REQUIRED, TINY, Runner

WITHOUT_A_NUMBER = tuple(word for word in TINY if not word.startswith("--ckpt-operations"))


@pytest.mark.covers(requirements=("SAVE", "LOAD"))
def test_a_run_makes_and_reports_as_many_saves_and_loads_as_the_confidence_needs(runner: Runner) -> None:
    run = runner.run(*WITHOUT_A_NUMBER, "--ckpt-confidence=90/70", "--ckpt-keep-last=2")
    assert run.code == 0, run.text
    assert run.outcomes() == dict.fromkeys(REQUIRED, "met")
    assert [len(run.operations(kind)) for kind in ("save", "load")] == [7, 7]
    for requirement, kind in (("SAVE", "saves"), ("LOAD", "loads")):
        assert f"90 % confident that 70 % of {kind} take at most" in run.verdict(requirement)["because"]
    assert "--ckpt-confidence 90/70 (default not set; from command line)" in run.document["disclosures"]
    assert "7 saves and loads" in run.text
    sentence = "With 90 % confidence, at least 71.9 % of saves and 71.9 % of loads meet the limit, if independent."
    assert sentence in run.text
