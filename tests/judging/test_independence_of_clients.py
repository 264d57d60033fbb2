"""Simulated arrays that share one rate among all clients: more or faster clients do not change a verdict."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from tests.support.simulated_runs import Row, Timed, rows


@dataclass(frozen=True, kw_only=True, slots=True)
class Bucket:
    """An array that first serves ``burst`` without a limit, and then at most ``rate`` to all clients together.

    ``rate_of_client`` is the highest rate of each host. The unit of ``burst`` is the number of bytes of an operation.
    The unit of rates is the rate at which an operation takes exactly its limit.
    """

    rate: float
    burst: float = 0.0
    rate_of_client: float = math.inf


@dataclass(frozen=True, kw_only=True, slots=True)
class Clients:
    """The hosts and ranks of a run.

    ``speed`` is the highest rate of one host, as a multiple of the rate at which an operation takes exactly its limit.
    """

    ranks: int = 8
    hosts: int = 1
    speed: float = 3.0

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"n{i + 1}" for i in range(self.hosts))


def series_on(bucket: Bucket, clients: Clients, row: Row) -> list[list[Timed]]:
    """Simulate the operations of a requirement on an array, without pauses; return one list for each series."""
    return [_operations(bucket, clients, limit, n) for limit, n in zip(row.limits, row.operations, strict=True)]


def _operations(bucket: Bucket, clients: Clients, limit: float, count: int) -> Sequence[Timed]:
    """Simulate ``count`` operations. In each operation, all ranks move the same number of bytes and end together."""
    asked = clients.hosts * min(clients.speed, bucket.rate_of_client)
    level, found = bucket.burst, []
    for _ in range(count):
        if asked <= bucket.rate:
            used, seconds = 0.0, 1 / asked
        else:
            # The burst lasts until it is used up: bytes arrive faster than the array replaces it.
            until_empty = level / (asked - bucket.rate)
            seconds = min(1 / asked, until_empty)
            used = seconds * (asked - bucket.rate)
            seconds += (1 - seconds * asked) / bucket.rate
        level -= used
        found.append(Timed(seconds=seconds * limit, ranks=(seconds * limit,) * clients.ranks))
    return found


# A single host can carry three times the rate that an operation needs.
FEW = Clients()
MORE = {
    "twice the ranks": dataclasses.replace(FEW, ranks=16),
    "twice the hosts": dataclasses.replace(FEW, ranks=16, hosts=2),
    "hosts twice as fast": dataclasses.replace(FEW, speed=6.0),
}
NAMES = [row.name for row in rows()]
# STEADY has no time limit, so even a low rate can be steady.
WITH_A_LIMIT = [name for name in NAMES if name != "STEADY"]
RATES = (0.3, 0.5, 0.8, 0.9, 0.95, 0.99, 1.01, 1.05, 1.1, 1.5, 2.5, 8.0)
BURSTS = (0.15, 1.0, 1.9, 5.0)


def row_on(name: str, clients: Clients) -> Row:
    return next(row for row in rows(clients.ranks, clients.names) if row.name == name)


def outcomes(name: str, bucket: Bucket, clients: Clients) -> dict[str, str]:
    row = row_on(name, clients)
    return row.outcomes(series_on(bucket, clients, row))


def is_met(name: str, bucket: Bucket, clients: Clients) -> bool:
    found = set(outcomes(name, bucket, clients).values())
    assert found <= {"met", "failed"}
    return found == {"met"}


@pytest.mark.parametrize("name", WITH_A_LIMIT)
def test_an_array_passes_at_the_rate_that_the_cluster_needs(name: str) -> None:
    assert [is_met(name, Bucket(rate=rate), FEW) for rate in RATES] == [rate >= 1 for rate in RATES]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("change", MORE)
def test_more_clients_turn_no_pass_into_a_fail_and_no_fail_into_a_pass(name: str, change: str) -> None:
    for rate in RATES:
        bucket = Bucket(rate=rate)
        assert outcomes(name, bucket, MORE[change]) == outcomes(name, bucket, FEW), bucket


@pytest.mark.parametrize("name", WITH_A_LIMIT)
@pytest.mark.parametrize("change", MORE)
def test_a_burst_fails_no_good_array_and_more_clients_never_hide_a_bad_one(name: str, change: str) -> None:
    for burst in BURSTS:
        for rate in RATES:
            bucket = Bucket(rate=rate, burst=burst)
            few, more = is_met(name, bucket, FEW), is_met(name, bucket, MORE[change])
            assert few >= more, bucket
            assert more or rate < 1, bucket


def test_faster_clients_may_use_up_a_burst_that_hides_a_bad_array_from_slower_ones() -> None:
    bucket = Bucket(rate=0.8, burst=1.9)
    assert is_met("SHIFTED", bucket, FEW)
    assert not is_met("SHIFTED", bucket, MORE["hosts twice as fast"])


@pytest.mark.parametrize("name", WITH_A_LIMIT)
def test_an_array_that_caps_each_client_passes_with_enough_clients(name: str) -> None:
    bucket = Bucket(rate=8.0, rate_of_client=0.6)
    assert not is_met(name, bucket, FEW)
    assert not is_met(name, bucket, MORE["twice the ranks"])
    assert not is_met(name, bucket, MORE["hosts twice as fast"])
    assert is_met(name, bucket, MORE["twice the hosts"])


@pytest.mark.parametrize("name", ["SAVE", "LOAD", "BACKGROUND"])
def test_the_rate_of_a_client_is_printed(name: str) -> None:
    """The detail of a verdict contains the rate per host, or per rank if the run has one host."""
    bucket = Bucket(rate=8.0, rate_of_client=0.6)
    for clients, words in ((FEW, "for each of 8 ranks)"), (MORE["twice the hosts"], "for each of 2 hosts)")):
        row = row_on(name, clients)
        (verdict,) = row.verdicts(series_on(bucket, clients, row)).values()
        assert words in verdict.detail
