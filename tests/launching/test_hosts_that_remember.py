"""Two hosts whose clients remember names and attributes for a second, which STALE allows: no save, no pattern fails."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.front_door import TINY
from tests.support.hosts.lab import Done, Step, need_hosts, on_hosts

# Names that are there, names that are not, and attributes.
REMEMBERS = ",".join(f"mfs{what}cacheto=1" for what in ("attr", "entry", "direntry", "negentry"))
PATTERNS = "--ckpt-suite=performance,contention"


@pytest.fixture(scope="module")
def done(make_home: Callable[[str], Path]) -> Done:
    """What came of saves, loads and all patterns."""
    need_hosts()
    options = (*TINY, "--ckpt-hosts=h1:1,h2:1", PATTERNS, "--ckpt-gates=posix-shared")
    (found,) = on_hosts(make_home("hosts"), 2, Step(options=options), mounted=REMEMBERS)
    return found


@pytest.fixture(scope="module")
def measured(done: Done) -> dict[str, Any]:
    found: dict[str, Any] = done.run.measurement()
    return found


@pytest.mark.thorough
def test_saves_to_a_folder_that_another_host_made_end_without_an_error(done: Done, measured: dict[str, Any]) -> None:
    assert measured["failure"] is None, done.text
    assert measured["hosts"] == ["h1", "h2"]
    assert done.left == ()


@pytest.mark.thorough
@pytest.mark.parametrize("pattern", ["storm", "shifted", "joined", "split"])
def test_what_another_host_saved_is_loaded_byte_for_byte(measured: dict[str, Any], pattern: str) -> None:
    integrity = measured["patterns"][pattern]["integrity"]
    assert integrity["fault_count"] == 0, integrity["faults"]
    assert integrity["bytes_checked"] == integrity["bytes_expected"]


@pytest.mark.thorough
def test_saves_beside_another_job_and_beside_reads_are_measured(measured: dict[str, Any]) -> None:
    assert measured["patterns"]["neighbour"]["bursts"] > 0
    assert measured["patterns"]["mixed"]["save_seconds"]
