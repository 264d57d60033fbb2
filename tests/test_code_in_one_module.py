"""Some code must exist in only one module. A test fails if another module also contains this code."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from pytest_ckpt.report.html import render
from pytest_ckpt.report.text import summary_lines
from tests.support import CHECKOUT, report_pages
from tests.support.synthetic_run import Document

PACKAGE = CHECKOUT / "pytest_ckpt"
FILES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))
PAGES = sorted((CHECKOUT / "templates").glob("*.j2"))

# Names of attributes, and the one module that may use each of them.
PLACES = {
    "a process that dies with its parent": ("prctl", "", "support/die_with_parent.py"),
    "what a file system answers that has no direct I/O": ("EOPNOTSUPP", "", "targets/posix/direct_io.py"),
    "the bytes that checks write": ("shake_128", "conformance/", "conformance/content.py"),
}


def uses(path: Path, name: str) -> bool:
    """Return whether a module uses an attribute of this name."""
    tree = ast.parse((PACKAGE / path).read_text())
    return any(isinstance(node, ast.Attribute) and node.attr == name for node in ast.walk(tree))


@pytest.mark.parametrize("what", PLACES)
def test_a_name_is_used_in_only_one_module(what: str) -> None:
    name, below, place = PLACES[what]
    assert [str(path) for path in FILES if str(path).startswith(below) and uses(path, name)] == [place]


@pytest.mark.parametrize(
    ("change", "exit_code", "terminal", "page"),
    [
        ({}, 0, ": passed", "It passed"),
        ({"outcome": "failed"}, 1, ": did not pass", "It did not pass"),
        ({"outcome": "not run"}, 8, ": not everything required was run", "Nothing failed, but not everything"),
        # The verdicts decide, even if the exit code has another cause.
        ({"outcome": "failed"}, 0, ": did not pass", "It did not pass"),
        ({}, 8, ": not everything required was run", "Nothing failed, but not everything"),
    ],
)
def test_page_and_terminal_agree_on_a_rehearsal(change: Document, exit_code: int, terminal: str, page: str) -> None:
    document = report_pages.document("rehearsal")
    document["requirements"][0] |= change
    document["exit_code"] = exit_code
    written = render(document)
    ways = ("It passed", "It did not pass", "Nothing failed, but not everything")
    assert [way for way in ways if way in written] == [page]
    assert f"accelerators{terminal}\n" in "".join(f"{line}\n" for line, _ in summary_lines(document))


def test_no_test_searches_for_a_word_in_a_sentence_or_json_text() -> None:
    """Templates and modules read facts, such as an outcome, from fields.

    They do not search texts for words, because the wording of a text may change.
    """
    asked = {
        path.name: found
        for path in PAGES
        if (found := re.findall(r"""["'][a-z ]+["'] in [\w.]*(?:verdict|because|text|message)\b""", path.read_text()))
    }
    assert asked == {}
    quoted = re.compile(r"""['"]\\?"outcome\\?": """)
    assert [str(path) for path in FILES if quoted.search((PACKAGE / path).read_text())] == []
