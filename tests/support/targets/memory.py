"""Starts the server of a ``memory:`` target for a test."""

from __future__ import annotations

import contextlib
import secrets
import subprocess
import sys
from collections.abc import Iterator

from tests.support import CHECKOUT


@contextlib.contextmanager
def memory_server() -> Iterator[str]:
    """Start a server during the block; yield its name, as in ``memory://NAME``."""
    name = secrets.token_hex(6)
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.targets.memory_server", name],
        cwd=CHECKOUT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin
    assert process.stdout
    try:
        assert process.stdout.readline() == "ready\n"
        yield name
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(30)
