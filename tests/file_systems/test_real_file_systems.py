"""Runs on file systems of other projects. Only the failures in the table occur, and verdicts state known causes.

A failure that users may doubt is reproduced without our code. The failure disappears with the option that avoids it.
`CKPT_UPDATE_FILE_SYSTEMS=docs/file_systems.json` writes the results to docs/file_systems.json, from which the page is
generated.
"""

from __future__ import annotations

import os

import pytest

from pytest_ckpt.judging.remedies import explain
from pytest_ckpt.support.units import format_bytes
from tests.support.file_systems import lab, results
from tests.support.file_systems.entry import FileSystem
from tests.support.file_systems.mounting import missing
from tests.support.file_systems.table import BY_NAME, FILE_SYSTEMS, SERVED
from tests.support.machine import need
from tests.support.small_memory import cannot

pytestmark = pytest.mark.thorough


def ready(row: FileSystem) -> None:
    """Skip the test if this machine cannot mount the file system; the message states the reason."""
    need(os.geteuid() == 0, "only root mounts file systems")
    if lacking := missing(row.programs):
        pytest.skip(f"{row.name}: no {', '.join(lacking)}; on Debian: apt-get install {' '.join(row.packages)}")


@pytest.mark.parametrize("row", FILE_SYSTEMS, ids=lambda row: row.name)
def test_a_run_reports_the_expected_verdicts(row, create_home):
    ready(row)
    home = create_home("file-system")
    seen = lab.observe(row.name, home, "run")
    results.record(seen)
    found = results.failed(seen)
    assert found - set(row.may_fail) == set(row.fails), {name: results.not_met(seen)[name] for name in found}
    left_open = [v for v in seen["verdicts"] if (v["outcome"], v["severity"]) == ("not run", "required")]
    assert seen["exit_code"] == (1 if found else 8 if left_open else 0)
    # Files are left behind, and reported, only if the file system refuses to remove them.
    assert bool(seen["left"]) == bool(seen["left_behind"])
    assert seen["left"] == [] or row.leaves, seen["left_behind"]
    assert lab.leftovers_of(home) == []
    undecided = {name for name, v in results.not_met(seen).items() if results.is_undecided(v)}
    assert undecided - set(row.undecided) == set(), "a check that was not made is no check that was met"
    for name in found:
        for line in explain(seen["kind"], name):
            assert line in results.not_met(seen)[name]["detail"], "the verdict names cause and cure"
    for check, way in row.shows.items():
        if check in row.fails:
            assert results.is_shown(way, seen["shown"][way]), f"{check}: {way} shows nothing: {seen['shown'][way]}"
    if row.cures:
        for way in row.cured_reproductions:
            assert not results.is_shown(way, seen["shown"][way]), f"{way}: {seen['shown'][way]}"


# On file systems that return wrong bytes, a run ends before it times reads.
_WRONG = {"LOAD", "INTEGRITY"}
BLIND = [row for row in FILE_SYSTEMS if "COLD" in row.undecided and not _WRONG & {*row.fails, *row.may_fail}]


@pytest.mark.parametrize("row", BLIND, ids=lambda row: row.name)
def test_larger_checkpoints_decide_cold_if_no_pages_can_be_counted(row, create_home):
    ready(row)
    home = create_home("file-system")
    seen = lab.observe(row.name, home, "cold")
    results.record_cold(seen)
    cold = seen["cold"]
    # The result depends on the speed of the disk relative to its cache. Reads are always timed, and COLD never fails.
    assert (cold["outcome"], cold["basis"]) in (("met", "timed canary"), ("met", "seen"), ("not run", "")), cold
    assert cold["basis"] == "seen" or "10 parts of 64 MiB" in cold["because"], cold
    assert lab.leftovers_of(home) == []


@pytest.fixture
def needs_small_memory() -> None:
    """Skip the test if a host with little memory cannot be simulated; the message states the reason."""
    if reason := cannot():
        pytest.skip(reason)


@pytest.mark.usefixtures("needs_small_memory")
@pytest.mark.parametrize("row", BLIND, ids=lambda row: row.name)
def test_a_volume_larger_than_a_small_memory_decides_cold(row, create_home):
    ready(row)
    home = create_home("file-system")
    seen = lab.observe(row.name, home, "volume")
    results.record_cold(seen, "volume")
    cold = seen["cold"]
    if cold["basis"] == "seen":
        assert cold["outcome"] == "met"
        return
    assert (cold["outcome"], cold["basis"]) == ("met", "volume"), seen["text"]
    assert f"its memory and stated caches are {format_bytes(3 * row.small_memory_bytes)}" in cold["because"]
    assert lab.leftovers_of(home) == []


@pytest.mark.usefixtures("needs_small_memory")
def test_a_volume_no_larger_than_a_small_memory_leaves_cold_open(create_home):
    row = BY_NAME["bindfs"]
    ready(row)
    seen = lab.observe(row.name, create_home("file-system"), "too little")
    cold = seen["cold"]
    assert (cold["outcome"], cold["reason"], seen["exit_code"]) == ("not run", "unproven", 8)
    assert f"its memory and stated caches are {format_bytes(3 * row.small_memory_bytes)}" in cold["because"]


@pytest.mark.parametrize("row", SERVED, ids=lambda row: row.name)
def test_a_save_whose_server_goes_away_fails_in_time(row, create_home):
    ready(row)
    home = create_home("file-system")
    seen = lab.observe(row.name, home, "break")
    results.record_loss(seen)
    assert seen["save"]["outcome"] == "failed", seen["text"]
    assert seen["exit_code"] == 1
    # A process that waits for the file system cannot be killed. The run then reports it.
    assert seen["running"] == [] or any("blocked in the kernel" in line for line in seen["left_behind"])
    assert any(word in seen["save"]["because"] for word in ("Rank 0", "Rank 1")), "the verdict names the rank"
    assert lab.leftovers_of(home) == []
