"""Runs whose loads read data from the client's page cache, so COLD fails.

The test runs alone, because other tests drop the caches of the whole machine.
"""

from __future__ import annotations

import pytest

from tests.support.end_to_end import TINY, TORCH, Runner

pytestmark = pytest.mark.alone


def test_data_in_the_page_cache_fail_cold_on_a_disk(runner: Runner) -> None:
    run = runner.run(*TINY, TORCH, "--ckpt-drop-caches=never")
    assert run.code == 1, run.text
    assert run.outcomes()["COLD"] == "failed"
    assert run.verdict("COLD")["measured"] > 0.9
    assert "was cached on the client" in run.text
    assert run.measurement()["cache"]["method"] == "none"
