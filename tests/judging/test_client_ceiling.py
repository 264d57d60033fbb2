"""Client ceilings: the highest rates at which each host creates content and compares content.

If the clients are too slow for a save or a load, SAVE or LOAD is "not run" instead of "failed". The verdict names the
slow clients.
"""

from __future__ import annotations

import dataclasses

import pytest

from pytest_ckpt.facts.client_ceiling import ClientCeiling
from pytest_ckpt.facts.measurement import RankFacts
from pytest_ckpt.grading.networks import ceiling_limits
from tests.support.synthetic_measurement import FULL, judged, measurement, operation
from tests.support.synthetic_patterns import (
    attempt,
    copies_read,
    failed_over,
    pattern,
    trial,
    upgraded,
    with_neighbour,
    with_patterns,
    with_reads,
)
from tests.support.synthetic_training import chained, on_notice

LIMIT = judged("SAVE", measurement()).limit
NEEDED = FULL / LIMIT
LOAD_LIMIT = judged("LOAD", measurement()).limit
NEEDED_BY_LOADS = FULL / LOAD_LIMIT
RANKS = tuple(RankFacts(rank=rank, host=f"n{1 + rank // 2}", pid=rank) for rank in range(4))


def with_ceilings(of, *makes, compares=100 * NEEDED):
    """Return the measurement ``of`` with one host for each value in ``makes``.

    A value is the rate at which the host creates content, as a multiple of the rate that the ranks of the host need.
    ``compares`` is the rate in bytes per second at which each host compares content.
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
    """If one save is within the limit, the clients are fast enough, even if the measured ceiling is too low.

    Late saves therefore fail SAVE.
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


def test_a_late_save_is_not_excused_by_the_rate_of_comparing_content() -> None:
    slow = measurement(saves=(1e6,) * 3)
    assert judged("SAVE", with_ceilings(slow, 1.01, compares=0.1 * NEEDED_BY_LOADS)).outcome == "failed"


def with_comparisons(of, compares):
    """Return the measurement ``of`` with one host, which compares content at a given rate.

    The rate is ``compares`` times the rate that a load needs.
    """
    return with_ceilings(of, 100.0, compares=compares * NEEDED_BY_LOADS)


def test_a_late_load_is_not_judged_if_the_clients_cannot_compare_it_in_time() -> None:
    slow = measurement(loads=(1.5 * LOAD_LIMIT,) * 3)
    assert judged("LOAD", with_comparisons(slow, 1.01)).outcome == "failed"
    verdict = judged("LOAD", with_comparisons(slow, 0.9))
    assert (verdict.outcome, verdict.reason) == ("not run", "client too slow")
    assert verdict.because.startswith("The clients cannot: n1 compared ")
    assert "are needed to meet the limit. Load 1 took " in verdict.because


def test_a_load_that_was_faster_than_the_ceiling_proves_that_the_client_can() -> None:
    slow = measurement(loads=(0.9 * LOAD_LIMIT, 1.5 * LOAD_LIMIT, 1.1 * LOAD_LIMIT))
    verdict = judged("LOAD", with_comparisons(slow, 0.9))
    assert (verdict.outcome, verdict.reason) == ("failed", "over limit")


def test_a_load_in_time_is_met_whatever_the_ceiling() -> None:
    assert judged("LOAD", with_comparisons(measurement(loads=(0.9 * LOAD_LIMIT,) * 3), 0.5)).outcome == "met"


SLOW_LOADS = pattern(*(2 * LOAD_LIMIT,) * 3)


@pytest.mark.parametrize(
    ("requirement", "of"),
    [
        ("STORM", with_patterns(storm=SLOW_LOADS)),
        ("RESTART", with_patterns(storm=pattern(*(2 * LOAD_LIMIT,) * 3, restart=copies_read(4)))),
        ("SHIFTED", with_patterns(shifted=SLOW_LOADS)),
        ("RESHAPED", with_patterns(split=SLOW_LOADS)),
        ("CHAIN", chained(*(2 * LOAD_LIMIT,) * 3)),
    ],
)
def test_a_late_load_of_a_pattern_is_excused_in_the_same_way(requirement: str, of) -> None:
    """If a load is late and the clients compare at 0.51 times the needed rate, the requirement is "not run".

    If the clients compare at 10 times the needed rate, or if a load of the run shows that they are fast enough, the
    requirement fails.
    """
    loads = [o for o in of.operations if o.kind != "load"]
    loads += [
        dataclasses.replace(o, seconds=2 * LOAD_LIMIT, rank_seconds=(2 * LOAD_LIMIT,) * 4)
        for o in of.operations
        if o.kind == "load"
    ]
    slow = dataclasses.replace(of, operations=tuple(loads))
    assert judged(requirement, slow).outcome == "failed"
    assert judged(requirement, with_comparisons(slow, 10.0)).outcome == "failed"
    verdict = judged(requirement, with_comparisons(slow, 0.51))
    assert (verdict.outcome, verdict.reason) == ("not run", "client too slow")
    # The clients cannot compare in the limit, and a load of the run proves that they can.
    fast = dataclasses.replace(
        slow, operations=tuple(dataclasses.replace(o, rank_seconds=(0.01,) * 4) for o in slow.operations)
    )
    assert judged(requirement, with_comparisons(fast, 0.51)).outcome == "failed"


@pytest.mark.parametrize("requirement", ["STORM", "SHIFTED", "RESHAPED"])
@pytest.mark.parametrize(("waited", "outcome"), [(1.0, "not run"), (0.9, "failed")])
def test_a_late_load_of_a_pattern_does_not_count_if_only_comparisons_delayed_it(
    requirement: str, waited: float, outcome: str
) -> None:
    limit = judged(requirement, with_patterns()).limit
    found = pattern(2 * limit)
    loads = tuple(dataclasses.replace(o, stalled_seconds=waited * limit) for o in found.operations)
    slow = dataclasses.replace(found, operations=loads)
    verdict = judged(requirement, with_patterns(storm=slow, shifted=slow, split=slow))
    assert verdict.outcome == outcome
    if outcome == "not run":
        assert verdict.reason == "client too slow"
        assert verdict.because.startswith("The client compared too slowly: ")


def test_a_late_restore_of_a_chain_does_not_count_if_only_comparisons_delayed_it() -> None:
    for waited, outcome in ((1.0, "not run"), (0.9, "failed")):
        found = chained(10.0, 11.0, 2 * LOAD_LIMIT)
        *others, longest = found.operations
        slow = dataclasses.replace(longest, stalled_seconds=waited * LOAD_LIMIT)
        assert judged("CHAIN", dataclasses.replace(found, operations=(*others, slow))).outcome == outcome


def test_a_late_save_after_a_preemption_notice_is_excused_in_the_same_way() -> None:
    slow = dataclasses.replace(on_notice(200.0), operations=measurement(saves=(200.0,) * 3).operations)
    assert judged("PREEMPT", slow).outcome == "failed"
    needed = FULL / judged("PREEMPT", slow).limit / NEEDED
    assert judged("PREEMPT", with_ceilings(slow, 0.9 * needed)).outcome == "not run"
    assert judged("PREEMPT", with_ceilings(slow, 1.1 * needed)).outcome == "failed"


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
