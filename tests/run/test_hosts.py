"""Differences between hosts: which differences are reported, and which are ignored."""

from __future__ import annotations

import dataclasses

import pytest

from pytest_ckpt import __version__
from pytest_ckpt.config.parsers import read_hosts
from pytest_ckpt.facts.across_hosts import HostMount, Marker, TargetView
from pytest_ckpt.facts.environment import CLOCK_AHEAD, HostFacts
from pytest_ckpt.facts.targets import MOUNTED, TargetFacts
from pytest_ckpt.launching.launcher import Launcher
from pytest_ckpt.run.hosts import clocks_apart, differences, placed_otherwise, remedy_on_hosts
from pytest_ckpt.targets.posix.run_directory import PosixAreaView

SIGN = Marker(name=".sign", word="what it says")
HERE = TargetFacts(
    location="/mnt/array",
    kind="nfs4",
    gate_kind="posix-shared",
    is_local=False,
    capacity=None,
    capabilities=MOUNTED,
    source="array:/ckpt",
    options="rw,relatime,vers=4.2,clientaddr=10.0.0.1,addr=10.0.9.1",
)
ALIKE = TargetView(
    host="n2",
    package=__version__,
    mount=HostMount(kind=HERE.kind, source=HERE.source, options=HERE.options),
)


def sight(**changed):
    """Return the facts that a host reports: the facts in ``ALIKE``, with the given changes."""
    mount = {name: changed.pop(name) for name in ("kind", "source", "options") if name in changed}
    return dataclasses.replace(ALIKE, mount=dataclasses.replace(ALIKE.mount, **mount), **changed)


def test_hosts_that_differ_in_their_addresses_only_are_alike():
    """Hosts count as alike if only their own addresses and the server's address in the mount differ.

    That the hosts use the same storage is proven by a file that one host creates and the other hosts find.
    """
    other = sight(source="array-2:/ckpt", options="relatime,rw,vers=4.2,clientaddr=10.0.0.2,addr=10.0.9.2")
    assert differences(HERE, (ALIKE, other)) == []


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"kind": "overlay", "source": "overlay"}, "n2: overlay (overlay) instead of nfs4 (array:/ckpt)"),
        (
            {"options": "rw,noatime,vers=4.2,noac"},
            "n2: mounted otherwise (has noac, noatime; lacks relatime)",
        ),
        ({"options": "rw,relatime"}, "n2: mounted otherwise (lacks vers=4.2)"),
        (
            {"source": "array:/old", "misses": "No such file or directory"},
            "n2: another export (array:/old instead of array:/ckpt): the file that pytest made is not there "
            "(No such file or directory)",
        ),
        (
            {"cannot_write": "Permission denied", "mismatch_of_other": "Input/output error", "other": "n3"},
            "n2: no file can be made there (Permission denied), the file that n3 made is not there "
            "(Input/output error)",
        ),
        ({"package": "0.1.0"}, f"n2: pytest-ckpt 0.1.0 instead of {__version__}"),
        # A host without the directory gets a separate message, so no difference is reported here.
        ({"is_directory": False, "kind": "overlay", "misses": "No such file or directory"}, None),
    ],
)
def test_each_difference_of_another_host_is_reported(changed, message):
    found = differences(HERE, (ALIKE, sight(**changed)))
    assert found == ([message] if message else [])


def test_every_host_is_told_at_once():
    hosts = [sight(host=f"n{number}", options="ro") for number in range(3)]
    assert [sentence.split(":")[0] for sentence in differences(HERE, hosts)] == ["n0", "n1", "n2"]
    assert "findmnt -T /mnt/array" in remedy_on_hosts(HERE)


def host_facts(name, count, client=None):
    return HostFacts(
        host=name,
        ranks=tuple(range(count)),
        cpu="",
        cores=1,
        memory_bytes=0,
        memory_available_bytes=0,
        kernel="",
        os="",
        python="",
        target_is_reached=True,
        client=client or {},
    )


def placed(hosts, *seen, slurm=True):
    """Return the message about hosts with an unexpected number of ranks, or an empty text.

    ``hosts`` is the value of --ckpt-hosts. ``seen`` are pairs (name of a host, number of ranks on the host).
    """
    launcher = Launcher(template=("srun",), version="slurm 22.05.8" if slurm else "some", hosts=read_hosts(hosts))
    facts = [host_facts(name, count) for name, count in seen]
    return placed_otherwise(launcher, facts)


@pytest.mark.parametrize(
    ("hosts", "seen"),
    [
        ("n1:2,n2:2", (("n1", 2), ("n2", 2))),
        ("n1:2,n2:2", (("n1.cluster", 2), ("n2.cluster", 1))),  # a smaller model fills only the first host
        ("10.0.0.1:2,10.0.0.2:2", (("n1", 2), ("n2", 2))),  # listed by address: only the numbers can be compared
        ("localhost:2", (("n1", 2),)),
        ("n1:1,n2:1", (("n1", 3), ("n2", 1))),  # more ranks than slots, which each launcher places differently
    ],
)
def test_ranks_on_the_stated_hosts_are_not_reported(hosts, seen):
    assert placed(hosts, *seen) == ""


def test_hosts_with_another_time_of_day_are_reported():
    def of(*ahead):
        names = zip(("n1", "n2", "n3"), ahead, strict=False)
        return clocks_apart([host_facts(name, 1, client=client and {CLOCK_AHEAD: client}) for name, client in names])

    assert of("0", "0") == of("") == ""
    assert of("0", "600", "-2") == (
        "clocks differ from the clock of n1: n2 is 600 seconds ahead, n3 is 2 seconds behind; no time here compares "
        "the clocks of two hosts, but modification times and logs do: synchronize them"
    )


def test_ranks_on_the_wrong_hosts_are_reported_with_a_remedy():
    assert placed("n1:2,n2:2,n3:2", ("n1", 4), ("n2", 1), ("n3", 1)) == (
        "the launcher placed ranks differently from --ckpt-hosts: 4 on n1, 1 on n2, 1 on n3 instead of 2 on n1, "
        "2 on n2, 2 on n3; set the place of each rank with --distribution=arbitrary --nodelist={ranks} in "
        "--ckpt-launcher"
    )
    assert "1 on n9, 1 on n2 instead of 1 on n1, 1 on n2" in placed("n1:1,n2:1", ("n9", 1), ("n2", 1))
    assert "{hosts} or {ranks}" in placed("n1:1,n2:1", ("n1", 2), slurm=False)


@pytest.fixture
def here(tmp_path):
    return PosixAreaView(tmp_path)


def test_a_sign_is_found_where_it_is_and_gone_afterwards(here, tmp_path):
    with here.shown(SIGN) as why:
        assert why == ""
        assert here.instead_of(SIGN, 0.0) == ""
        assert here.instead_of(SIGN.of_rank(3), 0.0) == "No such file or directory"
        assert here.instead_of(Marker(name=".sign", word="another"), 0.0) == "another text in it"
    assert list(tmp_path.iterdir()) == []


def test_the_reason_is_reported_if_the_sign_file_cannot_be_created(tmp_path):
    with PosixAreaView(tmp_path / "nowhere").shown(SIGN) as why:
        assert why == "No such file or directory"
