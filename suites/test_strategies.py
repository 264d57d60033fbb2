"""Saves that let the job go on: what they take from training, and what a failure costs meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    Judge = Callable[[str], None]


@pytest.mark.requirement("BLOCKING")
def test_saves_take_little_from_training(subject: str, judge: Judge) -> None:
    """Every save takes at most the save limit from training.

    An asynchronous save copies the state while training waits, then writes the copy while training goes on. What
    training loses is the wait, and the time by which steps beside the save take longer than steps alone. Both together
    must meet the limit of a save that stops training. Steps are a stand-in: they wait as for an accelerator and change
    the state that is saved. No model is trained, and nothing is copied from a device.
    """
    judge(subject)


@pytest.mark.requirement("BACKGROUND")
def test_saves_are_committed_before_the_next_is_due(subject: str, judge: Judge) -> None:
    """Every save is committed within the interval between two checkpoints.

    The clock runs from the begin of the save until the slowest rank has made its files durable and the checkpoint is
    committed. Storage that takes longer makes the next save wait, and training with it.
    """
    judge(subject)


@pytest.mark.requirement("LOST-WORK")
def test_saves_risk_little_work(subject: str, judge: Judge) -> None:
    """What a save takes from training and the work that it puts at risk cost together at most the save limit.

    Until a save is committed, a failure costs all work since the save before. With k checkpoints per failure, this
    time counts as its k-th part. So an asynchronous save that meets the limit costs training no more than a save that
    stops it and just meets SAVE.
    """
    judge(subject)


@pytest.mark.requirement("CRASH-ASYNC")
def test_training_that_dies_in_a_save_loses_no_checkpoint(subject: str, judge: Judge) -> None:
    """When the processes of training are killed during a save in the background, no checkpoint is lost or torn.

    Jobs are cancelled, nodes fail, memory runs out, and a save in the background is cut off at any moment. Processes
    that save are killed at random moments, some after the commit. After every kill the newest committed checkpoint must
    load whole, every byte compared, and a save that was cut off must not stand there as a checkpoint. The hosts live
    on: DURABLE judges what a power cut does. Small checkpoints are used.
    """
    judge(subject)


@pytest.mark.requirement("RETAIN-COMMITTED")
def test_retention_leaves_the_newest_committed_checkpoint(subject: str, judge: Judge) -> None:
    """When older checkpoints are deleted during a save that fails, the newest committed one loads whole.

    Jobs keep a few checkpoints and delete the oldest while the next save is still in flight. When that save is cut off,
    the newest committed checkpoint is all that is left. In every kill of CRASH-ASYNC the one before it is deleted while
    the save goes on; then caches are dropped, the newest is loaded and every byte compared.
    """
    judge(subject)


@pytest.mark.requirement("CHAIN")
def test_the_longest_chain_is_restored_in_time(subject: str, judge: Judge) -> None:
    """The longest chain, a full save and all deltas behind it, is restored within the load limit.

    A restore from deltas reads the full save and every delta since. Caches are dropped before, and every page is
    compared with what was made for its own checkpoint, so that a delta that is missing, damaged or older is found. Then
    one delta is deleted: its file must be gone for every rank. The client's work to put the pages together is not part
    of it.
    """
    judge(subject)


@pytest.mark.requirement("RETAIN-CHAIN")
def test_deleting_old_checkpoints_breaks_no_chain(subject: str, judge: Judge) -> None:
    """When older checkpoints are deleted, a chain that is kept loads whole, and the space comes back.

    A full save and two deltas are saved, all checkpoints before them are deleted, and the chain is loaded with caches
    dropped, every byte compared. Where the target tells its free space and 1 GB or more was deleted, at least half of
    it must be free within 10 seconds: less would be hidden by what others write.
    """
    judge(subject)


@pytest.mark.requirement("DRAIN")
def test_the_local_tier_is_drained_in_time(subject: str, judge: Judge) -> None:
    """Every drain from the local tier to the target is over before the next begins, and puts little work at risk.

    Training waits until a checkpoint is saved to the local tier; every N-th is drained to the target while training
    goes on. Where only the target survives a failure, all work since the last drain is lost. So the limit follows from
    how often the cluster fails, how many failures only the target survives, and what saves take from training. Saves to
    the local tier beside a drain may take at most 10 % longer than alone, or must still meet the save limit.
    """
    judge(subject)


@pytest.mark.requirement("TIER-ORDER")
def test_a_restore_takes_the_newest_whole_checkpoint(subject: str, judge: Judge) -> None:
    """A restore takes the newest checkpoint that is whole on all ranks, from the local tier or from the target.

    With a newer checkpoint in the local tier than on the target, the local one is loaded. Then the files of one rank
    are deleted there, as when its host is lost: the checkpoint that was drained last must be loaded from the target,
    with caches dropped, and never a mixture of two. Every byte is compared.
    """
    judge(subject)


@pytest.mark.requirement("NODE-LOSS")
def test_a_checkpoint_outlives_the_loss_of_a_host(subject: str, judge: Judge) -> None:
    """When a host is lost with its local tier, a partner host's copies are restored, within the load limit.

    Jobs keep a second copy of each checkpoint in the local tier of another host. Two checkpoints are saved to the local
    tiers, and each rank sends its files over the network of the ranks to a rank of the next host, which makes them
    durable in its tier. Then all that the last host's tier holds is deleted, its own files and the copies that it kept
    for another. Its files come back from its partner, all ranks load, and every byte is compared: an older copy is
    found. Copies are made for this alone: no other figure contains them. On one host nothing is decided, and saves in
    tiers are not certified.
    """
    judge(subject)


@pytest.mark.requirement("COMPRESSION")
def test_compressed_saves_are_not_slower_than_plain_ones(subject: str, judge: Judge) -> None:
    """Saves through a codec take at most 5 % longer than plain saves of the same content.

    Compressing spares the storage bytes and costs the client's processor time. Three saves and loads of each kind are
    taken in turns, caches are dropped before each load, every byte is compared. Content is made to compress as one
    measured training state does: mixed-precision states store about 0.9 of their bytes by zstd, and LZ4 gains nothing.
    What a job's own data would give is not known from it. Advisory: no published limit exists.
    """
    judge(subject)


@pytest.mark.requirement("PREEMPT")
def test_a_job_that_is_given_notice_saves_in_time(subject: str, judge: Judge) -> None:
    """What a job saves when it is told that it will be ended is committed before its end.

    Schedulers and clouds give a job notice, often two minutes. Rank 0 tells all ranks, which save what they hold; the
    clock runs until that is committed on the target. Where saves go on in the background, one had just begun. No signal
    is sent, and nothing is loaded. Asked with --ckpt-notice. Advisory: the notice is the user's.
    """
    judge(subject)


@pytest.mark.requirement("SLOWDOWN")
def test_saves_in_the_background_hardly_slow_training(subject: str, judge: Judge) -> None:
    """Steps beside a save take at most 5 % longer than steps alone.

    A save in the background takes memory bandwidth, cores and network from training. Steps beside every save are
    compared with the steps before and after it, with a 95 % interval; where the interval spans the limit, nothing is
    decided. Advisory: no published limit exists.
    """
    judge(subject)
