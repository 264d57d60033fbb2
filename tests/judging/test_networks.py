"""A report names a host's network as the limit only if the host used about the full rate of this network."""

from __future__ import annotations

import dataclasses

import pytest

from pytest_ckpt.facts.environment import HostNetwork
from pytest_ckpt.facts.measurement import RankFacts
from pytest_ckpt.grading.networks import client_limits, host_rates, networks_of
from tests.support.synthetic_measurement import measurement, operation

GB = 10**9
RANKS = tuple(RankFacts(rank=rank, host=f"n{1 + rank // 2}", pid=rank) for rank in range(4))
MEASURED = measurement(
    # Two hosts with two ranks each. The second host takes twice as long; each rank moves 10 GB.
    operations=[operation(kind, 1, 10.0, ranks=[5.0, 4.0, 8.0, 10.0]) for kind in ("save", "load")],
    ranks=RANKS,
    hosts=("n1", "n2"),
    rank_bytes=(10 * GB,) * 4,
    bytes=40 * GB,
)


def hosts(
    sends: float | None = 5.0, receives: float | None = 100.0, unavailable_reason: str = "", basis: str = "streams"
):
    network = HostNetwork(
        basis=basis,
        sends_bytes_per_second=sends and sends * GB,
        receives_bytes_per_second=receives and receives * GB,
        over="10.0.0.1 and 10.0.0.2",
        unavailable_reason=unavailable_reason,
    )
    return [{"host": name, "network": dataclasses.asdict(network)} for name in ("n1", "n2")]


def known(*rates, **how):
    return networks_of(hosts(*rates, **how))


def test_a_host_s_rate_is_that_of_all_its_ranks_while_the_slowest_is_at_work():
    found = [(r.kind, r.host, r.bytes_per_second / GB, r.share) for r in host_rates(MEASURED, networks_of(hosts()))]
    assert found == [
        ("save", "n1", 4.0, pytest.approx(0.8)),
        ("save", "n2", 2.0, pytest.approx(0.4)),
        ("load", "n1", 4.0, pytest.approx(0.04)),
        ("load", "n2", 2.0, pytest.approx(0.02)),
    ]


@pytest.mark.parametrize(("sends", "words"), [
    (5.0, ["the client is the limit", "n1 moved 4 GB/s, 80 % of the capacity of its network (5 GB/s, TCP"]),
    (5.01, []),
    (3.7, ["the client is the limit"]),
    (3.6, ["over another network, or over more links"]),
])  # fmt: skip
def test_rates_near_or_clearly_above_the_rate_of_the_network_are_reported(sends, words):
    sentences = client_limits([MEASURED], known(sends))
    assert len(sentences) == bool(words)
    assert all(word in " ".join(sentences) for word in words), sentences
    assert "n2" not in " ".join(sentences)


def test_a_network_rate_declared_by_the_user_is_labelled_so():
    (sentence,) = client_limits([MEASURED], known(5.0, basis="stated"))
    assert "(5 GB/s, as stated)" in sentence


def test_an_unknown_or_unmeasured_network_is_neither_reported_nor_guessed():
    assert client_limits([MEASURED], networks_of([{"host": "n1"}, {"host": "n2", "network": None}])) == []
    (sentence,) = client_limits([MEASURED], known(None, None, unavailable_reason="no port of this range can be bound."))
    why = "the network of n1, n2 was not measured: no port of this range can be bound"
    assert sentence == f"whether clients were the limit is not known: {why}"


def test_loads_of_another_host_s_files_that_differ_in_size_have_no_rate_of_a_host():
    cache = dataclasses.replace(MEASURED.cache, by_other_hosts=True)
    uneven = dataclasses.replace(MEASURED, cache=cache, rank_bytes=(10 * GB, 12 * GB, 9 * GB, 9 * GB))
    assert {rate.kind for rate in host_rates(uneven, {})} == {"save"}
    assert {rate.kind for rate in host_rates(dataclasses.replace(MEASURED, cache=cache), {})} == {"save", "load"}
