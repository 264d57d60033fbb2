"""What a rank says of its host before a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_ckpt.facts.targets import AreaRef
from pytest_ckpt.ranks.process.probe import host_facts
from pytest_ckpt.support import memory_limits
from pytest_ckpt.support.references import load
from pytest_ckpt.targets.posix.run_folder import OPENER


@pytest.mark.parametrize("left", [None, 5 << 20, 1 << 60])
def test_the_memory_of_a_host_is_what_it_has_or_what_the_rank_s_own_control_group_leaves(
    left: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_limits, "memory_of_host", lambda: {"MemTotal": 9 << 30, "MemAvailable": 8 << 30})
    monkeypatch.setattr(memory_limits, "memory_left_bytes", lambda: left)
    store = load(OPENER)(AreaRef(scheme="", location=str(tmp_path), run_id="", opener=OPENER))
    assert host_facts("n1", 0, store).memory_available_bytes == (5 << 20 if left == 5 << 20 else 8 << 30)
