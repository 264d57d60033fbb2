"""Searches the command lines of all processes for launch secrets, during a run.

A launch secret authenticates the ranks of a launch. It must be visible only in environment variables.
"""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from types import TracebackType

from pytest_ckpt.wire.frames import SECRET

_POLL_SECONDS = 0.05


class SecretWatch:
    """Searches environments and command lines of all processes for launch secrets until the block ends.

    ``count`` is the number of secrets in environments. ``shown`` contains the command lines that contained a secret.
    """

    def __init__(self) -> None:
        self._secrets: set[bytes] = set()
        self._words: set[bytes] = set()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._search, name="secrets", daemon=True)

    def __enter__(self) -> SecretWatch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join()

    @property
    def count(self) -> int:
        return len(self._secrets)

    @property
    def shown(self) -> list[str]:
        return [words.decode(errors="replace") for words in self._words if any(s in words for s in self._secrets)]

    def _search(self) -> None:
        while not self._is_over.wait(_POLL_SECONDS):
            for entry in Path("/proc").iterdir():
                with contextlib.suppress(OSError):
                    if entry.name.isdigit():
                        self._words.add((entry / "cmdline").read_bytes())
                        pairs = (entry / "environ").read_bytes().split(b"\0")
                        prefix = f"{SECRET}=".encode()
                        self._secrets |= {pair.removeprefix(prefix) for pair in pairs if pair.startswith(prefix)}
