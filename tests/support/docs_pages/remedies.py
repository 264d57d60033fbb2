"""Generates templates/remedies.json, the section "What helps" of a certificate. Run it with ``python -m``.

The source is the documentation pages about messages. Their entries about verdicts are used. Examples and quoted
messages are omitted. If a paragraph before an example ends with a colon, it is omitted too. Links become text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from markdown_it import MarkdownIt

from pytest_ckpt.report.front import HEADINGS
from tests.support import CHECKOUT
from tests.support.doc_pages import DOCS, MESSAGE_PAGES

if TYPE_CHECKING:
    from markdown_it.token import Token

FILE = CHECKOUT / "templates" / "remedies.json"
_ENTRY = re.compile(r"^### (.*)\n((?:(?!#{2,3} ).*\n)*)", re.MULTILINE)


def from_the_faq() -> str:
    """Return the content of remedies.json as JSON text: {heading: HTML}. Raises KeyError if no page has a heading."""
    entries = dict(_ENTRY.findall("\n".join((DOCS / page).read_text() for page in MESSAGE_PAGES)))
    made = {heading: _html(entries[heading]) for heading in sorted(HEADINGS)}
    return json.dumps(made, indent=1, ensure_ascii=False) + "\n"


def _html(text: str) -> str:
    reader = MarkdownIt("commonmark")
    kept: list[Token] = []
    for token in reader.parse(text):
        if token.type == "fence":
            _drop_introduction(kept)
        elif token.type != "html_block":
            if token.children:
                token.children = [t for t in token.children if t.type not in ("link_open", "link_close")]
            kept.append(token)
    html: str = reader.renderer.render(kept, reader.options, {})
    return html.strip()


def _drop_introduction(kept: list[Token]) -> None:
    """If the last paragraph in ``kept`` ends with a colon, remove it, because it introduces an omitted example."""
    if _ends_with_colon(kept[-2:]):
        del kept[-3:]


def _ends_with_colon(last: Sequence[Token]) -> bool:
    return len(last) == 2 and last[1].type == "paragraph_close" and last[0].content.rstrip().endswith(":")


if __name__ == "__main__":
    FILE.write_text(from_the_faq())
