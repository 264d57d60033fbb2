"""The page of lost checkpoints: each row names an existing requirement.

For each row, an existing test shows that the requirement detects the cause of the loss.
"""

from __future__ import annotations

import ast
import re

import pytest

from pytest_ckpt.grading.catalogue import REQUIREMENTS
from tests.support.doc_pages import CHECKOUT, DOCS

ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (DOCS / "lost_checkpoints.md").read_text().splitlines()
    if line.startswith("| ") and "http" in line
]
_STRATEGIES = "tests/end_to_end/test_run_with_strategies.py"
_CRASH = "tests/conformance/test_checks_crash.py::test_a_target_that_misbehaves_is_reported_by_its_fault"
_MATRIX = "tests/conformance/test_matrix.py::test_a_fault_is_found_by_its_checks"
# The test in which the requirement of a row changes its outcome.
SHOWN_BY = {
    "KempnerForge/issues/102": f"{_STRATEGIES}::test_damage_or_early_visibility_after_a_kill_is_found",
    "Megatron-Bridge/pull/5184": f"{_STRATEGIES}::test_retention_that_takes_the_newest_committed_one_is_found",
    "awsome-distributed-ai/issues/190": f"{_STRATEGIES}::test_damage_or_early_visibility_after_a_kill_is_found",
    "verl-agent/pull/237": _CRASH,
    "nvidia-resiliency-ext/pull/359": _CRASH,
    "KempnerForge/issues/49": _MATRIX,
    "Automodel/pull/3390": _MATRIX,
}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[1][:40])
def test_a_row_names_what_exists(row: list[str]) -> None:
    _, source, requirement = row
    found = re.findall(r"\(https://github\.com/[\w.-]+/([\w.-]+/(?:issues|pull)/\d+)\)", source)
    assert found
    assert requirement in REQUIREMENTS
    file, _, name = SHOWN_BY[found[-1]].partition("::")
    tree = ast.parse((CHECKOUT / file).read_text())
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_test_belongs_to_a_row() -> None:
    page = (DOCS / "lost_checkpoints.md").read_text()
    assert [source for source in SHOWN_BY if f"{source})" not in page] == []


def test_there_are_rows() -> None:
    assert len(ROWS) >= 7
