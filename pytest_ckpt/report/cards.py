"""Makes a table readable on a narrow screen: each cell brings the name of its column along, and the roles of a table.

A style sheet may then show a row as a card. Roles are said outright, because a row that is shown as a grid has none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html import escape, unescape

from markupsafe import Markup

_TAG = re.compile(r"<(/?)(table|thead|tbody|tfoot|tr|th|td)\b([^>]*)>")
_ANY_TAG = re.compile(r"<[^>]*>")
_SPAN = re.compile(r'\b(colspan|rowspan)="(\d+)"')
_ROLES = {"table": "table", "thead": "rowgroup", "tbody": "rowgroup", "tfoot": "rowgroup", "tr": "row", "td": "cell"}


@dataclass(slots=True)
class _Grid:
    """Which columns of a part of the table a cell of an earlier row still covers."""

    column: int = 0
    covered: dict[int, int] = field(default_factory=dict)

    def begin_row(self) -> None:
        self.column = 0
        self._skip()

    def take(self, attributes: str) -> range:
        """Return the columns of the next cell."""
        spans = {name: int(count) for name, count in _SPAN.findall(attributes)}
        columns = range(self.column, self.column + spans.get("colspan", 1))
        for column in columns:
            self.covered[column] = spans.get("rowspan", 1)
        self.column = columns.stop
        self._skip()
        return columns

    def end_row(self) -> None:
        self.covered = {column: rows - 1 for column, rows in self.covered.items() if rows > 1}

    def _skip(self) -> None:
        while self.column in self.covered:
            self.column += 1


def as_cards(table: str) -> Markup:
    """Return the HTML of a table, with the class ``cards``, roles, and ``data-name`` on the cells of its columns."""
    # A piece of a Markup is one, too, and would escape what it is joined with.
    table = str.__str__(table)
    names: dict[int, list[str]] = {}
    made: list[str] = []
    grid, in_head, end = _Grid(), False, 0
    for tag in _TAG.finditer(table):
        made.append(table[end : tag.start()])
        end = tag.end()
        closes, name, attributes = tag.groups()
        if name in ("thead", "tbody", "tfoot"):
            in_head, grid = name == "thead" and not closes, _Grid()
        elif name == "tr" and not closes:
            grid.begin_row()
        elif name == "tr":
            grid.end_row()
        if closes:
            made.append(tag.group())
            continue
        more = ""
        if name in ("th", "td"):
            columns = grid.take(attributes)
            if in_head:
                text = " ".join(unescape(_ANY_TAG.sub("", table[end : table.index(f"</{name}>", end)])).split())
                for column in columns:
                    names.setdefault(column, []).append(text)
            elif name == "td" and len(columns) == 1 and (words := names.get(columns.start)):
                more = f' data-name="{escape(" ".join(filter(None, words)))}"'
        role = ("columnheader" if in_head else "rowheader") if name == "th" else _ROLES[name]
        if name == "table":
            attributes = _with_class(attributes)
        made.append(f'<{name}{attributes}{more} role="{role}">')
    return Markup("".join(made) + table[end:])


def _with_class(attributes: str) -> str:
    if 'class="' in attributes:
        return attributes.replace('class="', 'class="cards ', 1)
    return f'{attributes} class="cards"'
