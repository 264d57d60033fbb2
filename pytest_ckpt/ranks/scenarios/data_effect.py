"""Saves and loads of unique and of constant data in turns: does content change the storage's speed?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ckpt.facts.measurement import DataEffect

if TYPE_CHECKING:
    from pytest_ckpt.ranks.scenarios.in_turns import InTurns


def measure_data(turns: InTurns, pairs: int) -> DataEffect | None:
    """Return what came of all pairs, of which the second way saves constant data; rank 0 knows it."""
    timed = turns.measure(pairs)
    seconds = timed.seconds
    if not seconds:
        return None
    return DataEffect(
        unique_save_seconds=seconds["save", False],
        constant_save_seconds=seconds["save", True],
        unique_load_seconds=seconds["load", False],
        constant_load_seconds=seconds["load", True],
        fault_count=timed.fault_count,
    )
