"""Parses the Markdown pages: headings, links, and fenced blocks with the comment above each.

A fenced block is an example, and a comment on the line above it defines how it is tested:

    <!-- runs -->               commands, run in the page's own directory; they exit with 0
    <!-- runs, exit 4 -->       the same; the last command exits with 4
    <!-- prints -->             the output of the commands above: numbers may differ, … matches any text
    <!-- prints exactly -->     the same, with equal numbers
    <!-- says -->               lines that the code contains, with … for inserted values
    <!-- writes NAME -->        a file in the page's directory for the commands below
    <!-- shows FILE -->         the content of a file next to the page
    <!-- tried by FILE -->      another test reads it from the page and runs it
    <!-- not run: REASON -->    not tested, with the reason

A block without a comment must be data (json, toml, ini, yaml, python), and is parsed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support import CHECKOUT

DOCS = CHECKOUT / "docs"
# The pages with error messages, each with its cause and its remedy.
MESSAGE_PAGES = ("faq.md", "refused_runs.md", "after_a_run.md")
# All Markdown documents; those in docs/ are pages of the site.
PAGES = (*sorted(DOCS.glob("*.md")), *(CHECKOUT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")))

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})\s*(\S*)\s*$")
_COMMENT = re.compile(r"^ {0,3}<!--\s*(.*?)\s*-->$")
_HEADING = re.compile(r"^(#{1,6})\s+(.+?)\s*$")
_LINK = re.compile(r"\]\(\s*([^)\s]+)\s*\)")
_SLUG_DROPS = re.compile(r"[^\w\- ]")


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block. ``comment`` is the comment above the block; ``line`` is the number of the block's first line."""

    page: Path
    line: int
    language: str
    comment: str
    text: str

    @property
    def where(self) -> str:
        """Return the position of the block as ``FILE:LINE``."""
        return f"{self.page.relative_to(CHECKOUT)}:{self.line}"


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page. Fails if a fence is not closed."""
    found, opened, body, comment = [], None, [], ""
    for number, line in enumerate(page.read_text().splitlines(), 1):
        fence = _FENCE.match(line)
        if opened is None and fence:
            opened, body = (fence[1], fence[2], number), []
        elif opened and fence and fence[1] == opened[0] and not fence[2]:
            text = "".join(f"{one}\n" for one in body)
            found.append(Block(page=page, line=opened[2], language=opened[1], comment=comment, text=text))
            opened, comment = None, ""
        elif opened:
            body.append(line)
        else:
            above = _COMMENT.match(line)
            comment = above[1] if above else ""
    assert opened is None, f"{page}:{opened[2]}: the fence is not closed"
    return found


def prose(page: Path) -> Iterator[tuple[int, str]]:
    """Yield (line number, text) of each line that is neither in a fenced block nor indented."""
    fence = ""
    for number, line in enumerate(page.read_text().splitlines(), 1):
        found = _FENCE.match(line)
        if found and fence in ("", found[1]):
            fence = "" if fence else found[1]
        elif not fence and not line.startswith("    "):
            yield number, line


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as Git hosting sites create them."""
    made: set[str] = set()
    for _, line in prose(page):
        if heading := _HEADING.match(line):
            slug = _SLUG_DROPS.sub("", re.sub(r"\]\([^)]*\)", "]", heading[2]).strip().lower()).replace(" ", "-")
            number, name = 0, slug
            while name in made:
                number += 1
                name = f"{slug}-{number}"
            made.add(name)
    return made


def links(page: Path) -> list[tuple[int, str]]:
    """Return (line, target) of each link and picture in a page. A link may extend over two lines."""
    lines = list(prose(page))
    text = "\n".join(re.sub(r"`[^`]*`", "", line) for _, line in lines)
    return [(lines[text.count("\n", 0, found.start())][0], found[1]) for found in _LINK.finditer(text)]
