"""How a check says that it cannot be made."""

from __future__ import annotations


class NotRun(Exception):  # noqa: N818 - it is no error
    """What a check needs is not there; the words are the reason that the report gives."""
