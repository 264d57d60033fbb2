"""A function that never returns, like a call on storage that does not answer."""

from __future__ import annotations

import signal


def hang(_asked: object) -> None:
    """Wait until this process is killed."""
    signal.pause()
