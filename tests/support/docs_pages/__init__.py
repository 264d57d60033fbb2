"""Modules that generate documentation pages from tables in the code and from recorded results."""

from __future__ import annotations


def replace_section(page: str, source: str, text: str) -> str:
    """Return the page with ``text`` between the two marks that name ``source``."""
    begin, end = (f"<!-- from {source}: {mark} -->\n" for mark in ("begin", "end"))
    before, rest = page.split(begin)
    _, after = rest.split(end)
    return before + begin + text + end + after
