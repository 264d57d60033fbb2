"""The proof of the checks: a fault fails those that it is mapped to and no others; nothing fails where all is well."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import conformance_page
import pytest
from machine import Mounts, need
from matrix import ALL, MATRIX, OF_SPEED, Row
from misbehaving import FAULTS, Target, misbehaving

from pytest_ckpt.conformance.table import CHECKS
from pytest_ckpt.gate_tables import built_in
from pytest_ckpt.records import Observation, Verdict, from_plain
from pytest_ckpt.requirements.catalogue import REQUIREMENTS, decide_observed

HERE = Path(__file__).resolve().parent
SHARED = built_in("posix-shared")
SHARE, AT_ONCE = 0.02, 3
# A check that has not ended by then hangs; a loaded machine may take long.
MOST_SECONDS = 150


@dataclass(frozen=True, slots=True)
class Pair:
    """A target with two clients, and a small one that may be filled."""

    target: Target
    small: Target

    def fault(self, name: str, **parameters: Any) -> None:
        self.target.fault(name, **parameters)
        with contextlib.suppress(ValueError):
            self.small.fault(name, **parameters)

    def words(self) -> dict[str, list[str]]:
        """Return the words of a check's command line, by what it needs."""
        return {
            "": [f"--folder={self.target.path}", f"--share={SHARE}", "--json"],
            "second client": [f"--second-folder={self.target.second}"],
            "power cut": [f"--power-cut={shlex.join(self.target.power_cut_command)}"],
            "small folder": [f"--small-folder={self.small.path}"],
        }


def observe(words: dict[str, list[str]], names: list[str], seconds: float = MOST_SECONDS) -> dict[str, Verdict]:
    """Make checks and judge them as a run on shared storage does."""
    asked = {"checks": names, "words": words, "at_once": AT_ONCE, "seconds": seconds}
    done = subprocess.run(
        [sys.executable, str(HERE / "many_checks.py")],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = {}
    for name, seen in json.loads(done.stdout).items():
        assert "broke" not in seen, f"{name} itself broke: {seen['broke']}"
        requirement, _, subject = name.partition(".")
        observation = from_plain(Observation, {"requirement": requirement, "subject": subject} | seen)
        found[name] = decide_observed(REQUIREMENTS[requirement], observation, SHARED)
    return found


def failed(found: dict[str, Verdict]) -> dict[str, str]:
    return {name: verdict.because for name, verdict in found.items() if verdict.outcome == "failed"}


@pytest.fixture(scope="module")
def home(make_home) -> Path:
    need(os.geteuid() == 0 and os.access("/dev/fuse", os.R_OK | os.W_OK), "a FUSE mount needs root and /dev/fuse")
    return make_home("matrix")


@pytest.fixture(scope="module")
def memory(make_home) -> Iterator[tuple[Path, Path]]:
    """A file system in memory, and a small one, for the targets to keep their files in."""
    mounts = Mounts(make_home)
    try:
        yield mounts("tmpfs", 1536), mounts("tmpfs", 96)
    finally:
        mounts.unmount_all()


_number = itertools.count()


@pytest.fixture
def pair(home: Path, memory: tuple[Path, Path]) -> Iterator[Pair]:
    here = home / f"pair-{next(_number)}"
    places = [here / "two", here / "small", memory[0] / here.name, memory[1] / here.name]
    for place in places:
        place.mkdir(parents=True)
    two, small, large_store, small_store = places
    try:
        with (
            misbehaving(two, second=True, backing=large_store) as target,
            misbehaving(small, backing=small_store) as other,
        ):
            yield Pair(target, other)
            target.clear()
            other.clear()
    finally:
        for store in (large_store, small_store):
            shutil.rmtree(store)


def test_on_the_honest_target_nothing_fails_and_nothing_is_left_out(pair: Pair) -> None:
    found = observe(pair.words(), sorted(ALL))
    assert {name: v.because for name, v in found.items() if v.outcome != "met"} == {}
    assert set(found) == ALL


@pytest.mark.parametrize("row", MATRIX, ids=lambda row: row.fault)
def test_a_fault_fails_the_checks_that_it_is_mapped_to_and_no_others(row: Row, pair: Pair) -> None:
    pair.fault(row.fault, **row.parameters)
    found = observe(pair.words(), sorted(ALL), row.seconds)
    seen = failed(found)
    told = "\n".join(f"{name}: {because}" for name, because in seen.items())
    assert row.fails <= set(seen), f"not found by {sorted(row.fails - set(seen))}; found:\n{told}"
    assert set(seen) <= row.fails | row.may_fail, (
        f"false alarms {sorted(set(seen) - row.fails - row.may_fail)}:\n{told}"
    )
    for name, words in row.says.items():
        assert words.lower() in seen[name].lower()
    for name, words in row.reported.items():
        assert words in found[name].detail


def test_every_fault_has_its_row_and_every_check_a_fault_that_fails_it() -> None:
    assert sorted([row.fault for row in MATRIX] + [row.fault for row in OF_SPEED if row.fault]) == sorted(FAULTS)
    caught = set().union(*(row.fails for row in MATRIX))
    # It reports, and says so; there is nothing that it could miss.
    assert ALL - caught == {"CAPABILITIES.extras"}
    assert {c.requirement for c in CHECKS} == {name.partition(".")[0] for name in caught}
    assert all(row.fails or row.reported for row in MATRIX)


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "tmpfs"])
def test_on_healthy_file_systems_nothing_fails(kind: str, make_home) -> None:
    mounts = Mounts(make_home)
    try:
        place = mounts(kind, 1536)
        words = {"": [f"--folder={place}", f"--share={SHARE}", "--json"]}
        found = observe(words, [c.name for c in CHECKS if not c.needs])
        assert {name: v.because for name, v in found.items() if v.outcome != "met"} == {}
    finally:
        mounts.unmount_all()


def test_the_page_says_what_the_tables_say() -> None:
    page = conformance_page.PAGE.read_text()
    assert conformance_page.with_tables(page) == page, "run: python tests/conformance/conformance_page.py"
