"""What the checks say of real NFS: a Linux server and two Linux clients, in a kernel that runs as a process."""

from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor

import nfs_machine
import pytest
from machine import need

from pytest_ckpt.conformance.table import BY_NAME, CHECKS
from pytest_ckpt.records import Observation, from_plain

ALL = tuple(check.name for check in CHECKS if check.needs != "power cut")
TWO = tuple(check.name for check in CHECKS if check.needs == "second client")

# One machine each, beside each other: which configurations with which checks.
MACHINES = ((("4.2",), ALL), (("4.2-actimeo=1", "3"), TWO))
MADE = [(name, check) for configurations, checks in MACHINES for name in configurations for check in checks]
DEADLINE_SECONDS = 900.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fault:
    """What NFS may truly be told off for: kinds of anomalies, and whether that is so in each run."""

    kinds: frozenset[str] = frozenset()
    always: bool = False


STALE_NAMES = Fault(kinds=frozenset({"stale name", "stale listing"}))
NEGATIVE = Fault(kinds=frozenset({"stale negative name"}), always=True)
# A file's time is the server's kernel tick, 10 ms here: NFS 3 has nothing else to see a change of equal size by.
SAME_TICK = "two changes of equal size within one tick of the server's clock"
TRUE_FAULTS = {
    # By default a client keeps attributes of files for 3 s and more, of folders and what is not in them for 30 s.
    ("4.2", "STALE.names"): STALE_NAMES,
    ("4.2", "STALE.negative-names"): NEGATIVE,
    ("3", "STALE.names"): STALE_NAMES,
    ("3", "STALE.negative-names"): NEGATIVE,
    ("3", "VISIBLE.read-after-close"): Fault(kinds=frozenset({"bytes of an older version at the first open"})),
    ("3", "POINTER.overwrite-second-client"): Fault(kinds=frozenset({"stale pointer"})),
}


@pytest.fixture(scope="module")
def told():
    """All that the machines told, by configuration and check."""
    need(not nfs_machine.missing(), f"not installed: {', '.join(nfs_machine.missing())}")

    def boot(machine):
        configurations, checks = machine
        return list(nfs_machine.seen(configurations, checks, share=0.02, deadline=DEADLINE_SECONDS))

    with ThreadPoolExecutor(len(MACHINES)) as pool:
        lines = [line for machine in pool.map(boot, MACHINES) for line in machine]
    errors = [line["text"] for line in lines if line["kind"] == "error"]
    assert not errors, "\n".join(errors)
    return {(line["configuration"], line["check"]): line for line in lines if line["kind"] == "check"}


@pytest.mark.parametrize(("configuration", "check"), MADE)
def test_each_check_tells_the_truth_about_nfs(told, configuration, check):
    line = told[configuration, check]
    assert line["observation"], f"exit code {line['exit_code']}: {line['last_words']}"
    seen = from_plain(Observation, line["observation"])
    fault = TRUE_FAULTS.get((configuration, check), Fault())
    assert seen.not_run == ""
    assert seen.trials > 0
    assert {anomaly.kind for anomaly in seen.anomalies} <= fault.kinds, seen.anomalies
    assert seen.anomalies or not fault.always


@pytest.mark.parametrize("configuration", ["4.2", "3"])
def test_cached_attributes_are_stale_for_longer_than_the_limit(told, configuration):
    measured = told[configuration, "STALE.attributes"]["observation"]["measured"]
    assert measured > BY_NAME["STALE.attributes"].limit


def test_every_check_was_made(told):
    assert set(told) == set(MADE)
