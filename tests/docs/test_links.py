"""Every link on a page of the repository leads to an existing file and heading."""

from __future__ import annotations

import pytest

from tests.support.doc_pages import CHECKOUT, PAGES, anchors, links


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_relative_link_leads_to_a_file_and_an_anchor_that_are_there(page):
    broken = []
    for line, target in links(page):
        if target.startswith(("https://", "http://", "mailto:")):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.is_relative_to(CHECKOUT) or not file.is_file():
            broken.append(f"{page.name}:{line}: there is no {target}")
        elif anchor and anchor not in anchors(file):
            broken.append(f"{page.name}:{line}: {file.name} has no heading '#{anchor}'")
    assert not broken, "\n".join(broken)


def test_a_link_to_nowhere_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# A `b` c?\n\nSee [one](#a-b-c), [two](#d)\nand [three\nlines](gone.md). `[code](no.md)`\n")
    assert anchors(page) == {"a-b-c"}
    assert links(page) == [(3, "#a-b-c"), (3, "#d"), (5, "gone.md")]


def test_the_pages_are_there():
    assert {"index.md", "README.md", "conformance.md"} <= {page.name for page in PAGES}
