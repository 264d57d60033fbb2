"""A pool of threads that all work on one task. The first error is raised after all threads have stopped."""

from __future__ import annotations

import threading

import pytest

from pytest_ckpt.ranks.engines.stream.thread_pool import ThreadPool
from tests.support.machine import patience


@pytest.fixture
def pool():
    pool = ThreadPool()
    yield pool
    pool.dismiss()


def test_all_work_at_the_same_time(pool):
    together = threading.Barrier(3, timeout=patience(60))
    numbers = []
    for _again in range(3):
        pool.work(lambda number: (together.wait(), numbers.append(number)), 3)
    assert sorted(numbers) == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_the_same_threads_work_again(pool):
    threads = set()
    for count in (4, 1, 2, 4):
        pool.work(lambda _number: threads.add(threading.get_ident()), count)
    assert len(threads) <= 4


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_an_error_is_raised_when_nobody_works_any_more_and_the_crew_works_on(pool, failing):
    failed, ended = threading.Event(), []

    def act(number):
        if number == failing:
            failed.set()
            raise OSError(f"of {number}")
        assert failed.wait(60)
        ended.append(number)

    with pytest.raises(OSError, match=f"of {failing}"):
        pool.work(act, 3)
    assert sorted(ended) == sorted({0, 1, 2} - {failing})
    again = []
    pool.work(again.append, 3)
    assert sorted(again) == [0, 1, 2]


def test_dismissed_threads_end_and_new_threads_can_start(pool):
    threads = set()
    pool.work(lambda _number: threads.add(threading.current_thread()), 3)
    pool.dismiss()
    assert [t for t in threads if t.is_alive()] == [threading.current_thread()]
    again = []
    pool.work(again.append, 2)
    assert sorted(again) == [0, 1]
