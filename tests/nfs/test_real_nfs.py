"""The checks on real NFS: a Linux server and two Linux clients, as virtual machines of User Mode Linux."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from pytest_ckpt.facts.checks import BY_NAME, checks_for
from pytest_ckpt.facts.codec import from_plain
from pytest_ckpt.facts.observation import Observation
from tests.support import nfs_machine
from tests.support.machine import need, patience

pytestmark = pytest.mark.thorough

HERE = tuple(check.name for check in checks_for("posix") if check.needs in ("", "small directory"))
ON_TWO = tuple(check.name for check in checks_for("posix") if check.needs == "second client")

# Configurations and checks of each machine; the machines run concurrently. NFS 3 is only in docs/nfs.md: its fault (two
# changes within one tick of the server's clock) is real, but appears by chance.
MACHINES = ((("4.2",), HERE), (("4.2", "4.2-actimeo=1"), ON_TWO))
MADE = [(name, check) for configurations, checks in MACHINES for name in configurations for check in checks]
DEADLINE_SECONDS = 900.0
CHECK_SECONDS = 60.0

# Faults that NFS really has. By default a client caches the attributes of files for at least 3 s. It caches those of
# directories, and so the presence of names, for at least 30 s.
NOTHING: frozenset[str] = frozenset()
TRUE_FAULTS = {
    ("4.2", "STALE.names"): frozenset({"stale name"}),
    ("4.2", "STALE.negative-names"): frozenset({"stale negative name"}),
}
# Faults that appear by chance. Files are written 10 ms apart, which is one tick of this kernel's time stamps, so two
# may have the same time. A replaced file's old name is used while the directory's attributes are cached, and that time
# varies.
LUCK = {
    ("4.2", "CAPABILITIES.mtime"): frozenset({"modification times are equal"}),
    ("4.2", "STALE.names"): frozenset({"stale name of a replaced file"}),
}


@pytest.fixture(scope="module")
def answers():
    """Return {(configuration, check): result} of all virtual machines."""
    need(os.geteuid() == 0, "only root makes a namespace of processes")
    need(not nfs_machine.missing(), f"not installed: {', '.join(nfs_machine.missing())}")

    def boot(machine):
        configurations, checks = machine
        limits = {"check_seconds": patience(CHECK_SECONDS), "deadline": patience(DEADLINE_SECONDS)}
        return list(nfs_machine.boot_messages(configurations, checks, share=0.02, **limits))

    with ThreadPoolExecutor(len(MACHINES)) as pool:
        lines = [line for machine in pool.map(boot, MACHINES) for line in machine]
    errors = [line["text"] for line in lines if line["kind"] == "error"]
    assert not errors, "\n".join(errors)
    return {(line["configuration"], line["check"]): line for line in lines if line["kind"] == "check"}


@pytest.mark.parametrize(("configuration", "check"), MADE)
def test_each_check_has_the_right_result_on_nfs(answers, configuration, check):
    line = answers[configuration, check]
    assert line["observation"], line["last_lines"]
    seen = from_plain(Observation, line["observation"])
    assert seen.not_run == ""
    assert seen.trials > 0
    kinds = {anomaly.kind for anomaly in seen.anomalies}
    kinds -= LUCK.get((configuration, check), NOTHING)
    assert kinds == TRUE_FAULTS.get((configuration, check), NOTHING), seen.anomalies


def test_cached_attributes_are_stale_for_longer_than_the_limit(answers):
    measured = answers["4.2", "STALE.attributes"]["observation"]["measured"]
    assert measured > BY_NAME["STALE.attributes"].limit


def test_every_check_was_made(answers):
    assert set(answers) == set(MADE)
