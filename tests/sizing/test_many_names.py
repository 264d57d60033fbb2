"""The file names of the suite metadata: each file is in one directory, and one rank creates the file.

A rank on another host looks up each file.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ckpt.sizing.many_names import ManyNames, counterparts

COUNTS = st.integers(1, 300)


@given(COUNTS, COUNTS, COUNTS, st.integers(1, 40))
def test_every_file_is_in_one_directory_and_of_one_rank(files, directories, old, ranks) -> None:
    names = ManyNames(files=files, directories=directories, checkpoint_files=old)
    listed = [
        f"{names.directory(number)}/{name}"
        for rank in range(ranks)
        for number in names.directories_of(rank, ranks)
        for name in names.names_in(number)
    ]
    created = [names.path(file) for rank in range(ranks) for file in names.files_of(rank, ranks)]
    assert listed == created
    assert len(set(created)) == files
    counts = Counter(path.rpartition("/")[0] for path in created)
    assert max(counts.values()) - min(counts.values() if len(counts) == directories else [0]) <= 1
    assert [name for rank in range(ranks) for name in names.old_files_of(rank, ranks)] == names.old_files_of(0, 1)


def test_no_directory_has_more_sub_directories_than_file_systems_allow() -> None:
    names = ManyNames(files=1_000_000, directories=500_000, checkpoint_files=16)
    counts = Counter(names.directory(number).partition("/")[0] for number in range(names.directories))
    assert set(counts.values()) == {10_000}
    assert tuple(counts) == names.groups
    # This includes the groups, and the directory that contains all groups.
    assert names.at_once == 1_500_051


def test_a_rank_needs_memory_for_its_names_and_for_those_of_a_directory() -> None:
    def memory(directories: int, ranks: int) -> int:
        return ManyNames(files=1_000_000, directories=directories, checkpoint_files=16).memory_bytes(ranks)

    assert memory(1_000_000, 8) == 250 * (125_000 + 1)
    assert memory(1, 8) == 250 * 1_125_000


def test_many_files_of_old_checkpoints_count_where_they_are_more() -> None:
    assert ManyNames(files=10, directories=1, checkpoint_files=1000).at_once == 3 * 1001 + 1


@pytest.mark.parametrize(("hosts", "others"), [
    ("aabb", [2, 3, 0, 1]),
    ("abab", [1, 0, 3, 2]),
    ("aabc", [2, 3, 0, 1]),
    ("aaaa", [0, 1, 2, 3]),
    # One host has more than half of the ranks, so one of its ranks looks up names of its own host.
    ("aaab", [3, 0, 1, 2]),
])  # fmt: skip
def test_each_rank_looks_up_the_names_of_another_host(hosts, others) -> None:
    assert counterparts(hosts) == others
    assert sorted(others) == list(range(len(hosts)))
