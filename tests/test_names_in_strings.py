"""Code inside strings of the tests imports only names that exist. mypy and ruff do not check these strings."""

from __future__ import annotations

import ast
import functools
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support import CHECKOUT

OURS = ("pytest_ckpt", "tests")
# Names that a test adds to a copy of the tree.
ADDED = {("tests/support/new_entries.py", "pytest_ckpt.facts.measurement.LoadedAgain")}
_STATEMENT = re.compile(rf"\b(?:from|import) (?:{'|'.join(OURS)})\b")


class Unknown(NamedTuple):
    line: int
    name: str


def unknown_names(text: str) -> Iterator[Unknown]:
    """Yield each missing project name that code in a string uses, with the line of the string."""
    for line, string in _strings(ast.parse(text)):
        if _STATEMENT.search(string):
            for statement in _parsed(string):
                yield from (Unknown(line, name) for name in _unknown(statement))


def _strings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield (line, value) of each string. In an f-string, the word "inserted" replaces each inserted value."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.JoinedStr):
            parts = (str(part.value) if isinstance(part, ast.Constant) else "inserted" for part in node.values)
            yield node.lineno, "".join(parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
        else:
            yield from _strings(node)


def _parsed(string: str) -> list[ast.Module]:
    """Return the syntax trees of the code in a string.

    If the string is not valid code as a whole, return the trees of its valid import lines.
    """
    try:
        return [ast.parse(textwrap.dedent(string))]
    except SyntaxError:
        lines = [line.strip() for line in string.splitlines() if _STATEMENT.match(line.strip())]
    found = []
    for line in lines:
        try:
            found.append(ast.parse(line))
        except SyntaxError:
            continue
    return found


def _unknown(code: ast.Module) -> Iterator[str]:
    modules: dict[str, str] = {}
    for node in ast.walk(code):
        if isinstance(node, ast.ImportFrom) and _is_ours(node.module or "") and not node.level:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                if alias.name != "*" and not _exists(node.module or "", alias.name):
                    yield name
                elif _file_of(name):
                    modules[alias.asname or alias.name] = name
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if _is_ours(alias.name) and not _file_of(alias.name):
                    yield alias.name
                elif _is_ours(alias.name) and alias.asname:
                    modules[alias.asname] = alias.name
    # A test that sets an attribute of a module patches it. A wrong name would patch nothing.
    for node in ast.walk(code):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            module = modules[node.value.id]
            if not _exists(module, node.attr):
                yield f"{module}.{node.attr}"


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] in OURS


def _exists(module: str, name: str) -> bool:
    file = _file_of(module)
    return file is not None and (name in _bound_in(file) or _file_of(f"{module}.{name}") is not None)


@functools.cache
def _file_of(module: str) -> Path | None:
    place = CHECKOUT.joinpath(*module.split("."))
    return next((file for file in (place / "__init__.py", place.with_suffix(".py")) if file.is_file()), None)


@functools.cache
def _bound_in(file: Path) -> frozenset[str]:
    """Return the names that a module defines.

    The function parses the source, because importing some modules takes seconds.
    """
    names = {"__file__", "__name__", "__doc__"}
    for node in _top_level(ast.parse(file.read_text())):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.add(node.name)
            case ast.Import() | ast.ImportFrom():
                names |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
            case ast.Name(ctx=ast.Store()):
                names.add(node.id)
    return frozenset(names)


def _top_level(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield from _top_level(node)


def test_code_in_strings_imports_names_that_exist() -> None:
    found = [
        (str(file.relative_to(CHECKOUT)), *unknown)
        for file in sorted((CHECKOUT / "tests").rglob("*.py"))
        if file != Path(__file__)
        for unknown in unknown_names(file.read_text())
    ]
    assert not [f"{file}:{line}: {name}" for file, line, name in found if (file, name) not in ADDED]
    assert {(file, name) for file, _, name in found} <= ADDED


@pytest.mark.parametrize(("module", "unknown"), [
    ("CODE = '''\nfrom pytest_ckpt.support.units import format_seconds, no_such\n'''\n",
     [(1, "pytest_ckpt.support.units.no_such")]),
    ("x = 1\nrun('-c', 'import os; import pytest_ckpt.no_such; print(1)')", [(2, "pytest_ckpt.no_such")]),
    ("x = '''\n    from pytest_ckpt.support import units\n    units.no_such = None\n    units.format_bytes = None\n'''",
     [(1, "pytest_ckpt.support.units.no_such")]),
    ("def f(a):\n    return f'from tests.support.{a} import b\\nfrom tests.support import no_such\\nx = {a}'",
     [(2, "tests.support.inserted.b"), (2, "tests.support.no_such")]),
    ("x = '''\nfrom pytest_ckpt.support.units import no_such\n{body} of a template\n'''",
     [(1, "pytest_ckpt.support.units.no_such")]),
    ("from pytest_ckpt.support.units import no_such  # for mypy", []),
    ("x = 'from pytest_ckpt.support import units, errors'", []),
    ("x = 'from another import no_such'", []),
])  # fmt: skip
def test_a_name_that_does_not_exist_is_found(module: str, unknown: list[tuple[int, str]]) -> None:
    assert [tuple(found) for found in unknown_names(module)] == unknown
