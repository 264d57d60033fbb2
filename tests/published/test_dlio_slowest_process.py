"""The time of the slowest process in each published operation.

The time is read from the files of all ranks, or inferred from the files of some ranks or of rank 0.
"""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_ckpt.published.times import (
    clock_skew_seconds,
    inference_error_seconds,
    inferred_seconds,
    logged_times,
    pause_between,
    rank_times,
    ranks_of_different_runs,
    slowest_of_each,
)
from tests.support.selection import examples
from tests.support.synthetic_results import SyntheticRun

TWO_MILLISECONDS = 0.002


def times_of(run, ranks=None):
    return {rank: rank_times(stats) for rank, stats in run.stats(ranks).items()}


def operations(run, ranks=None, between=5.0):
    return slowest_of_each(times_of(run, ranks), run.processes, between)


def test_with_all_ranks_the_slowest_rank_decides_and_not_rank_0():
    found = operations(SyntheticRun())
    assert [o.seconds for o in found] == SyntheticRun().slowest("save") + SyntheticRun().slowest("load")
    assert {o.basis for o in found} == {"all ranks"}
    assert [o.slowest_rank for o in found[:4]] == [2, 3, 1, 2]
    assert found[0].rank0_seconds == 5.0


def test_with_rank_0_alone_it_is_inferred_but_for_the_last_of_a_phase():
    run = SyntheticRun()
    found = operations(run, [0])
    assert [o.basis for o in found] == ["inferred from rank 0"] * 19 + ["rank 0 only"]
    assert [o.seconds for o in found[:10]] == pytest.approx(run.slowest("save"), abs=TWO_MILLISECONDS)
    assert [o.seconds for o in found[10:19]] == pytest.approx(run.slowest("load")[:9], abs=TWO_MILLISECONDS)
    assert {o.slowest_rank for o in found} == {None}
    assert found[19].seconds == found[19].rank0_seconds == 4.0
    # Only a lower and an upper bound of the last save are known.
    assert [o.at_least_seconds for o in found] == [None] * 9 + [5.0] + [None] * 10


def test_the_last_save_of_a_run_without_loads_has_only_rank_0s_time():
    last = operations(SyntheticRun(loads=0), [0])[-1]
    assert (last.basis, last.seconds, last.at_least_seconds) == ("rank 0 only", 5.0, None)


def test_a_delay_before_the_first_load_only_raises_the_bound_of_the_last_save():
    """A slow listing of the directory after the last save only increases the upper bound of this save."""
    stats = SyntheticRun(listing=4.0).stats([0])[0]
    last = {(o.kind, o.number): o for o in slowest_of_each({0: rank_times(stats)}, 8, 5.0)}["save", 10]
    assert last.seconds == pytest.approx(5.3 + 4.0, abs=TWO_MILLISECONDS)
    assert last.at_least_seconds == 5.0


def test_with_all_ranks_the_last_save_is_what_they_recorded_whatever_follows():
    last = operations(SyntheticRun(listing=4.0))[9]
    assert (last.basis, last.seconds, last.at_least_seconds) == ("all ranks", 5.3, None)


@given(
    per_rank=st.lists(st.lists(st.floats(0.5, 60), min_size=3, max_size=6), min_size=2, max_size=6),
    between=st.sampled_from([0.0, 1.0, 5.0, 12.5]),
    offset=st.floats(-7200, 7200),
    seed=st.integers(0, 1000),
)
@settings(max_examples=examples(150), deadline=None)
def test_times_inferred_from_one_rank_are_within_2_ms_of_the_maximum(per_rank, between, offset, seed):
    run = SyntheticRun(
        processes=len(per_rank), saves=min(map(len, per_rank)), loads=0, size=2**40, between=between, seed=seed,
        seconds=lambda _kind, number, rank: per_rank[rank][number - 1], offsets={0: offset},
    )  # fmt: skip
    alone, every = operations(run, [0], between), operations(run, None, between)
    for inferred, known in zip(alone[:-1], every[:-1], strict=True):
        assert inferred.basis == "inferred from rank 0"
        assert inferred.seconds == pytest.approx(known.seconds, abs=TWO_MILLISECONDS)
    assert {o.basis for o in every} == {"all ranks"}
    assert inference_error_seconds(times_of(run), every, between) <= TWO_MILLISECONDS


@given(first=st.floats(1, 30), longer=st.floats(0, 30), rank=st.integers(0, 7))
@settings(max_examples=examples(60), deadline=None)
def test_a_slower_rank_never_makes_the_result_shorter(first, longer, rank):
    def run(extra):
        return SyntheticRun(
            saves=3, loads=0, seconds=lambda _k, number, r: first + (extra if (number, r) == (2, rank) else 0)
        )

    for ranks in ([0], [0, 3], None):
        before, after = operations(run(0.0), ranks)[1], operations(run(longer), ranks)[1]
        assert after.seconds >= before.seconds - TWO_MILLISECONDS


@pytest.mark.parametrize("ranks", [[0, 3], [0, 1, 2, 5, 6, 7]])
def test_with_some_ranks_no_known_rank_is_left_below_what_is_inferred(ranks):
    run = SyntheticRun()
    found = operations(run, ranks)
    for operation, slowest in zip(found[:9], run.slowest("save"), strict=False):
        assert operation.basis == "inferred from rank 0"
        assert operation.seconds == pytest.approx(slowest, abs=TWO_MILLISECONDS)
        assert operation.seconds >= max(operation.rank_seconds.values())
    # The best known time of the last load is that of the slowest recorded rank.
    assert found[19].seconds == max(found[19].rank_seconds.values())


def test_a_rank_that_is_as_slow_as_what_is_inferred_is_named():
    found = operations(SyntheticRun(), [0, 2])
    assert [o.slowest_rank for o in found[:3]] == [2, None, None]


def test_a_time_that_all_ranks_shortened_shows_in_when_the_next_operation_started():
    """If the files of all ranks state a save time that is too short, the true time is still known.

    It is inferred from the start of the next operation.
    """
    times = times_of(SyntheticRun(seconds=lambda _kind, _number, rank: 40.0 if rank == 3 else 5.0))
    for t in times.values():
        timing = t.timings["save", 4]
        t.timings["save", 4] = timing._replace(seconds=min(timing.seconds, 5.0))
    found = {(o.kind, o.number): o for o in slowest_of_each(times, 8, 5.0)}
    assert [key for key, o in found.items() if o.hidden] == [("save", 4)]
    assert found["save", 4].seconds == pytest.approx(40.0, abs=TWO_MILLISECONDS)
    assert found["save", 4].basis == "inferred from rank 0"
    assert found["save", 5].basis == "all ranks"


def test_a_rank_that_sleeps_a_little_longer_hides_nothing():
    found = operations(SyntheticRun(jitter=0.05))
    assert {o.basis for o in found} == {"all ranks"}


def test_a_copy_of_another_ranks_file_is_no_rank():
    times = times_of(SyntheticRun())
    times |= {3: times[0], 5: times[0]}
    found = ranks_of_different_runs(times)
    assert list(found) == [3, 5]
    assert found[5] == "its times equal the times of rank 0, to the microsecond: it is a copy"
    assert ranks_of_different_runs(dict.fromkeys(range(8), times[0])).keys() == set(range(1, 8))


def test_without_rank_0_another_ranks_starts_serve():
    run = SyntheticRun()
    found = operations(run, [5])
    assert found[0].basis == "inferred from rank 0"
    assert found[0].seconds == pytest.approx(run.slowest("save")[0], abs=TWO_MILLISECONDS)
    assert found[0].rank0_seconds is None


def test_clocks_that_are_apart_change_nothing():
    skewed = SyntheticRun(offsets={1: 1.4, 2: -3600.0, 3: 0.25, 4: 77.0})
    assert [o.seconds for o in operations(skewed)] == [o.seconds for o in operations(SyntheticRun())]
    assert ranks_of_different_runs(times_of(skewed)) == {}
    assert clock_skew_seconds(times_of(skewed)) == pytest.approx(3677.0, abs=0.01)


def test_a_pause_that_is_not_as_configured_is_seen_and_nothing_is_inferred_from_it():
    found = operations(SyntheticRun(between=1.0), [0], between=5.0)
    assert {o.basis for o in found} == {"rank 0 only"}
    assert all(o.contradicted for o in found[:19])
    assert [o.seconds for o in found] == [o.rank0_seconds for o in found]


@pytest.mark.parametrize(
    ("really", "recorded", "taken", "expected_text"),
    [
        (5.0, 5.0, 5.0, ""),
        (5.0, None, 5.0, ""),
        (0.0, 0.0, 0.0, ""),
        # A pause longer than the real one would make every operation shorter.
        (
            5.0,
            9.0,
            5.0,
            "9 s between checkpoints is the configured time, and the first operation began 5 s",
        ),
        (1.0, None, 1.0, "5 s between checkpoints is usual, and the first operation began 1 s after"),
        # A shorter pause makes operations longer: a rank may have begun late.
        (5.0, 2.0, 2.0, ""),
        (12.0, None, 12.0, "the pause between checkpoints is not configured"),
    ],
)
def test_no_pause_is_longer_than_what_was_before_the_first_operation(really, recorded, taken, expected_text):
    pause = pause_between(times_of(SyntheticRun(between=really)), 8, recorded)
    assert pause.seconds == pytest.approx(taken, abs=TWO_MILLISECONDS)
    assert pause.description.startswith(expected_text)
    assert bool(pause.description) == bool(expected_text)


def test_a_start_that_was_set_back_makes_no_pause_longer():
    """If the recorded start of the run was changed, the computed pause between operations stays the same.

    There is no configuration, so the pause is computed from the operations.
    """
    times = {r: replace(t, began=t.began - 7.0) for r, t in times_of(SyntheticRun()).items()}
    assert pause_between(times, 8, None).seconds == 5.0
    assert pause_between({0: times[0]}, 8, None).seconds == 5.0


def test_nothing_is_inferred_from_random_pauses():
    pause = pause_between(times_of(SyntheticRun()), 8, None, varies=True)
    assert pause.seconds is None
    assert "drawn at random" in pause.description
    assert {o.basis for o in operations(SyntheticRun(), [0], None)} == {"rank 0 only"}
    assert {o.basis for o in operations(SyntheticRun(), None, None)} == {"all ranks"}


def test_a_gap_in_the_numbers_is_no_pause():
    stats = SyntheticRun().stats([0])[0]
    del stats["1"]["save_ckpt5"]
    found = {(o.kind, o.number): o for o in slowest_of_each({0: rank_times(stats)}, 8, 5.0)}
    assert ("save", 5) not in found
    assert found["save", 4].basis == "rank 0 only"
    assert found["save", 3].basis == found["save", 6].basis == "inferred from rank 0"


def test_nothing_is_inferred_from_an_operation_that_a_rank_did_not_record():
    times = times_of(SyntheticRun(), [0])[0].timings
    assert inferred_seconds(times, ("save", 10), ("save", 11), 5.0) is None
    assert inferred_seconds(times, ("load", 1), ("load", 2), 5.0) is not None


def varied(shift):
    return lambda kind, number, rank: 5 + math.sin(number * 7 + shift) + 0.01 * rank


def test_a_file_of_another_run_is_found_by_its_intervals():
    times = times_of(SyntheticRun(seconds=varied(0.0)))
    times[6] = times_of(SyntheticRun(seconds=varied(2.0)))[6]
    assert list(ranks_of_different_runs(times)) == [6]
    assert "another run" in ranks_of_different_runs(times)[6]


def test_a_file_of_another_run_with_the_same_intervals_is_found_by_its_hour():
    run = SyntheticRun()
    later = SyntheticRun(
        started=run.started + timedelta(minutes=7), seconds=lambda *a: run.seconds(*a) + 0.02 * (a[1] % 2)
    )
    times = times_of(run)
    times[6] = times_of(later)[6]
    assert list(ranks_of_different_runs(times)) == [6]


def test_the_log_of_rank_0_agrees_with_its_statistics():
    run = SyntheticRun()
    logged, recorded = logged_times(run.log().splitlines()), rank_times(run.stats([0])[0])
    assert logged.timings.keys() == recorded.timings.keys()
    for key, timing in logged.timings.items():
        assert timing == pytest.approx(recorded.timings[key], abs=1e-5)
    assert logged.bytes == pytest.approx(run.bytes, rel=1e-4)


@pytest.mark.parametrize(
    ("change", "expected_text"),
    [
        ({"duration": float("nan")}, "no duration above 0 (nan)"),
        ({"duration": float("inf")}, "no duration above 0"),
        ({"duration": -1.0}, "no duration above 0"),
        ({"duration": "5.0"}, "no duration above 0"),
        ({"duration": True}, "no duration above 0"),
        ({"duration": 4.0}, "states that it took 4 s, but its start and end are 5 s apart"),
        ({"start": "noon"}, "no start that is a time"),
        ({"end": None}, "no end that is a time"),
        ({"end": 17}, "no end that is a time"),
    ],
)
def test_an_operation_that_cannot_be_believed_is_left_out_and_named(change, expected_text):
    stats = SyntheticRun().stats([0])[0]
    stats["1"]["save_ckpt2"] |= change
    times = rank_times(stats)
    assert ("save", 2) not in times.timings
    assert len(times.timings) == 19
    (fault,) = times.faults
    assert fault.startswith("save_ckpt2 ")
    assert expected_text in fault


@pytest.mark.parametrize("stats", [None, [], 3, "text", {"1": None}, {"1": []}, {"1": {"save_ckpt1": 7}}])
def test_an_invalid_table_is_reported_as_invalid(stats):
    times = rank_times(stats)
    assert not times.timings
    assert times.faults


def test_numbers_continue_in_a_second_epoch():
    one = SyntheticRun(saves=2, loads=0).stats([0])[0]["1"]
    two = SyntheticRun(saves=2, loads=0, started=SyntheticRun().started + timedelta(hours=1)).stats([0])[0]["1"]
    times = rank_times({"1": one, "2": two})
    assert list(times.timings) == [("save", 1), ("save", 2), ("save", 3), ("save", 4)]


@pytest.mark.parametrize("name", ["save_ckpt01", "save_ckpt0", "save_ckpt", "load_ckpt1.5", "save_ckpt\u0661"])
def test_a_name_that_dlio_does_not_write_is_no_operation(name):
    stats = SyntheticRun(saves=1, loads=1).stats([0])[0]
    stats["1"][name] = stats["1"]["save_ckpt1"] | {"duration": 0.1}
    times = rank_times(stats)
    assert list(times.timings) == [("save", 1), ("load", 1)]
    assert times.timings["save", 1].seconds == 5.0
    assert times.faults == (f"{name} is not a name of an operation",)


@pytest.mark.parametrize("number", ["1.2.3", ".", "1e999", "-5", "nan"])
def test_a_log_with_numbers_that_are_none_is_read_without_them(number):
    log = SyntheticRun(saves=1, loads=0).log().replace("5.0000 s", f"{number} s")
    found = logged_times(log.splitlines())
    assert list(found.timings) == [("save", 1)]
    assert found.bytes is None
