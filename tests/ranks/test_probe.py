"""The facts that a rank reports about its host before a run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_ckpt.facts.targets import AreaRef
from pytest_ckpt.ranks.process import probe
from pytest_ckpt.ranks.process.probe import facts_of_all, host_facts
from pytest_ckpt.support import host_state
from pytest_ckpt.support.references import load
from pytest_ckpt.targets.posix.names import OPENER


@pytest.mark.parametrize("left", [None, 5 << 20, 1 << 60])
def test_the_memory_of_a_host_is_what_it_has_or_what_the_rank_s_own_control_group_leaves(
    left: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_state, "memory_of_host", lambda: {"MemTotal": 9 << 30, "MemAvailable": 8 << 30})
    monkeypatch.setattr(host_state, "memory_left_bytes", lambda: left)
    store = load(OPENER)(AreaRef(scheme="", location=str(tmp_path), run_id="", opener=OPENER))
    assert host_facts("n1", 0, store).memory_available_bytes == (5 << 20 if left == 5 << 20 else 8 << 30)


def test_devices_of_the_target_and_nodes_of_the_cores_are_among_the_facts_of_a_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = tmp_path.stat().st_dev
    mount = {"nic": "ib0"}
    monkeypatch.setattr(probe, "mount_state", lambda _kind, _options: mount)
    monkeypatch.setattr(probe, "version_state", lambda kind: {"client_version": f"of {kind}"})
    monkeypatch.setattr(probe, "readahead_state", lambda _kind, device: {"readahead_kib": device})
    monkeypatch.setattr(probe, "numa_state", lambda nic, cores: {"nic_numa": nic, "cores_numa": cores})
    store = load(OPENER)(AreaRef(scheme="", location=str(tmp_path), run_id="", opener=OPENER))
    client = host_facts("n1", 0, store).client
    assert client["readahead_kib"] == f"{os.major(number)}:{os.minor(number)}"
    assert client["client_version"].startswith("of ")
    assert (client["nic_numa"], client["cores_numa"]) == ("ib0", os.sched_getaffinity(0))


def test_both_facts_are_reported_if_ranks_of_a_host_differ() -> None:
    one, other = {"cores_near_nic": "all", "mtu": "9000"}, {"cores_near_nic": "none", "mtu": "9000", "nic_numa": "1"}
    together = facts_of_all(facts_of_all(one, other), one)
    assert together == {"cores_near_nic": "all and none", "mtu": "9000", "nic_numa": "not known and 1"}
