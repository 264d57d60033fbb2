"""Facts about this host as a storage client, from fake /proc and /sys trees. Missing files give no facts."""

from __future__ import annotations

import platform
import re

import pytest

from pytest_ckpt.judging.clients import unmet_demands
from pytest_ckpt.support.host_state import (
    cores_of_this_process,
    host_state,
    link_state,
    mount_state,
    numa_state,
    readahead_state,
    version_state,
)
from tests.support.doc_pages import DOCS

ROUTES = (
    "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
    "eth0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
    "ib0\t0000140A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n"
)
OPTIONS = "rw,vers=4.2,rsize=1048576,proto=tcp,nconnect=16,addr=10.20.1.7,hard"


@pytest.fixture
def links(tmp_path):
    for name, rate, mtu in (("eth0", "25000", "1500"), ("ib0", "400000", "4092"), ("veth1", "-1", "1500")):
        (tmp_path / "net" / name).mkdir(parents=True)
        for file, text in (("speed", rate), ("mtu", mtu), ("operstate", "up")):
            (tmp_path / "net" / name / file).write_text(f"{text}\n")
    (tmp_path / "route").write_text(ROUTES)
    return tmp_path / "net"


def test_options_of_a_mount_are_facts_and_the_link_is_that_to_the_server(links):
    found = mount_state("nfs4", OPTIONS, links, links.parent / "route")
    assert (found["nconnect"], found["vers"], found["hard"], found["rsize"]) == ("16", "4.2", "yes", "1048576")
    assert (found["nic"], found["nic_mbit"], found["mtu"]) == ("ib0", "400000", "4092")


def test_an_address_elsewhere_is_reached_by_the_default_route(links):
    found = mount_state("nfs4", "addr=192.168.7.1", links, links.parent / "route")
    assert (found["nic"], found["nic_mbit"]) == ("eth0", "25000")
    # One connection is not named by the kernel.
    assert found["nconnect"] == "1"


@pytest.mark.parametrize("options", ["rw", "addr=fe80::1", "addr=elsewhere", ""])
def test_without_a_server_s_address_no_link_is_guessed(links, options):
    assert not {"nic", "mtu", "nic_mbit"} & set(mount_state("lustre", options, links, links.parent / "route"))
    assert "nconnect" not in mount_state("ext4", options, links, links.parent / "route")


def test_a_link_without_a_rate_has_none(links):
    assert link_state("veth1", links) == {"nic": "veth1", "mtu": "1500"}
    assert link_state("none", links) == {"nic": "none"}


def test_values_that_cannot_be_read_are_left_out(tmp_path, links):
    (tmp_path / "sys" / "vm").mkdir(parents=True)
    (tmp_path / "sys" / "vm" / "dirty_ratio").write_text("20\n")
    found = host_state(tmp_path / "sys", links)
    assert found.pop("kernel")
    assert found == {
        "vm.dirty_ratio": "20",
        "links": "eth0 25000 Mb/s MTU 1500, ib0 400000 Mb/s MTU 4092, veth1 MTU 1500",
    }


def test_this_host_has_some():
    assert host_state()["vm.dirty_ratio"].isdigit()


@pytest.fixture
def plant(tmp_path):
    """Return a function that writes files below a fake root directory, and returns this directory."""

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


def test_a_client_that_reports_no_version_has_none(plant):
    assert version_state("beegfs", plant(**{"sys/module/beegfs/taint": "OE"})) == {"client_module": "beegfs"}
    assert version_state("fuse.sshfs", plant()) == version_state("fuse", plant()) == version_state("xfs", plant()) == {}


@pytest.mark.parametrize(("cores", "node", "found"), [
    ({0, 1, 2, 3, 8, 9}, "0", {"cores_numa": "0", "nic_numa": "0", "cores_near_nic": "all"}),
    ({0, 4}, "1", {"cores_numa": "0,1", "nic_numa": "1", "cores_near_nic": "some"}),
    ({0}, "1", {"cores_numa": "0", "nic_numa": "1", "cores_near_nic": "none"}),
    ({0}, "-1", {"cores_numa": "0"}),
])  # fmt: skip
def test_numa_nodes_of_the_link_and_of_the_cores_are_reported(plant, cores, node, found):
    nodes = "sys/devices/system/node"
    root = plant(**{f"{nodes}/node0/cpulist": "0-3,8-11", f"{nodes}/node1/cpulist": "4-7,12-15",
                    f"{nodes}/possible": "0-1", "sys/class/net/ib0/device/numa_node": node})  # fmt: skip
    assert numa_state("ib0", cores, root) == {"numa_nodes": "2", **found}
    assert numa_state("", cores, root) == {"numa_nodes": "2", "cores_numa": found["cores_numa"]}


def test_a_host_that_reports_no_nodes_has_none(plant):
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


def test_the_demands_for_a_storage_acceptance_list_are_met_or_not_by_facts_of_a_client(plant, links):
    """The facts of a client decide whether it meets the demands of docs/rfp.md.

    The page states a demand on clients for each of the lines N-014 to N-018 of NVIDIA's list.
    """
    page = (DOCS / "rfp.md").read_text()
    demands = re.findall(r"`(client\.\w+ [<>=!]+ [\w.]+)`", page.partition("N-014")[2])
    root = plant(**{"sys/module/lustre/version": "2.15.3", "sys/class/bdi/0:52/read_ahead_kb": "16384"})
    facts = mount_state("nfs4", "rw,vers=4.1,nconnect=8,proto=rdma", links) | version_state("lustre", root)
    facts |= readahead_state("nfs4", "0:52", root)
    assert len(dict.fromkeys(demands)) == 5
    assert unmet_demands(demands, {"node1": facts}) == []
    other = mount_state("nfs4", "rw,vers=3,proto=tcp", links) | {"client_module": "nfs", "readahead_kib": "128"}
    assert len(unmet_demands(list(dict.fromkeys(demands)), {"node1": other})) == 5
