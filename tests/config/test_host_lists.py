"""Lists of hosts: Slurm's ranges and Open MPI's hostfiles."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ckpt.config.parsers import MAXIMUM_HOSTS, read_hosts


def _refusal(value: str) -> list[str]:
    return [f"{host.name}:{host.slots}" for host in read_hosts(value)]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("gpu[001-003]:8", ["gpu001:8", "gpu002:8", "gpu003:8"]),
        ("gpu[1,3-4].lab:2,login:1", ["gpu1.lab:2", "gpu3.lab:2", "gpu4.lab:2", "login:1"]),
        ("r[1-2]n[8-9]", ["r1n8:1", "r1n9:1", "r2n8:1", "r2n9:1"]),
        ("n[99-101]:4", ["n99:4", "n100:4", "n101:4"]),
    ],
)
def test_ranges_are_hosts_of_their_own(value, expected):
    assert _refusal(value) == expected


@given(st.integers(0, 5000), st.integers(0, 50), st.integers(1, 6), st.integers(1, 64))
def test_a_range_names_each_of_its_numbers_once_in_order(first, more, width, slots):
    found = read_hosts(f"n[{first:0{width}d}-{first + more:0{width}d}]:{slots}")
    assert [host.name for host in found] == [f"n{number:0{width}d}" for number in range(first, first + more + 1)]
    assert {host.slots for host in found} == {slots}


@pytest.mark.parametrize(
    "value", ["n[]", "n[a-b]", "n[1-]", "n[4-1]", "n[1-9/2]", "n[1-2", "n1-2]", "n[[1]]", "a b", "n[１]"]
)
def test_an_invalid_range_is_refused(value):
    with pytest.raises(ValueError, match=r"not a range|not host:slots"):
        read_hosts(value)


@pytest.mark.parametrize("value", ["n[1-100000]", "n[0-999999999]", "a[1-400]b[1-400]", f"n[1-{MAXIMUM_HOSTS}],last"])
def test_more_hosts_than_there_can_be_are_refused(value):
    with pytest.raises(ValueError, match="at most 16,384 hosts"):
        read_hosts(value)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("n1 slots=2 max_slots=4\nn2 max-slots=3  # spare\n\n", ["n1:2", "n2:1"]),
        ("n1\tslots = 2\nn[3-4]:8\n", ["n1:2", "n3:8", "n4:8"]),
    ],
)
def test_lines_of_host_files_are_read(tmp_path, lines, expected):
    (tmp_path / "hosts").write_text(lines)
    assert _refusal(f"@{tmp_path}/hosts") == expected


@pytest.mark.parametrize(
    "line", ["n1 slots=4 max_slots=2", "n1:4 max_slots=2", "n1 slots=", "n1 port=4", "n1 slots=8,4"]
)
def test_lines_that_cannot_be_kept_are_refused(tmp_path, line):
    (tmp_path / "hosts").write_text(line)
    with pytest.raises(ValueError, match="max_slots"):
        read_hosts(f"@{tmp_path}/hosts")
