"""Speed, and what makes a speed worth anything: cold, durable, right, steady, even over the ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    Judge = Callable[[str], None]


@pytest.mark.requirement("SAVE")
def test_every_save_meets_the_budget(subject: str, judge: Judge) -> None:
    """Every save ends within the time that the cluster can stand still for it.

    A synchronous save stops every accelerator of the cluster until the slowest rank has made its files durable
    and the checkpoint is committed. The limit is the overhead budget times the interval between checkpoints, and the
    interval follows from how often a cluster of this size fails. Every save must meet it, not their mean:
    one slow save stops the whole cluster.
    """
    judge(subject)


@pytest.mark.requirement("LOAD")
def test_every_load_meets_the_budget(subject: str, judge: Judge) -> None:
    """Every restore from the storage, cold, ends within the time that a failure may cost.

    After each failure all ranks load the last checkpoint before training goes on. The limit is the restore budget
    times the mean time between failures. The clock runs until the slowest rank has all its tensors in memory;
    a load that did not bring every byte does not count as one.
    """
    judge(subject)


@pytest.mark.requirement("INTEGRITY")
def test_every_byte_comes_back(subject: str, judge: Judge) -> None:
    """Every byte that is loaded is the byte that was saved.

    No checkpoint loader notices silent corruption: one flipped bit, a torn write or an old version of a page ends
    in wrong weights. So every byte of every tensor of every load is compared with what was written, outside the
    clock, and a fault is named by file, tensor, offset and kind. No fault is tolerated.
    """
    judge(subject)


@pytest.mark.requirement("COLD")
def test_loads_come_from_the_storage(subject: str, judge: Judge) -> None:
    """What is about to be read is not in the page cache of the client that reads it.

    A restore follows a failure: hosts have rebooted, ranks have moved. A load from the client's own memory says
    nothing about the storage. Before every load the resident part of its files is counted; at most 1 % is allowed.
    """
    judge(subject)


@pytest.mark.requirement("DURABLE-CALLS")
def test_saves_are_made_durable(subject: str, judge: Judge) -> None:
    """Before a save counts as done, fsync has returned without error for every file and folder, and it is committed.

    Data in a client's memory is not a checkpoint. Each rank calls fsync on each of its files and on the folder; then
    one rank gives the folder its final name, and calls fsync on the folder above. All of it is on the clock.
    """
    judge(subject)


@pytest.mark.requirement("STRAGGLER")
def test_no_rank_holds_up_the_others(subject: str, judge: Judge) -> None:
    """The slowest rank needs at most 1.5 times the median rank's time for a byte.

    All ranks wait for the slowest one, so an uneven service wastes what the storage could do. From 100 ranks on, the
    99th percentile may be at most 1.3 times the median too. Advisory: no published limit exists.
    """
    judge(subject)


@pytest.mark.requirement("REPEAT")
def test_the_same_again_takes_the_same_time(subject: str, judge: Judge) -> None:
    """The times of the saves, and of the loads, vary by at most 10 % (coefficient of variation).

    A storage whose times scatter meets a limit today and misses it tomorrow. Advisory: published procurements ask for
    5 to 10 %.
    """
    judge(subject)


@pytest.mark.requirement("RETENTION")
def test_deleting_does_not_slow_a_save(subject: str, judge: Judge) -> None:
    """A save during which the oldest checkpoint is deleted takes at most 10 % longer than the others.

    Training jobs keep the newest few checkpoints and delete while they save. Some storage pays for a deletion long
    after the call, and the next save pays with it. Measured where --ckpt-retain is given. Advisory: no published limit
    exists.
    """
    judge(subject)


@pytest.mark.requirement("DATA")
def test_nothing_is_gained_by_content(subject: str, judge: Judge) -> None:
    """Unique, incompressible data take at most 5 % longer than the same amount of constant data.

    Checkpoints do not compress and do not repeat. Storage that is fast only for data that do shows it here; what is
    judged elsewhere is always unique data. Measured where --ckpt-data-pairs is given. Advisory.
    """
    judge(subject)
