"""The page of lost checkpoints names requirements and tests that exist."""

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


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[1][:40])
def test_a_row_names_what_exists(row: list[str]) -> None:
    _, source, requirement, shown = row
    assert re.search(r"\(https://github\.com/[\w.-]+/[\w.-]+/(issues|pull)/\d+\)", source)
    if requirement.startswith("none yet"):
        assert shown == "–"
        return
    assert requirement in REQUIREMENTS
    file, _, name = shown.strip("`").partition("::")
    tree = ast.parse((CHECKOUT / file).read_text())
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_there_are_rows() -> None:
    assert len(ROWS) >= 7
