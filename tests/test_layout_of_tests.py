"""Each directory of tests has the name of a directory of the package, or is listed in ``OTHER_DIRECTORIES``.

Shared code of tests is in tests/support. A test module imports no other test module.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.support import CHECKOUT

TESTS = CHECKOUT / "tests"
PACKAGES = {path.name for path in (CHECKOUT / "pytest_ckpt").iterdir() if path.is_dir()}
# Directories without a package of that name: end-to-end tests, pages, a kernel with NFS, real file systems of other
# projects and attacks; ``support`` has the helpers of all tests.
OTHER_DIRECTORIES = {"end_to_end", "docs", "nfs", "file_systems", "fuzz", "support", "support_package"}
FILES = sorted(path.relative_to(TESTS) for path in TESTS.rglob("*.py"))


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse((TESTS / path).read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def test_every_directory_belongs_to_a_package_or_is_listed():
    directories = {path.parts[0] for path in FILES if len(path.parts) > 1}
    assert directories - PACKAGES - OTHER_DIRECTORIES == set()


@pytest.mark.parametrize("path", FILES, ids=str)
def test_helpers_are_in_support(path):
    of_tests = {name for name in imported(path) if name.startswith("tests.")}
    assert {name for name in of_tests if not name.startswith("tests.support")} == set()
    assert path.parts[0] != "support" or not path.name.startswith("test_")
