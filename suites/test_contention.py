"""Loads by other ranks than those that wrote, and by all replicas at once; saves beside other work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    Judge = Callable[[str], None]


@pytest.mark.requirement("STORM")
def test_all_replicas_restore_at_once(subject: str, judge: Judge) -> None:
    """When all data-parallel replicas restore at once, they are done within 1.5 times the load limit.

    After a failure every replica reads the same model files at the same moment. Storage that serves one reader well may
    fall behind when hundreds ask for the same bytes, or may serve some and let the others wait: so the slowest rank may
    need at most twice the median rank's time for a byte. Every load is cold, and every byte is compared.
    """
    judge(subject)


@pytest.mark.requirement("SHIFTED")
def test_ranks_load_what_another_wrote(subject: str, judge: Judge) -> None:
    """A load in which each rank reads what a rank of another host wrote ends within the load limit.

    After a failure ranks run elsewhere than before: nothing that a client, or a server near it, kept from its own
    writes may make the load fast. With one host each rank reads its neighbour's files, cold. Every byte is
    compared with what that other rank wrote.
    """
    judge(subject)


@pytest.mark.requirement("RESHAPED")
def test_the_checkpoint_is_loaded_by_another_number_of_ranks(subject: str, judge: Judge) -> None:
    """Half as many ranks, and twice as many for each file, load the checkpoint within the load limit.

    Training goes on with the nodes that are left, or with more. Half of the ranks then read two ranks' files each; or
    two readers share each file. Every load is cold, and every byte is compared with what was saved.
    """
    judge(subject)


@pytest.mark.requirement("NEIGHBOUR")
def test_a_second_job_does_not_hold_up_a_save(subject: str, judge: Judge) -> None:
    """A save takes at most 25 % longer while a second job saves in bursts.

    Storage is seldom one job's alone. Half of the ranks save their part of the checkpoint, alone and while the other
    half saves again and again as a second job, with a rest as long as each burst; in turns, and the medians are
    compared. With one host both jobs share that client too.
    """
    judge(subject)


@pytest.mark.requirement("MIXED")
def test_saves_and_data_loading_bear_each_other(subject: str, judge: Judge) -> None:
    """While ranks save, the 99th percentile of reading a sample is at most twice that without, and no save takes longer
    than 1.25 times the save limit.

    Training reads its data from the same storage. A save that starves the readers stops the next steps; readers that
    slow a save stop all. On every host samples are read at random from files that are not in memory, alone and while
    checkpoints are saved, in turns.
    """
    judge(subject)
