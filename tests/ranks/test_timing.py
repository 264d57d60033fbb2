"""The result of an operation, combined from the measurements of all ranks: the slowest rank decides."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ckpt.ranks.operations import RankOperation, combine

ROUNDING = 1e-9
seconds = st.floats(0.001, 1000.0)


def rank_operation(*steps, **facts):
    """Return a measurement of one rank. Its time is the sum of ``steps``, and its phases add up to this time."""
    whole = sum(steps)
    return RankOperation(
        seconds=whole, phases={"open": whole / 4, "read": whole * 3 / 4}, bytes=facts.pop("bytes", 10), **facts
    )


def loads_of(steps_of_ranks):
    return combine("load", 1, 1, [rank_operation(*steps) for steps in steps_of_ranks])


@st.composite
def loads(draw):
    steps = draw(st.integers(1, 6))
    return draw(st.lists(st.tuples(*[seconds] * steps), min_size=1, max_size=9))


@st.composite
def saves(draw):
    """Let Hypothesis choose the measurements of all ranks of a save.

    Every rank writes. Rank 0 then syncs the directory and commits. The clock of rank 0 may have started up to 1 ms
    earlier or later.
    """
    times = draw(st.lists(seconds, min_size=1, max_size=9))
    directory, commit, late = draw(seconds), draw(seconds), draw(st.floats(-0.001, 0.001))
    committed = max(times) + directory + commit + late
    first = rank_operation(times[0], directory_seconds=directory, commit_seconds=commit, committed_seconds=committed)
    return [first, *(rank_operation(time) for time in times[1:])]


@given(steps=loads())
def test_a_load_takes_as_long_as_the_slowest_rank_by_itself(steps):
    load = loads_of(steps)
    assert load.rank_seconds == pytest.approx([sum(s) for s in steps])
    assert load.seconds == max(load.rank_seconds)


@given(steps=loads())
def test_the_phases_of_a_load_are_those_of_the_slowest_rank_and_add_up(steps):
    load = loads_of(steps)
    assert load.rank_seconds[load.slowest_rank] == max(load.rank_seconds)
    assert load.phases["read"] == pytest.approx(load.rank_seconds[load.slowest_rank] * 3 / 4)
    assert sum(load.phases.values()) == pytest.approx(load.seconds)
    assert min(load.phases.values()) >= -ROUNDING * load.seconds


def test_ranks_that_are_slow_in_turns_wait_for_nobody():
    load = loads_of([(3.0, 1.0, 1.0), (1.0, 3.0, 1.0), (1.0, 1.0, 2.5)])
    assert load.seconds == 5.0
    assert load.rank_seconds == (5.0, 5.0, 4.5)
    assert set(load.phases) == {"open", "read"}


@pytest.mark.parametrize(
    ("stalls", "stalled"),
    [((0.0, 0.0), 0.0), ((0.0, 1.5), 1.0), ((0.5, 0.5), 0.5), ((2.0, 0.0), 0.0)],
    ids=["none", "the other rank is the slowest then", "both", "only that of the faster rank"],
)
def test_a_load_was_stalled_for_as_long_as_it_would_have_ended_sooner(stalls, stalled):
    ranks = [rank_operation(2.0, stalled_seconds=stalls[0]), rank_operation(3.0, stalled_seconds=stalls[1])]
    assert combine("load", 1, 1, ranks).stalled_seconds == pytest.approx(stalled)
    assert combine("save", 1, 1, ranks).stalled_seconds is None


@pytest.mark.parametrize(
    ("copies", "copying"),
    [((0.0, 0.0), 0.0), ((0.0, 2.5), 1.0), ((0.5, 0.5), 0.5), ((2.0, 0.0), 0.0)],
    ids=["none", "the other rank goes on last then", "both", "only that of the rank that waits less"],
)
def test_copies_count_as_far_as_all_ranks_could_have_gone_on_sooner(copies, copying):
    blocked = [
        rank_operation(9.0, returned_seconds=s, staged_seconds=s, copying_seconds=c)
        for s, c in zip((2.0, 3.0), copies, strict=True)
    ]
    assert combine("save", 1, 1, blocked).copying_seconds == pytest.approx(copying)
    assert combine("load", 1, 1, [rank_operation(2.0)]).copying_seconds is None


@pytest.mark.parametrize(
    ("waits", "starved"),
    [
        ((0.0, 0.0), 0.0),
        ((0.0, 1.5), 1.0),
        ((0.5, 0.5), 0.5),
        ((2.0, 0.0), 0.0),
        ((9.0, 9.0), 3.0),
        ((None, 1.0), None),
    ],
    ids=["none", "the other rank is the slowest then", "both", "the faster rank", "all of it", "unknown"],
)
@pytest.mark.parametrize("kind", ["save", "load"])
def test_waits_for_a_cpu_count_as_far_as_the_slowest_ranks_time_rests_on_them(kind, waits, starved):
    ranks = [rank_operation(2.0, starved_seconds=waits[0]), rank_operation(3.0, starved_seconds=waits[1])]
    assert combine(kind, 1, 1, ranks).starved_seconds == pytest.approx(starved)


def test_waits_for_a_cpu_take_nothing_from_the_commit():
    ranks = [rank_operation(2.0, starved_seconds=2.0, commit_seconds=5.0, committed_seconds=7.0)]
    assert combine("save", 1, 1, ranks).starved_seconds == pytest.approx(2.0)


@given(ranks=saves())
def test_a_save_ends_with_the_commit_and_not_before(ranks):
    save = combine("save", 3, 3, ranks)
    added = ranks[0].directory_seconds + ranks[0].commit_seconds
    assert save.seconds >= max(save.rank_seconds) + added - ROUNDING
    assert save.seconds >= ranks[0].committed_seconds
    assert save.seconds in (
        pytest.approx(ranks[0].committed_seconds),
        pytest.approx(max(save.rank_seconds) + added),
    )


@given(ranks=saves())
def test_the_phases_of_a_save_add_up_with_the_commit_that_rank_0_does_for_all(ranks):
    save = combine("save", 3, 3, ranks)
    assert save.phases["commit"] == ranks[0].commit_seconds
    assert save.phases["directory"] == ranks[0].directory_seconds
    assert save.phases["coordination"] >= -ROUNDING * save.seconds
    assert sum(save.phases.values()) == pytest.approx(save.seconds)


def test_bytes_are_durable_when_the_longest_fsync_of_the_directory_has_returned():
    ranks = [
        rank_operation(1.0, directory_seconds=0.2, commit_seconds=0.5, committed_seconds=4.8),
        rank_operation(4.0),
        rank_operation(3.0),
    ]
    ranks[2] = dataclasses.replace(ranks[2], directory_seconds=0.3)
    save = combine("save", 1, 1, ranks)
    assert (save.seconds, save.stored_seconds, save.phases["directory"]) == (4.8, pytest.approx(4.3), 0.3)
    assert save.phases["coordination"] == pytest.approx(0.0)


def test_waiting_for_the_slowest_shows_as_coordination():
    ranks = [rank_operation(1.0, commit_seconds=0.5, committed_seconds=4.6), rank_operation(4.0)]
    save = combine("save", 1, 1, ranks)
    assert (save.seconds, save.slowest_rank, save.rank0_seconds) == (4.6, 1, 1.0)
    assert save.phases["coordination"] == pytest.approx(0.1)


def test_number_checkpoint_and_bytes_are_reported():
    load = combine("load", 5, 2, [rank_operation(1.0, bytes=10), rank_operation(1.0, bytes=32)])
    assert (load.kind, load.index, load.checkpoint, load.bytes) == ("load", 5, 2, 42)


def test_resident_bytes_are_added_up_and_unknown_where_one_rank_does_not_know():
    known = [rank_operation(1.0, resident=(3, 10)), rank_operation(1.0, resident=(4, 20))]
    load = combine("load", 1, 1, known)
    assert (load.resident_bytes, load.mapped_bytes) == (7, 30)
    load = combine("load", 1, 1, [*known, rank_operation(1.0)])
    assert (load.resident_bytes, load.mapped_bytes) == (None, None)
