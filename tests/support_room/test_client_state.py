"""What this host is as a client: from the kernel's files, and nothing where they say nothing."""

from __future__ import annotations

import pytest

from pytest_ckpt.support.client_state import host_state, link_state, mount_state

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
