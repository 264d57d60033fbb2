"""Readahead, the client's version, NUMA nodes: from trees as kernels write them, nothing where they say nothing."""

from __future__ import annotations

import platform

import pytest

from pytest_ckpt.judging.clients import unmet_demands
from pytest_ckpt.support.client_devices import (
    cores_of_this_process,
    numa_state,
    readahead_state,
    version_state,
)


@pytest.fixture
def plant(tmp_path):
    """Write files of a made-up /proc and /sys, and return where they begin."""

    def planted(**files):
        for name, text in files.items():
            file = tmp_path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{text}\n")
        return tmp_path

    return planted


def test_readahead_of_a_network_mount_is_that_of_its_device(plant):
    root = plant(**{"sys/class/bdi/0:52/read_ahead_kb": "15360", "sys/class/bdi/0:53/read_ahead_kb": "128"})
    assert readahead_state("nfs4", "0:52", root) == {"readahead_kib": "15360"}
    assert readahead_state("nfs4", "0:99", root) == {}
    assert readahead_state("nfs4", "", root) == {}


def test_readahead_of_a_partition_is_that_of_its_disk(plant, tmp_path):
    root = plant(**{"sys/devices/nvme0n1/queue/read_ahead_kb": "512", "sys/devices/nvme0n1/nvme0n1p2/dev": "259:2"})
    (root / "sys/dev/block").mkdir(parents=True)
    (root / "sys/dev/block/259:0").symlink_to(tmp_path / "sys/devices/nvme0n1")
    (root / "sys/dev/block/259:2").symlink_to(tmp_path / "sys/devices/nvme0n1/nvme0n1p2")
    assert readahead_state("xfs", "259:2", root) == readahead_state("xfs", "259:0", root) == {"readahead_kib": "512"}


@pytest.mark.parametrize("tree", ["sys/fs/lustre", "proc/fs/lustre"])
def test_lustre_reads_ahead_by_its_own_figure_where_there_is_one_mount(plant, tree):
    root = plant(**{f"{tree}/llite/scratch-ffff/max_read_ahead_mb": "256.00", "sys/class/bdi/0:52/read_ahead_kb": "0"})
    assert readahead_state("lustre", "0:52", root) == {"readahead_kib": "262144"}
    plant(**{f"{tree}/llite/home-ffff/max_read_ahead_mb": "64"})
    assert readahead_state("lustre", "0:52", root) == {}, "of two mounts it is not known which"


@pytest.mark.parametrize(("kind", "files", "found"), [
    ("lustre", {"sys/fs/lustre/version": "2.15.3"}, ("lustre", "2.15.3")),
    ("lustre", {"proc/fs/lustre/version": "lustre: 2.12.9_ddn1\nkernel: patchless"}, ("lustre", "2.12.9_ddn1")),
    ("beegfs", {"sys/module/beegfs/version": "7.4.2"}, ("beegfs", "7.4.2")),
    ("wekafs", {"sys/module/wekafsio/version": "4.2.1"}, ("wekafsio", "4.2.1")),
    ("nfs4", {"sys/module/nfs/version": "vastnfs-4.0.20", "sys/module/nfs/taint": "OE"}, ("nfs", "vastnfs-4.0.20")),
    ("nfs4", {"sys/module/nfs/taint": ""}, ("nfs", platform.release())),
    ("ceph", {"sys/module/ceph/taint": ""}, ("ceph", platform.release())),
])  # fmt: skip
def test_the_version_of_a_client_is_its_module_s_or_the_kernel_s(plant, kind, files, found):
    assert version_state(kind, plant(**files)) == {"client_module": found[0], "client_version": found[1]}


def test_a_client_that_tells_no_version_has_none(plant):
    assert version_state("beegfs", plant(**{"sys/module/beegfs/taint": "OE"})) == {"client_module": "beegfs"}
    assert version_state("fuse.sshfs", plant()) == version_state("fuse", plant()) == version_state("xfs", plant()) == {}


@pytest.mark.parametrize(("cores", "node", "found"), [
    ({0, 1, 2, 3, 8, 9}, "0", {"cores_numa": "0", "nic_numa": "0", "cores_near_nic": "all"}),
    ({0, 4}, "1", {"cores_numa": "0,1", "nic_numa": "1", "cores_near_nic": "some"}),
    ({0}, "1", {"cores_numa": "0", "nic_numa": "1", "cores_near_nic": "none"}),
    ({0}, "-1", {"cores_numa": "0"}),
])  # fmt: skip
def test_numa_nodes_of_the_link_and_of_the_cores_are_told(plant, cores, node, found):
    nodes = "sys/devices/system/node"
    root = plant(**{f"{nodes}/node0/cpulist": "0-3,8-11", f"{nodes}/node1/cpulist": "4-7,12-15",
                    f"{nodes}/possible": "0-1", "sys/class/net/ib0/device/numa_node": node})  # fmt: skip
    assert numa_state("ib0", cores, root) == {"numa_nodes": "2", **found}
    assert numa_state("", cores, root) == {"numa_nodes": "2", "cores_numa": found["cores_numa"]}


def test_a_host_that_tells_no_nodes_has_none(plant):
    assert numa_state("ib0", {0}, plant()) == {}


def test_gates_can_demand_them(plant):
    nodes = "sys/devices/system/node"
    root = plant(**{f"{nodes}/node0/cpulist": "0-3", "sys/class/net/ib0/device/numa_node": "0",
                    "sys/class/bdi/0:52/read_ahead_kb": "15360", "sys/module/nfs/version": "4.0.20"})  # fmt: skip
    client = readahead_state("nfs4", "0:52", root) | version_state("nfs4", root) | numa_state("ib0", {0}, root)
    met = ["client.readahead_kib >= 15360", "client.client_version >= 4.0", "client.cores_near_nic == all"]
    assert unmet_demands(met, {"n1": client}) == []
    for demand in ("client.readahead_kib > 15360", "client.client_version >= 4.1", "client.nic_numa == 1"):
        assert unmet_demands([demand], {"n1": client})
        assert unmet_demands([demand], {"n1": {}})


def test_this_process_has_cores():
    assert cores_of_this_process()
