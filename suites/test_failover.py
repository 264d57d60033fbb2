"""A component of the storage breaks in the middle of saves and loads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    Judge = Callable[[str], None]


@pytest.mark.requirement("FAILOVER")
def test_a_broken_component_costs_no_byte_and_little_time(subject: str, judge: Judge) -> None:
    """When a component breaks during a save or load, no byte is wrong and no rank stands still for more than 60 s.

    Drives, controllers and servers fail, some of them during a checkpoint. The command of
    --ckpt-break breaks a component at a random moment of three saves and three loads; the command of --ckpt-mend mends
    it. A save or load may end with an error: then nothing may be committed, and what was committed before must load in
    full once all is mended. A save that succeeds must hold every byte. The save that follows, while the storage
    rebuilds, takes at most 1.5 times the save limit. A rank stands still when it moves no byte and no call ends, for
    longer than in an undisturbed save or load.
    """
    judge(subject)
