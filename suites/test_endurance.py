"""Saves for hours, and on a nearly full volume."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    Judge = Callable[[str], None]


@pytest.mark.requirement("ENDURE")
def test_hours_later_saves_are_as_fast(subject: str, judge: Judge) -> None:
    """After hours of saves, the last quarter has at least 90 % of the rate of the first.

    Training saves for months. Caches fill, flash erases before it writes, drives heat up, free space fragments: storage
    that is fast for ten saves may be slow after a thousand. Checkpoints are saved one after another for
    --ckpt-duration; the newest two are kept.
    """
    judge(subject)


@pytest.mark.requirement("STEADY")
def test_saves_reach_a_steady_state(subject: str, judge: Judge) -> None:
    """Within 25 consecutive saves there are five in a row whose times differ by at most 20 % and drift by at most 10 %.

    Only a steady state predicts the next save. The report names the round in which it was reached.
    """
    judge(subject)


@pytest.mark.requirement("NEARFULL")
def test_a_volume_that_is_nearly_full_is_nearly_as_fast(subject: str, judge: Judge) -> None:
    """At 80 % full, saves keep at least 90 % of their rate; at 90 % full, at least 80 %.

    Allocation and clean-up slow down when little space is left. The test fills the volume with ballast that is really
    written and always removed. Measured with --ckpt-near-full, only on a volume that holds no other data.
    """
    judge(subject)
