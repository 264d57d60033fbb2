"""Names for files that several hosts may create concurrently in one directory."""

from __future__ import annotations

import secrets

OWN_NAME = "[0-9a-f]{16}"
"""A regular expression that matches results of `own_name`."""


def own_name() -> str:
    """Return a unique random name. A process id would be unique only on one host or pod."""
    return secrets.token_hex(8)
