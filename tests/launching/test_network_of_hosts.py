"""Hosts measure the network rate between each other, through the ports that the user allows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.end_to_end import SMALLEST
from tests.support.hosts.lab import Step, StepResult, need_hosts, on_hosts
from tests.support.hosts.storage import HONEST_FUSE

OPTIONS = (*SMALLEST, "--ckpt-hosts=h1:1,h2:1,h3:1", "--ckpt-ranks=3", "--ckpt-scale=1/100000", "--cluster=1")
# On h1, the controller uses the only allowed port. So h1 only calls h2.
ONE_PORT = "--ckpt-ports=21000-21000"
SLOW = "tc qdisc add dev eth0 root tbf rate 80mbit burst 64kbit latency 400ms"


@pytest.fixture(scope="module")
def results(create_home: Callable[[str], Path]) -> dict[str, StepResult]:
    """Return {name of a run: its result}. All runs use the same three simulated hosts."""
    need_hosts(HONEST_FUSE, "tc")
    steps = {
        "narrow": Step(options=(*OPTIONS, ONE_PORT), streams=True),
        "slow": Step(options=OPTIONS, streams=True, before=((2, SLOW),)),
        "stated": Step(options=(*OPTIONS, "--ckpt-nic-rate=1kB/s"), streams=True),
    }
    return dict(zip(steps, on_hosts(create_home("hosts"), 3, *steps.values(), storage=HONEST_FUSE), strict=True))


def networks(results: StepResult) -> dict[str, Mapping[str, Any]]:
    return {host["host"]: host["network"] for host in results.run.document["environment"]["hosts"]}


@pytest.mark.thorough
def test_every_host_has_a_rate_in_both_directions_though_one_has_no_port_left(results: dict[str, StepResult]) -> None:
    found = networks(results["narrow"])
    assert list(found) == ["h1", "h2", "h3"], results["narrow"].text
    for network in found.values():
        assert network["basis"] == "streams"
        assert network["over"].startswith("10.99.0.")
        assert network["unavailable_reason"] == ""
        assert network["sends_bytes_per_second"] > 1e6
        assert network["receives_bytes_per_second"] > 1e6
    assert (results["narrow"].code, results["narrow"].left) == (0, ())
    assert results["narrow"].shown == ()


@pytest.mark.thorough
def test_a_slow_network_of_one_host_is_seen_as_that(results: dict[str, StepResult]) -> None:
    """The network of one host is limited to 80 Mbit/s, and only this host is measured as slow."""
    found = networks(results["slow"])
    assert found["h2"]["sends_bytes_per_second"] < 15e6
    assert found["h1"]["sends_bytes_per_second"] > 30e6
    assert found["h1"]["receives_bytes_per_second"] > 30e6
    assert results["slow"].code == 0, results["slow"].text


@pytest.mark.thorough
def test_a_declared_network_rate_is_not_measured_and_faster_hosts_are_named(results: dict[str, StepResult]) -> None:
    run = results["stated"].run
    assert {network["basis"] for network in networks(results["stated"]).values()} == {"stated"}
    named = [words for words in run.document["disclosures"] if "over another network, or over more links" in words]
    assert len(named) == 2, run.document["disclosures"]
    assert all("h1 moved" in words and "1 kB/s, as stated" in words for words in named)
    assert "Throughput of each host" in (run.report / "certificate.html").read_text()
    cache = run.document["measurements"][0]["cache"]
    assert cache["by_other_hosts"] is True, "loads by another host are the default over several hosts"
