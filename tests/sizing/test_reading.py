"""The files that each rank reads in a pattern: every byte is read by the ranks that the pattern requires."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ckpt.sizing.models import layout
from pytest_ckpt.sizing.reading import joined, restart_reads, shifted, split, storm

ONE_COPY = layout("llama3-8b", mode="open", processes=6, scale=1e-4)


def shares(reading):
    """Return {file: number of reads of the file, added over all ranks}. The read of a part counts as a fraction."""
    read = Counter()
    for pieces in reading.pieces:
        for piece in pieces:
            for file in piece.shard.files:
                read[file.name] += Fraction(1, piece.parts)
    return read


def open_layout(processes):
    return layout("llama3-8b", mode="open", processes=processes, scale=1e-4)


@given(processes=st.integers(2, 33))
def test_shifted_joined_and_split_read_the_complete_checkpoint_once(processes):
    of = open_layout(processes)
    for reading in (shifted(of, ["n1"] * processes), joined(of), split(of)):
        assert shares(reading) == {file.name: 1 for rank in of.ranks() for file in rank.files}
        assert reading.bytes == of.bytes
        assert not reading.not_run
        assert len(reading.pieces) == processes


@given(processes=st.integers(2, 33))
def test_nobody_reads_its_own_files_when_shifted(processes):
    reading = shifted(open_layout(processes), ["n1"] * processes)
    assert all(piece.shard.rank == (rank + 1) % processes for rank in range(processes) for piece in reading.of(rank))


@given(hosts=st.lists(st.integers(1, 8), min_size=2, max_size=5))
def test_with_hosts_alike_every_rank_reads_another_host_s_files(hosts):
    slots = hosts[0]
    names = [f"n{host}" for host in range(len(hosts)) for _ in range(slots)]
    reading = shifted(open_layout(len(names)), names)
    for rank, host in enumerate(names):
        assert names[reading.of(rank)[0].shard.rank] != host
    assert f"{len(names)} of them another host's" in reading.description


def test_with_uneven_hosts_the_text_shows_how_many_ranks_read_data_of_another_host():
    reading = shifted(open_layout(4), ["n1", "n1", "n1", "n2"])
    assert "2 of them another host's" in reading.description


def test_half_of_the_ranks_read_two_shards_and_the_others_wait():
    assert [[p.shard.rank for p in joined(ONE_COPY).of(rank)] for rank in range(6)] == [
        [0, 1],
        [2, 3],
        [4, 5],
        [],
        [],
        [],
    ]
    assert [[p.shard.rank for p in joined(open_layout(3)).of(rank)] for rank in range(3)] == [[0, 1], [2], []]


def test_two_readers_share_each_file():
    found = [[(p.shard.rank, p.part, p.parts) for p in split(ONE_COPY).of(rank)] for rank in range(6)]
    assert found[0] == [(0, 0, 2), (3, 0, 2)]
    assert found[1] == [(0, 1, 2), (3, 1, 2)]
    assert found[5] == [(2, 1, 2), (5, 1, 2)]


def test_an_odd_rank_has_no_partner_and_waits():
    assert [len(split(open_layout(5)).of(rank)) for rank in range(5)] == [3, 3, 2, 2, 0]


@pytest.mark.parametrize(
    ("model", "mode", "copies", "read", "terabytes"),
    [
        ("llama3-405b", "full", 62, 2, 55.2),
        ("llama3-405b", "subset", 62, 0, 55.2),
        ("llama3-1t", "full", 31, 2, 87.5),
        ("llama3-70b", "full", 250, 0, 244.6),
    ],
)
def test_a_restart_reads_the_optimizer_once_with_zero_1_and_complete_copies_with_zero_3(
    model, mode, copies, read, terabytes
):
    of = layout(model, mode=mode, scale=1e-4)
    found = restart_reads(of, storm(of).copies)
    assert (found.copies_of(16_000), found.copies) == (copies, read)
    assert found.bytes_of(copies) / 1e12 == pytest.approx(terabytes, rel=0.001)
    assert found.bytes_of(1) == of.cluster_bytes
    assert found.copies_of(8) == 1


def test_a_storm_over_all_replicas_reads_what_a_restart_of_them_reads():
    of = layout("llama3-405b", mode="full")
    assert restart_reads(of, 2).bytes_of(2) == storm(of).bytes


def test_in_a_storm_over_one_copy_all_read_the_files_of_rank_0():
    reading = storm(ONE_COPY)
    assert {p.shard.rank for rank in range(6) for p in reading.of(rank)} == {0}
    assert reading.bytes == 6 * ONE_COPY.rank(0).bytes


@pytest.mark.parametrize(("model", "processes"), [("llama3-405b", 512), ("llama3-1t", 1024)])
def test_in_a_storm_over_replicas_each_reads_the_model_of_the_first_and_its_own_optimizer(model, processes):
    of = layout(model, mode="full", scale=1e-4)
    reading, apart = storm(of), of.model.model_parallel
    assert reading.pieces[:apart] == tuple((p,) for ((p,),) in zip(reading.pieces[:apart], strict=True))
    assert [p.shard.rank for p in reading.of(0)] == [0]
    assert [p.shard.rank for p in reading.of(apart + 3)] == [3, apart + 3]
    first, second = (shares_of for shares_of in (Counter(), Counter()))
    for rank in range(processes):
        for piece in reading.of(rank):
            for file in piece.shard.files:
                (first if "model_states" in file.name else second)[file.name] += 1
    assert set(first.values()) == {processes // apart}
    assert set(second.values()) == {1}
    assert len(second) == processes
    # A tensor's number on its rank is part of its content, so only last files may be left out.
    written = {file.name: number for rank in of.ranks() for number, file in enumerate(rank.files)}
    for rank in (0, apart, processes - 1):
        for piece in reading.of(rank):
            assert [written[file.name] for file in piece.shard.files] == list(range(len(piece.shard.files)))


def test_a_storm_over_a_node_s_part_reads_the_files_of_rank_0():
    of = layout("llama3-405b", mode="subset", scale=1e-4)
    assert storm(of).bytes == 8 * of.rank(0).bytes


def test_patterns_of_several_ranks_are_not_run_with_one_rank():
    alone = open_layout(1)
    for reading in (storm(alone), shifted(alone, ["n1"]), joined(alone), split(alone)):
        assert reading.not_run.startswith("One rank")
        assert reading.not_run.endswith(".")
