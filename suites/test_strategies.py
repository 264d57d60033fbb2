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


@pytest.mark.requirement("SLOWDOWN")
def test_saves_in_the_background_hardly_slow_training(subject: str, judge: Judge) -> None:
    """Steps beside a save take at most 5 % longer than steps alone.

    A save in the background takes memory bandwidth, cores and network from training. Steps beside every save are
    compared with the steps before and after it, with a 95 % interval; where the interval spans the limit, nothing is
    decided. Advisory: no published limit exists.
    """
    judge(subject)
