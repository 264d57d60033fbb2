"""Client ceilings: the highest rates at which each host creates content and compares content.

If the clients are too slow for a save, its requirement is "not run" instead of "failed". The verdict names the slow
clients.
"""

from __future__ import annotations

import dataclasses

import pytest

from pytest_ckpt.facts.client_ceiling import ClientCeiling
from pytest_ckpt.facts.measurement import RankFacts
from pytest_ckpt.grading.networks import ceiling_limits
from tests.support.synthetic_measurement import FULL, judged, measurement, operation
from tests.support.synthetic_patterns import attempt, failed_over, trial, upgraded, with_neighbour, with_reads

LIMIT = judged("SAVE", measurement()).limit
NEEDED = FULL / LIMIT
RANKS = tuple(RankFacts(rank=rank, host=f"n{1 + rank // 2}", pid=rank) for rank in range(4))


def with_ceilings(of, *makes, compares=100 * NEEDED):
    """Return the measurement with one host for each value of ``makes``.

    The value is the rate at which the host creates content, as a multiple of the rate that the host's ranks need.
    """
    hosts = [f"n{number}" for number in range(1, len(makes) + 1)]
    ranks = RANKS if len(makes) == 2 else of.ranks
    return dataclasses.replace(
        of,
        hosts=tuple(hosts),
        ranks=ranks,
        client_ceilings=tuple(
            ClientCeiling(
                host=host,
                ranks=4 // len(makes),
                makes_bytes_per_second=share * NEEDED / len(makes),
                compares_bytes_per_second=compares,
            )
            for host, share in zip(hosts, makes, strict=True)
        ),
    )


def late(took=1.5):
    return measurement(saves=(0.9 * LIMIT, took * LIMIT, 1.1 * LIMIT))


def test_a_late_save_fails_the_storage_if_the_clients_could_have_made_it() -> None:
    verdict = judged("SAVE", with_ceilings(late(), 1.01))
    assert (verdict.outcome, verdict.reason) == ("failed", "over limit")


def test_a_late_save_is_not_judged_if_the_clients_cannot_make_it() -> None:
    slow = measurement(saves=(1.5 * LIMIT,) * 3)
    verdict = judged("SAVE", with_ceilings(slow, 0.9))
    assert (verdict.outcome, verdict.reason) == ("not run", "client too slow")
    assert verdict.because.startswith("The clients cannot: n1 made ")
    assert "Save 1 took " in verdict.because


def test_without_a_ceiling_a_late_save_fails() -> None:
    assert judged("SAVE", late()).outcome == "failed"


def test_a_save_that_was_faster_than_the_ceiling_proves_that_the_client_can() -> None:
    """If one save is within the limit, the clients are fast enough, although the measured ceiling is too low.

    The late saves therefore fail SAVE.
    """
    verdict = judged("SAVE", with_ceilings(late(), 0.9))
    assert (verdict.outcome, verdict.reason) == ("failed", "over limit")


def test_a_save_above_the_ceiling_that_is_still_too_slow_does_not_blame_the_storage() -> None:
    verdict = judged("SAVE", with_ceilings(measurement(saves=(1.5 * LIMIT,) * 3), 0.5))
    assert (verdict.outcome, verdict.reason) == ("not run", "client too slow")
    assert "and reached " in verdict.because


def test_a_save_in_time_is_met_whatever_the_ceiling() -> None:
    assert judged("SAVE", with_ceilings(measurement(saves=(0.9 * LIMIT,) * 3), 0.5)).outcome == "met"


def test_a_host_that_is_too_slow_is_named_even_if_all_hosts_together_suffice() -> None:
    slow = measurement(saves=(1.5 * LIMIT,) * 3)
    verdict = judged("SAVE", with_ceilings(slow, 3.0, 0.8))
    assert (verdict.outcome, verdict.reason) == ("not run", "client too slow")
    assert "n2 made " in verdict.because
    assert "n1" not in verdict.because


@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param(with_neighbour(neighbour_save_seconds=(1.0, 2 * LIMIT, 1.0)), id="NEIGHBOUR"),
        pytest.param(with_reads(save_seconds=(2 * LIMIT,)), id="MIXED"),
        pytest.param(failed_over(trial(after=attempt("save", seconds=2 * LIMIT))), id="FAILOVER"),
        pytest.param(upgraded(operations=(attempt("save", seconds=2 * LIMIT), attempt("load"))), id="UPGRADE"),
    ],
)
@pytest.mark.parametrize(("makes", "outcome"), [(0.5, "not run"), (1.01, "failed")])
def test_a_late_save_of_a_pattern_is_excused_in_the_same_way(
    request: pytest.FixtureRequest, pattern, makes: float, outcome: str
) -> None:
    name = request.node.callspec.id.rpartition("-")[2]
    slow = dataclasses.replace(pattern, operations=measurement(saves=(2 * LIMIT,) * 3).operations)
    assert judged(name, slow).outcome == "failed"
    assert judged(name, with_ceilings(slow, makes)).outcome == outcome


def test_a_late_load_is_not_excused_by_the_rate_of_making_content() -> None:
    slow = measurement(loads=(1e6,) * 3)
    assert judged("LOAD", with_ceilings(slow, 0.1)).outcome == "failed"


@pytest.mark.parametrize(("share", "is_named"), [(0.91, True), (0.89, False)])
@pytest.mark.parametrize("kind", ["save", "load"])
def test_a_client_at_90_percent_of_its_ceiling_was_the_limit(kind: str, share: float, is_named: bool) -> None:
    ceiling = ClientCeiling(
        host="n1",
        ranks=4,
        makes_bytes_per_second=FULL / 1.0 / (share if kind == "save" else 0.1),
        compares_bytes_per_second=FULL / 1.0 / (share if kind == "load" else 0.1),
    )
    operations = [operation(which, 1, 1.0) for which in ("save", "load")]
    found = ceiling_limits([measurement(operations=operations, client_ceilings=(ceiling,))])
    assert len(found) == is_named
    if is_named:
        verb = "makes" if kind == "save" else "compares"
        assert f"in {kind}s of llama3-8b-full n1 moved 1 GB/s, 91 % of what it {verb} without storage" in found[0]
        assert found[0].endswith("the storage may be faster than was measured")


def test_a_client_clearly_beyond_its_ceiling_shows_that_the_ceiling_was_too_low() -> None:
    ceiling = ClientCeiling(
        host="n1", ranks=4, makes_bytes_per_second=FULL / 1.2, compares_bytes_per_second=100.0 * FULL
    )
    operations = [operation(which, 1, 1.0) for which in ("save", "load")]
    (found,) = ceiling_limits([measurement(operations=operations, client_ceilings=(ceiling,))])
    assert "n1 moved 1 GB/s, 120 % of what it makes without storage" in found
    assert found.endswith("whether the client was the limit is not known")
