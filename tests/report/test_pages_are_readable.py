"""Pages as a screen reader reads them: language, order of headings, table headers, descriptions of pictures."""

from __future__ import annotations

import itertools
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.support import report_pages

_VOID = {"meta", "br", "hr", "img", "link", "input", "col"}
_HEADINGS = {f"h{n}" for n in range(1, 7)}


class Reader(HTMLParser):
    """Parse a page into ``root``, a tree of [tag, attributes, children]; texts are plain strings."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.root: list = ["", {}, []]
        self._open = [self.root]
        self.feed(page)
        assert self._open == [self.root], f"{self._open[-1][0]} was never closed"

    def handle_starttag(self, tag: str, attrs: list) -> None:
        node = [tag, dict(attrs), []]
        self._open[-1][2].append(node)
        if tag not in _VOID:
            self._open.append(node)

    def handle_startendtag(self, tag: str, attrs: list) -> None:
        self._open[-1][2].append([tag, dict(attrs), []])

    def handle_endtag(self, tag: str) -> None:
        assert self._open[-1][0] == tag, f"</{tag}> does not close <{self._open[-1][0]}>"
        self._open.pop()

    def handle_data(self, data: str) -> None:
        self._open[-1][2].append(data)


def every(node: list, *tags: str) -> list:
    found = []
    for child in node[2]:
        if isinstance(child, list):
            found += [child] if child[0] in tags else []
            found += every(child, *tags)
    return found


def text(node: list) -> str:
    return " ".join(" ".join(c if isinstance(c, str) else text(c) for c in node[2]).split())


@pytest.fixture(scope="module", params=report_pages.PAGES)
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list:
    directory: Path = tmp_path_factory.mktemp("page")
    return Reader(report_pages.PAGES[request.param](directory).read_text(encoding="utf-8")).root


def test_it_has_a_language_a_title_and_one_main_part(page: list) -> None:
    (html,) = every(page, "html")
    assert html[1]["lang"] == "en"
    assert text(every(page, "title")[0])
    assert len(every(page, "main")) == 1


def test_headings_are_there_and_skip_no_level(page: list) -> None:
    levels = [int(node[0][1]) for node in every(page, *_HEADINGS)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    assert all(text(node) for node in every(page, *_HEADINGS))


def test_every_table_has_labelled_heads_with_a_scope(page: list) -> None:
    for table in every(page, "table"):
        heads = every(table, "th")
        assert heads
        for head in heads:
            assert head[1].get("scope") in ("col", "row", "colgroup", "rowgroup"), text(head)
            assert text(head), "a head without a word"
        for row in every(table, "tr"):
            cells = [c for c in row[2] if isinstance(c, list)]
            assert cells[0][0] == "th" or "colspan" in cells[0][1] or len(cells) < len(heads), text(row)


def test_every_row_of_a_table_is_as_wide_as_its_head(page: list) -> None:
    for table in every(page, "table"):
        widths, hanging = [], []
        for row in every(table, "tr"):
            cells = [c for c in row[2] if isinstance(c, list)]
            own = sum(int(c[1].get("colspan", 1)) for c in cells)
            widths.append(own + sum(columns for columns, _ in hanging))
            hanging = [(columns, rows - 1) for columns, rows in hanging if rows > 1]
            hanging += [(int(c[1].get("colspan", 1)), int(c[1]["rowspan"]) - 1) for c in cells
                        if int(c[1].get("rowspan", 1)) > 1]  # fmt: skip
        assert len(set(widths)) == 1, (text(every(table, "tr")[0]), widths)


def test_every_picture_is_described_or_passed_over(page: list) -> None:
    ids = {node[1]["id"]: node for node in every(page, "title", "desc") if "id" in node[1]}
    pictures = every(page, "svg")
    for picture in pictures:
        if picture[1].get("aria-hidden") == "true":
            assert "role" not in picture[1]
            continue
        assert picture[1]["role"] == "img"
        listed = [text(ids[name]) for name in picture[1]["aria-labelledby"].split()]
        assert len(listed) == 2
        assert all(len(words) > 10 for words in listed)


def test_lists_hold_items_and_terms_only(page: list) -> None:
    for node in every(page, "ul"):
        assert {c[0] for c in node[2] if isinstance(c, list)} == {"li"}
    for node in every(page, "dl"):
        for group in (c for c in node[2] if isinstance(c, list)):
            assert [c[0] for c in group[2] if isinstance(c, list)] == ["dt", "dd"], text(node)


def test_no_information_depends_on_colour_only(page: list) -> None:
    """A cell in the colour of a failure also contains a sign or a word that states the failure."""
    for node in every(page, "td"):
        if "bad-text" in (node[1].get("class") or ""):
            found = text(node)
            assert any(sign in found for sign in ("✕", "\N{MINUS SIGN}", "× limit", "too slow")), found
