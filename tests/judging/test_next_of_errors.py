"""The recommended first step after an error depends on the error, the failed call and the kind of target."""

from __future__ import annotations

import dataclasses
import errno

import pytest

from pytest_ckpt.judging.remedies import HUNG, NEXT_STEPS, next_of, next_of_failure
from tests.support.synthetic_measurement import failed_in, ref

TABLES = {"local": "posix-local", "shared": "posix-shared", "objects": "object"}
ROWS = [
    (step, name, place, reads)
    for step in NEXT_STEPS
    for name in step.errnos
    for place in step.places
    for reads in ((True, False) if step.reads is None else (step.reads,))
]


@pytest.mark.parametrize(
    ("step", "name", "place", "reads"), ROWS, ids=[f"{name}-{place}-{reads}" for _, name, place, reads in ROWS]
)
def test_each_row_is_found_by_its_error_its_target_and_its_call(step, name, place, reads):
    assert name in errno.errorcode.values()
    assert next_of(name, TABLES[place], reads=reads) == step.text


def test_no_two_rows_answer_the_same():
    keys = [(name, place, reads) for _, name, place, reads in ROWS]
    assert len(keys) == len(set(keys))


def test_a_hang_has_a_step_of_its_own_and_an_unknown_error_none():
    assert next_of_failure(failed_in(ref("save", 1), "hung"), "posix-shared") == HUNG
    assert next_of_failure(dataclasses.replace(failed_in(ref("save", 1)), errno=""), "posix-shared") == ""
