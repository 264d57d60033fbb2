"""If hosts cache names and attributes for a second, as the requirement STALE permits, every run ends normally.

``CKPT_HOST_RUNS`` is the number of consecutive runs of each kind.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.support.end_to_end import TINY
from tests.support.hosts.lab import Step, StepResult, need_hosts, on_hosts
from tests.support.hosts.storage import Storage

RUNS = int(os.environ.get("CKPT_HOST_RUNS", "1"))
# The limit of pyproject.toml for each run, because the first test of a storage waits for all runs.
pytestmark = pytest.mark.timeout(900 * RUNS)
# Existing names, missing names, and attributes.
_MOOSEFS = ",".join(f"mfs{what}cacheto=1" for what in ("attr", "entry", "direntry", "negentry"))
_FAULTS = ("stale negative names", "stale attributes")
STORAGES = {
    "MooseFS": Storage(mounted=_MOOSEFS),
    "FUSE": Storage(
        is_fuse=True,
        cache_seconds=1,
        faults={name: {"seconds": 1} for name in _FAULTS} | {"new directory is not visible": {"seconds": 0.5}},
    ),
}
FOR_A_MINUTE = Storage(
    is_fuse=True, faults={name: {"seconds": 60} for name in _FAULTS} | {"names dropped in a listing": {}}
)
HOSTS = (*TINY, "--ckpt-hosts=h1:1,h2:1", "--ckpt-gate-table=posix-shared")
OPTIONS = (*HOSTS, "--ckpt-suite=performance,contention")
NAMES = (*HOSTS, "--ckpt-suite=conformance", "-k", "NAMES[")


@pytest.fixture(scope="module", params=STORAGES)
def all_results(create_home: Callable[[str], Any], request: pytest.FixtureRequest) -> Sequence[StepResult]:
    """Return the results of all runs, in the order of the runs.

    Runs with saves, loads and all patterns alternate with runs of the check NAMES.
    """
    storage = STORAGES[request.param]
    need_hosts(storage)
    steps = [Step(options=options) for _ in range(RUNS) for options in (OPTIONS, NAMES)]
    return on_hosts(create_home("hosts"), 2, *steps, storage=storage)


@pytest.fixture(scope="module")
def results(all_results: Sequence[StepResult]) -> Sequence[StepResult]:
    """Return the results of the runs with saves, loads and all patterns."""
    return all_results[::2]


@pytest.fixture(scope="module")
def measured(results: Sequence[StepResult]) -> list[dict[str, Any]]:
    return [of.run.measurement() for of in results]


@pytest.mark.thorough
def test_saves_to_a_directory_that_another_host_made_end_without_an_error(
    results: Sequence[StepResult], measured: list[dict[str, Any]]
) -> None:
    assert [of["failure"] for of in measured] == [None] * RUNS, results[-1].text
    assert [of["hosts"] for of in measured] == [["h1", "h2"]] * RUNS
    assert [of.left for of in results] == [()] * RUNS


@pytest.mark.thorough
@pytest.mark.parametrize("pattern", ["storm", "shifted", "joined", "split"])
def test_a_checkpoint_of_another_host_is_loaded_byte_for_byte(measured: list[dict[str, Any]], pattern: str) -> None:
    for of in measured:
        integrity = of["patterns"][pattern]["integrity"]
        assert integrity["fault_count"] == 0, integrity["faults"]
        assert integrity["bytes_checked"] == integrity["bytes_expected"]


@pytest.mark.thorough
def test_saves_during_another_job_and_during_reads_are_measured(measured: list[dict[str, Any]]) -> None:
    assert all(of["patterns"]["neighbour"]["concurrent_bytes"] > 0 for of in measured)
    assert all(of["patterns"]["mixed"]["save_seconds"] for of in measured)


@pytest.mark.thorough
def test_every_name_is_listed_on_both_hosts(all_results: Sequence[StepResult]) -> None:
    for of in all_results[1::2]:
        seen = {o["subject"]: (o["anomalies"], o["not_run"]) for o in of.run.document["observations"]}
        assert seen == dict.fromkeys(("many", "after-change", "second-client"), ([], "")), of.text
        assert of.left == ()


@pytest.mark.thorough
def test_the_entries_that_hosts_waited_for_outside_the_timed_part_are_reported(
    results: Sequence[StepResult], measured: list[dict[str, Any]]
) -> None:
    for of, found in zip(results, measured, strict=True):
        saves = [o for o in found["operations"] if o["kind"] == "save"]
        # Hosts look before and after each save, and more often before loads.
        assert found["host_waits"]["looks"] > 2 * len(saves)
        late = found["host_waits"]["late"]
        assert [wait for wait in late if wait["unseen"]] == []
        # MooseFS asks its server for an unknown name. On the other storage, a new directory is hidden at first.
        if "fuse.misbehaving" in of.text:
            assert "directory" in {wait["awaited"] for wait in late if wait["host"] == "h2"}
        assert "Waited for other hosts" in (of.run.report / "certificate.html").read_text()


@pytest.mark.thorough
def test_a_client_that_remembers_for_a_minute_fails_the_run(create_home: Callable[[str], Any]) -> None:
    """If a host caches names for a minute, the run fails and names this host.

    A rank waits for a name at most twice as long as the requirement STALE permits.
    """
    need_hosts(FOR_A_MINUTE)
    result, names = on_hosts(create_home("hosts"), 2, Step(options=OPTIONS), Step(options=NAMES), storage=FOR_A_MINUTE)
    measured = result.run.measurement()
    assert measured["failure"]["host"] == "h2", result.text
    assert names.code == 1, names.text
    seen = {o["subject"]: o["anomalies"] for o in names.run.document["observations"]}
    assert seen["many"], names.text
