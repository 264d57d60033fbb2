"""Tables for narrow screens: every cell knows the column that it is in, whatever spans it."""

from __future__ import annotations

import re

from pytest_ckpt.report.cards import as_cards

TABLE = """<table class="plain">
<thead><tr><th rowspan="2">No.</th>
<th colspan="2">save &amp; more</th></tr><tr><th>slowest</th><th>rate</th></tr></thead>
<tbody><tr><th rowspan="2">1</th><td>2 s</td><td>3 GB/s</td></tr><tr><td>4 s</td><td colspan="1">5 GB/s</td></tr>
<tr><td colspan="3">not run</td></tr></tbody></table>"""


def test_a_cell_brings_the_name_of_its_column_along() -> None:
    found = re.findall(r"<td([^>]*)>([^<]*)", as_cards(TABLE))
    names = {text: re.findall(r'data-name="([^"]*)"', attributes) for attributes, text in found}
    assert names == {
        "2 s": ["save &amp; more slowest"],
        "3 GB/s": ["save &amp; more rate"],
        "4 s": ["save &amp; more slowest"],
        "5 GB/s": ["save &amp; more rate"],
        "not run": [],
    }


def test_it_stays_a_table_where_a_style_sheet_shows_grids() -> None:
    made = as_cards(TABLE)
    assert made.startswith('<table class="cards plain" role="table">')
    for tag, role in (("tr", "row"), ("td", "cell"), ("thead", "rowgroup"), ("tbody", "rowgroup")):
        assert len(re.findall(rf"<{tag}\b", made)) == len(re.findall(rf'<{tag}\b[^>]* role="{role}"', made))
    assert made.count('role="columnheader"') == 4
    assert made.count('role="rowheader"') == 1


def test_what_was_escaped_stays_escaped() -> None:
    made = as_cards(
        "<table><thead><tr><th>&lt;b&gt;</th></tr></thead><tbody><tr><td>&lt;i&gt;</td></tr></tbody></table>"
    )
    assert "<b>" not in made
    assert "<i>" not in made
