"""Messages that pages quote exist in the code; … stands for inserted values."""

from __future__ import annotations

import ast
import functools
import re

import pytest

from pytest_ckpt.facts.failure import Failure, describe_failure
from pytest_ckpt.facts.subject import OperationRef, Subject
from tests.support.doc_pages import CHECKOUT, DOCS, MESSAGE_PAGES, PAGES, blocks

HOLE = "\0"
MINIMUM_QUOTED = 10
QUOTED = [
    (b.where, line.strip()) for p in PAGES for b in blocks(p) if b.comment == "says" for line in b.text.splitlines()
]
# Sentences that the code assembles from parts, assembled in the same way.
MADE = [
    describe_failure(
        Failure(kind="error", rank=3, host="n1", phase="write", file="a.pt", errno="ENOSPC",
                operation=OperationRef(subject=Subject(model="llama3-8b", mode="full"), action="save", index=2),
                message="No space left on device")
    ),
]  # fmt: skip


def shown(node: ast.expr) -> str:
    """Return the text of a string or f-string, with … for each inserted value.

    For a call of `counted`, the text is … followed by the plural of the counted word.
    """
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(map(shown, node.values))
    inside = node.value if isinstance(node, ast.FormattedValue) else node
    if isinstance(inside, ast.Call) and ast.unparse(inside.func).endswith("counted"):
        return f"{HOLE} " + (shown(inside.args[2]) if len(inside.args) > 2 else f"{shown(inside.args[1])}s")
    return HOLE


@functools.cache
def sentences() -> str:
    """Return all strings of the package and the suites as one text, with … for each inserted value."""
    found = list(MADE)
    for file in sorted([*(CHECKOUT / "pytest_ckpt").rglob("*.py"), *(CHECKOUT / "suites").glob("*.py")]):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
            elif isinstance(node, ast.JoinedStr):
                found.append(shown(node))
    return "\n\n".join(text.replace("\n", " ") for text in found)


def is_set(quoted: str) -> bool:
    # A … at either end matches anything. One at the start would be tried at every position of every text.
    return re.search("[^\n]*".join(map(re.escape, quoted.strip("…").split("…"))), sentences()) is not None


@pytest.mark.parametrize(("where", "quoted"), QUOTED, ids=[f"{where} {quoted[:40]}" for where, quoted in QUOTED])
def test_every_quoted_message_occurs_in_the_code(where, quoted):
    assert len(quoted.replace("…", "").strip()) >= MINIMUM_QUOTED, f"{where}: this would match anything: {quoted}"
    assert is_set(quoted), f"{where}: nothing says: {quoted}"


def test_a_quoted_message_that_no_code_contains_is_found():
    assert is_set("… is mounted read-only.")
    assert not is_set("… is mounted write-only.")
    assert is_set("… faulty places in the loaded data; first: …")
    assert not is_set("… faulty place in the loaded data; first: …")


def test_the_pages_of_failures_have_many_each_with_its_message():
    page = "\n".join((DOCS / name).read_text() for name in MESSAGE_PAGES)
    entries = re.findall(r"^### (.*)\n((?:(?!#{2,3} ).*\n)*)", page, re.MULTILINE)
    assert len(entries) >= 35
    silent = [title for title, text in entries if not re.search(r"<!-- (says|prints)", text)]
    assert silent == ["Running as root"]
