"""Whoever reads of a failure reads what to do first."""

from __future__ import annotations

from pytest_ckpt.judging.catalogue import REQUIREMENTS
from pytest_ckpt.judging.next_steps import NEXT_STEPS


def test_every_requirement_says_what_to_do_first_where_it_fails() -> None:
    assert set(NEXT_STEPS) == set(REQUIREMENTS)
    for name, step in NEXT_STEPS.items():
        assert step.endswith("."), name
        assert REQUIREMENTS[name].next_step == step
