"""Every name quoted in a function's docstring exists in the code of the function's module.

After a rename, the test therefore finds docstrings with the old name.
"""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import CHECKOUT

SOURCES = ("pytest_ckpt", "suites", "benchmarks")
# Names that only other modules or programs use: arguments of hooks, values of options, names of directories.
ELSEWHERE = {
    "conformance/client.py": {"actions"},
    "config/parsers.py": {"embedded"},
    "facts/options.py": {"add_argument"},
    "grading/catalogue.py": {"catalogue_names"},
    "judging/requirement.py": {"test_strategies_of_tiers"},
    "plugin/hookspecs.py": {"environment", "token", "limits", "saves", "loads", "storm", "make"},
    "plugin/session_hooks.py": {"python_files"},
    "published/facts.py": {"llama_405b", "llama3_405b"},
    "report/live_metrics.py": {"_total"},
    "sizing/plan.py": {"stream"},
    "support/resources.py": {"suites", "templates"},
    "server/http.py": {"serve_forever"},
}
_QUOTED = re.compile(r"``([a-z_][a-z0-9_]*)(?:\([^`]*\))?``")
_WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def unknown_names(text: str) -> Iterator[tuple[str, str]]:
    """Yield (function, name) for each quoted name in a function's docstring that the module's code does not contain."""
    tree = ast.parse(text)
    docstrings = {id(node.body[0].value) for node in _documented(tree)}
    known = {word for node in ast.walk(tree) if id(node) not in docstrings for word in _words_of(node)}
    for node in _documented(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for name in _QUOTED.findall(ast.get_docstring(node) or ""):
                if name not in known and not keyword.iskeyword(name):
                    yield node.name, name


def _documented(tree: ast.AST) -> Iterator[ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, _WITH_DOCSTRING) and ast.get_docstring(node) is not None:
            yield node


def _words_of(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.ClassDef(name=name):
            yield name
        case ast.FunctionDef(name=name):
            yield name
        case ast.keyword(arg=str(name)):
            yield name
        case ast.alias(name=name, asname=other):
            yield from re.findall(r"\w+", f"{name} {other}")
        case ast.Constant(value=str(text)):
            yield from re.findall(r"\w+", text)


@pytest.mark.parametrize("source", SOURCES)
def test_a_docstring_quotes_only_names_of_its_module(source: str) -> None:
    found = [
        f"{path.relative_to(CHECKOUT)}: {function}: ``{name}``"
        for path in sorted((CHECKOUT / source).rglob("*.py"))
        for function, name in unknown_names(path.read_text())
        if name not in ELSEWHERE.get(f"{path.parent.name}/{path.name}", ())
    ]
    assert found == []


def test_a_renamed_parameter_is_noticed() -> None:
    text = '''
def load(number):
    """Load checkpoint ``index`` with ``number``; a keyword such as ``with`` is no name."""
'''
    assert [*unknown_names(text)] == [("load", "index")]


def test_every_name_from_elsewhere_is_quoted() -> None:
    for place, names in ELSEWHERE.items():
        (path,) = (path for path in Path(CHECKOUT, "pytest_ckpt").rglob("*.py") if str(path).endswith(f"/{place}"))
        assert names <= {name for _, name in unknown_names(path.read_text())}, place
