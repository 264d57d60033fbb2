"""Every fault has a test here or a row in the fault matrix. Several faults can be enabled at the same time."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.support.targets.faulty import CONTENT, differing, write
from tests.support.targets.misbehaving import FAULTS


def faults_named_in(module: Path) -> set[str]:
    """Return the fault names in the decorators ``@with_faults(…)`` of a test module."""
    calls = (node for node in ast.walk(ast.parse(module.read_text())) if isinstance(node, ast.Call))
    decorators = (call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "with_faults")
    return {ast.literal_eval(word) for call in decorators for word in call.args}


def test_every_fault_of_the_table_is_tested_here():
    tested = {name for module in Path(__file__).parent.glob("test_*.py") for name in faults_named_in(module)}
    # A fault that fails a check needs no test here: the matrix of checks and faults tests it.
    assert tested <= set(FAULTS)
    assert [name for name, fault in FAULTS.items() if name not in tested and not fault.row.get("fails")] == []


def test_several_faults_act_at_once_and_are_cleared_together(faulty, target):
    faulty("torn write", path="torn")
    faulty("flipped bit in reads", path="flipped")
    for name in ("torn", "flipped", "whole"):
        write(target.path / name, CONTENT)
    assert (target.path / "torn").read_bytes() == CONTENT[:150_000] + bytes(150_000)
    assert differing((target.path / "flipped").read_bytes(), CONTENT) == [150_000]
    assert (target.path / "whole").read_bytes() == CONTENT
