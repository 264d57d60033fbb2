"""Two hosts whose clients remember names and attributes for a second, which STALE allows: no save, no pattern fails."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.front_door import TINY
from tests.support.hosts.lab import Done, Step, need_hosts, on_hosts
from tests.support.hosts.storage import Storage

# Names that are there, names that are not, and attributes.
_MOOSEFS = ",".join(f"mfs{what}cacheto=1" for what in ("attr", "entry", "direntry", "negentry"))
_FAULTS = ("stale negative names", "stale attributes")
STORAGES = {
    "MooseFS": Storage(mounted=_MOOSEFS),
    "FUSE": Storage(
        is_fuse=True,
        cache_seconds=1,
        faults={name: {"seconds": 1} for name in _FAULTS} | {"new folder is not visible": {"seconds": 0.5}},
    ),
}
FOR_A_MINUTE = Storage(is_fuse=True, faults={name: {"seconds": 60} for name in _FAULTS})
OPTIONS = (*TINY, "--ckpt-hosts=h1:1,h2:1", "--ckpt-suite=performance,contention", "--ckpt-gates=posix-shared")


@pytest.fixture(scope="module", params=STORAGES)
def done(make_home: Callable[[str], Path], request: pytest.FixtureRequest) -> Done:
    """What came of saves, loads and all patterns."""
    storage = STORAGES[request.param]
    need_hosts(storage)
    (found,) = on_hosts(make_home("hosts"), 2, Step(options=OPTIONS), storage=storage)
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


@pytest.mark.thorough
def test_what_hosts_waited_for_before_the_clocks_is_told(done: Done, measured: dict[str, Any]) -> None:
    saves = [o for o in measured["operations"] if o["kind"] == "save"]
    # Before and after each save, and more before loads.
    assert measured["host_waits"]["looks"] > 2 * len(saves)
    late = measured["host_waits"]["late"]
    assert [of for of in late if of["unseen"]] == []
    # MooseFS asks its server for a name that the client does not know; the other storage hides a new folder.
    if "fuse.misbehaving" in done.text:
        assert "folder" in {of["awaited"] for of in late if of["host"] == "h2"}
    assert "Waited for other hosts" in (done.run.report / "certificate.html").read_text()


@pytest.mark.thorough
def test_a_client_that_remembers_for_a_minute_fails_the_run(make_home: Callable[[str], Path]) -> None:
    """Nobody waits for longer than twice what STALE allows: what is still not seen then fails, with its host."""
    need_hosts(FOR_A_MINUTE)
    (done,) = on_hosts(make_home("hosts"), 2, Step(options=OPTIONS), storage=FOR_A_MINUTE)
    measured = done.run.measurement()
    assert measured["failure"]["host"] == "h2", done.text
