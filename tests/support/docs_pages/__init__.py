"""Generators of documentation pages from tables."""

from __future__ import annotations


def made_anew(page: str, source: str, text: str) -> str:
    """Return a page in which ``text`` replaces the part between the two marks that name ``source``."""
    begin, end = (f"<!-- from {source}: {mark} -->\n" for mark in ("begin", "end"))
    before, rest = page.split(begin)
    _, after = rest.split(end)
    return before + begin + text + end + after
