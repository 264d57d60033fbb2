"""Growing counts of clients: what twice as many get."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    Judge = Callable[[str], None]


@pytest.mark.requirement("SCALING")
def test_twice_the_clients_get_nearly_twice_as_much(subject: str, judge: Judge) -> None:
    """Twice the clients save and load at least 1.8 times as much a second, until the storage gives what is stated.

    1, 2, 4 … of the clients save and load their part of the checkpoint at once, three times in turns, while the others
    wait. Clients are hosts where several take part, else ranks. Medians are compared, from each count to the next. From
    the ceiling on that the vendor states (--ckpt-ceiling) nothing more is asked. Loads are cold and every byte is
    compared. Advisory: a cluster is served or not by what all clients get; how it grows says what more of them would.
    """
    judge(subject)
