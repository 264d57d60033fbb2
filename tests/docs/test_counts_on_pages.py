"""Counts on pages (of checks, requirements, engines, …) equal the numbers of rows in the code's tables."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest

from pytest_ckpt.facts import engines
from pytest_ckpt.facts.checks import CHECKS, checks_for
from pytest_ckpt.facts.proofs import COLD_BASES
from pytest_ckpt.facts.strategies import STRATEGIES
from pytest_ckpt.grading.catalogue import REQUIREMENTS
from pytest_ckpt.sizing.architectures import MODELS
from tests.support.doc_pages import PAGES

ONES = (
    *("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen"),
    *("fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
WORDS = (
    {word: number for number, word in enumerate(ONES, 1)}
    | {ten: 10 * number for number, ten in enumerate(TENS, 2)}
    | {f"{t}-{o}": 10 * ten + one for ten, t in enumerate(TENS, 2) for one, o in enumerate(ONES[:9], 1)}
)
NOUNS = (
    *("checks", "requirements", "engines", "strategies", "gate tables", "tables of gates", "models", "options"),
    *("commands", "hooks", "suites", "grades", "verdicts", "faults", "stores", "file systems", "rules", "proofs"),
)
# "One" is usually an article, and "zstd 1 stores" is not a count.
_NUMBER = rf"(?<![\w.,/×-])(?:(?!1 )\d[\d,]*|{'|'.join(sorted(set(WORDS) - {'one'}, key=len, reverse=True))})"
_COUNTED = re.compile(rf"({_NUMBER})((?: [a-z-]+)?? (?:{'|'.join(NOUNS)}))\b", re.IGNORECASE)
_MADE = re.compile(r"<!-- from [^>]*: begin -->.*?<!-- from [^>]*: end -->", re.DOTALL)
_COMMAND = re.compile(r"^ *```.*?^ *```", re.DOTALL | re.MULTILINE)
_BROKEN_LINE = re.compile(r"(?<!\n)\n(?![\n|#-])")


@dataclass(frozen=True)
class Counted:
    """A count on a page: its value, and the words after it."""

    page: str
    number: int
    words: str


def counted_in(page: str, text: str) -> list[Counted]:
    """Return every count in a page's prose, such as "21 checks". Generated sections and commands are ignored."""
    prose = _BROKEN_LINE.sub(" ", _COMMAND.sub("", _MADE.sub("", text)))
    return [Counted(page, _value(match[1]), match[2].strip().lower()) for match in _COUNTED.finditer(prose)]


def _value(text: str) -> int:
    return WORDS[text.lower()] if text.lower() in WORDS else int(text.replace(",", ""))


_OF_OBJECTS = {check.requirement for check in checks_for("objects")}
# The numbers in the code, by page and by the counted words.
BY_TABLES = {
    ("README.md", "engines"): {len(engines.BUILT_IN)},
    ("README.md", "strategies"): {len(STRATEGIES)},
    ("refused_runs.md", "other proofs"): {len(set(COLD_BASES) - {"declared", "seen"})},
    ("azure_and_google.md", "requirements"): {len(_OF_OBJECTS)},
    ("object_stores.md", "requirements"): {len(_OF_OBJECTS)},
    ("performance.md", "models"): {len(MODELS)},
    ("published_results.md", "models"): {len(MODELS)},
    ("workload.md", "models"): {len(MODELS)},
}
# Counts of things without a table: commands, and checks that run concurrently or ran in a past measurement.
OF_NO_TABLE = [
    Counted("CONTRIBUTING.md", 2, "commands"),
    Counted("conformance.md", 4, "checks"),
    *(Counted("conformance.md", count, "checks") for count in (500, 820)),
    Counted("patterns.md", 2, "commands"),
    Counted("results.md", 2, "commands"),
]
FOUND = [counted for page in PAGES for counted in counted_in(page.name, page.read_text())]


def test_every_count_on_a_page_is_that_of_a_table():
    wrong = [
        counted
        for counted in FOUND
        if counted not in OF_NO_TABLE and counted.number not in BY_TABLES.get((counted.page, counted.words), set())
    ]
    assert wrong == []


def test_every_table_that_is_counted_is_counted_on_its_page():
    missing = [
        Counted(page, number, words)
        for (page, words), numbers in BY_TABLES.items()
        for number in numbers
        if Counted(page, number, words) not in FOUND
    ]
    assert missing == []
    assert [c for c in OF_NO_TABLE if c not in FOUND] == []


def test_tables_that_are_counted_together_have_all():
    assert len(checks_for("posix")) + len(checks_for("objects")) == len(CHECKS)
    assert {check.requirement for check in CHECKS} == {
        name for name, requirement in REQUIREMENTS.items() if requirement.suite == "conformance"
    }


@pytest.mark.parametrize(("text", "found"), [
    ("has 57 verdicts", [(57, "verdicts")]),
    ("**Six engines.**", [(6, "engines")]),
    ("forty-six stores", [(46, "stores")]),
    ("all 1,045\nchecks", [(1045, "checks")]),
    ("twelve of the thirteen requirements", [(13, "requirements")]),
    ("three other proofs", [(3, "other proofs")]),
    ("six tables of gates", [(6, "tables of gates")]),
    ("llama3-8b models, 0.5 options, one check, zstd 1 stores, 4.2 rules, page 3-4 checks", []),
    ("```\n3 checks\n```\n<!-- from the tables: begin -->\n9 checks\n<!-- from the tables: end -->\n", []),
])  # fmt: skip
def test_counts_are_found(text, found):
    assert [(c.number, c.words) for c in counted_in("page.md", text)] == found
