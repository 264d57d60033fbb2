"""Contention and resharded loads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    Judge = Callable[[str], None]


@pytest.mark.requirement("STORM")
def test_all_replicas_restore_at_once(subject: str, judge: Judge) -> None:
    """All data-parallel replicas restore at once within 1.5 times the load limit.

    After a failure every replica reads the same model files at the same moment. Storage that serves one reader well may
    slow down when hundreds read the same bytes, or serve some and delay others: the slowest rank may take at most twice
    the median rank's time per byte. Every load is uncached, and every byte is compared.
    """
    judge(subject)


@pytest.mark.requirement("SHIFTED")
def test_ranks_load_what_another_wrote(subject: str, judge: Judge) -> None:
    """A load ends within the load limit when each rank reads what a rank of another host wrote.

    After a failure ranks run on other hosts, so data that a client or a nearby server cached from its own writes must
    not speed up the load. With one host, each rank reads its neighbour's files, uncached. Every byte is compared with
    what that other rank wrote.
    """
    judge(subject)


@pytest.mark.requirement("RESHAPED")
def test_the_checkpoint_is_loaded_by_another_number_of_ranks(subject: str, judge: Judge) -> None:
    """Half as many ranks, and twice as many readers per file, load the checkpoint within the load limit.

    Training continues with the remaining nodes, or with more. Then half of the ranks read two ranks' files each, or two
    readers share each file. Every load is uncached, and every byte is compared with what was saved.
    """
    judge(subject)


@pytest.mark.requirement("NEIGHBOUR")
def test_a_second_job_does_not_hold_up_a_save(subject: str, judge: Judge) -> None:
    """A save takes at most 25 % longer while a second job saves in bursts.

    Jobs usually share storage. Half of the ranks save their part of the checkpoint, alone and while the other half
    saves in bursts as a second job, each burst followed by a pause of the same length. The two alternate, and the
    medians are compared. With one host both jobs also share that client.
    """
    judge(subject)


@pytest.mark.requirement("MIXED")
def test_saves_and_data_loading_bear_each_other(subject: str, judge: Judge) -> None:
    """During saves, the 99th percentile of a sample read at most doubles, and no save takes longer than 1.25 times the
    save limit.

    Training reads its data from the same storage. A save that starves the data loaders delays the next steps; data
    loaders that slow a save stop all ranks. Every host reads samples at random from uncached files, alone and during
    saves, alternating.
    """
    judge(subject)
