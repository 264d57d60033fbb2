"""The exception with which a check reports that it cannot run."""

from __future__ import annotations


class NotRun(Exception):  # noqa: N818 - it is no error
    """What a check needs is not there; the words are the reason that the report gives."""
