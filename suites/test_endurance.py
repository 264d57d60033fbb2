"""What shows only after hours, or when there is little space left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    Judge = Callable[[str], None]


@pytest.mark.requirement("ENDURE")
def test_hours_later_saves_are_as_fast(subject: str, judge: Judge) -> None:
    """After hours of saves, the last quarter has at least 90 % of the rate of the first.

    Training saves for months. Caches fill, flash has to erase before it writes, drives get warm, free space breaks into
    pieces: what is fast for ten saves need not be for a thousand. Checkpoints are saved one after the other for as long
    as --ckpt-duration says, and the newest two stay.
    """
    judge(subject)


@pytest.mark.requirement("STEADY")
def test_saves_reach_a_steady_state(subject: str, judge: Judge) -> None:
    """Within 25 saves one after the other there are five whose times differ by at most 20 % and drift by at most 10 %.

    Only in the steady state does a time say what the next one will be. It is told with which round it was reached: the
    saves before that were those of a storage that had not settled.
    """
    judge(subject)


@pytest.mark.requirement("NEARFULL")
def test_a_volume_that_is_nearly_full_is_nearly_as_fast(subject: str, judge: Judge) -> None:
    """On a volume that is 80 % full saves have at least 90 % of the rate that they had before, at 90 % at least 80 %.

    Space is bought to be used, and allocation and clean-up become dear when little is left. The volume is filled with
    ballast that is really written and always removed; measured where --ckpt-near-full is given, and only on a volume
    that holds no other data.
    """
    judge(subject)
