"""Names of files that several hosts may make in one directory at the same time."""

from __future__ import annotations

import secrets

OWN_NAME = "[0-9a-f]{16}"
"""What `own_name` returns, as a regular expression."""


def own_name() -> str:
    """Return a unique name: a process number is not unique across hosts or pods."""
    return secrets.token_hex(8)
