"""Processes that ranks have forked exchange messages through the ranks.

If one of these processes fails, its error is reported. Other processes that wait for the failed process continue to
wait.
"""

from __future__ import annotations

from typing import Any

from tests.support.forked_ranks import fork_ranks, relay_until, results_of


def test_each_hears_what_all_say() -> None:
    assert results_of(lambda group: group.gather(group.rank)) == [[0, 1, 2], [], []]
    assert results_of(lambda group: group.share(f"of {group.rank}")) == ["of 0"] * 3
    assert results_of(lambda group: group.largest(group.rank)) == [2] * 3
    assert results_of(lambda group: group.any_of(group.rank == 1)) == [True] * 3
    assert results_of(lambda group: group.duplicate(None).wait()) == [None] * 3


def test_sums_and_broadcasts_stay_within_a_host() -> None:
    assert results_of(lambda group: group.host_sum(group.rank + 1)) == [3, 3, 3]
    assert results_of(lambda group: group.from_host_leader(group.rank)) == [0, 0, 2]


def test_buffers_go_to_the_rank_that_they_are_for() -> None:
    def pass_on(group: Any) -> list[int]:
        found = bytearray(2)
        group.exchange([((group.rank + 1) % 3, bytes([group.rank] * 2))], [((group.rank - 1) % 3, found)])
        return list(found)

    assert results_of(pass_on) == [[2, 2], [0, 0], [1, 1]]


def test_a_process_that_failed_reports_why_and_the_others_wait() -> None:
    def fail(group: Any) -> None:
        if group.rank == 1:
            raise OSError(5, "Input/output error")
        group.wait()

    children = fork_ranks(fail)
    try:
        relay_until(children, lambda: bool(children[1].error))
        assert children[1].error == "OSError: [Errno 5] Input/output error"
        relay_until(children, lambda: children[0].is_waiting() and children[2].is_waiting())
        assert not children[1].is_waiting()
        assert [child.sent for child in children] == ["", "", ""]
    finally:
        for child in children:
            child.kill()
