"""Checks of bytes, memory mappings, copies and capabilities pass on correct storage and report each fault."""

from __future__ import annotations

import pytest

from tests.support.check_command import anomaly_kinds, run_check
from tests.support.checks_of_bytes import LIES

HERE = [
    "DIRECT.aligned",
    "DIRECT.coherent",
    "MMAP.private",
    "MMAP.shared",
    "SPARSE.tail-first",
    "SPARSE.disjoint-writers",
    "CLONE-FRESH.copy",
    "TRUNCATE.concurrent",
    "LARGE.offsets",
    "UNLINK.open-reader",
    "CAPABILITIES.flock",
    "CAPABILITIES.links",
    "CAPABILITIES.mtime",
    "CAPABILITIES.statfs",
    "CAPABILITIES.names",
    "CAPABILITIES.extras",
]
ON_TWO = [
    "SPARSE.disjoint-writers-second-client",
    "UNLINK.second-client",
    "CAPABILITIES.flock-second-client",
    "CAPABILITIES.mtime",
]


@pytest.mark.parametrize("check", HERE)
def test_a_local_disk_passes(check, create_home):
    seen = run_check(check, create_home("disk"))
    assert not seen.not_run
    assert seen.anomalies == ()
    assert seen.trials > 0


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["tmpfs", "ext4", "xfs", "btrfs"])
def test_honest_file_systems_pass(kind, mount):
    # Large enough for mkfs.xfs and for 6 x 64 MiB of free space.
    point = mount(kind, 640)
    for check in HERE:
        directory = point / check
        directory.mkdir()
        seen = run_check(check, directory)
        assert (seen.anomalies, seen.not_run) == ((), ""), check
        assert seen.trials > 0


@pytest.mark.thorough
@pytest.mark.parametrize("check", ON_TWO)
def test_two_clients_of_one_disk_pass(check, create_home):
    home = create_home("two")
    seen = run_check(check, home, f"--second-directory={home}")
    assert (seen.anomalies, seen.not_run) == ((), "")
    assert seen.trials > 0


@pytest.mark.parametrize("lie", LIES)
def test_misbehaviour_is_named(lie, create_home):
    check, code, kind = LIES[lie]
    seen = run_check(check, create_home("lie"), sabotage=code)
    assert kind in anomaly_kinds(seen), seen.anomalies
    assert all(anomaly.where and anomaly.seen and anomaly.expected for anomaly in seen.anomalies)
