"""Each program in benchmarks/ can be imported, and every name that its functions import exists."""

from __future__ import annotations

import ast
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import CHECKOUT

PROGRAMS = sorted((CHECKOUT / "benchmarks").glob("*.py"))
OURS = ("pytest_ckpt", "tests")


def imports(file: Path) -> Iterator[ast.ImportFrom]:
    """Yield each "from … import" of a project module in a file, including imports inside functions."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in OURS:
            yield node


def names_of(module: str) -> set[str]:
    """Return the names that a module defines. Raises ImportError if there is no such module.

    The function parses the source, because importing some modules starts MPI.
    """
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise ImportError(module)
    found: set[str] = set()
    for node in ast.walk(ast.parse(Path(spec.origin).read_text())):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found.update(alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found


@pytest.mark.parametrize("file", PROGRAMS, ids=lambda file: file.name)
def test_names_that_a_benchmark_imports_exist(file: Path) -> None:
    for node in imports(file):
        assert node.module
        missing = {alias.name for alias in node.names} - names_of(node.module)
        assert not missing, f"line {node.lineno}: {node.module} has no {missing}"


def test_a_name_that_is_gone_is_found() -> None:
    assert "Content" in names_of("pytest_ckpt.ranks.content")
    assert "Contents" not in names_of("pytest_ckpt.ranks.content")
    with pytest.raises(ImportError):
        names_of("pytest_ckpt.ranks.contents")


def test_every_program_can_be_imported() -> None:
    code = "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)"
    places = os.pathsep.join((str(CHECKOUT / "benchmarks"), str(CHECKOUT)))
    done = subprocess.run(
        [sys.executable, "-c", code, *(file.stem for file in PROGRAMS)],
        env=os.environ | {"PYTHONPATH": places},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
