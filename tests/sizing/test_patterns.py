"""The table of patterns has one row for each pattern that a measurement can contain.

Each row names an existing scenario. No two patterns use the same checkpoint number.
"""

from __future__ import annotations

import dataclasses

import pytest

from pytest_ckpt.facts.measurement import Patterns
from pytest_ckpt.launching.separate_launches import OWN_LAUNCHES
from pytest_ckpt.ranks.process.job import DURING_DELETION, OF_CANARIES, OF_DATA
from pytest_ckpt.sizing.patterns import PATTERNS
from pytest_ckpt.support.references import load


def test_every_record_of_a_pattern_has_a_row_and_every_row_a_record() -> None:
    # The subject's own saves measure the steps of training.
    assert set(PATTERNS) == {field.name for field in dataclasses.fields(Patterns)} - {"training", "not_run"}


@pytest.mark.parametrize("row", PATTERNS.values(), ids=lambda row: row.name)
def test_the_scenario_of_a_row_can_be_imported(row) -> None:
    assert callable(load(row.scenario))


def test_no_two_patterns_save_under_the_same_number() -> None:
    numbers = [DURING_DELETION, OF_DATA, OF_CANARIES, *(row.first for row in PATTERNS.values() if row.first)]
    assert len(numbers) == len(set(numbers))


def test_a_launch_of_its_own_is_made_for_the_rows_that_have_one_in_their_order() -> None:
    assert list(OWN_LAUNCHES) == [row.name for row in PATTERNS.values() if row.has_own_launch]
