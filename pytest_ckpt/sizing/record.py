"""The maximum size of a run's report, checked before the run. Pure functions.

A larger report could not be read again. The bounds match the bounds in `support.strict_json`, so the longest permitted
run can be judged and verified. A value is a number, a text, a list or an object in JSON.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ckpt.sizing.patterns import LOADS_OF_A_PATTERN
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.support.strict_json import MAXIMUM_VALUES
from pytest_ckpt.support.units import format_count

if TYPE_CHECKING:
    from pytest_ckpt.facts.settings import Settings
    from pytest_ckpt.sizing.plan import Plan, PlannedCheckpoint

MAXIMUM_ENDURANCE_SAVES = 100_000
"""The maximum number of saves of one endurance measurement.

If saves are so fast that there would be more, each save waits for its turn.
"""

FACTS_OF_ENDURANCE = 10_000
"""The maximum number of saves that rank 0 reports as events during one endurance measurement.

The measurement contains the times of all saves.
"""

MAXIMUM_FAULTS = 100
"""The maximum number of faulty places that a measurement describes; its count includes all of them."""

# Counts of values: of an operation (without the times of its ranks), of one rank in total, of a faulty place, and of
# everything else.
_OF_OPERATION, _OF_RANK, _OF_FAULT, _OF_RUN = 40, 30, 10, 20_000
_PATTERNS = 4


def check_record(plan: Plan, settings: Settings) -> None:
    """Raise UsageError if the report of a run would be too large to be read again."""
    values = _OF_RUN + sum(values_of(planned, settings) for planned in plan.runnable)
    if values > MAXIMUM_VALUES:
        raise UsageError(
            f"The report of this run would contain {format_count(values)} values, such as the time of each rank in "
            f"each operation; up to {format_count(MAXIMUM_VALUES)} can be read again.",
            "Choose fewer --ckpt-operations or --ckpt-ranks, or measure the models one after the other, each in a "
            "separate run (--ckpt-model).",
        )


def values_of(planned: PlannedCheckpoint, settings: Settings) -> int:
    """Return the maximum number of JSON values for one checkpoint in the report of a run."""
    ranks = planned.layout.processes
    patterns = _PATTERNS if settings.includes_contention else 0
    operations = 2 * planned.operations + patterns * LOADS_OF_A_PATTERN
    faults = (1 + patterns) * MAXIMUM_FAULTS
    saves = MAXIMUM_ENDURANCE_SAVES if settings.includes_endurance and settings.duration_seconds else 0
    return operations * (ranks + _OF_OPERATION) + ranks * _OF_RANK + faults * _OF_FAULT + 2 * saves
